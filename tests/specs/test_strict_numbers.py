"""The gate of numbers: what has no size that can be meant is refused wherever a specification has a number."""

from __future__ import annotations

import math

import pytest
from pydantic import Field

from simulator.errors import RoofcastError
from simulator.specs.base import LARGEST_NUMBER, SMALLEST_NUMBER, LogSigma, LogSpread, Spec, iso_date, validate
from simulator.specs.question.plan import plan_spec


class _Measured(Spec):
    rate: float = 1.0
    rates: dict[str, float] = Field(default_factory=dict)
    spread: LogSpread = 0.0
    sigma: LogSigma = 0.1


@pytest.mark.parametrize("value", [SMALLEST_NUMBER, -SMALLEST_NUMBER, LARGEST_NUMBER, 0.0, -0.0, 1])
def test_what_has_a_size_is_taken(value: float) -> None:
    assert validate(_Measured, {"rate": value, "rates": {"a": value}}, where="").rate == value


@pytest.mark.parametrize("field", ["rate", "rates"])
@pytest.mark.parametrize("value", [5e-324, -5e-324, 1e-300, math.nextafter(SMALLEST_NUMBER, 0)])
def test_what_is_almost_nothing_is_refused(field: str, value: float) -> None:
    """A hundred-millionth of the smallest number squared is 0, and what is divided by it has no end."""
    given = {"a": value} if field == "rates" else value
    with pytest.raises(RoofcastError, match=r"0 or at least 1e-30") as refused:
        validate(_Measured, {field: given}, where="")
    assert refused.value.field.startswith(field)


@pytest.mark.parametrize(("field", "value"), [("spread", 10.1), ("spread", -0.1), ("sigma", 0.0), ("sigma", 1e30)])
def test_a_spread_of_logarithms_has_an_end(field: str, value: float) -> None:
    with pytest.raises(RoofcastError, match=field):
        validate(_Measured, {field: value}, where="")


@pytest.mark.parametrize("start", ["9999-12-31", "0001-01-01", "2200-01-01"])
def test_a_date_beyond_every_forecast_is_refused(start: str) -> None:
    """What is added to it left the calendar: ten years of growth, the time from order to use, a price's age."""
    with pytest.raises(RoofcastError, match="from 1900 to 2199"):
        plan_spec({"growth": "5%/month", "start": start})
    with pytest.raises(ValueError, match="from 1900 to 2199"):
        iso_date(start)


@pytest.mark.parametrize("days", [36_526, 10**9])
def test_more_days_than_a_century_are_refused(days: int) -> None:
    with pytest.raises(RoofcastError, match="36525"):
        plan_spec({"growth": "5%/month", "lead_time": days})
