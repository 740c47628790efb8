"""Benchmark results of three tools, from fixtures in their schemas; each refusal names the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.specs.measured.serving_results import load_serving_runs

DATA = Path(__file__).resolve().parents[1] / "data" / "serving_results"


def changed(tmp_path: Path, name: str, **updates: Any) -> Path:
    data = json.loads((DATA / name).read_text("utf-8"))
    data.update(updates)
    target = tmp_path / name
    target.write_text(json.dumps({key: value for key, value in data.items() if value != "absent"}))
    return target


@pytest.mark.parametrize("name", ["vllm_bench.json", "guidellm.json", "aiperf.json"])
def test_the_same_run_reads_the_same_from_every_tool(name: str) -> None:
    run = load_serving_runs(DATA / name)[0]
    assert (run.isl_tokens, run.osl_tokens) == (512, 128)
    assert run.ttft_s == pytest.approx(0.060)
    assert run.tpot_s == pytest.approx(0.009)
    assert run.concurrency == pytest.approx(16)
    assert run.request_rate_per_s is None


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
        ({"max_concurrency": None}, "request_rate", "not_identifiable"),
        ({"spec_decode_acceptance_rate": 70.0}, "spec_decode", "not_identifiable"),
    ],
)
def test_what_cannot_tell_the_overheads_is_refused(
    tmp_path: Path, updates: dict[str, Any], field: str, code: str
) -> None:
    with pytest.raises(RoofcastError) as caught:
        load_serving_runs(changed(tmp_path, "vllm_bench.json", **updates))
    assert (caught.value.field, caught.value.code) == (field, code)


def test_a_guidellm_throughput_run_is_refused_by_its_place(tmp_path: Path) -> None:
    data = json.loads((DATA / "guidellm.json").read_text("utf-8"))
    data["benchmarks"][1]["config"]["strategy"] = {"type_": "throughput"}
    path = tmp_path / "g.json"
    path.write_text(json.dumps(data))
    with pytest.raises(RoofcastError) as caught:
        load_serving_runs(path)
    assert caught.value.field == "benchmarks[1].config.strategy"


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
