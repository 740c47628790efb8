"""Benchmark results of three tools, from fixtures in their schemas; each refusal names the field."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.specs.measured.result_file import ResultFile
from simulator.specs.measured.serving_results import load_serving_runs

DATA = Path(__file__).resolve().parents[1] / "data" / "serving_results"


def changed(tmp_path: Path, name: str, **updates: Any) -> Path:
    data = json.loads((DATA / name).read_text("utf-8"))
    data.update(updates)
    target = tmp_path / name
    target.write_text(json.dumps({key: value for key, value in data.items() if value != "absent"}))
    return target


def written(tmp_path: Path, data: dict[str, Any]) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["vllm_bench.json", "guidellm.json", "aiperf.json"])
def test_the_same_run_reads_the_same_from_every_tool(name: str) -> None:
    run = load_serving_runs(DATA / name)[0]
    assert (run.isl_tokens, run.osl_tokens) == (512, 128)
    assert run.ttft_s == pytest.approx(0.060)
    assert run.tpot_s == pytest.approx(0.009)
    assert run.concurrency == pytest.approx(16)
    assert run.request_rate_per_s is None
    assert run.ttft_p50_s is not None
    assert run.ttft_p99_s is not None
    assert run.ttft_p50_s <= run.ttft_p99_s <= 0.2


def test_every_benchmark_of_a_guidellm_file_is_a_run() -> None:
    runs = load_serving_runs(DATA / "guidellm.json")
    assert [run.request_rate_per_s for run in runs] == [None, 4.0]


def test_without_a_limit_the_requests_in_flight_follow_from_littles_law(tmp_path: Path) -> None:
    path = changed(tmp_path, "vllm_bench.json", max_concurrency=None, request_rate=10.0)
    run = load_serving_runs(path)[0]
    assert run.request_rate_per_s == 10.0
    assert run.concurrency == pytest.approx(16, rel=1e-3)


def test_the_unit_of_an_aiperf_block_is_authoritative(tmp_path: Path) -> None:
    run = load_serving_runs(changed(tmp_path, "aiperf.json", time_to_first_token={"unit": "s", "avg": 0.06}))[0]
    assert run.ttft_s == pytest.approx(0.060)
    with pytest.raises(RoofcastError, match="fortnight") as caught:
        load_serving_runs(changed(tmp_path, "aiperf.json", time_to_first_token={"unit": "fortnight", "avg": 1}))
    assert caught.value.field == "time_to_first_token.unit"


@pytest.mark.parametrize(
    ("updates", "field", "code"),
    [
        ({"mean_ttft_ms": "absent"}, "mean_ttft_ms", "missing_field"),
        ({"mean_tpot_ms": -1.0}, "mean_tpot_ms", "invalid_measurement"),
        ({"mean_tpot_ms": True}, "mean_tpot_ms", "invalid_measurement"),
        ({"duration": 0}, "duration", "invalid_measurement"),
        ({"completed": 100, "failed": 100}, "failed", "not_identifiable"),
        ({"total_output_tokens": 200}, "output tokens", "not_identifiable"),
        ({"median_ttft_ms": 131.0}, "first tokens", "invalid_measurement"),
    ],
)
def test_what_cannot_tell_the_overheads_is_refused(
    tmp_path: Path, updates: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(RoofcastError) as caught:
        load_serving_runs(changed(tmp_path, "vllm_bench.json", **updates))
    assert (caught.value.field, caught.value.code) == (field, code)


def test_an_unknown_file_lists_the_known_tools(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(RoofcastError, match="no known benchmark") as caught:
        load_serving_runs(path)
    assert "guidellm" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "requests"),
    [({"request_count": 80}, 80), ({"measurement_interval": 20_000, "request_count": 0}, 240), ({}, 120)],
)
def test_genai_perf_counts_no_requests(tmp_path: Path, settings: dict[str, int], requests: int) -> None:
    data = json.loads((DATA / "aiperf.json").read_text(encoding="utf-8"))
    del data["request_count"]
    data |= {"input_config": {"concurrency": 8} | settings, "request_throughput": {"avg": 12.0}}
    (tmp_path / "genai.json").write_text(json.dumps(data), encoding="utf-8")
    (run,) = load_serving_runs(tmp_path / "genai.json")
    assert (run.tool, run.requests, run.concurrency) == ("GenAI-Perf", requests, 8)


CLIENTS = {"name": "profiling", "type": "concurrency", "concurrency": 12, "requests": 200}
WARM_UP = {"name": "warmup", "type": "concurrency", "concurrency": 3, "requests": 3, "exclude_from_results": True}


@pytest.mark.parametrize(
    ("clients", "concurrency", "rate_per_s", "gap_cv"),
    [
        ({"phases": [WARM_UP, CLIENTS]}, 12, None, 1.0),
        ({"phases": [{"name": "profiling", "type": "concurrency", "requests": 10}]}, 1, None, 1.0),
        ({"phases": [{"name": "profiling", "type": "poisson", "rate": 6.4}]}, None, 6.4, 1.0),
        ({"phases": [{"name": "profiling", "type": "gamma", "rate": 6.4, "smoothness": 0.25}]}, None, 6.4, 2.0),
        ({"phases": [{"name": "profiling", "type": "constant", "rate": 6.4}]}, None, 6.4, 0.0),
        ({"loadgen": {"request_rate": 6.4, "arrival_pattern": "constant"}}, None, 6.4, 0.0),
        ({"perf_analyzer": {"stimulus": {"concurrency": 12}}}, 12, None, 1.0),
    ],
)
def test_what_clients_sent_is_read_from_every_version_of_aiperf(
    tmp_path: Path, clients: dict[str, Any], concurrency: int | None, rate_per_s: float | None, gap_cv: float
) -> None:
    """Files of AIPerf 0.9 and later were taken for closed loops of as many clients as Little's law finds."""
    (run,) = load_serving_runs(changed(tmp_path, "aiperf.json", input_config=clients))
    assert (run.request_rate_per_s, run.gap_cv) == (rate_per_s, pytest.approx(gap_cv))
    assert concurrency is None or run.concurrency == concurrency


