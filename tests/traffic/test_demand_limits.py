"""What is too large to simulate is refused in one line before any memory is taken; what engines refuse is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.engine.settings import SchedulerSettings
from simulator.errors import RoofcastError
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.lengths import LARGEST_TOKENS
from simulator.traffic.recorded.traces import read_trace
from simulator.traffic.requests import (
    LARGEST_REQUESTS,
    LARGEST_STEPS,
    check_replicas,
    check_state_size,
    check_steps,
    make_requests,
)
from simulator.traffic.workload_requests import build_requests
from tests.golden.entry_points import run

STAGE = StageSpec(rate_per_s=5.0, duration_s=10.0)


def built(**fields: Any) -> int:
    chosen: dict[str, Any] = {"stages": (STAGE,), "isl_tokens": 20, "osl_tokens": 5} | fields
    return len(build_requests(WorkloadSpec(**chosen), block_size_tokens=16))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"stages": (StageSpec(rate_per_s=1e30, duration_s=5.0),)}, "workload.stages"),
        ({"stages": (StageSpec(rate_per_s=1e-6, duration_s=1e18),)}, "workload.stages"),
        ({"isl_tokens": LARGEST_TOKENS + 1}, "workload.isl_tokens"),
        ({"osl_tokens": 10**12}, "workload.osl_tokens"),
        ({"prompt_groups": 10**9, "prompts_per_group": 10}, "workload.prompt_groups"),
        ({"isl_tokens": None, "question_tokens": 10**6, "prompts_per_group": 10**6}, "workload.prompt_groups"),
    ],
)
def test_what_does_not_fit_into_memory_is_refused_by_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        built(**fields)
    assert refused.value.field == named
    assert "\n" not in str(refused.value)


def test_ordinary_demands_pass() -> None:
    assert 20 < built() < 90
    assert built(isl_tokens=LARGEST_TOKENS, stages=(StageSpec(rate_per_s=1.0, duration_s=9.0),)) < 40
    assert LARGEST_REQUESTS >= 10**7


def test_lengths_of_any_origin_are_bounded() -> None:
    with pytest.raises(RoofcastError, match="at most 16,777,216"):
        make_requests(arrival_s=np.zeros(1), prompt_tokens=np.array([2**40]), output_tokens=np.ones(1, dtype=np.int64))


@pytest.mark.parametrize("field", ["max_num_batched_tokens", "max_model_len", "block_size_tokens"])
def test_impossible_limits_are_refused(field: str) -> None:
    limits = {"max_num_batched_tokens": 64, "max_num_seqs": 4, "max_model_len": 64, "kv_blocks": 9} | {field: 10**9}
    with pytest.raises(RoofcastError, match="at most") as refused:
        SchedulerSettings(**limits)
    assert refused.value.field == f"engine.{field}"


def test_more_replicas_than_memory_holds_are_refused() -> None:
    check_state_size(1e6, replicas=1000)
    check_replicas(10_000)
    with pytest.raises(RoofcastError, match="at most 10,000"):
        check_replicas(10_001)
    with pytest.raises(RoofcastError, match="1,000,000 replicas"):
        check_state_size(1e6, replicas=10**6)


def test_more_steps_than_anybody_waits_for_are_refused() -> None:
    """A million answers of 100,000 tokens, one after the other: hours of simulation."""
    check_steps(LARGEST_STEPS)
    words = "serve --model llama-3.1-8b --hardware h100 --rate 0.001 --duration 1e9 --isl 10 --osl 100000 --osl-cv 0"
    printed = run(["roofcast", *words.split()])
    assert printed.code == 2
    assert "steps; at most" in printed.err.splitlines()[-1]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "-1", "2.5", "true"])
def test_numbers_that_are_no_token_counts_name_their_line(number: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    good = '{"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [1]}'
    path.write_text(good + "\n" + good.replace("10", number) + "\n", encoding="utf-8")
    with pytest.raises(RoofcastError, match="line 2: input_length"):
        read_trace(str(path))


def test_a_log_in_another_order_is_the_same_trace(tmp_path: Path) -> None:
    head, *rows = (
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:40.5,100,10",
        "2023-11-16 18:15:46.0,120,12",
        "2023-11-16 18:15:50.0,140,14",
    )
    orders = (rows, rows[::-1])
    traces = []
    for place, order in enumerate(orders):
        path = tmp_path / f"{place}.csv"
        path.write_text("\n".join((head, *order)) + "\n", encoding="utf-8")
        traces.append(read_trace(str(path)))
    np.testing.assert_array_equal(traces[0].arrival_s, traces[1].arrival_s)
    np.testing.assert_array_equal(traces[0].isl_tokens, [100, 120, 140])
    np.testing.assert_array_equal(traces[1].isl_tokens, [100, 120, 140])
