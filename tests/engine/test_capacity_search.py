"""Capacity by simulation: its answer holds, a little more does not, and it moves as it must."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.engine.runs.capacity import (
    SIDE_BY_SIDE,
    CapacityResult,
    capacity_by_simulation,
    capacity_interval,
    sustained_rate,
)
from simulator.engine.runs.capacity_search import (
    COMPANY_TIMES,
    LONGER,
    RESOLUTION,
    SimulatedCapacity,
    student_80,
    workload_source,
)
from simulator.engine.runs.serving import ServedDeployment
from simulator.errors import InfeasibleError, RoofcastError
from simulator.phases.deployment import deploy
from simulator.reports.tables.capacity import capacity_text
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan_values import parse_objectives
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.requests import Requests
from simulator.traffic.workload_requests import at_rate, requests_of_mix

DEPLOYMENT = deploy(
    model=load_model("llama-3.1-8b"),
    hardware=load_hardware("h100"),
    engine=EngineSpec(max_num_seqs=64, max_num_batched_tokens=2048),
)
MIX = RequestMix(isl=LengthDistribution(mean_tokens=300.0, cv=0.5), osl=LengthDistribution(mean_tokens=60.0, cv=0.5))


def source(count: int, seed: int) -> Requests:
    return requests_of_mix(MIX, rate_per_s=1.0, count=count, seed=seed)


def search(*slo: str, replicas: int = 1, step_scale: float = 1.0) -> SimulatedCapacity:
    return capacity_by_simulation(
        ServedDeployment(deployment=DEPLOYMENT, replicas=replicas, step_scale=step_scale),
        source=source,
        objectives=parse_objectives(slo, flag="--slo"),
        seeds=2,
        requests=1500,
    )


def test_the_answer_holds_and_the_next_rate_does_not() -> None:
    found = search("tpot-p95=12ms", "ttft-p95=1s")
    assert found.at_capacity.holds
    failing = next(point for point in found.points if point.rate_per_s == found.failing_per_s)
    assert not failing.holds
    assert found.rate_per_s < found.failing_per_s <= found.rate_per_s * (1 + RESOLUTION) * 1.0001
    assert found.binding is not None
    assert found.binding.metric == "tpot"
    assert found.low_per_s < found.rate_per_s < found.high_per_s
    rates = [point.rate_per_s for point in found.points]
    assert rates == sorted(rates)
    assert found == search("tpot-p95=12ms", "ttft-p95=1s"), "deterministic"


def test_looser_bounds_and_faster_steps_never_lower_it() -> None:
    tight, loose = search("tpot-p95=9ms"), search("tpot-p95=14ms")
    assert tight.rate_per_s < loose.rate_per_s
    assert search("tpot-p95=9ms", step_scale=0.9).rate_per_s > tight.rate_per_s


def test_two_replicas_carry_twice_as_much_and_a_little() -> None:
    """Round-robin gives each replica every other arrival, which is smoother than Poisson."""
    one, two = search("tpot-p95=12ms"), search("tpot-p95=12ms", replicas=2)
    assert 2 * one.rate_per_s < two.rate_per_s < 2.5 * one.rate_per_s


def test_without_a_binding_objective_the_queue_is_the_limit() -> None:
    found = search("e2e-p50=1000s")
    assert found.binding is None
    assert found.rate_per_s == pytest.approx(found.saturation_per_s, rel=0.25)


def test_what_even_idling_misses_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="TTFT p95 of an idle deployment"):
        search("ttft-p95=1ms")


def test_interval_holds_the_answer_and_knows_its_steps() -> None:
    found = search("tpot-p95=12ms")
    interval = capacity_interval(ServedDeployment(deployment=DEPLOYMENT), source=source, capacity=found)
    assert interval.low_per_s < found.low_per_s < found.high_per_s < interval.high_per_s
    assert interval.provenance.label in ("calibrated", "extrapolated")


@pytest.mark.parametrize("slo", ["tpot-p95=12ms", "ttft-p95=1s", "e2e-p50=1000s"])
@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_longer_steps_are_the_same_steps_on_a_slower_clock(slo: str, scale: float) -> None:
    """Two searches each to 1 %; the engine's time around a request is on that clock too (6 ms of 1 s)."""
    found = search(slo)
    assert found.at_scale(scale) == pytest.approx(search(slo, step_scale=scale).rate_per_s, rel=2.5 * RESOLUTION)
    assert found.at_scale(1.0) == found.rate_per_s


