"""Prefixes for people, errors in one line, did-you-mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import LONGEST_VALUE, ExitCode, ProfileError, RoofcastError, did_you_mean, one_line, shown
from simulator.units import bound_text, format_si, percent_text, plain_text


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


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "0 %"),
        (0.004, "0.4 %"),
        (0.05, "5 %"),
        (0.0996, "10 %"),
        (0.4271, "43 %"),
        (-0.0001, "0 %"),
        (-0.3, "-30 %"),
    ],
)
def test_percent_has_one_decimal_below_ten(fraction: float, text: str) -> None:
    assert percent_text(fraction) == text


def test_percent_has_as_many_digits_as_asked_for() -> None:
    assert percent_text(0.99995, digits=7) == "99.995 %"
    assert percent_text(0.125, digits=3) == "12.5 %"


def test_errors_are_one_line_with_field_and_hint() -> None:
    error = RoofcastError("is wrong\nvery", field="a.b", hint="try c")
    assert str(error) == "a.b: is wrong very (try c)"
    assert error.exit_code is ExitCode.USAGE
    assert ProfileError("x").exit_code is ExitCode.PROFILE


def test_of_a_long_path_the_file_s_name_stays(tmp_path: Path) -> None:
    folder = tmp_path / "/".join(["a-folder-of-some-length"] * 12)
    path = str(folder / "scenarios-of-tuesday.jsonl")
    for message in (f"{path}: cannot be read: no such file", f"cannot write {path!r}: no room", shown(path)):
        said = one_line(message)
        assert "scenarios-of-tuesday.jsonl" in said
        assert path not in said
        assert len(said) < 4 * LONGEST_VALUE
    assert one_line(f"{path}: cannot be read: no such file").endswith(": cannot be read: no such file")
    usual = f"/tmp/{'folder/' * 15}trace.jsonl"
    assert usual in one_line(f"trace: {usual}, line 3: not JSON")
    link = "https://example.org/" + "a" * 100
    assert link in one_line(f"see {link}")
    assert shown("a word/" * 20).endswith("...")
    assert len(shown("x" * 500)) == len(shown("x/" * 500)) == LONGEST_VALUE


def test_did_you_mean_prefers_close_names_and_lists_otherwise() -> None:
    assert did_you_mean("h10", ["h100", "a100"]).startswith("did you mean h100")
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("zzz", [f"n{number:02d}" for number in range(20)]).endswith("n11, ...")


@pytest.mark.parametrize(
    ("value", "text"),
    [(361.7, "361.7"), (645.0, "645"), (12.0, "12"), (1.5, "1.5"), (1_234_567.8, "1,234,568"), (0.0123456, "0.01235")],
)
def test_plain_numbers_are_never_in_powers_of_ten(value: float, text: str) -> None:
    assert plain_text(value) == text


@pytest.mark.parametrize(("value_s", "text"), [(0.05, "50 ms"), (0.0492, "49.2 ms"), (2.0, "2 s"), (90.0, "90 s")])
def test_bounds_are_shown_as_people_set_them(value_s: float, text: str) -> None:
    assert bound_text(value_s) == text
