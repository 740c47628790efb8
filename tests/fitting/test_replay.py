"""Benchmark results as scenarios beside their measured values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.engine.runs.answers import answer
from simulator.errors import RoofcastError
from simulator.fitting.replay import UNKNOWN_CV, replay_results, run_scenario, runs_that_tell
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.measured.serving_results import ServedSpec, load_serving_runs

DATA = Path(__file__).resolve().parents[1] / "data" / "serving_results"
WHERE = ServedSpec(model="llama-3.1-8b", hardware="h100")
INFERENCEX = {
    "hw": "h100", "conc": 16, "model": "meta-llama/Llama-3.1-8B-Instruct", "framework": "vllm", "precision": "bf16",
    "tp": 1, "isl": 1024, "osl": 1024, "tput_per_gpu": 3300.0, "mean_ttft": 0.12, "mean_tpot": 0.0085,
}  # fmt: skip


def written(folder: Path, data: object) -> str:
    path = folder / "result.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["vllm_bench", "guidellm", "aiperf"])
def test_every_tool_s_result_is_a_scenario_beside_its_values(name: str) -> None:
    found = replay_results([str(DATA / f"{name}.json")], served=WHERE)[0]
    assert found.scenario.kind == "closed_loop"
    assert found.scenario.concurrency == 16
    first = ["ttft_s", "ttft_p50_s", "ttft_p99_s"]
    assert [value.metric for value in found.values] == [*first, "tpot_s", "output_tokens_per_s"]
    for value in found.values:
        assert value.measured > 0
        if value.metric != "ttft_p99_s":
            assert value.interval is not None
            assert value.interval[0] <= value.predicted <= value.interval[1]


def test_a_result_of_inferencex_has_nominal_lengths(tmp_path: Path) -> None:
    (found,) = replay_results([written(tmp_path, INFERENCEX)], served=WHERE)
    assert (found.scenario.isl_tokens, found.scenario.range_ratio, found.scenario.num_requests) == (1024, 0.8, 160)
    # Input and output tokens per accelerator; half of them are generated.
    assert found.values[2].measured == pytest.approx(1650, rel=0.12)


def test_a_result_of_inferencex_names_its_model_and_devices_unless_others_are_given(tmp_path: Path) -> None:
    (run,) = load_serving_runs(written(tmp_path, INFERENCEX | {"model": "llama-3.1-70b", "tp": 4}))
    told = run_scenario(run, identifier="x", served=ServedSpec(hardware="h200"))
    assert (told.model, told.tp_size) == ("llama-3.1-70b", 4)
    given = run_scenario(run, identifier="x", served=ServedSpec(hardware="h200", model="llama-3.1-8b", tp_size=2))
    assert (given.model, given.tp_size) == ("llama-3.1-8b", 2)


def test_a_result_of_inferencex_names_its_engine_and_ranks(tmp_path: Path) -> None:
    """An SGLang file was compared with vLLM's prediction, and ranks of attention with tensor parallelism."""
    told = INFERENCEX | {"model": "deepseek-r1-0528", "framework": "sglang", "tp": 8, "ep": 1, "dp_attention": "true"}
    (run,) = load_serving_runs(written(tmp_path, told))
    scenario = run_scenario(run, identifier="x", served=ServedSpec(hardware="h200"))
    assert (scenario.tp_size, scenario.ep_size, scenario.dp_size) == (1, 8, 8)
    assert scenario.engine.name == "sglang"
    given = run_scenario(run, identifier="x", served=ServedSpec(hardware="h200", engine=EngineSpec(name="vllm")))
    assert given.engine.name == "vllm"


def test_lengths_of_a_file_are_taken_over(tmp_path: Path) -> None:
    data = json.loads((DATA / "vllm_bench.json").read_text("utf-8"))
    (run,) = load_serving_runs(DATA / "vllm_bench.json")
    plain = run_scenario(run, identifier="x", served=WHERE)
    assert plain.isl_cv == UNKNOWN_CV
    assert not run.tells_lengths
    data |= {"input_lens": [400, 500, 600], "output_lens": [128, 128, 128]}
    (run,) = load_serving_runs(written(tmp_path, data))
    listed = run_scenario(run, identifier="x", served=WHERE)
    assert run.tells_lengths
    assert listed.isl_cv == pytest.approx(0.2)
    assert listed.osl_cv == 0


def test_requests_of_a_closed_loop_are_replayed_in_their_order(tmp_path: Path) -> None:
    """Long answers first or last: a drain of one long answer takes longer than one that runs beside the others."""
    data = json.loads((DATA / "vllm_bench.json").read_text("utf-8"))
    answers = [16] * 31 + [640]
    made = []
    for lengths in (answers, answers[::-1]):
        times = [float(place) for place in range(len(lengths))]
        listed = {"start_times": times, "input_lens": [300] * len(lengths), "output_lens": lengths}
        totals = {"total_input_tokens": 300 * len(lengths), "total_output_tokens": sum(lengths)}
        path = written(tmp_path, data | listed | totals | {"completed": len(lengths), "max_concurrency": 4})
        (run,) = load_serving_runs(path)
        scenario = run_scenario(run, identifier="x", served=WHERE)
        assert (scenario.lengths_trace, scenario.isl_cv, scenario.num_requests) == (path, None, len(lengths))
        result = answer(scenario).run
        assert (result.isl_tokens, result.osl_tokens) == (300, sum(lengths) / len(lengths))
        made.append(result.requests_per_s)
    assert made[1] > 1.1 * made[0]


