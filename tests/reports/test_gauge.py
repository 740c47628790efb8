"""Gauges: the bound always stands at the same place, and bar and interval say what the numbers say."""

from __future__ import annotations

import math

import pytest

from simulator.reports.charts.chart import Gauge


@pytest.mark.parametrize("bound_s", [0.01, 1.0, 600.0])
@pytest.mark.parametrize("share", [0.1, 0.9, 1.0, 1.2])
def test_a_bar_reaches_the_bound_exactly_where_the_value_does(bound_s: float, share: float) -> None:
    value = share * bound_s
    shown = Gauge(bound_s=bound_s, value_s=value, ends_s=(0.9 * value, 1.1 * value), chance=0.9)
    assert shown.bar / shown.place(bound_s) == pytest.approx(share)
    low, width = shown.interval
    assert low < shown.bar < low + width
    assert shown.place(bound_s) == Gauge(bound_s=1.0, value_s=1.0, ends_s=(1.0, 1.0), chance=1.0).bar


def test_what_has_no_end_stays_within_its_track() -> None:
    shown = Gauge(bound_s=1.0, value_s=math.inf, ends_s=(2.0, math.inf), chance=0.0)
    assert shown.bar == 1
    assert sum(shown.interval) <= 1
    assert shown.odds_text == "< 1 % likely"
