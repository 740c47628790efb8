"""Prefixes for people, errors in one line, did-you-mean."""

from __future__ import annotations

import pytest

from simulator.errors import ExitCode, ProfileError, RoofcastError, did_you_mean
from simulator.units import format_si


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (0.0021, "s", "2.1 ms"),
        (0, "W", "0 W"),
        (-1500.0, "W", "-1.5 kW"),
        (7.5e-10, "s", "7.5e-10 s"),
        (312e12, "FLOP/s", "312 TFLOP/s"),
        (42.0, "", "42"),
        (999.7e9, "B", "1 TB"),
    ],
)
def test_prefixes(value: float, unit: str, text: str) -> None:
    assert format_si(value, unit) == text


def test_errors_are_one_line_with_field_and_hint() -> None:
    error = RoofcastError("is wrong\nvery", field="a.b", hint="try c")
    assert str(error) == "a.b: is wrong very (try c)"
    assert error.exit_code is ExitCode.USAGE
    assert ProfileError("x").exit_code is ExitCode.PROFILE


def test_did_you_mean_prefers_close_names_and_lists_otherwise() -> None:
    assert did_you_mean("h10", ["h100", "a100"]).startswith("did you mean h100")
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("zzz", [f"n{number:02d}" for number in range(20)]).endswith("n11, ...")
