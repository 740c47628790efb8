"""Every published figure by topic, what the library says to each, and why the worst are off; as a chart and as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from simulator.errors import Option, RoofcastError, did_you_mean
from simulator.published import chinchilla, structure, techniques, worked_examples
from simulator.published.figures import ComparedFigure, PublishedFigure, rows_of
from simulator.published.techniques import published_techniques, speedups
from simulator.published.worked_examples import run_figures, run_rows
from simulator.reports.charts.chart import Annotation, Axis, Chart, marks
from simulator.reports.content.document import Cell, fraction, number, ordered
from simulator.reports.content.quantities import signed_percent_text
from simulator.specs.question.scenario import ScenarioSpec

TABLE = "reasons.csv"
WORST = 3
NEEDS_REASON = 0.1
"""Errors above it have to be explained where they are among the worst of their topic."""


@lru_cache(maxsize=1)
def reasons() -> Mapping[str, str]:
    """Reason by the beginning of a figure's name."""
    return {row["begins_with"]: row["reason"] for row in rows_of(TABLE)}


def reason_of(name: str) -> str | None:
    """The reason with the longest matching beginning, or None."""
    found = [start for start in reasons() if name.startswith(start)]
    return reasons()[max(found, key=len)] if found else None


def worst_names(errors: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """Names of the WORST largest errors of one topic that need a reason, largest first."""
    ordered = sorted(errors, key=lambda item: -abs(item[1]))[:WORST]
    return tuple(name for name, error in ordered if abs(error) > NEEDS_REASON)


SPECULATION = "speculation.jsonl"
PARTS = (
    *(part.figures for part in (worked_examples, structure, techniques)),
    partial(run_figures, SPECULATION),
    chinchilla.figures,
    run_figures,
)


def published_figures() -> list[PublishedFigure]:
    """All figures, those of a topic together, in the order in which topics first occur."""
    found = [figure for figures in PARTS for figure in figures()]
    topics = list(dict.fromkeys(figure.topic for figure in found))
    return sorted(found, key=lambda figure: topics.index(figure.topic))


def topics() -> tuple[str, ...]:
    """Names of the topics."""
    return tuple(dict.fromkeys(figure.topic for figure in published_figures()))


def compared(topic: str | None = None) -> Iterator[ComparedFigure]:
    """Figures of one topic, or all, beside predictions made now. Raises RoofcastError: no figure has that topic."""
    figures = [figure for figure in published_figures() if topic in (None, figure.topic)]
    if not figures and topic is not None:
        known = topics()
        raise RoofcastError(
            f"no figure is of {topic!r}; allowed: {', '.join(known)}",
            field=Option("topic"),
            hint=did_you_mean(topic, known, otherwise="all of them without it"),
        )
    for figure in figures:
        yield ComparedFigure(figure=figure, predicted=figure.predict())


def predicted(name: str) -> float:
    """What the library says to one figure, in its unit. Raises RoofcastError: no figure has that name."""
    figures = {figure.name: figure for figure in published_figures()}
    if name not in figures:
        raise RoofcastError(f"no figure is called {name!r}", field="name", hint=did_you_mean(name, figures))
    return figures[name].predict()


def explained(figures: Sequence[ComparedFigure]) -> dict[str, str | None]:
    """The worst figures of each topic, and those that a reason names in full; known misses carry their own."""
    found: dict[str, str | None] = {
        item.figure.name: reasons()[item.figure.name] for item in figures if item.figure.name in reasons()
    }
    for topic in dict.fromkeys(item.figure.topic for item in figures):
        errors = [
            (item.figure.name, item.error)
            for item in figures
            if item.figure.topic == topic and not item.figure.is_known_miss
        ]
        found |= {name: reason_of(name) for name in worst_names(errors)}
    return found


_PERCENT = 100
_MOST_MARKS = 10


def topic_title(topic: str) -> str:
    """``KV cache`` of ``kv-cache``."""
    words = topic.replace("kv-", "KV ")
    return f"{words[:1].upper()}{words[1:]}"


def _group(item: ComparedFigure) -> str:
    if item.figure.is_known_miss:
        return "known miss"
    return "off" if item.is_off else "fitted to it" if item.figure.is_fitted else "within tolerance"


def published_chart(figures: Sequence[ComparedFigure]) -> Chart:
    """Signed error of every figure [%], from the one predicted lowest to the one predicted highest."""
    groups: dict[str, list[tuple[float, float, str]]] = {}
    for place, item in enumerate(sorted(figures, key=lambda item: item.error)):
        groups.setdefault(_group(item), []).append((place + 1.0, _PERCENT * item.error, item.figure.name))
    return Chart(
        key="published",
        title="What is predicted, against what was printed",
        x=Axis(title="Figures, by their error", step=float(max(1, -(-len(figures) // _MOST_MARKS)))),
        y=Axis(title="Predicted over published", unit="%"),
        series=tuple(marks(*group) for group in groups.items()),
        annotations=(Annotation(text="as printed", y=0.0),),
        caption="Every figure has a source, a tolerance and the command that asks for it.",
    )


PUBLISHED_COLUMNS = ("figure", "unit", "published", "predicted", "error", "tolerance", "verdict")


def published_rows(figures: Sequence[ComparedFigure]) -> list[tuple[Cell | str, ...]]:
    """One row a figure, in the order of PUBLISHED_COLUMNS."""
    return [
        (
            item.figure.name,
            item.figure.unit,
            number(item.figure.published),
            number(item.predicted),
            ordered(signed_percent_text(item.error), item.error),
            fraction(item.figure.tolerance),
            _group(item),
        )
        for item in figures
    ]


def printed_speedups(scenario: ScenarioSpec) -> tuple[str, ...]:
    """What papers printed for the number format, speculation and sparsity of a scenario, in their own set-ups, by line.
    Their software is not the scenario's, so that the ratios differ; the topics hold the recipe of each."""
    spec = scenario.techniques
    scheme, guesses = scenario.precision.scheme, spec.speculation
    lines = []
    if found := [(row, gain) for row, gain in speedups() if row.precision.scheme == scheme]:
        kernels = next((row.precision.kernel for row, _ in found if row.precision.kernel), "")
        where = f"{_of(row.model for row, _ in found)} on {_of(row.hardware for row, _ in found)} under eager PyTorch"
        where += f" with kernels of {kernels}" if kernels else ""
        topic = "activation-quantization" if found[0][0].phase == "prefill" else "weight-quantization"
        lines.append(f"{scheme}: {_between([gain for _, gain in found])} ({where}); roofcast explain {topic}")
    every = run_rows(SPECULATION) if guesses is not None else []
    if guesses is not None and (rows := [row for row in every if _guessed_by(row) == guesses.method]):
        where = f"Vicuna-7B on {_of(row['scenario']['hardware'] for row in rows)} under eager PyTorch, one sequence"
        gains = [row["published"] for row in rows]
        lines.append(f"{guesses.method}: {_between(gains)} ({where}); roofcast explain speculation")
    if spec.sparsity is not None and spec.sparsity.pattern == "2:4":
        products = published_techniques().products
        gains = [row.dense_milliseconds / row.sparse_milliseconds for row in products]
        where = f"single products of 2,048 tokens on {_of(row.hardware for row in products)}"
        lines.append(f"2:4: {_between(gains)} ({where}); roofcast explain pruning")
    return tuple(lines)


def _guessed_by(row: Mapping[str, Any]) -> object:
    return row["over"]["techniques"]["speculation"]["method"]


def _between(gains: Sequence[float]) -> str:
    low, high = min(gains), max(gains)
    return f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}x to {high:.2f}x"


def _of(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
