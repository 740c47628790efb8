"""``simulator.reports.charts.scales`` and ``.chart``: axes hold what they show, marks are round, texts keep apart."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.reports.charts.chart import (
    Annotation,
    Axis,
    Chart,
    Series,
    SeriesKind,
    apart,
    lines_chart,
    waterfall_chart,
)
from simulator.reports.charts.scales import (
    Scale,
    axis_range,
    chart_ranges,
    linear_ticks,
    log_ticks,
    many_decades,
    number_text,
    ticks_of,
    waterfall_bars,
)

NUMBERS = st.floats(-1e9, 1e9, allow_subnormal=False).map(lambda value: round(value, 6))
POSITIVE = st.floats(1e-6, 1e9)
PLAIN, LOG = Axis(title="Value"), Axis(title="Value", log=True)


@given(values=st.lists(NUMBERS, min_size=1), from_zero=st.booleans())
def test_an_axis_holds_every_value(values: list[float], from_zero: bool) -> None:
    low, high = axis_range(PLAIN, values, from_zero=from_zero)
    assert low <= min(values)
    assert high >= max(values)
    assert low < high
    assert not from_zero or low <= 0 <= high


@given(values=st.lists(POSITIVE, min_size=1))
def test_a_log_axis_holds_every_value_above_zero(values: list[float]) -> None:
    low, high = axis_range(LOG, [*values, 0.0, -1.0, math.inf, math.nan], from_zero=False)
    assert 0 < low <= min(values)
    assert high >= max(values)


@given(low=st.floats(-5, 5), high=st.floats(6, 9), values=st.lists(NUMBERS))
def test_ends_that_are_given_stay(low: float, high: float, values: list[float]) -> None:
    assert axis_range(Axis(title="x", low=low, high=high), values, from_zero=True) == (low, high)


def test_nothing_to_show_is_still_an_axis() -> None:
    assert axis_range(LOG, [], from_zero=False) == (1.0, 10.0)
    low, high = axis_range(PLAIN, [math.nan], from_zero=False)
    assert low < high


@given(low=NUMBERS, span=st.floats(1e-3, 1e9))
def test_marks_of_a_plain_axis_are_evenly_spaced_and_few(low: float, span: float) -> None:
    assume(abs(low) < 1e3 * span)
    marks = linear_ticks(low, low + span)
    assert 1 <= len(marks) <= 8
    steps = {round((after - before) / span, 6) for before, after in pairwise(marks)}
    assert len(steps) <= 1
    assert all(low - span / 1e3 <= mark <= low + span * (1 + 1e-3) for mark in marks)


@given(low=POSITIVE, factor=st.floats(1.5, 1e8))
def test_marks_of_a_log_axis_are_one_two_and_five(low: float, factor: float) -> None:
    marks = log_ticks(low, low * factor)
    leading = {round(mark / 10 ** math.floor(math.log10(mark) + 1e-9)) for mark in marks}
    assert leading <= ({1} if many_decades(low, low * factor) else {1, 2, 5})
    assert list(marks) == sorted(marks)


def test_marks_of_names_and_of_steps() -> None:
    assert ticks_of(Axis(title="", categories=("a", "b", "c")), 0, 9) == (0.0, 1.0, 2.0)
    assert ticks_of(Axis(title="", step=5), 3.0, 16.0) == (5.0, 10.0, 15.0)


@given(low=POSITIVE, factor=st.floats(1.1, 1e6), share=st.floats(0, 1), log=st.booleans())
def test_a_scale_rises_between_its_ends(low: float, factor: float, share: float, log: bool) -> None:
    scale = Scale(low=low, high=low * factor, first=300.0, last=20.0, log=log)
    assert scale.at(low) == pytest.approx(300.0)
    assert scale.at(low * factor) == pytest.approx(20.0)
    middle = low * factor**share
    assert 20.0 - 1e-6 <= scale.at(middle) <= 300.0 + 1e-6


@given(value=st.floats(1e-5, 1e17))
def test_a_mark_reads_as_about_its_value(value: float) -> None:
    text = number_text(value)
    scale = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "µ": 1e-6}
    shown = float(text.rstrip("kMGTPµ").replace(",", "")) * scale.get(text[-1], 1.0)
    assert shown == pytest.approx(value, rel=6e-3)


@given(changes=st.lists(NUMBERS, min_size=1, max_size=8))
def test_a_waterfall_ends_in_the_sum_of_its_changes(changes: list[float]) -> None:
    parts = [(str(place), value, False) for place, value in enumerate(changes)]
    chart = waterfall_chart("w", "W", y="Value", parts=[*parts, ("all", sum(changes), True)], caption="")
    *bars, total = waterfall_bars(chart.series[0])
    assert bars[-1].end == pytest.approx(sum(changes))
    assert (total.start, total.end) == (0.0, pytest.approx(sum(changes)))
    assert all(after.start == before.end for before, after in pairwise(bars))
    low, high = chart_ranges(chart)[1]
    assert low <= min(bar.end for bar in bars)
    assert high >= max(bar.end for bar in bars)


def test_a_line_leaves_out_what_has_no_value() -> None:
    chart = lines_chart("l", "L", x="Value", y="Value", at=(1, 2, 3), of={"a": (1.0, None, 3.0)})
    assert (chart.series[0].x, chart.series[0].y) == ((1.0, 3.0), (1.0, 3.0))


def test_stacks_are_as_high_as_their_sum() -> None:
    parts = [Series(name=name, kind=SeriesKind.STACKED_BAR, x=(0.0,), y=(2.0,)) for name in "abc"]
    chart = Chart(key="s", title="S", x=Axis(title="", categories=("one",)), y=PLAIN, series=tuple(parts))
    assert chart_ranges(chart)[1][1] >= 6.0


@given(places=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12))
def test_texts_that_are_kept_do_not_overlap(places: list[tuple[float, float]]) -> None:
    notes = [Annotation(text=str(number), x=x, y=y) for number, (x, y) in enumerate(places)]
    kept = apart(notes, x=(0.0, 1.0), y=(0.0, 1.0))
    assert kept[:1] == tuple(notes[:1])
    assert apart(kept, x=(0.0, 1.0), y=(0.0, 1.0)) == kept
    for place, one in enumerate(kept):
        for other in kept[place + 1 :]:
            assert one.x is not None
            assert other.x is not None
            assert abs(one.x - other.x) > 1 / 3 or abs((one.y or 0) - (other.y or 0)) > 1 / 12
