"""Published figures: each within its own tolerance, known misses no worse than they were, every recipe runs."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from statistics import mean, median

import pytest

from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.published.catalogue import compared, explained, predicted, published_figures, reasons, topics
from simulator.published.figures import ComparedFigure, PublishedFigure, by_library
from simulator.published.techniques import published_techniques
from simulator.published.worked_examples import run_rows
from tests.for_every import for_every

WIDEST_TOLERANCE = 0.25
FIGURES = published_figures()


@pytest.fixture(scope="module")
def found() -> dict[str, ComparedFigure]:
    return {item.figure.name: item for item in compared()}


@for_every(FIGURES)
def test_a_figure_is_reproduced_within_its_tolerance(found: dict[str, ComparedFigure], figure: PublishedFigure) -> None:
    item = found[figure.name]
    assert not item.is_off, f"{item.error:+.1%} of {figure.tolerance:.1%}"


def test_tolerances_are_honest_and_every_figure_says_where_it_is_printed() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES) > 160
    for figure in FIGURES:
        assert figure.source
        assert figure.unit
        assert figure.statement
        assert figure.is_known_miss or figure.tolerance <= WIDEST_TOLERANCE
        assert not figure.is_known_miss or len(figure.reason.split()) > 5
    for row in run_rows():
        assert len(row["version"]) in (len("2025-05-05"), 40), "the date of a page or a commit"
    rows = published_techniques()
    assert {row.source for row in (*rows.steps, *rows.products, *rows.ratios)} == set(rows.sources)


def test_figures_that_no_parameter_saw_have_a_small_median_error(found: dict[str, ComparedFigure]) -> None:
    for topic, bar in (("quantization", 0.10), ("attention", 0.10), ("kv-cache", 0.05), ("structure", 0.02)):
        errors = [
            abs(item.error) for item in found.values() if item.figure.topic == topic and not item.figure.is_fitted
        ]
        assert len(errors) > 4
        assert median(errors) < bar, topic


def test_speculation_on_an_accelerator_that_no_fit_saw(found: dict[str, ComparedFigure]) -> None:
    unseen = [abs(item.error) for name, item in found.items() if name.endswith("rtx-3090")]
    assert len(unseen) == 8
    assert mean(unseen) <= 0.12


def test_smoothquant_levels_stand_in_the_published_order(found: dict[str, ComparedFigure]) -> None:
    for case in ("opt-13b-256", "opt-13b-512", "opt-30b-256", "opt-30b-512"):
        levels = [found[f"smoothquant-{case}-{name}"].predicted for name in ("fp16", "o1", "o2", "o3")]
        assert levels == sorted(levels, reverse=True)


def test_a_65b_model_is_tuned_within_48_gb(found: dict[str, ComparedFigure]) -> None:
    assert found["qlora_65b_share_of_48_gb"].predicted < 1


def test_the_worst_of_each_topic_have_a_reason_and_every_reason_a_figure(found: dict[str, ComparedFigure]) -> None:
    worst = explained(list(found.values()))
    assert len(worst) >= 9
    assert [name for name, reason in worst.items() if reason is None] == []
    for start in reasons():
        assert any(name.startswith(start) for name in found), start


def test_memory_and_counts_are_within_two_percent_or_say_why(found: dict[str, ComparedFigure]) -> None:
    """Of every unit that counts; ratios of such figures are known by the field that asks or by their names."""
    counts = {"byte", "GB", "GiB", "FLOP", "FLOP/byte", "fraction", "billion", "million", "value", "parameters"}
    words = ("hbm", "flops", "memory", "size")
    why = explained(list(found.values()))
    for name, item in found.items():
        if item.figure.unit in counts or any(word in name.split("_") + name.split("-") for word in words):
            assert abs(item.error) <= 0.02 or why.get(name), f"{name} {item.error:+.1%}"


def printed(command: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The JSON document of a recipe's command line, run in this process."""
    stream = io.StringIO()
    words = shlex.split(command)
    if words[0] == "echo":
        assert words[2:] == ["|", "roofcast", "simulate", "-"]
        monkeypatch.setattr(sys, "stdin", io.StringIO(words[1] + "\n"))
        words = words[3:]
    assert words[0] == "roofcast"
    with redirect_stdout(stream):
        assert run(app, name="roofcast", arguments=words[1:]) == 0, command
    document: dict[str, object] = json.loads(stream.getvalue())
    return document


def field_of(document: object, name: str) -> float:
    for part in name.split("."):
        document = document[int(part)] if isinstance(document, list) else document[part]  # type: ignore[index]
    assert isinstance(document, int | float)
    return float(document)


def asked_on_the_command_line() -> Iterator[PublishedFigure]:
    seen: set[str] = set()
    for figure in FIGURES:
        # One of each kind of command, engine and topic is run; all of them take as long as all scenarios.
        kind = f"{figure.topic} {figure.asked_by.field} {figure.name.split('-')[0]}"
        if figure.asked_by.field and kind not in seen:
            seen.add(kind)
            yield figure


ASKED = list(asked_on_the_command_line())


@pytest.mark.parametrize("figure", ASKED, ids=[figure.name.replace(" ", "_") for figure in ASKED])
def test_a_recipe_prints_the_prediction(
    figure: PublishedFigure, found: dict[str, ComparedFigure], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = figure.asked_by
    values = [field_of(printed(command, monkeypatch), asked.field) for command in asked.commands]
    ratio = values[0] if len(values) == 1 else values[0] / values[1]
    assert ratio / asked.scale == pytest.approx(found[figure.name].predicted, rel=1e-6)


def test_a_figure_without_a_command_is_asked_of_the_library() -> None:
    figure = next(figure for figure in FIGURES if not figure.asked_by.field)
    (command,) = figure.asked_by.commands
    program, flag, code = shlex.split(command)
    assert (program, flag) == ("python", "-c")
    stream = io.StringIO()
    with redirect_stdout(stream):
        exec(code, {})
    assert float(stream.getvalue()) == pytest.approx(predicted(figure.name))
    assert by_library(figure.name) == figure.asked_by


def test_the_command_prints_each_figure_of_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, name="roofcast", arguments=["published", "--topic", "fine-tuning", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = [figure.name for figure in FIGURES if figure.topic == "fine-tuning"]
    assert [row["name"] for row in document["figures"]] == names
    (topic,) = document["topics"]
    assert topic["mean"] == pytest.approx(mean(abs(row["error"]) for row in document["figures"]))
    for row in document["figures"]:
        assert row["error"] == pytest.approx(row["predicted"] / row["published"] - 1)
        assert row["recipe"]["commands"]
    assert run(app, name="roofcast", arguments=["published", "--topic", "fine-tuning"]) == 0
    text = capsys.readouterr().out
    for row in document["figures"]:
        assert row["name"] in text
        assert row["source"] in text
        assert all(command in text for command in row["recipe"]["commands"])


def test_an_unknown_topic_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, name="roofcast", arguments=["published", "--topic", "quantisation"]) == 2
    message = capsys.readouterr().err
    assert "did you mean quantization" in message
    assert all(topic in message for topic in topics())


def test_what_is_off_is_marked() -> None:
    figure = FIGURES[0]
    near, far = (ComparedFigure(figure=figure, predicted=figure.published * by) for by in (1.0, 2.0))
    assert (near.is_off, far.is_off) == (False, True)
