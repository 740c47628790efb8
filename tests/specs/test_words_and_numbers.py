"""``simulator.units`` and ``simulator.errors``: numbers as people read them, refusals as one line."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import units
from simulator.errors import (
    ExitCode,
    FileError,
    InfeasibleError,
    MissingPackageError,
    ProfileError,
    RoofcastError,
    did_you_mean,
)
from simulator.specs.question.plan import plan_spec
from simulator.units import bound_text, format_si, percent_text, plain_text

FEW = settings(max_examples=60, deadline=None)
PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


@FEW
@given(st.floats(1e-9, 1e18))
def test_a_prefix_is_worth_what_it_says(value: float) -> None:
    found = re.fullmatch(r"([0-9.e+]+) ([PTGMkmun]?)B", format_si(value, "B"))
    assert found is not None
    assert float(found[1]) * PREFIXES[found[2]] == pytest.approx(value, rel=0.006)


@FEW
@given(st.floats(1e-9, 1e17))
def test_numbers_before_a_prefix_stay_below_a_thousand(value: float) -> None:
    number = float(format_si(value, "B").split()[0])
    assert 1 <= number < 1000


@FEW
@given(st.floats(1e-6, 1e12), st.integers(1, 8))
def test_plain_text_keeps_its_digits_and_shows_no_exponent(value: float, digits: int) -> None:
    text = plain_text(value, digits=digits)
    assert "e" not in text
    shown = float(text.replace(",", ""))
    assert shown == pytest.approx(value, rel=0.6 * 10 ** (1 - digits))


@FEW
@given(st.floats(0.001, 1000))
def test_bounds_are_in_milliseconds_below_a_second(value: float) -> None:
    number, unit = bound_text(value).split()
    assert unit == ("ms" if value < 1 else "s")
    assert float(number.replace(",", "")) * (1e-3 if unit == "ms" else 1) == pytest.approx(value, rel=0.006)


@FEW
@given(st.floats(-1, 2))
def test_a_percentage_is_a_hundred_times_its_fraction(fraction: float) -> None:
    text = percent_text(fraction)
    assert text.endswith(" %")
    assert float(text[:-2]) == pytest.approx(100 * fraction, abs=0.51)
    if abs(100 * fraction) < 9.9:
        assert float(text[:-2]) == pytest.approx(100 * fraction, abs=0.051)


@pytest.mark.parametrize(
    ("large", "small", "ratio"),
    [
        ("KILO", "MILLI", 1e6), ("MEGA", "KILO", 1e3), ("GIGA", "MEGA", 1e3), ("TERA", "GIGA", 1e3),
        ("PETA", "TERA", 1e3), ("MIB", "KIB", 1024), ("GIB", "MIB", 1024), ("MILLI", "MICRO", 1e3),
    ],
)  # fmt: skip
def test_constants_are_in_proportion(large: str, small: str, ratio: float) -> None:
    assert getattr(units, large) / getattr(units, small) == pytest.approx(ratio)


def test_a_year_has_8760_hours_and_twelve_equal_months() -> None:
    assert units.HOURS_PER_YEAR == 365 * 24
    assert units.HOURS_PER_MONTH * 12 == units.HOURS_PER_YEAR
    assert units.SECONDS_PER_HOUR == 60 * units.SECONDS_PER_MINUTE
    assert pytest.approx(1.0737, abs=1e-4) == units.GIB / units.GIGA


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (RoofcastError("x"), "invalid_input", ExitCode.USAGE),
        (ProfileError("x"), "unknown_profile", ExitCode.PROFILE),
        (FileError("x"), "io", ExitCode.IO),
        (InfeasibleError("x"), "infeasible", ExitCode.INFEASIBLE),
        (MissingPackageError("x", hint="pip install y"), "missing_package", ExitCode.USAGE),
    ],
)
def test_every_kind_of_refusal_has_a_code_and_an_exit(error: RoofcastError, code: str, exit_code: ExitCode) -> None:
    assert (error.code, error.exit_code) == (code, exit_code)


def test_exit_codes_are_those_of_the_contract() -> None:
    assert {item.name: item.value for item in ExitCode} == {
        "OK": 0, "USAGE": 2, "INFEASIBLE": 3, "PROFILE": 4, "IO": 5,
    }  # fmt: skip


@FEW
@given(message=st.text("ab \n", max_size=9), field=st.text("abc.", max_size=5), hint=st.text("ab\n", max_size=6))
def test_a_refusal_is_one_line(message: str, field: str, hint: str) -> None:
    assert "\n" not in str(RoofcastError(message, field=field, hint=hint))


@FEW
@given(st.lists(st.text("abcdefgh", min_size=3, max_size=8), min_size=1, max_size=20))
def test_a_name_that_exists_is_its_own_nearest(names: list[str]) -> None:
    assert did_you_mean(names[0], names).startswith(f"did you mean {names[0]}")


@pytest.mark.parametrize(("given_name", "nearest"), [("H100", "h100"), ("lama", "llama"), ("mixtrall", "mixtral")])
def test_slips_are_forgiven(given_name: str, nearest: str) -> None:
    assert nearest in did_you_mean(given_name, ["llama", "mixtral", "h100"])


def test_what_is_not_finite_is_still_text() -> None:
    assert plain_text(math.inf) == "inf"
    assert plain_text(0.0) == "0"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"confidence": 60}, "60 is not allowed; allowed: 50, 80, 90"),
        ({"stock": ("h100=0",)}, "an entry HARDWARE=COUNT such as h100=64 (1 to 999999999) is needed, got 'h100=0'"),
        ({"round_to": "rack"}, "'rack' is not allowed; allowed: server, device"),
    ],
)
def test_a_refusal_names_what_is_allowed_and_what_was_got_once(fields: dict[str, object], said: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        plan_spec({"rps": 1.0, "model": "llama-3.1-8b", **fields})
    assert caught.value.message == said
