"""``simulator.traffic.recorded.demand`` and ``simulator.traffic.recorded.benchmarks``: demand as others recorded it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.reports.words.fields import note_texts
from simulator.specs.measured.serving_results import ResultFile
from simulator.traffic.recorded.benchmarks import aiperf_demand, guidellm_demand, vllm_bench_demand
from simulator.traffic.recorded.demand import Spread, load_by_hour

FEW = settings(max_examples=20, deadline=None)
HOUR, DAY, WEEK = 3600.0, 86_400.0, 604_800.0
MONDAY = 4 * DAY  # 1970-01-05


def counted(rate_at: Any, *, start: float, hours: int) -> tuple[np.ndarray, np.ndarray]:
    """A counter read every hour, with ``rate_at(hour since start)`` requests in each."""
    times = start + HOUR * np.arange(hours + 1)
    return times, np.concatenate([[0.0], np.cumsum([rate_at(hour) for hour in range(hours)])])


def test_a_day_repeats_and_its_busiest_hour_is_one() -> None:
    times, counts = counted(lambda hour: 10 + hour % 24, start=MONDAY, hours=72)
    profile = load_by_hour(times, counts, has_dates=True)
    assert len(profile) == 24
    assert profile == pytest.approx([(10 + hour) / 33 for hour in range(24)])


def test_a_week_starts_on_monday() -> None:
    # Recorded from a Wednesday noon on; hour 0 of the profile is Monday's first.
    start = MONDAY + 2 * DAY + 12 * HOUR
    times, counts = counted(lambda hour: 1 + (hour + 60) % 168, start=start, hours=2 * 168)
    profile = load_by_hour(times, counts, has_dates=True)
    assert len(profile) == 168
    assert profile == pytest.approx([(1 + hour) / 168 for hour in range(168)])


def test_without_dates_a_week_is_seven_days() -> None:
    times, counts = counted(lambda hour: 10 + hour % 24, start=0.0, hours=168)
    assert len(load_by_hour(times, counts, has_dates=False)) == 24


@pytest.mark.parametrize("hours", [1, 12, 23])
def test_less_than_a_day_has_no_profile(hours: int) -> None:
    times, counts = counted(lambda hour: 5.0, start=MONDAY, hours=hours)
    assert load_by_hour(times, counts, has_dates=True) == ()


def test_nothing_sent_has_no_profile() -> None:
    times, counts = counted(lambda hour: 0.0, start=MONDAY, hours=48)
    assert load_by_hour(times, counts, has_dates=True) == ()


@FEW
@given(st.lists(st.floats(1, 100), min_size=24, max_size=24))
def test_scaling_the_demand_leaves_its_profile(rates: list[float]) -> None:
    plain = load_by_hour(*counted(lambda hour: rates[hour % 24], start=MONDAY, hours=48), has_dates=True)
    more = load_by_hour(*counted(lambda hour: 7 * rates[hour % 24], start=MONDAY, hours=48), has_dates=True)
    assert more == pytest.approx(plain)
    assert max(plain) == pytest.approx(1.0)


@FEW
@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=60))
def test_a_spread_is_that_of_its_samples(values: list[float]) -> None:
    found = Spread.of(np.array(values))
    assert found.mean == pytest.approx(np.mean(values))
    assert found.cv == pytest.approx(np.std(values) / np.mean(values))
    assert found.p50 is not None
    assert found.p95 is not None
    assert min(values) <= found.p50 <= found.p95 <= max(values)


def result(**data: Any) -> ResultFile:
    return ResultFile(path="result.json", data=data)


VLLM: dict[str, Any] = {
    "completed": 4,
    "duration": 2.0,
    "request_throughput": 2.0,
    "total_input_tokens": 400,
    "total_output_tokens": 80,
}


def test_totals_of_a_benchmark_become_means() -> None:
    found = vllm_bench_demand(result(**VLLM))
    assert (found.requests, found.rate_per_s, found.duration_s) == (4, 2.0, 2.0)
    assert (found.isl, found.osl) == (Spread(mean=100.0), Spread(mean=20.0))
    assert (found.isl.cv, found.isl.p50, found.isl.p95, found.dispersion) == (None,) * 4


def test_lists_of_a_benchmark_become_spreads() -> None:
    lists = {"input_lens": [50, 150, 50, 150], "output_lens": [20, 20, 20, 20], "start_times": [0.0, 1.0, 2.0, 3.0]}
    found = vllm_bench_demand(result(**VLLM, **lists))
    assert (found.isl.mean, found.isl.cv) == (100.0, 0.5)
    assert found.osl.cv == 0.0
    assert found.rate_per_s == 1.0


def test_failed_requests_are_left_out_and_told() -> None:
    lists = {"input_lens": [50, 150, 999], "output_lens": [20, 20, 0]}
    found = vllm_bench_demand(result(**VLLM, **lists))
    assert found.isl.mean == 100.0
    assert any("1 failed" in note for note in note_texts(found.notes))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"completed": 0}, "invalid_measurement"),
        ({"duration": None}, "missing_field"),
        ({"request_throughput": -1.0}, "invalid_measurement"),
        ({"request_throughput": True}, "invalid_measurement"),
        ({"input_lens": [1, 2], "output_lens": [1]}, "invalid_measurement"),
        ({"input_lens": [1, -2], "output_lens": [1, 1]}, "invalid_measurement"),
        ({"input_lens": [1, 2], "output_lens": [0, 0]}, "no_requests"),
    ],
)
def test_results_that_say_nothing_are_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        vllm_bench_demand(result(**{**VLLM, **changes}))
    assert refused.value.code == code


def guidellm(rate: float) -> ResultFile:
    block = {"mean": 200.0, "std_dev": 50.0, "percentiles": {"p50": 190.0, "p95": 300.0}}
    return result(
        config={"backend": {"model": "some/model"}},
        metrics={
            "requests_per_second": {"successful": {"mean": rate}},
            "request_totals": {"successful": 100},
            "prompt_token_count": {"successful": block},
            "output_token_count": {"successful": {"mean": 40.0, "std_dev": 0.0}},
        },
    )


def test_the_fastest_of_several_benchmarks_is_taken() -> None:
    found = guidellm_demand([guidellm(2.0), guidellm(8.0), guidellm(4.0)])
    assert (found.rate_per_s, found.model) == (8.0, "some/model")
    assert found.duration_s == pytest.approx(100 / 8)
    assert found.isl == Spread(mean=200.0, cv=0.25, p50=190.0, p95=300.0)
    assert found.osl == Spread(mean=40.0, cv=0.0, p50=None, p95=None)


@pytest.mark.parametrize(("count", "tool"), [(50.0, "AIPerf"), (None, "GenAI-Perf")])
def test_aiperf_and_what_came_before_it(count: float | None, tool: str) -> None:
    data: dict[str, Any] = {
        "request_throughput": {"avg": 5.0},
        "input_sequence_length": {"avg": 128.0, "std": 32.0},
        "output_sequence_length": {"avg": 16.0},
    }
    if count is not None:
        data["request_count"] = {"avg": count}
    found = aiperf_demand(result(**data))
    # A window of ten seconds where nobody counted.
    assert (found.tool, found.requests) == (tool, round(count or 5.0 * 10))
    assert (found.isl.cv, found.osl.cv) == (0.25, None)
