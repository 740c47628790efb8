"""Gains of multi-token prediction: pairs of rows, and where they break even."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validation.end_to_end.guess_gains import TPOT, break_even, gains_table, guess_gains
from validation.end_to_end.measured.inferencex import TodayRun
from validation.end_to_end.measured.runs import MeasuredRun

SCENARIO = {
    "id": "x",
    "kind": "closed_loop",
    "model": "deepseek-ai/DeepSeek-R1-0528",
    "hardware": "h200-sxm-141gb",
    "tp_size": 8,
    "concurrency": 4,
    "num_requests": 8,
    "isl_tokens": 256,
    "osl_tokens": 32,
}


def run(speculation: str, *, measured_s: float, concurrency: int = 4) -> TodayRun:
    guesses = {"techniques": {"speculation": {"method": "mtp", "k": 2}}} if speculation == "mtp" else {}
    scenario = {**SCENARIO, **guesses, "concurrency": concurrency, "num_requests": 2 * concurrency}
    return TodayRun(
        run=MeasuredRun(source="inferencex", scenario=scenario, measured={TPOT: measured_s}),
        hardware="H200 SXM",
        engine="sglang",
        model="R1",
        weights="fp8",
        pools="agg",
        speculation=speculation,
    )


def test_only_rows_with_a_counterpart_count() -> None:
    pair = (run("none", measured_s=0.02), run("mtp", measured_s=0.01))
    (gain,) = guess_gains((*pair, run("mtp", measured_s=0.01, concurrency=8)))
    assert gain.measured == pytest.approx(2.0)
    assert 1.0 < gain.predicted < 2.07
    lines = gains_table((gain, replace(gain, concurrency=64, measured=0.5))).splitlines()
    assert lines[0].endswith("| 4 | 64 | break-even |")
    assert lines[2].startswith("| H200 SXM | sglang | fp8 | TP8 | 256 / 32 | 2.00 / ")


def test_break_even_lies_where_a_gain_crosses_one() -> None:
    assert break_even({4: 1.5, 16: 0.5}) == pytest.approx(8.0)
    assert break_even({4: 1.5, 16: 1.1}) is None
