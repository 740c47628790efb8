"""``simulator.published``: the recipe of a figure is a command that its own parser takes."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.published.catalogue import NEEDS_REASON, WORST, worst_names
from simulator.published.figures import ROUNDING, ComparedFigure, by_library, by_scenario, table_figure
from simulator.published.techniques import precision_words, published_techniques, speedups, step_command
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.for_every import for_every

ROW = {
    "name": "own", "topic": "roofline", "value": "100", "unit": "ms", "tolerance": "0.1", "source": "[Own2026]",
    "statement": "said so", "recipe": "", "field": "", "scale": "",
}  # fmt: skip


def figure(predicted: float, **changed: str) -> ComparedFigure:
    row = table_figure({**ROW, **changed}, lambda: predicted)
    return ComparedFigure(figure=row, predicted=row.predict())


@pytest.mark.parametrize(("predicted", "off"), [(100.0, False), (110.0, False), (89.9, True), (111.0, True)])
def test_a_figure_is_off_beyond_its_tolerance(predicted: float, off: bool) -> None:
    found = figure(predicted)
    assert found.error == pytest.approx(predicted / 100 - 1)
    assert found.is_off is off
    assert ROUNDING < 1e-9


def test_a_row_without_a_recipe_is_asked_of_the_library_by_its_name() -> None:
    found = figure(1.0).figure
    assert found.asked_by == by_library("own")
    words = shlex.split(found.asked_by.commands[0])
    assert words[:2] == ["python", "-c"]
    compile(words[2], "recipe", "exec")


def test_a_row_with_a_recipe_keeps_its_field_and_scale() -> None:
    asked = figure(1.0, recipe="roofcast step", field="step_s", scale="0.001").figure.asked_by
    assert (asked.commands, asked.field, asked.scale) == (("roofcast step",), "step_s", 0.001)
    assert str(asked) == "roofcast step  # step_s"


@pytest.mark.parametrize("reason", ["", "launches"])
def test_a_known_miss_is_one_with_a_reason(reason: str) -> None:
    assert figure(1.0, reason=reason).figure.is_known_miss is bool(reason)


def test_a_scenario_is_one_line_for_simulate() -> None:
    asked = by_scenario({"id": "it's one", "kind": "batch"}, field="tpot_s")
    words = shlex.split(asked.commands[0])
    assert words[0] == "echo"
    assert words[2:] == ["|", "roofcast", "simulate", "-"]
    assert words[1] == '{"id": "it\'s one", "kind": "batch"}'


def test_a_precision_is_said_by_its_own_options() -> None:
    spec = PrecisionSpec(weights=Dtype.FP8, mixed=(("attention", "bf16"), ("mlp", "fp8")))
    words = precision_words(spec)
    assert words == ["--weights", "fp8", "--mixed", "attention=bf16", "--mixed", "mlp=fp8"]
    assert precision_words(PrecisionSpec()) == []


@for_every(published_techniques().steps)
def test_every_step_is_one_command_that_says_what_was_measured(row: object) -> None:
    words = shlex.split(step_command(row))  # type: ignore[arg-type]
    given = dict(zip(words[2:-1:2], words[3:-1:2], strict=True))
    assert (given["--model"], given["--phase"]) == (row.model, row.phase)  # type: ignore[attr-defined]
    assert int(given["--batch"]) == row.sequences  # type: ignore[attr-defined]
    assert words[-1] == "--json"


def test_a_speedup_is_of_the_same_step_in_few_bits() -> None:
    found = speedups()
    assert found
    assert all(gain > 0 for _, gain in found)
    assert not [row.name for row, _ in found if row.name.endswith("-fp16")]


@given(errors=st.lists(st.floats(-1, 1), max_size=12))
def test_the_worst_are_the_largest_errors_that_need_a_reason(errors: list[float]) -> None:
    named = [(str(place), error) for place, error in enumerate(errors)]
    worst = worst_names(named)
    sizes = [abs(dict(named)[name]) for name in worst]
    assert len(worst) <= WORST
    assert sizes == sorted(sizes, reverse=True)
    assert all(size > NEEDS_REASON for size in sizes)
    others = [abs(error) for name, error in named if name not in worst]
    assert len(worst) == WORST or not [size for size in others if size > NEEDS_REASON]
