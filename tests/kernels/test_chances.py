"""``simulator.kernels.intervals``: the chance that a prediction with an interval stays under a bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.kernels.intervals import chance_within, interval

TIMES = st.floats(1e-4, 1e2)
WIDTHS = st.floats(1.01, 4.0)


@given(value=TIMES, down=WIDTHS, up=WIDTHS)
def test_the_ends_hold_in_one_and_in_nine_cases_of_ten(value: float, down: float, up: float) -> None:
    ends = (value / down, value * up)
    assert chance_within(ends[1], value=value, ends=ends) == pytest.approx(0.9, abs=1e-3)
    assert chance_within(ends[0], value=value, ends=ends) == pytest.approx(0.1, abs=1e-3)
    assert chance_within(value, value=value, ends=ends) == pytest.approx(0.5)


@given(value=TIMES, down=WIDTHS, up=WIDTHS, first=TIMES, second=TIMES)
def test_a_wider_bound_is_never_less_likely(value: float, down: float, up: float, first: float, second: float) -> None:
    ends = (value / down, value * up)
    low, high = sorted((first, second))
    assert 0 <= chance_within(low, value=value, ends=ends) <= chance_within(high, value=value, ends=ends) <= 1


@given(value=TIMES, bound=TIMES)
def test_a_value_without_an_interval_is_certain(value: float, bound: float) -> None:
    assert chance_within(bound, value=value, ends=(value, value)) == float(value <= bound)


@given(bound=TIMES, value=TIMES, down=WIDTHS)
def test_overload_meets_no_bound(bound: float, value: float, down: float) -> None:
    assert chance_within(bound, value=math.inf, ends=(value, math.inf)) == 0.0
    assume(bound >= value)
    assert chance_within(bound, value=value, ends=(value / down, math.inf)) == 0.5


@given(value=TIMES, sigma=st.floats(0.01, 1.0), scale=WIDTHS)
def test_the_chance_goes_by_ratios(value: float, sigma: float, scale: float) -> None:
    ends, bound = interval(value, log_sigma=sigma), value * 1.1
    scaled = (scale * ends[0], scale * ends[1])
    once = chance_within(bound, value=value, ends=ends)
    assert chance_within(scale * bound, value=scale * value, ends=scaled) == pytest.approx(once)


@given(value=TIMES, narrow=st.floats(0.01, 0.3), wide=st.floats(0.31, 1.0))
def test_what_is_less_sure_is_less_likely_to_keep_a_bound_above_it(value: float, narrow: float, wide: float) -> None:
    bound = 1.2 * value
    sure, unsure = (chance_within(bound, value=value, ends=interval(value, log_sigma=one)) for one in (narrow, wide))
    assert sure > unsure > 0.5


@pytest.mark.parametrize("bound", [0.0, -0.0, -1.0])
def test_nothing_is_done_within_no_time(bound: float) -> None:
    assert chance_within(bound, value=0.1, ends=(0.09, 0.11)) == 0.0
    assert chance_within(bound, value=0.1, ends=(0.0, 0.11)) == 0.0
    assert chance_within(0.05, value=0.1, ends=(0.0, 0.11)) == 0.5
