"""Recorded workloads: every format, its numbers by hand, every refusal."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import FileError, RoofcastError
from simulator.planner.demand import read_demand
from simulator.reports.answers.demand import demand_text
from simulator.reports.words.fields import note_text, note_texts
from simulator.specs.question.plan import plan_spec
from simulator.traffic.recorded.demand import dispersion
from simulator.traffic.recorded.importers import import_demand, prefix_hits
from simulator.traffic.recorded.prometheus import histogram_cv, histogram_quantile
from simulator.traffic.recorded.traces import read_trace

RESULTS = Path(__file__).resolve().parents[1] / "data" / "serving_results"
METRICS = """# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 60.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 40.0
vllm:request_prompt_tokens_sum{model_name="m"} 100000.0
vllm:request_prompt_tokens_count{model_name="m"} 100
vllm:request_prompt_tokens_bucket{le="500.0",model_name="m"} 50
vllm:request_prompt_tokens_bucket{le="2000.0",model_name="m"} 100
vllm:request_prompt_tokens_bucket{le="+Inf",model_name="m"} 100
vllm:prompt_tokens_total{model_name="m"} 100000
vllm:generation_tokens_total{model_name="m"} 20000
vllm:prefix_cache_queries_total{model_name="m"} 1000
vllm:prefix_cache_hits_total{model_name="m"} 250
"""


def write(tmp_path: Path, text: str, name: str = "f") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def azure(tmp_path: Path, seconds: int = 300) -> str:
    lines = [f"2023-11-16 18:{at // 60:02d}:{at % 60:02d}.0,{100 + at},{10 + at % 3}" for at in range(seconds)]
    return write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines), "azure.csv")


def test_a_trace_says_the_same_here_as_in_a_plan(tmp_path: Path) -> None:
    path = azure(tmp_path)
    found, planned = import_demand(path), read_demand(plan_spec({"model": "llama-3.1-8b", "trace": path}))
    assert found.tool == "Azure trace"
    assert (found.rate_per_s, found.peak_to_mean) == (planned.mean_rate_per_s, planned.peak_to_mean)
    assert (found.isl.mean, found.osl.cv) == (planned.mix.isl.mean_tokens, planned.mix.osl.cv)
    assert found.prefix_hit is None


def test_even_arrivals_have_no_dispersion_and_random_ones_that_of_poisson(tmp_path: Path) -> None:
    assert dispersion(np.arange(0.0, 600.0, 0.5)) == 0.0
    assert dispersion(np.arange(0.0, 100.0, 0.5)) is None, "one minute tells nothing"
    at = np.cumsum(np.random.default_rng(1).exponential(1.0, size=20_000))
    rows = "\n".join(f"{stamp:.6f},gpt,10,5,15,log" for stamp in at)
    path = write(tmp_path, f"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{rows}", "burst.csv")
    found = import_demand(path)
    assert found.tool == "BurstGPT trace"
    assert found.dispersion == pytest.approx(1.0, abs=0.05)


def test_the_tide_is_no_burst_and_a_router_thins_bursts() -> None:
    generator = np.random.default_rng(5)
    minutes = 400
    rates = np.repeat(10 * (1 + 0.9 * np.sin(np.arange(minutes) / 40)), 60)
    tide = np.repeat(np.arange(minutes * 60), generator.poisson(rates)) + 0.5
    assert dispersion(np.sort(tide)) == pytest.approx(1.0, abs=0.1)
    # A crowd of twelve at random moments: counts vary twelve times as much as Poisson's.
    crowds = np.sort(np.repeat(generator.uniform(0, minutes * 60, size=8000), 12))
    fleet = dispersion(crowds)
    assert fleet == pytest.approx(12.0, rel=0.1)
    replica = dispersion(crowds[generator.random(len(crowds)) < 1 / 4])
    assert replica == pytest.approx(1 + (12 - 1) / 4, rel=0.1)


def test_prefix_hits_stop_at_the_first_new_block() -> None:
    assert prefix_hits([((1, 2), 1024.0)]) == 0
    assert prefix_hits([((1, 2), 1024.0), ((1, 2), 1024.0)]) == pytest.approx(0.5)
    assert prefix_hits([((1, 2, 3), 1536.0), ((1, 9, 3), 1536.0)]) == pytest.approx(512 / 3072)
    assert prefix_hits([]) == 0


def test_mooncake_lines_give_hits(tmp_path: Path) -> None:
    lines = [
        json.dumps({"timestamp": 1000 * at, "input_length": 1024, "output_length": 8, "hash_ids": [0, at + 1]})
        for at in range(4)
    ]
    found = import_demand(write(tmp_path, "\n".join(lines), "trace.jsonl"))
    assert found.tool == "Mooncake trace"
    assert found.prefix_hit == pytest.approx(3 * 512 / (4 * 1024))
    assert found.notes


def test_prometheus_text_by_hand(tmp_path: Path) -> None:
    found = import_demand(write(tmp_path, METRICS), over_s=50.0)
    assert found.requests == 100
    assert found.rate_per_s == 2.0
    assert (found.isl.mean, found.osl.mean) == (1000.0, 200.0)
    assert found.prefix_hit == 0.25
    assert found.isl.cv is not None
    assert 0.3 < found.isl.cv < 1.2
    assert found.osl.cv is None


def test_old_counter_names_are_read_too(tmp_path: Path) -> None:
    old = METRICS.replace("_total{", "{")
    assert import_demand(write(tmp_path, old), over_s=50.0).rate_per_s == 2.0


def test_histogram_spread_of_one_bucket_is_unknown_and_of_many_near_the_truth() -> None:
    assert histogram_cv({10.0: 5, float("inf"): 5}) is None
    values = np.random.default_rng(2).lognormal(6.0, 0.7, size=100_000)
    bounds = [1.0, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, float("inf")]
    buckets = {bound: float((values <= bound).sum()) for bound in bounds}
    truth = values.std() / values.mean()
    assert histogram_cv(buckets) == pytest.approx(truth, abs=0.15)


@pytest.mark.parametrize("name", ["vllm_bench.json", "guidellm.json", "aiperf.json"])
def test_benchmark_results_agree_on_the_same_run(name: str) -> None:
    found = import_demand(str(RESULTS / name))
    assert (found.isl.mean, found.osl.mean, found.requests) == (512.0, 128.0, 200)
    assert found.rate_per_s == pytest.approx(13.3, rel=1e-3)


VLLM_RUN = {
    "completed": 3,
    "duration": 10.0,
    "request_throughput": 0.3,
    "total_input_tokens": 60,
    "total_output_tokens": 30,
}


def test_vllm_arrays_give_spreads(tmp_path: Path) -> None:
    data = {**VLLM_RUN, "input_lens": [10, 20, 30], "output_lens": [10, 10, 10], "start_times": [0.0, 1.0, 2.0, 3.0]}
    found = import_demand(write(tmp_path, json.dumps(data), "bench.json"))
    assert found.isl.cv == pytest.approx(np.std([10, 20, 30]) / 20)
    assert found.osl.cv == 0
    assert found.dispersion is None
    # Four requests were sent in three seconds, of which three were answered in ten.
    assert found.rate_per_s == pytest.approx(1.0)
    assert any("0.3/s were answered" in note for note in note_texts(found.notes))


@pytest.mark.parametrize(("rate", "offered"), [(1.0, 1.0), ("inf", 0.3)])
def test_clients_that_wait_for_answers_offer_what_is_answered(tmp_path: Path, rate: object, offered: float) -> None:
    data = {**VLLM_RUN, "request_rate": rate, "start_times": [0.0, 1.0, 2.0, 3.0]}
    assert import_demand(write(tmp_path, json.dumps(data), "bench.json")).rate_per_s == pytest.approx(offered)


def test_the_model_of_a_benchmark_goes_into_its_workload(tmp_path: Path) -> None:
    found = import_demand(str(RESULTS / "vllm_bench.json"))
    assert found.model == "meta-llama/Llama-3.1-8B-Instruct"
    path = write(tmp_path, demand_text(found, sha256="0"), "w.yaml")
    assert plan_spec({}, workload=path).model == found.model
    assert plan_spec({"model": "qwen3-32b"}, workload=path).model == "qwen3-32b"


def test_hits_fade_with_the_cache() -> None:
    chains = [((2 * number, 2 * number + 1), 1024.0) for number in range(100)]
    again = [*chains, *chains]
    endless = prefix_hits(again)
    assert endless == pytest.approx(0.5, abs=0.01)
    found = [prefix_hits(again, cache_tokens=512 * blocks) for blocks in (1, 10, 150, 400)]
    assert found == sorted(found)
    assert found[-1] == endless
    assert found[0] < 0.01


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("hello", "no known kind"),
        ("{}", "no known kind"),
        ('{"total_input_tokens": 3}', "completed"),
        ("a,b,c\n1,2,3", "header lacks"),
        ('{"total_input_tokens": ', "not JSON"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        import_demand(write(tmp_path, text))


def test_counters_need_a_duration_and_nothing_else_takes_one(tmp_path: Path) -> None:
    with pytest.raises(RoofcastError, match="`over` 6h"):
        import_demand(write(tmp_path, METRICS))
    with pytest.raises(RoofcastError, match="its own duration"):
        import_demand(azure(tmp_path), over_s=3.0)


def test_metrics_of_something_else_and_broken_lines(tmp_path: Path) -> None:
    with pytest.raises(RoofcastError, match="none of vLLM's"):
        import_demand(write(tmp_path, "# x\nup 1\n"), over_s=1.0)
    with pytest.raises(RoofcastError, match="line 2: not a Prometheus sample"):
        import_demand(write(tmp_path, "# x\nup one two three\n"), over_s=1.0)
    with pytest.raises(RoofcastError, match="no request has finished"):
        import_demand(write(tmp_path, "# x\nvllm:request_success_total 0\n"), over_s=1.0)


def test_an_unreadable_file_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        import_demand(str(tmp_path / "none"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not UTF-8"):
        import_demand(str(tmp_path / "bytes"))


BENCH = {
    "completed": 3,
    "failed": 1,
    "duration": 10.0,
    "request_throughput": 0.3,
    "total_input_tokens": 300,
    "total_output_tokens": 30,
    "input_lens": [100, 100, 100, 900],
    "output_lens": [10, 10, 10, 0],
}


def test_failed_requests_do_not_shape_the_lengths(tmp_path: Path) -> None:
    found = import_demand(write(tmp_path, json.dumps(BENCH), "bench.json"))
    assert (found.isl.mean, found.isl.cv, found.osl.mean) == (100.0, 0.0, 10.0)
    assert any("1 failed" in note for note in note_texts(found.notes))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("input_lens", [100, -5, 100, 100], r"input_lens\[1\]: -5; allowed"),
        ("input_lens", [100, None, 100, 100], r"input_lens\[1\]: None; allowed"),
        ("output_lens", [10, "x", 10, 10], r"output_lens\[1\]: 'x'; allowed"),
        ("output_lens", [10, float("nan"), 10, 10], r"output_lens\[1\]: nan; allowed"),
        ("output_lens", [10, 10], "has 2 entries beside 4 input_lens"),
        ("output_lens", [0, 0, 0, 0], "no request has an answer"),
        ("request_throughput", 0, "request_throughput: is 0"),
        ("completed", 0, "completed: is 0"),
        ("duration", float("nan"), "duration: nan; allowed"),
    ],
)
def test_impossible_values_of_a_result_are_named(tmp_path: Path, field: str, value: object, said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        import_demand(write(tmp_path, json.dumps(BENCH | {field: value}), "bench.json"))


def test_genai_perf_has_no_count_of_requests(tmp_path: Path) -> None:
    block = {"unit": "tokens", "avg": 512.0, "p50": 500.0, "p95": 700.0, "std": 64.0}
    data = {
        "request_throughput": {"unit": "requests/sec", "avg": 4.0},
        "input_sequence_length": block,
        "output_sequence_length": block | {"avg": 128.0},
    }
    found = import_demand(write(tmp_path, json.dumps(data), "genai.json"))
    assert (found.tool, found.rate_per_s, found.isl.p95) == ("GenAI-Perf", 4.0, 700.0)
    assert (found.isl.cv, found.osl.cv) == (0.125, 0.5)


def test_a_trace_out_of_order_is_sorted_with_a_warning(tmp_path: Path) -> None:
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    rows = [f"2023-11-16 18:{minute:02d}:00,{100 + minute},10" for minute in range(20)]
    even = import_demand(write(tmp_path, head + "\n".join(rows), "even.csv"))
    mixed = import_demand(write(tmp_path, head + "\n".join([rows[1], rows[0], *rows[2:]]), "mixed.csv"))
    assert even.warnings == ()
    assert "not in the order of its times (goes back once)" in note_text(mixed.warnings[0])
    assert (mixed.rate_per_s, mixed.isl, mixed.dispersion) == (even.rate_per_s, even.isl, even.dispersion)


def test_lengths_that_no_model_takes_are_refused(tmp_path: Path) -> None:
    rows = "2023-11-16 18:00:00,5,10\n2023-11-16 18:01:00,1e300,10"
    path = write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows, "huge.csv")
    with pytest.raises(RoofcastError, match="line 3: ContextTokens may be at most"):
        import_demand(path)


def test_a_clock_that_ticks_slowly_is_no_burst() -> None:
    generator = np.random.default_rng(3)
    ticks = np.repeat(3.0 * np.arange(4000), generator.poisson(30.0, size=4000))
    assert dispersion(ticks) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vllm:request_success_total NaN", "line 1: vllm:request_success_total must be"),
        ("vllm:prompt_tokens_total -3", "line 1: vllm:prompt_tokens_total must be"),
        ('vllm:request_prompt_tokens_bucket{le="abc"} 3', "line 1: not a Prometheus sample"),
        ("vllm:prefix_cache_hits_total 2000", "2250 prefix cache hits of 1000 queries"),
    ],
)
def test_impossible_metrics_are_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        import_demand(write(tmp_path, f"{line}\n{METRICS}", "metrics"), over_s=60.0)


def test_other_metrics_may_be_what_they_like(tmp_path: Path) -> None:
    path = write(tmp_path, 'vllm:x_seconds{quantile="0.5"} NaN\n' + METRICS, "metrics")
    assert import_demand(path, over_s=60.0).requests == 100


def test_counters_alone_give_means_and_say_that_spreads_are_unknown(tmp_path: Path) -> None:
    text = "vllm:request_success_total 100\nvllm:prompt_tokens_total 50000\nvllm:generation_tokens_total 10000\n"
    found = import_demand(write(tmp_path, text), over_s=50.0)
    assert (found.rate_per_s, found.isl.mean, found.osl.mean, found.isl.cv) == (2.0, 500.0, 100.0, None)
    assert "no histograms of lengths: their spreads are not known" in note_texts(found.notes)
    with pytest.raises(RoofcastError, match="no counters of answer tokens"):
        import_demand(write(tmp_path, "\n".join(text.splitlines()[:2])), over_s=50.0)


def test_percentiles_of_buckets_by_hand() -> None:
    # 80 in (100, 200], 20 in (200, 400]: the median is 5/8 of the way in the logarithm, 100 x 2^(5/8).
    buckets = {100.0: 0.0, 200.0: 80.0, 400.0: 100.0, float("inf"): 100.0}
    assert histogram_quantile(buckets, 0.5) == pytest.approx(100 * 2 ** (50 / 80))
    assert histogram_quantile(buckets, 0.95) == pytest.approx(200 * 2 ** (15 / 20))
    assert histogram_quantile({100.0: 10.0, float("inf"): 100.0}, 0.95) is None
    assert histogram_quantile({}, 0.5) is None


def test_azures_zones_and_whole_seconds_are_one_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 2024 traces name their zone, and leave the fraction out where it is zero."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    rows = ["2024-05-10 00:00:00+00:00,5,5", "2024-05-10 00:00:00.250000+00:00,5,5", "2024-05-10T00:00:01Z,5,5"]
    trace = read_trace(write(tmp_path, head + "\n".join(rows), "zones.csv"))
    assert trace.arrival_s.tolist() == [0.0, 0.25, 1.0]
    # The night on which New York set its clocks forward: an hour of this trace is an hour.
    night = ["2024-03-10 01:30:00.1234567,5,5", "2024-03-10 02:30:00.1234567,5,5", "2024-03-10 03:30:00.5,5,5"]
    trace = read_trace(write(tmp_path, head + "\n".join(night), "night.csv"))
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 3600.0, 7200.0 + 0.5 - 0.123456])
    monkeypatch.undo()
    time.tzset()


def test_a_day_of_an_azure_trace_has_its_hours(tmp_path: Path) -> None:
    # Hour h has 2 h + 2 requests, at most 30, one every two minutes.
    rows = []
    for hour in range(26):
        day, clock = (5, hour) if hour < 24 else (6, hour - 24)
        rows += [f"2026-01-{day:02d} {clock:02d}:{minute:02d}:00,100,10" for minute in range(0, 60, 2)][
            : 2 * (hour % 24) + 2
        ]
    found = import_demand(write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows), "day.csv"))
    assert len(found.load_profile) == 24
    assert max(found.load_profile) == 1.0
    assert found.load_profile[8] == pytest.approx(18 / 30, rel=0.1)
    assert found.load_profile[20] == pytest.approx(1.0, rel=0.1)
    assert import_demand(azure(tmp_path)).load_profile == ()