def test_stages_keep_their_proportions() -> None:
    stages = (StageSpec(rate_per_s=1.0, duration_s=10.0), StageSpec(rate_per_s=3.0, duration_s=10.0))
    workload = WorkloadSpec(arrival="constant", stages=stages, isl_tokens=30, osl_tokens=5)
    drawn = workload_source(workload, block_size_tokens=16)(400, 0)
    assert len(drawn) == 400
    assert (drawn.stage == 1).sum() == 300
    with pytest.raises(RoofcastError, match="needs the file"):
        workload_source(WorkloadSpec(arrival="trace"), block_size_tokens=16)


def test_student_quantiles_by_table() -> None:
    # Two-sided 80 %: 3.078 with one degree of freedom, 1.372 with ten, the normal 1.282 far out.
    assert (student_80(1), student_80(10), student_80(500)) == (3.078, 1.372, 1.282)


SPECULATING = deploy(
    model=load_model("llama-3.1-70b"),
    hardware=load_hardware("h100"),
    parallelism=ParallelismSpec(tp_size=4),
    engine=EngineSpec(max_num_seqs=32, max_num_batched_tokens=2048),
    techniques=TechniquesSpec(
        speculation=SpeculationSpec(method="draft", draft_model="llama-3.2-1b", k=4, acceptance=0.6)
    ),
)


def test_slower_steps_slow_drafts_as_well() -> None:
    """At a rate at which nobody meets anybody, a round takes twice as long, its drafts included."""
    requests = at_rate(source(40, 0), rate_per_s=0.05)
    once, twice = (
        ServedDeployment(deployment=SPECULATING, step_scale=scale).run(requests).overall.tpot.mean_s
        for scale in (1.0, 2.0)
    )
    assert twice == pytest.approx(2 * once, rel=0.01)


def test_interval_of_a_speculating_deployment_knows_its_rounds() -> None:
    objectives = parse_objectives(["e2e-p50=60s"], flag="--slo")
    found = capacity_by_simulation(
        ServedDeployment(deployment=SPECULATING), source=source, objectives=objectives, seeds=2, requests=400
    )
    interval = capacity_interval(ServedDeployment(deployment=SPECULATING), source=source, capacity=found)
    assert 0 < interval.low_per_s < found.rate_per_s < interval.high_per_s


def test_the_requests_of_all_seeds_are_counted_before_they_are_drawn() -> None:
    with pytest.raises(RoofcastError, match="50 runs of 5,000,000 requests; at most 10,000,000"):
        _sustained(requests=5_000_000, seeds=50)


def test_runs_grow_with_the_batch_that_they_find() -> None:
    """Four replicas hold more requests than the first guess of a run's length allows for."""
    objectives = parse_objectives(["tpot-p95=16ms"], flag="--slo")
    found = capacity_by_simulation(
        ServedDeployment(deployment=DEPLOYMENT, replicas=4), source=source, objectives=objectives, seeds=2
    )
    held = found.at_capacity.mean_batch * 4
    assert found.requests >= COMPANY_TIMES * held / LONGER * 0.9


