"""What comes from outside: numbers are numbers, unknown fields are refused, and what is refused is said in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, PositiveInt, ValidationError

from simulator.errors import LONGEST_VALUE, FileError, RoofcastError, one_line, shown
from simulator.specs import parsing
from simulator.specs.base import LARGEST_INTEGER, Spec, read_json, validate
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.parsing import DEEPEST, MOST_CONTAINERS, MalformedError, parse_json, parse_yaml, read_text
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.specs.refusals import refused
from tests.for_every import for_every


class Counted(Spec):
    """One field of every kind of number."""

    count: PositiveInt = 1
    share: float = 0.5
    flag: bool = False
    sizes: tuple[PositiveInt, ...] = ()
    either: float | tuple[float, ...] = 0.0
    named: dict[str, float] = Field(default_factory=dict)


@for_every(["8", " 8 ", "1_000", "", True, None, [8], {"a": 8}, 8.5, 10**400, b"8"])
def test_what_is_no_integer_is_none(value: object) -> None:
    with pytest.raises(RoofcastError):
        validate(Counted, {"count": value}, where="")


@pytest.mark.parametrize("field", ["share", "either"])
@pytest.mark.parametrize("value", ["0.5", True, "nan", float("inf"), 10**400, 1e31])
def test_what_is_no_number_is_none(field: str, value: object) -> None:
    with pytest.raises(RoofcastError, match=f"^{field}: "):
        validate(Counted, {field: value}, where="")


@pytest.mark.parametrize("data", [{"sizes": ["8"]}, {"either": [True]}, {"named": {"a": "1"}}, {"flag": 1}])
def test_parts_are_as_strict(data: dict[str, object]) -> None:
    with pytest.raises(RoofcastError, match=f"^{next(iter(data))}"):
        validate(Counted, data, where="")


def test_whole_floats_are_integers_because_programs_write_them() -> None:
    assert Counted(count=8.0, sizes=[2.0, 4]).sizes == (2, 4)  # type: ignore[arg-type]
    assert Counted(share=1).share == 1.0
    with pytest.raises(ValidationError):
        Counted(count=LARGEST_INTEGER + 1)


def test_the_place_of_a_refusal_is_a_field_and_not_a_type() -> None:
    with pytest.raises(ValidationError) as caught:
        Counted(either=["x"], share="y")  # type: ignore[arg-type]
    field, message, _ = refused(Counted, caught.value)
    assert field == "share"
    assert "either" in message
    assert "constrained" not in message
    assert "tuple" not in message


@pytest.mark.parametrize("spec", [ScenarioSpec, WorkloadSpec, EngineSpec])
def test_an_unknown_field_is_refused_although_it_is_null(spec: type[Spec]) -> None:
    with pytest.raises(RoofcastError, match=r"unknown field|more: .*frobnicate"):
        validate(spec, {"frobnicate": None}, where="")


def test_a_null_flag_of_no_name_is_refused() -> None:
    with pytest.raises(RoofcastError, match="unknown field"):
        plan_spec({"frobnicate": None, "model": "llama-3.1-8b"})


@given(st.text())
def test_a_message_is_one_line_of_printable_letters(text: str) -> None:
    error = RoofcastError(f"found {text!r} {text}", field=text, hint=text)
    assert str(error).isprintable()
    assert "\x1b" not in str(error)


def test_long_values_are_cut() -> None:
    value = "x" * 10_000
    assert len(shown(value)) == LONGEST_VALUE
    assert len(str(RoofcastError(f"{value!r} is not {value!r}"))) < 3 * LONGEST_VALUE
    assert len(one_line(" ".join(["word"] * 1000))) <= 1000
    assert len(RoofcastError("wrong", field=".".join(["releases", value, "version"])).field) < 2 * LONGEST_VALUE
    assert len(RoofcastError("wrong", field=".".join([value] * 100)).field) == 3 * LONGEST_VALUE
    assert shown([[[]]]) == "[[[]]]"
    assert shown(10**5000) == "a int"


@pytest.mark.parametrize("whole", [str, str.encode])
def test_a_document_of_too_many_parts_is_refused_before_it_takes_memory(whole: Callable[[str], Any]) -> None:
    parts = MOST_CONTAINERS - 1
    with pytest.raises(MalformedError, match="more than 2,000,000 lists and objects"):
        parse_json(whole("[" + "[]," * parts + "{}]"))
    assert parse_json(whole("[" + "1," * (parts // 100) + "{}]"))[-1] == {}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("levels", [DEEPEST + 1, 600, 100_000])
@pytest.mark.parametrize("parse", [parse_json, parse_yaml])
def test_nesting_is_refused_whatever_its_depth(parse: Any, levels: int, opening: str) -> None:
    with pytest.raises(MalformedError):
        parse(opening * levels)
    closing = "]" if opening == "[" else "}"
    with pytest.raises(MalformedError, match="nested deeper than"):
        parse(opening * levels + "1" + closing * levels)


def test_what_nests_as_deep_as_allowed_is_read() -> None:
    text = "[" * DEEPEST + "]" * DEEPEST
    assert parse_json(text) == parse_yaml(text)


def test_numbers_of_too_many_digits_are_refused() -> None:
    for parse in (parse_json, parse_yaml):
        with pytest.raises(MalformedError, match="digits"):
            parse('{"a": ' + "9" * 5000 + "}")
        with pytest.raises(MalformedError, match="digits"):
            parse('{"a": ' + "9" * 400 + "}")
    with pytest.raises(MalformedError, match="digits"):
        parse_yaml("a: " + "9" * 5000)


@pytest.mark.parametrize("text", ["1_000", "010", "1:30", "0x1F", "0b1"])
def test_numbers_of_yaml_that_nobody_means_stay_text(text: str) -> None:
    assert parse_yaml(f"a: {text}")["a"] == text


@pytest.mark.parametrize(("text", "value"), [("3.35e12", 3.35e12), ("1e5", 1e5), ("+3", 3), ("-.5", -0.5), ("5.", 5.0)])
def test_numbers_that_people_write_are_read(text: str, value: float) -> None:
    assert parse_yaml(f"a: {text}")["a"] == value


@pytest.mark.parametrize("link", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_stand_for_a_bounded_number_of_values(link: str) -> None:
    lines = ["a0: &a0 {k: 1}"]
    for level in range(1, 10):
        aliases = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} " + link.format(aliases))
    with pytest.raises(MalformedError, match="stands for more than"):
        parse_yaml("\n".join(lines))
    with pytest.raises(MalformedError, match="inside itself"):
        parse_yaml("a: &a [*a]")


def test_files_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "LARGEST_FILE_BYTES", 1_000_000)
    with pytest.raises(FileError, match="larger than"):
        read_text("/dev/zero")
    with pytest.raises(FileError):
        read_text("x" * 300)
    with pytest.raises(FileError):
        read_json("a\0b")
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + json.dumps({"a": 1}).encode())
    assert read_json(marked) == {"a": 1}