@pytest.mark.parametrize(
    "named", [{"models": {"items": [{"name": "some/model"}]}}, {"endpoint": {"model_names": ["some/model"]}}]
)
def test_the_model_of_an_aiperf_file_is_known(tmp_path: Path, named: dict[str, Any]) -> None:
    (run,) = load_serving_runs(changed(tmp_path, "aiperf.json", input_config=named | {"loadgen": {"concurrency": 2}}))
    assert run.model == "some/model"


@pytest.mark.parametrize(
    ("updates", "field", "code"),
    [
        (
            {"input_config": {"phases": [{"type": "fixed_schedule"}]}},
            "input_config.phases.0.concurrency",
            "missing_field",
        ),
        ({"was_cancelled": True}, "was_cancelled", "not_identifiable"),
        ({"is_complete": False}, "is_complete", "not_identifiable"),
        ({"time_to_first_token": None}, "time_to_first_token", "missing_field"),
    ],
)
def test_an_aiperf_file_without_a_load_or_an_end_is_refused(
    tmp_path: Path, updates: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(RoofcastError) as caught:
        load_serving_runs(changed(tmp_path, "aiperf.json", **updates))
    assert (caught.value.field, caught.value.code) == (field, code)


def test_guidellm_files_before_0_4_read_the_same(tmp_path: Path) -> None:
    data = json.loads((DATA / "guidellm.json").read_text("utf-8"))
    now = load_serving_runs(DATA / "guidellm.json")
    for benchmark in data["benchmarks"]:
        benchmark["args"] = benchmark.pop("config")
        benchmark["request_totals"] = benchmark["metrics"].pop("request_totals")
        benchmark["worker"] = {"backend_model": "some/model"}
    then = load_serving_runs(written(tmp_path, data))
    assert [run.model for run in then] == ["some/model", "some/model"]
    assert [replace(run, model=None, path="") for run in then] == [replace(run, path="") for run in now]


def test_clients_of_a_guidellm_strategy_are_its_streams(tmp_path: Path) -> None:
    """Beginning and end of a run lower the mean in flight."""
    data = json.loads((DATA / "guidellm.json").read_text("utf-8"))
    data["benchmarks"][0]["config"]["strategy"] = {"type_": "concurrent", "streams": 64}
    closed, constant = load_serving_runs(written(tmp_path, data))
    assert (closed.concurrency, constant.gap_cv) == (64, 0.0)


def test_the_throughput_benchmark_of_a_sweep_is_a_closed_loop(tmp_path: Path) -> None:
    data = json.loads((DATA / "guidellm.json").read_text("utf-8"))
    data["benchmarks"][0]["config"]["strategy"] = {"type_": "throughput", "max_concurrency": None}
    runs = load_serving_runs(written(tmp_path, data))
    assert [(run.at_once, run.request_rate_per_s) for run in runs] == [(True, None), (False, 4.0)]


def test_every_request_at_once_is_as_many_in_flight(tmp_path: Path) -> None:
    """The default of vllm bench serve."""
    (run,) = load_serving_runs(changed(tmp_path, "vllm_bench.json", max_concurrency=None))
    assert (run.at_once, run.concurrency) == (True, 200)


def test_a_part_of_a_file_is_named_by_its_place() -> None:
    part = ResultFile(data={"a": [{"b": -1}]}, path="x.json", prefix="[2].").part("a.0")
    assert part.first("c", "b") == "b"
    with pytest.raises(RoofcastError) as caught:
        part.number("b")
    assert caught.value.field == "[2].a.0.b"


def test_aiperf_says_that_the_replica_guessed(tmp_path: Path) -> None:
    (run,) = load_serving_runs(changed(tmp_path, "aiperf.json", pooled_spec_decode_acceptance_histogram={"1": 20}))
    assert run.guesses