@pytest.mark.parametrize(("slo", "replicas"), [("ttft-p95=5s", 1), ("e2e-p50=1000s", 1), ("ttft-p95=500ms", 4)])
def test_a_rate_beyond_what_is_served_does_not_hold(slo: str, replicas: int) -> None:
    """2,000 requests end before a queue that grows by a tenth passes 5 s: 13 % more than it serves was called held."""
    served = ServedDeployment(deployment=DEPLOYMENT, replicas=replicas)
    found = capacity_by_simulation(served, source=source, objectives=parse_objectives([slo], flag="--slo"), seeds=2)
    beyond = served.run(at_rate(source(40_000, 0), rate_per_s=1.5 * found.rate_per_s))
    served_per_s = 40_000 / float(beyond.run.records.finish_s.max())
    assert 0.9 * served_per_s < found.rate_per_s < 1.02 * served_per_s


def test_a_busier_stage_is_no_growing_queue() -> None:
    """More are in service in it; taken for a queue, that left a load of rates 1 and 3 at 8 % less."""
    fields: dict[str, Any] = {"engine": "vllm", "slo": ["tpot-p95=30ms"]}
    lengths = {"isl_tokens": 300, "osl_tokens": 400}
    stages = [{"rate_per_s": rate, "duration_s": 60} for rate in (1, 3)]
    even, staged = (_sustained(**fields, workload={**lengths, **more}) for more in ({}, {"stages": stages}))
    assert 3 / 2 * staged.rate_per_s == pytest.approx(even.rate_per_s, rel=0.04)


