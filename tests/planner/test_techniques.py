"""Techniques as axes of a plan, their price in quality, and pipelines against the event simulation."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from simulator.engine.lanes.pipeline import prompt_delays
from simulator.errors import InfeasibleError, RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.replica_load import replica_load
from simulator.planner.gap.changes import GapState
from simulator.planner.gap.records import Gap, GapError
from simulator.planner.plan import plan_capacity
from simulator.planner.verification.simulation import steady_check
from simulator.reports.handoff.launch import launch_handoff
from simulator.reports.words.plan_inputs import warning_texts
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.quality import answer_quality
from simulator.traffic.lengths import LengthDistribution, RequestMix

MODEL = "llama-3.1-8b"
MIX = RequestMix(isl=LengthDistribution(mean_tokens=1000.0), osl=LengthDistribution(mean_tokens=200.0))


@cache
def planned(**fields: object) -> CapacityPlan:
    given = {"weights", "scheme", "any_precision"} & fields.keys()
    asked = {"model": MODEL, "hardware": "h100", "rps": 50, **({} if given else {"weights": "bf16"})}
    return plan_capacity(plan_spec({**asked, **fields}))


class TestAxes:
    def test_none_beside_a_technique_plans_the_better_of_both(self) -> None:
        plain, guessed = planned(tp=1), planned(tp=1, speculation="eagle")
        both = planned(tp=1, speculation=("none", "eagle"))
        assert both.best.devices == min(plain.best.devices, guessed.best.devices)
        assert both.candidates >= 2

    def test_speculation_brings_down_the_time_per_token_of_an_idle_replica_and_is_assumed(self) -> None:
        plain, guessed = planned(tp=1).best, planned(tp=1, speculation="eagle").best
        assert guessed.replica.unloaded.tpot_mean_s < plain.replica.unloaded.tpot_mean_s
        assert (guessed.provenance, plain.provenance != "assumed") == ("assumed", True)
        assert planned(tp=1, speculation="eagle:acceptance=0.7").best.provenance != "assumed"

    def test_a_bounded_cache_holds_more_sequences(self) -> None:
        fields: dict[str, object] = {"tp": 1, "isl": 8000, "osl": 200, "max_num_seqs": 1024}
        assert planned(**fields, kv_policy="h2o:1024").best.replica.slots > planned(**fields).best.replica.slots

    def test_weights_in_host_memory_make_room_and_cost_time(self) -> None:
        fields: dict[str, object] = {
            **{"tp": 1, "rps": 0.01, "ttft_p95": "60s", "tpot_p95": "10s"},
            **{"serving": "aggregated", "max_num_seqs": 256, "max_num_batched_tokens": 8192},
        }
        plan = planned(**fields, weight_offload=("none", "0.25", "0.5"))
        shares = {fleet.label: fleet.replica for fleet in (plan.best, *plan.alternatives)}
        plain, quarter, half = (
            shares[f"TP1 bf16{share} batch <= 256 step <= 8192 tokens"]
            for share in ("", " 25 % of weights in host", " 50 % of weights in host")
        )
        assert len(shares) == 3
        assert plain.memory.weights_bytes > quarter.memory.weights_bytes > half.memory.weights_bytes
        assert plain.unloaded.tpot_mean_s < quarter.unloaded.tpot_mean_s < half.unloaded.tpot_mean_s

    @pytest.mark.slow
    def test_what_does_not_fit_fits_with_weights_in_host_memory(self) -> None:
        fields: dict[str, object] = {
            "model": "llama-3.1-70b",
            "tp": 1,
            "pp": 1,
            "rps": 0.01,
            "tpot_p95": "60s",
            "ttft_p95": "99s",
        }
        with pytest.raises(GapError) as refused:
            planned(**fields)
        assert refused.value.reason is not None
        assert refused.value.reason.key == "does_not_fit"
        assert planned(**fields, weight_offload="0.6").best.replica.devices == 1

    def test_room_for_the_longest_request_holds_fewer_sequences(self) -> None:
        """As many as whole requests of the longest length fit, but for two deviations of what is cached."""
        fields: dict[str, object] = {"tp": 1, "max_model_len": 16384}
        paged, unpaged = planned(**fields).best.replica, planned(**fields, kv_allocation="max_length").best.replica
        assert unpaged.slots < paged.slots
        assert unpaged.slots <= unpaged.memory.kv_capacity_tokens / 16384 <= unpaged.slots + 4
        both = planned(**fields, kv_allocation=("paged", "max_length"))
        assert {fleet.label for fleet in (both.best, *both.alternatives)} == {"TP1 bf16", "TP1 bf16 unpaged"}

    def test_any_technique_contains_what_it_compares(self) -> None:
        wide = planned(any_technique=True, tp=1)
        assert wide.best.devices <= min(planned(tp=1).best.devices, planned(tp=1, speculation="eagle").best.devices)
        assert wide.search is not None
        assert "6 techniques" in wide.search.axes

    def test_ranks_of_attention_need_experts(self) -> None:
        with pytest.raises(RoofcastError, match="no experts"):
            planned(dp=2)

    def test_ranks_of_attention_serve_side_by_side(self) -> None:
        fleet = planned(model="deepseek-v2-lite", tp=1, dp=(2,), rps=5).best
        assert fleet.replica.devices == 2
        assert fleet.replica.deployment.parallelism.ep_size == 2
        assert fleet.at_peak.rate_per_s == pytest.approx(5 / (fleet.replicas + fleet.spares))

    def test_halves_of_a_step_are_compared_where_ranks_exchange_tokens(self) -> None:
        fields: dict[str, object] = {"model": "deepseek-v2-lite", "weights": "bf16", "tp": 1, "dp": (1, 8), "rps": 300}
        fields |= {"pareto": True, "verify": False}
        plain, both = planned(**fields), planned(**fields, two_batch_overlap=True)
        ranks = {fleet.label: fleet.replica.deployment.parallelism.dp_size for fleet in (both.best, *both.alternatives)}
        assert both.best.devices <= plain.best.devices
        assert {size for label, size in ranks.items() if "two batches" in label} == {8}
        assert set(ranks.values()) == {1, 8}

    @pytest.mark.slow
    def test_what_would_meet_the_limits_is_said_of_halves_too(self) -> None:
        fields: dict[str, object] = {"model": "deepseek-v2-lite", "weights": "bf16", "tp": 1, "dp": (1, 8), "rps": 300}
        with pytest.raises(GapError, match="at least 8 GPUs"):
            planned(**fields, two_batch_overlap=True, max_gpus=1)

    @pytest.mark.slow
    def test_halves_of_a_step_save_where_servers_exchange_tokens_and_their_flag_is_said(self) -> None:
        fields: dict[str, object] = {"model": "deepseek-r1", "weights": (), "engine": "sglang", "tp": 1, "dp": 32}
        fields |= {"isl": 2000, "osl": 1000, "rps": 60, "ttft_p95": "3s", "tpot_p95": "150ms", "verify": False}
        for shape in ({"serving": "disaggregated"}, {"serving": "disaggregated", "search": "wide"}):
            plain, both = planned(**fields, **shape), planned(**fields, **shape, two_batch_overlap=True)
            assert both.best.devices < plain.best.devices
            assert both.best.label.count("two batches") == 2
        prompts = planned(**{**fields, "tpot_p95": "50ms"}, serving="disaggregated", two_batch_overlap=True).best.label
        assert prompts.startswith("prefill TP1 DP32 EP32 two batches + decode")
        assert prompts.count("two batches") == 1
        texts = launch_handoff(both.best, model_id="M", scheme=None, demand=both.demand, objectives=both.objectives)
        starts = [file.text for file in texts.files if file.name.startswith("launch")]
        assert len(starts) == sum("--enable-two-batch-overlap --moe-a2a-backend deepep" in text for text in starts) == 2

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"two_batch_overlap": True}, "no experts"),
            ({"two_batch_overlap": True, "model": "deepseek-v2-lite", "dp": (1,)}, "exchanges no tokens"),
            ({"two_batch_overlap": True, "model": "deepseek-v2-lite", "ep": (1,)}, "exchanges no tokens"),
            ({"speculation": "nonsense"}, "eagle"),
            ({"any_technique": True, "sparsity": "2:4"}, "contradicts"),
        ],
    )
    def test_what_means_nothing_is_refused(self, fields: dict[str, object], text: str) -> None:
        with pytest.raises(RoofcastError) as caught:
            planned(**fields)
        assert text in str(caught.value)


class TestQuality:
    def test_a_floor_keeps_what_is_unknown_out(self) -> None:
        found = planned(any_technique=True, max_quality_loss=0.0)
        assert found.best.quality is None
        assert found.best.replica.deployment.techniques.spec.sparsity is None

    def test_a_floor_below_a_format_names_it(self) -> None:
        with pytest.raises(InfeasibleError) as caught:
            planned(scheme="awq", max_quality_loss=0.001)
        assert caught.value.field == "max_quality_loss"

    def test_losses_add_up_and_one_unknown_leaves_all_unknown(self) -> None:
        model = load_model(MODEL)
        assert answer_quality(model, PrecisionSpec()).loss == 0
        eagle = GapState(speculation="eagle").techniques(TechniquesSpec())
        assert answer_quality(model, PrecisionSpec(), eagle).loss == 0
        assert answer_quality(model, PrecisionSpec(kv_cache=Dtype.FP8), eagle).loss is None

    def test_a_warning_says_that_answers_may_differ(self) -> None:
        assert any("answers may differ" in text for text in warning_texts(planned(scheme="awq", tp=1).warnings))
        assert not any("answers" in text for text in warning_texts(planned(tp=1).warnings))


@cache
def gap() -> Gap:
    """2000 requests/s towards 10 accelerators, which no change reaches."""
    with pytest.raises(GapError) as caught:
        planned(rps=2000, max_gpus=10, round_to="device", weights="bf16", kv_cache="bf16")
    return caught.value.gap


@pytest.mark.usefixtures("few_accelerators")
class TestGap:
    def test_what_leaves_answers_alone_comes_first_and_every_step_saves(self) -> None:
        # What gives up a choice of the question, such as its hardware, comes after every technique.
        techniques = [step for step in gap().steps if step.name not in ("other hardware", "other degrees")]
        lossless = [step.quality_loss == 0 for step in techniques]
        assert lossless
        assert lossless == sorted(lossless, reverse=True)
        assert all(step.saved_devices is not None and step.saved_devices > 0 for step in gap().steps)
        start = gap().start_devices
        assert start is not None
        assert start - sum(step.saved_devices or 0 for step in gap().steps) == gap().end_devices

    def test_a_share_answered_from_a_cache_would_close_what_remains(self) -> None:
        remaining, needed = gap().remaining_devices, gap().needed_cache_hit
        assert remaining
        assert needed is not None
        # Devices go with the rate, but for the spare and whole replicas.
        assert needed == pytest.approx(remaining / (remaining + 10), abs=0.15)

    def test_states_join(self) -> None:
        state = GapState(any_limits=True).joined(GapState(speculation="eagle")).joined(GapState(kv_cache=Dtype.FP8))
        assert (state.any_limits, state.speculation, state.kv_cache) == (True, "eagle", Dtype.FP8)


class TestPipelines:
    def test_a_prompt_delays_all_lanes_at_low_load_and_its_own_at_high(self) -> None:
        sequences = np.array([1e-3, 4.0, 32.0, 1e4])
        whole, own_s = np.full_like(sequences, 8192.0), np.ones_like(sequences)
        found = 4 * prompt_delays(MIX, stages=4, sequences=sequences, room=whole, own_s=own_s, apart=False)
        assert found[0] == pytest.approx(4.0)
        assert found[-1] == pytest.approx(1.0)
        assert (np.diff(found) < 0).all()

    def test_rates_are_of_the_whole_replica(self) -> None:
        found = planned(tp=1, pp=2, rps=20)
        fleet = found.best
        assert fleet.degraded.rate_per_s == pytest.approx(20 / fleet.replicas)
        load = replica_load(fleet, rates_per_s=(fleet.degraded.rate_per_s,))
        ttft = next(point for point in load.at[0] if point.metric.value == "ttft")
        assert ttft.values_s[2] == pytest.approx(fleet.degraded.ttft_p95_s, rel=1e-6)
        assert ttft.load == pytest.approx(fleet.degraded.load)

    @pytest.mark.parametrize("fields", [{"pp": 2}, {"speculation": "eagle"}])
    def test_the_event_simulation_confirms_the_steady_state(self, fields: dict[str, object]) -> None:
        found = planned(tp=1, utilization=0.6, **fields)
        steady = found.best.degraded
        check = steady_check(
            found.best.replica.deployment, mix=found.demand.mix, objectives=found.objectives, busiest=steady, seeds=1
        )
        seen = check.at(steady)
        assert seen.holds
        assert seen.tpot_mean_s == pytest.approx(steady.tpot_mean_s, rel=0.2)
        assert seen.mean_sequences == pytest.approx(steady.mean_sequences, rel=0.25)


def test_a_handoff_starts_what_was_planned() -> None:
    found = planned(tp=1, speculation="eagle")
    texts = launch_handoff(found.best, model_id="M", scheme=None, demand=found.demand, objectives=found.objectives)
    vllm = next(file for file in texts.files if file.name == "launch-vllm.sh").text
    assert "--speculative-config.method eagle " in vllm
    assert any("drafter trained for this model" in note for note in texts.notes)
