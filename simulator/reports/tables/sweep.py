"""A swept deployment as a sentence and as rows for people."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.deployment_sweep import SweepAxis
from simulator.reports.charts.sweep import METRICS, SweepMetric, SweptPoint, point_label
from simulator.reports.content.quantities import number_text, range_text

SWEPT_COLUMNS = ("point", *(metric.name for metric in METRICS), "objectives", "known")


def sweep_headline(best: SweptPoint | None, *, metric: SweepMetric, axes: tuple[SweepAxis, SweepAxis]) -> str:
    """``batch 64, TP 2 is best within the objectives: 1,230 tok/s, tokens/s per accelerator``."""
    if best is None:
        return "No point of the sweep holds both objectives"
    value = metric.value(best.what_if, best.document)
    said = "unknown" if value is None else f"{number_text(value)} {metric.unit}"
    word = "most" if metric.higher_is_better else "least"
    name = metric.title[:1].lower() + metric.title[1:] if metric.title[1:2].islower() else metric.title
    point = point_label(best.point, *axes)
    return f"{point[:1].upper()}{point[1:]} has the {word} {name} within the objectives: {said}"


def _cell(item: SweptPoint, metric: SweepMetric) -> str:
    value = metric.value(item.what_if, item.document)
    if value is None:
        return "–"
    ends = metric.ends(item.what_if, item.document)
    return f"{number_text(value)} ({range_text(ends, number_text)})" if ends else number_text(value)


def swept_rows(swept: Sequence[SweptPoint], *, axes: tuple[SweepAxis, SweepAxis]) -> list[tuple[str, ...]]:
    """One row a point, in the order of SWEPT_COLUMNS; 80 % intervals in brackets."""
    return [
        (
            point_label(item.point, *axes),
            *(_cell(item, metric) for metric in METRICS),
            "held" if item.holds else "missed",
            item.document["provenance"],
        )
        for item in swept
    ]