def _sustained(*, requests: int | None = None, seeds: int = 1, **fields: Any) -> CapacityResult:
    asked = {
        **{"id": "fleet", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", "slo": ["ttft-p95=1s"]},
        "engine": {"name": "vllm", "max_num_seqs": 8, "max_num_batched_tokens": 512},
        "workload": {"isl_tokens": 300, "osl_tokens": 30},
    }
    return sustained_rate(ScenarioSpec.model_validate({**asked, **fields}), seeds=seeds, requests=requests)


@pytest.mark.slow
def test_many_replicas_serve_in_proportion_and_take_no_longer() -> None:
    """1,024 replicas were given as many requests as 16, found their queues growing, and carried a sixth."""
    few, many = (_sustained(replicas=replicas) for replicas in (SIDE_BY_SIDE, 64 * SIDE_BY_SIDE))
    assert many.rate_per_s == pytest.approx(64 * few.rate_per_s)
    assert many.interval["rate_per_s"] == pytest.approx([64 * end for end in few.interval["rate_per_s"] or ()])
    assert [point.ttft for point in many.points] == [point.ttft for point in few.points]
    assert many.served.prefill.replicas == 64 * SIDE_BY_SIDE
    assert any(item.key == "replicas" for item in many.assumptions)
    assert 1.0 <= few.rate_per_s / (SIDE_BY_SIDE * _sustained().rate_per_s) <= 1.2


def test_pools_are_simulated_in_their_ratio() -> None:
    pools = {"prefill_replicas": 4, "decode_replicas": 12}
    few, *many = (
        _sustained(
            disaggregation={name: count * groups for name, count in pools.items()}, workload=_SHORT, requests=_FEW
        )
        for groups in (1, 25, 10**12)
    )
    for times, found in zip((25, 10**12), many, strict=True):
        assert found.rate_per_s == pytest.approx(times * few.rate_per_s)
        assert (found.served.prefill.replicas, found.served.decode.replicas) == (4 * times, 12 * times)


@pytest.mark.parametrize(("requests", "too_few"), [(200, True), (1500, False)])
def test_requests_too_few_to_fill_the_batches_are_said_to_be(requests: int, too_few: bool) -> None:
    """300 of them made pools look saturated at two fifths of what they carry."""
    many = {"name": "vllm", "max_num_seqs": 128, "max_num_batched_tokens": 2048}
    found = _sustained(
        engine=many, workload={"isl_tokens": 300, "osl_tokens": 300}, slo=["e2e-p95=60s"], requests=requests
    )
    batch = next(point.mean_batch for point in found.points if point.rate_per_s == found.rate_per_s)
    # Runs that are short never reach what they fill, on average over their time.
    assert 3.6 * batch < found.fewest_requests < 8 * batch
    assert (found.requests_per_seed < found.fewest_requests) == too_few
    assert ("too short to tell" in capacity_text(found, listed=False)) == too_few


@pytest.mark.slow
def test_replicas_with_large_batches_are_simulated_by_few() -> None:
    """20,000 requests do not fill 16 batches of 400: the rate that was found was 3 % less, and its batch half."""
    fields: dict[str, Any] = {
        "engine": "vllm",
        "slo": ["tpot-p95=50ms"],
        "workload": {"isl_tokens": 300, "osl_tokens": 400},
    }
    found, longer = (_sustained(**fields, requests=requests, replicas=16) for requests in (None, 60_000))
    assert found.rate_per_s == pytest.approx(longer.rate_per_s, rel=0.02)
    batches = [max(point.mean_batch for point in one.points if point.holds) for one in (found, longer)]
    assert batches[0] == pytest.approx(batches[1], rel=0.1)
    assert any(item.key == "replicas" for item in found.assumptions)


def test_replicas_that_depend_on_each_other_are_as_few_as_requests_fill() -> None:
    """64 with a common cache carried 19 requests/s each, 16 of them 29: the requests of a run never filled all."""
    fields: dict[str, Any] = {
        "engine": "vllm",
        "slo": ["tpot-p95=50ms"],
        "workload": {"isl_tokens": 300, "osl_tokens": 400},
        "routing": "prefix_aware",
    }
    with pytest.raises(RoofcastError, match=r"at most \d\d with their batches are searched together") as caught:
        _sustained(**fields, replicas=64)
    assert "each of more carries another rate" in (caught.value.hint or "")


def test_pools_in_about_the_ratio_of_few_are_simulated_by_these() -> None:
    odd, even = (
        _sustained(disaggregation={"prefill_replicas": count, "decode_replicas": 500}, workload=_SHORT, requests=_FEW)
        for count in (499, 500)
    )
    assert odd.rate_per_s == pytest.approx(even.rate_per_s, rel=0.01)


_SHORT = {"isl_tokens": 100, "osl_tokens": 5}
_FEW = 2_000
"""Requests of a run, whose number says nothing of what is simulated for what."""


@pytest.mark.parametrize(
    "fields",
    [
        {"disaggregation": {"prefill_replicas": 1, "decode_replicas": 600}},
        {"replicas": 1000, "routing": "prefix_aware"},
        {"replicas": 1000, "engine": {"name": "vllm", "kv_tiers": [{"medium": "remote", "capacity_bytes": 1e12}]}},
    ],
)
def test_replicas_in_no_ratio_of_few_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RoofcastError, match="at most 512 with their batches are"):
        _sustained(**fields)


SHARING: tuple[dict[str, Any], ...] = (
    {"isl_tokens": 1000, "answers_per_request": 4},
    {"system_prompt_tokens": 800, "question_tokens": 200},
    {"question_tokens": 1000, "prompt_groups": 5, "prompts_per_group": 5},
)


@pytest.mark.parametrize("prompts", SHARING)
def test_the_steady_state_computes_shared_prompts_once_as_the_simulation_does(prompts: dict[str, Any]) -> None:
    fields = {"id": "a", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", "slo": "ttft-p95=1s"}
    workload = {"arrival": "poisson", "osl_tokens": 20, **prompts}
    found = sustained_rate(ScenarioSpec.model_validate({**fields, "workload": workload}), seeds=1, requests=4000)
    assert 0.8 < found.saturation_rate_per_s / found.rate_per_s < 1.5
    answers, said = prompts.get("answers_per_request", 1), capacity_text(found, listed=False).splitlines()[0]
    assert (f"/s = {found.rate_per_s / answers:.4g} prompts/s of {answers} answers:" in said) is (answers > 1)