def test_a_single_request_is_no_trace_and_is_replayed_with_its_length(tmp_path: Path) -> None:
    data = json.loads((DATA / "vllm_bench.json").read_text("utf-8"))
    listed = {"start_times": [5.0], "input_lens": [300], "output_lens": [64], "max_concurrency": 1}
    totals = {"total_input_tokens": 300, "total_output_tokens": 64, "completed": 1}
    (run,) = load_serving_runs(written(tmp_path, data | listed | totals))
    result = answer(run_scenario(run, identifier="x", served=WHERE)).run
    assert (result.isl_tokens, result.osl_tokens) == pytest.approx((300, 64), rel=0.01)


@pytest.mark.parametrize("field", ["isl", "osl", "conc", "mean_tpot"])
def test_a_result_without_lengths_or_concurrency_is_refused_by_field(field: str, tmp_path: Path) -> None:
    broken = {name: value for name, value in INFERENCEX.items() if name != field}
    with pytest.raises(RoofcastError) as caught:
        replay_results([written(tmp_path, broken)], served=WHERE)
    assert caught.value.field == field


def test_results_of_inferencex_that_were_collected_are_runs_of_their_own(tmp_path: Path) -> None:
    collected = [INFERENCEX, INFERENCEX | {"conc": 32}]
    runs = load_serving_runs(written(tmp_path, collected))
    assert [run.concurrency for run in runs] == [16, 32]
    with pytest.raises(RoofcastError) as caught:
        load_serving_runs(written(tmp_path, [INFERENCEX, INFERENCEX | {"conc": None}]))
    assert caught.value.field == "[1].conc"


def test_pools_of_a_result_of_inferencex_are_those_of_the_scenario(tmp_path: Path) -> None:
    pools = {
        "disagg": True, "num_prefill_gpu": 16, "num_decode_gpu": 8, "prefill_num_workers": 2, "prefill_tp": 8,
        "prefill_ep": 1, "prefill_dp_attention": "false", "decode_num_workers": 1, "decode_tp": 8, "decode_ep": 1,
        "decode_dp_attention": "true", "model": "deepseek-r1-0528", "framework": "sglang",
    }  # fmt: skip
    told = {name: value for name, value in INFERENCEX.items() if name != "tp"} | pools
    (run,) = load_serving_runs(written(tmp_path, told))
    asked = run_scenario(run, identifier="x", served=ServedSpec(hardware="h200")).disaggregation
    assert asked is not None
    assert (asked.prefill_replicas, asked.prefill_tp_size, asked.decode_replicas) == (2, 8, 1)
    assert (asked.decode_tp_size, asked.decode_dp_size, asked.decode_ep_size) == (1, 8, 8)
    assert run.answered_per_s == pytest.approx(3300 * 24 / (0.9 * 2048))


@pytest.mark.parametrize("name", ["inferencex", "vllm"])
def test_a_replica_that_guessed_is_not_predicted_without_guesses(name: str, tmp_path: Path) -> None:
    bench = json.loads((DATA / "vllm_bench.json").read_text("utf-8")) | {"spec_decode_acceptance_rate": 70.0}
    path = written(tmp_path, bench if name == "vllm" else INFERENCEX | {"spec_decoding": "mtp"})
    with pytest.raises(RoofcastError) as caught:
        replay_results([path], served=WHERE)
    assert caught.value.field == "speculation"
    (run,) = load_serving_runs(path)
    given = ServedSpec(model="llama-3.1-8b", hardware="h100", techniques={"speculation": {"method": "ngram"}})
    assert run_scenario(run, identifier="x", served=given).techniques.speculation is not None


@pytest.mark.parametrize(
    ("updates", "field"),
    [({"max_concurrency": None}, "request_rate"), ({"spec_decode_acceptance_rate": 70.0}, "speculation")],
)
def test_runs_that_tell_no_overhead_are_refused_by_field(updates: dict[str, Any], field: str, tmp_path: Path) -> None:
    data = json.loads((DATA / "vllm_bench.json").read_text("utf-8"))
    with pytest.raises(RoofcastError) as caught:
        runs_that_tell([written(tmp_path, data | updates)])
    assert (caught.value.field, caught.value.code) == (field, "not_identifiable")


def test_the_throughput_benchmark_of_a_sweep_tells_no_overhead(tmp_path: Path) -> None:
    data = json.loads((DATA / "guidellm.json").read_text("utf-8"))
    data["benchmarks"][0]["config"]["strategy"] = {"type_": "throughput"}
    assert [run.at_once for run, _ in runs_that_tell([written(tmp_path, data)])] == [False]


def test_constant_arrivals_are_evenly_spaced(tmp_path: Path) -> None:
    run = load_serving_runs(DATA / "guidellm.json")[1]
    workload = run_scenario(run, identifier="x", served=WHERE).workload
    assert workload is not None
    assert (workload.arrival, workload.spacing) == ("constant", "even")
