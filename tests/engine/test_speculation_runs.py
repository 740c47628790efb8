"""Laws of speculation over whole runs, of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.engine.lanes.limits import SlotLimit
from simulator.engine.lanes.load_curve import lane_curve, saturation
from simulator.engine.runs.answers import answer
from simulator.engine.runs.serving import ServedDeployment
from simulator.engine.uniform.loop_requests import LoopDemand, LoopLengths
from simulator.engine.uniform.loops import closed_loop, offline, static_batch
from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.speculation_gain import speedup_by_batch, token_s
from simulator.engine.uniform.steps import verify_rounds
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy, without_speculation
from simulator.reports.words.fields import note_texts
from simulator.specs.base import validate
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.workload_requests import requests_of_mix
from tests.for_every import for_every

METHODS = ("draft", "eagle", "medusa", "ngram", "lookahead", "rest", "blockwise")
LENGTHS = LoopLengths(isl_tokens=300, osl_tokens=101)


def replica(**fields: Any) -> Deployment:
    return deploy(
        model=load_model("llama-2-7b"),
        hardware=load_hardware("a100"),
        engine=EngineSpec(max_num_batched_tokens=2048, max_num_seqs=32, max_model_len=2048),
        techniques=TechniquesSpec(speculation=SpeculationSpec(**fields) if fields else None),
    )


def batch(deployment: Deployment, *, batch_size: int = 1, osl_tokens: int = 101) -> UniformRun:
    return static_batch(deployment, batch_size=batch_size, isl_tokens=300, osl_tokens=osl_tokens, limit_tokens=None)


@for_every(METHODS)
def test_nothing_accepted_is_never_faster_than_none(method: str) -> None:
    for batch_size in (1, 16):
        none = batch(replica(), batch_size=batch_size)
        assert batch(replica(method=method, acceptance=0.0), batch_size=batch_size).e2e_s >= none.e2e_s


@for_every(METHODS)
def test_more_acceptance_is_never_slower(method: str) -> None:
    times = [batch(replica(method=method, k=4, acceptance=rate)).tpot_s for rate in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
    assert times == sorted(times, reverse=True)


@for_every([(clients, accepted) for clients in (1, 7) for accepted in (0.0, 1.0)])
def test_rounds_of_a_loop_of_uneven_answers_yield_one_token_or_a_whole_block(case: tuple[int, float]) -> None:
    clients, accepted = case
    guesses = {"method": "ngram", "k": 1, "acceptance": accepted}
    fields = {"model": "llama-2-7b", "hardware": "a100", "isl_tokens": 300, "osl_tokens": 257, "range_ratio": 0.6}
    fields |= {"id": "x", "kind": "closed_loop", "concurrency": clients, "techniques": {"speculation": guesses}}
    found = answer(validate(ScenarioSpec, fields, where="")).speculation
    assert found is not None
    # The last block of an answer may hold more than is asked for.
    assert found.tokens_per_step == pytest.approx(1 + accepted, rel=0.01)


def test_everything_accepted_yields_a_whole_block_per_round() -> None:
    run = batch(replica(method="ngram", k=4, acceptance=1.0))
    assert run.decode is not None
    assert run.decode.steps == pytest.approx(100 / 5)


def test_growing_batches_erode_the_gain() -> None:
    gain = speedup_by_batch(
        replica(method="ngram", k=6, acceptance=0.5), batches=(1, 4, 16, 64, 256, 1024), context_tokens=500
    )
    assert gain.speedup[0] > 1.5
    assert gain.speedup[-1] < gain.speedup[0]
    assert gain.speedup[-1] < 1
    assert gain.break_even_batch is not None
    assert gain.best_k[-1] < gain.best_k[0]
    assert (gain.best_speedup >= np.maximum(gain.speedup, 1.0)).all()


def test_the_break_even_batch_is_where_it_stops_to_pay() -> None:
    deployment = replica(method="draft", draft_model="vicuna-68m", k=4, acceptance=0.5)
    found = speedup_by_batch(deployment, batches=(1, 512), context_tokens=500).break_even_batch
    assert found is not None
    plain = without_speculation(deployment)
    around = np.array([found - 1, found])
    gain = token_s(plain, sequences=around, context=500) / token_s(deployment, sequences=around, context=500)
    assert gain[0] > 1 >= gain[1]
    always = replica(method="ngram", k=2, acceptance=1.0)
    assert speedup_by_batch(always, batches=(1, 2, 4), context_tokens=500).break_even_batch is None


def test_gain_needs_speculation_and_sensible_batches() -> None:
    with pytest.raises(RoofcastError, match="does not speculate"):
        speedup_by_batch(replica(), batches=(1,), context_tokens=100)
    with pytest.raises(RoofcastError, match="allowed: 1 to"):
        speedup_by_batch(replica(method="ngram"), batches=(0,), context_tokens=100)


@pytest.mark.parametrize("batch_size", [1, 8, 64])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.7])
def test_adaptive_speculation_is_never_worse_than_none(batch_size: int, rate: float) -> None:
    none = batch(replica(), batch_size=batch_size)
    fixed = batch(replica(method="draft", draft_model="vicuna-68m", k=4, acceptance=rate), batch_size=batch_size)
    adaptive = batch(
        replica(method="draft", draft_model="vicuna-68m", k=4, acceptance=rate, adaptive=True), batch_size=batch_size
    )
    assert adaptive.e2e_s <= none.e2e_s
    assert adaptive.e2e_s <= fixed.e2e_s * 1.001
    assert any("adaptive speculation" in note for note in note_texts(adaptive.notes))


def test_a_static_batch_waits_for_its_slowest() -> None:
    fields = {"method": "ngram", "k": 4, "acceptance": 0.6}
    steps = [batch(replica(**fields), batch_size=size).decode for size in (1, 8, 32)]
    counts = [phase.steps for phase in steps if phase is not None]
    assert counts[0] < counts[1] < counts[2] <= 100


def test_uniform_runs_draw_rounds_that_end_the_answer_exactly() -> None:
    deployment = replica(method="ngram", k=4, acceptance=0.6)
    demand = LoopDemand(isl_tokens=np.full(400, 300), osl_tokens=np.full(400, 101), at_once=8)
    rounds = verify_rounds(deployment, demand=demand)
    assert rounds is not None
    assert rounds.min() >= 20
    assert rounds.max() <= 100
    alone = batch(deployment).decode
    assert alone is not None
    assert rounds.mean() == pytest.approx(alone.steps, rel=0.01)


def test_one_client_sees_what_a_batch_of_one_sees() -> None:
    deployment = replica(method="ngram", k=4, acceptance=0.6)
    loop = closed_loop(deployment, concurrency=1, lengths=LENGTHS, num_requests=200)
    assert loop.tpot_s == pytest.approx(batch(deployment).tpot_s, rel=0.03)
    everything = replica(method="ngram", k=4, acceptance=0.0)
    slow = closed_loop(everything, concurrency=4, lengths=LENGTHS)
    assert slow.tpot_s >= closed_loop(replica(), concurrency=4, lengths=LENGTHS).tpot_s


def test_definitions_hold_and_a_step_s_tokens_bound_the_batch() -> None:
    run = offline(replica(method="medusa", tree=63, accepted_tokens=2.5), lengths=LENGTHS, num_requests=96)
    assert run.tpot_s == pytest.approx((run.e2e_s - run.ttft_s) / 100)
    assert run.sequences == 2047 // 64
    assert any("2.50 tokens per verify step of 64 tokens" in note for note in note_texts(run.notes))


def test_adaptive_holds_for_simulated_runs_too() -> None:
    none = closed_loop(replica(), concurrency=32, lengths=LENGTHS)
    slow = replica(method="draft", draft_model="tinyllama-1.1b", acceptance=0.2, adaptive=True)
    adaptive = closed_loop(slow, concurrency=32, lengths=LENGTHS)
    assert adaptive.requests_per_s >= none.requests_per_s


def test_steady_state_decodes_at_the_pace_of_rounds() -> None:
    mix = RequestMix(isl=LengthDistribution(mean_tokens=300.0), osl=LengthDistribution(mean_tokens=101.0))
    deployment = replica(method="ngram", k=4, acceptance=0.6)
    fast, slow = lane_curve(deployment, mix=mix), lane_curve(replica(), mix=mix)
    expected = token_s(deployment, sequences=[1.0, 8.0], context=mix.decode_context_tokens)
    # The lane's time lies between those of the two nearest captured graphs; the batch is padded to the larger one.
    assert fast.decode_s[[1, 8]] == pytest.approx(expected, rel=0.08)
    assert (fast.decode_s[1:9] < slow.decode_s[1:9]).all()


def test_adaptive_steady_state_is_never_slower() -> None:
    mix = RequestMix(isl=LengthDistribution(mean_tokens=300.0), osl=LengthDistribution(mean_tokens=101.0))
    fields = {"method": "draft", "draft_model": "tinyllama-1.1b", "k": 4, "acceptance": 0.1}
    slow, none = lane_curve(replica(**fields), mix=mix), lane_curve(replica(), mix=mix)
    adaptive = lane_curve(replica(**fields, adaptive=True), mix=mix)
    slots = min(adaptive.slots, none.slots)
    assert (adaptive.decode_s[: slots + 1] <= none.decode_s[: slots + 1]).all()
    assert slow.decode_s[1] > none.decode_s[1]


def scenario(**changes: Any) -> ScenarioSpec:
    base = {
        "id": 1,
        "kind": "batch",
        "model": "llama-2-7b",
        "hardware": "a100",
        "batch_size": 1,
        "isl_tokens": 300,
        "osl_tokens": 101,
        "techniques": {"speculation": {"method": "eagle", "accepted_tokens": 3.0}},
    }
    return validate(ScenarioSpec, base | changes, where="test")


def test_the_contract_takes_speculation_and_says_what_it_does() -> None:
    result = answer(scenario(engine={"name": "torch-eager"}))
    assert result.run.decode is not None
    assert result.run.decode.steps == pytest.approx(100 / 3, rel=0.05)
    assert any("3.00 tokens per verify step of 26 tokens" in note for note in note_texts(result.notes))
    assert any(item.key == "speculation.tree" for item in result.assumptions)


def test_nothing_to_guess_is_refused() -> None:
    with pytest.raises(RoofcastError, match="nothing to guess"):
        answer(scenario(osl_tokens=1))


def test_served_workloads_gain_too() -> None:
    workload = {"stages": [{"rate_per_s": 2, "duration_s": 30}], "isl_tokens": 300, "osl_tokens": 101}
    changes: dict[str, Any] = {"kind": "serve", "workload": workload, "batch_size": None}
    served = {"isl_tokens": None, "osl_tokens": None, "engine": {"max_num_seqs": 64, "max_model_len": 2048}}
    fast = answer(scenario(**changes, **served))
    slow = answer(scenario(**changes, **served, techniques={}))
    assert fast.run.tpot_s < slow.run.tpot_s
    adaptive = scenario(**changes, **served, techniques={"speculation": {"method": "ngram", "adaptive": True}})
    with pytest.raises(RoofcastError, match="same number of guesses"):
        answer(adaptive)


@pytest.mark.parametrize("acceptance", [0.0, 0.8])
def test_guesses_take_their_part_of_the_token_budget_in_the_steady_state_too(acceptance: float) -> None:
    mix = RequestMix(
        isl=LengthDistribution(mean_tokens=600.0, cv=0.5), osl=LengthDistribution(mean_tokens=60.0, cv=0.5)
    )
    guesses = SpeculationSpec(method="eagle", k=4, acceptance=acceptance)
    deployment = deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec(max_num_seqs=64, max_num_batched_tokens=512),
        techniques=TechniquesSpec(speculation=guesses),
    )
    found = saturation(lane_curve(deployment, mix=mix))
    assert found.limit == SlotLimit.TOKEN_BUDGET
    requests = requests_of_mix(mix, rate_per_s=1.15 * found.rate_per_s, count=4000, seed=0)
    carried = ServedDeployment(deployment=deployment).run(requests).overall
    assert carried.saturated
    assert carried.requests_per_s == pytest.approx(found.rate_per_s, rel=0.05)
