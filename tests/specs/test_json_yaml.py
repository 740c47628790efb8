"""Calibrations are written in the part of YAML that is JSON too: both readings give the same numbers."""

from __future__ import annotations

from datetime import date

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.specs.base import LARGEST_NUMBER, SMALLEST_NUMBER, Same, Source, Spec
from simulator.specs.hardware.calibration import load_calibration
from simulator.specs.parsing import MalformedError, parse_yaml
from validation.writing import json_yaml_text


class Number(Spec):
    """One figure."""

    value: float


@given(
    st.floats(min_value=-LARGEST_NUMBER, max_value=LARGEST_NUMBER).filter(
        lambda value: not 0 < abs(value) < SMALLEST_NUMBER
    )
)
def test_every_number_is_one_to_yaml_and_to_json(value: float) -> None:
    text = json_yaml_text(Number(value=value), heading="Written by a test.")
    assert parse_yaml(text)["value"] == value
    assert yaml.safe_load(text)["value"] == value


@given(st.text(alphabet=st.characters(codec="latin-1", exclude_categories=["C"])))
def test_text_survives(text: str) -> None:
    source = Source(source=text, date=date(2026, 11, 21).isoformat(), note="a: b # c")
    written = json_yaml_text(source, heading="Written by a test.")
    assert Source.model_validate(parse_yaml(written)) == source
    assert Source.model_validate(yaml.safe_load(written)) == source


def test_a_shipped_calibration_is_written_as_it_is_read() -> None:
    shipped = load_calibration("h100-sxm-80gb", library="vllm", group="attention")
    assert shipped is not None
    text = json_yaml_text(shipped, heading="Written by a test.")
    assert type(shipped).model_validate(parse_yaml(text)) == shipped
    assert max(len(line) for line in text.splitlines()) < 250


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '# heading\n{"b": {"a": 1, "a": 2}}'])
def test_a_key_twice_stays_an_error(text: str) -> None:
    with pytest.raises(MalformedError, match="written twice"):
        parse_yaml(text)


def test_what_json_does_not_say_is_read_as_yaml() -> None:
    assert parse_yaml('{"a": NaN, b: [1, x]}') == {"a": "NaN", "b": [1, "x"]}


def test_same_is_identity() -> None:
    first, second = [1], [1]
    assert Same(first) == Same(first)
    assert hash(Same(first)) == hash(Same(first))
    assert Same(first) != Same(second)
    assert Same(first) != first
