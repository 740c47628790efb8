"""Figures that others printed against what is predicted: the error of each, in the order of their size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.published.figures import ComparedFigure
from simulator.published.speculation import published_rows as speculation_rows
from simulator.published.techniques import published_techniques, speedups
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.content.document import Cell, fraction, number, ordered
from simulator.reports.content.quantities import signed_percent_text
from simulator.specs.question.scenario import ScenarioSpec

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
    ordered = sorted(figures, key=lambda item: item.error)
    groups = dict.fromkeys(map(_group, ordered))
    series = []
    for group in groups:
        members = [(place + 1, item) for place, item in enumerate(ordered) if _group(item) == group]
        series.append(
            Series(
                name=group,
                kind=SeriesKind.SCATTER,
                x=tuple(float(place) for place, _ in members),
                y=tuple(_PERCENT * item.error for _, item in members),
                labels=tuple(item.figure.name for _, item in members),
            )
        )
    return Chart(
        key="published",
        title="What is predicted, against what was printed",
        x=Axis(title="Figures, by their error", step=float(max(1, -(-len(figures) // _MOST_MARKS)))),
        y=Axis(title="Predicted over published", unit="%"),
        series=tuple(series),
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
    if guesses is not None and (rows := [row for row in speculation_rows() if row.method == guesses.method]):
        where = f"Vicuna-7B on {_of(row.hardware for row in rows)} under eager PyTorch, one sequence"
        gains = [row.speedup for row in rows]
        lines.append(f"{guesses.method}: {_between(gains)} ({where}); roofcast explain speculation")
    if spec.sparsity is not None and spec.sparsity.pattern == "2:4":
        products = published_techniques().products
        gains = [row.dense_milliseconds / row.sparse_milliseconds for row in products]
        where = f"single products of 2,048 tokens on {_of(row.hardware for row in products)}"
        lines.append(f"2:4: {_between(gains)} ({where}); roofcast explain pruning")
    return tuple(lines)


def _between(gains: Sequence[float]) -> str:
    low, high = min(gains), max(gains)
    return f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}x to {high:.2f}x"


def _of(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
