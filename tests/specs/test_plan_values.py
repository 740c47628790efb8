"""``simulator.specs.question.plan_values``: durations, growth, ramps, stock and load profiles as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import (
    HOURS_PER_DAY,
    HOURS_PER_WEEK,
    READING_TOKENS_PER_S,
    duration_s,
    given_duration_s,
    growth_per_month,
    horizon_months,
    hourly_profile,
    parse_objectives,
    ramp_per_s,
    stock_entry,
)
from tests.for_every import for_every

FEW = settings(max_examples=25, deadline=None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2.0),
        ("500ms", 0.5),
        ("1.5 min", 90.0),
        ("2 h", 7200.0),
        ("250us", 2.5e-4),
        ("3 sec", 3.0),
        ("  4  ", 4.0),
        ("1e-1", 0.1),
        (0.25, 0.25),
        (2, 2.0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@FEW
@given(st.floats(1e-3, 1e4))
def test_units_of_a_duration_agree(seconds: float) -> None:
    found = duration_s(f"{seconds!r}s")
    assert duration_s(f"{seconds * 1e3!r}ms") == pytest.approx(found)
    assert duration_s(f"{seconds / 60!r}min") == pytest.approx(found)
    assert duration_s(f"{seconds / 3600!r} h") == pytest.approx(found)


@for_every(["", "0", "-1s", "2 days", "s", "1.2.3s", True, None, "nan", "2s 3s"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration above zero"):
        duration_s(text)


def test_a_duration_may_be_left_out() -> None:
    assert given_duration_s(None) is None
    assert given_duration_s("2s") == 2.0


@pytest.mark.parametrize(
    ("text", "monthly"),
    [("5%/month", 0.05), ("5% per month", 0.05), ("0.05", 0.05), (0.1, 0.1), ("100%/year", 2 ** (1 / 12) - 1)],
)
def test_growth(text: object, monthly: float) -> None:
    assert growth_per_month(text) == pytest.approx(monthly)


@FEW
@given(st.floats(0.01, 20))
def test_a_years_growth_compounds_over_its_months(yearly: float) -> None:
    monthly = growth_per_month(f"{yearly!r}/year")
    assert monthly is not None
    assert (1 + monthly) ** 12 == pytest.approx(1 + yearly, rel=1e-6)


@for_every(["0%/month", "-5%/month", "5%/week", "fast", True, "5%/", "2000%/month"])
def test_what_is_no_growth_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        growth_per_month(text)


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("10%/min", 0.1 / 60), ("10%/s", 0.1), ("0.5 per minute", 0.5 / 60), ("60%", 0.01), (0.6, 0.01)],
)
def test_ramps(text: object, per_second: float) -> None:
    assert ramp_per_s(text) == pytest.approx(per_second)


def test_what_is_left_out_is_none() -> None:
    assert growth_per_month(None) is None
    assert ramp_per_s(None) is None


@pytest.mark.parametrize(("value", "months"), [("24 months", 24), ("24m", 24), ("36mo", 36), ("1 month", 1), (12, 12)])
def test_horizons(value: object, months: int) -> None:
    assert horizon_months(value) == months


@pytest.mark.parametrize("value", ["2 years", "1.5 months", "soon"])
def test_other_horizons_are_left_for_the_field(value: str) -> None:
    assert horizon_months(value) == value


@FEW
@given(name=st.sampled_from(["h100", "a100-sxm-80gb", "mi300x", "x"]), count=st.integers(1, 10_000))
def test_stock_entries(name: str, count: int) -> None:
    assert stock_entry(f"{name}={count}") == (name, count)
    assert stock_entry(f" {name} = {count} ") == (name, count)


@for_every(["h100", "h100=", "=64", "h100=0", "h100=-1", "h100=many", "h100=1.5"])
def test_what_is_no_stock_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HARDWARE=COUNT"):
        stock_entry(text)


@pytest.mark.parametrize("hours", [HOURS_PER_DAY, HOURS_PER_WEEK])
@pytest.mark.parametrize("separator", [",", ";", ", "])
def test_hourly_profiles(hours: int, separator: str) -> None:
    found = hourly_profile(separator.join(str(hour) for hour in range(hours)))
    assert found == tuple(float(hour) for hour in range(hours))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0] * 23, "there are 23"),
        ([1.0] * 25, "there are 25"),
        ([0.0] * 24, "above 0"),
        ([1.0] * 23 + [-1.0], "hour 23"),
        ([1.0] * 23 + [float("inf")], "hour 23"),
        ([1.0] * 23 + ["x"], "hour 23"),
    ],
)
def test_bad_profiles_name_what_is_wrong(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hourly_profile(value)


def test_no_profile_is_an_empty_one() -> None:
    assert hourly_profile([]) == ()
    assert hourly_profile("") == ()
    assert hourly_profile(7) == 7


def test_reading_bounds_the_time_per_token_and_nothing_else() -> None:
    (objective,) = parse_objectives(["tpot-p95=reading"], flag="--slo")
    assert objective.bound_s == pytest.approx(1 / READING_TOKENS_PER_S)
    assert plan_spec({"rate_per_s": 1, "tpot_p95": "reading"}).objectives == (objective,)
    for refused in ("ttft-p95=reading", "tpot-p95=skimming"):
        with pytest.raises(RoofcastError):
            parse_objectives([refused], flag="--slo")
