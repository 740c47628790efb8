"""What each technique takes off (or adds to) a number of a deployment."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.engine.answers import ScenarioResult
from simulator.planner.what_if import TechniqueStep
from simulator.reports.figures.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import bytes_text, change_text, joules_text, seconds_text
from simulator.units import GIGA, KILO, MILLI


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallMetric:
    """A number that a waterfall can show, in the unit of its axis; less is better for all of them.

    key : of the contract's result; scale : base units per unit of the axis
    """

    key: str
    name: str
    unit: str
    scale: float
    text: Callable[[float], str]
    value: Callable[[ScenarioResult], float]


WATERFALL_METRICS = (
    WaterfallMetric(
        key="tpot_s", name="TPOT", unit="ms", scale=MILLI, text=seconds_text, value=lambda found: found.run.tpot_s
    ),
    WaterfallMetric(
        key="ttft_s", name="TTFT", unit="ms", scale=MILLI, text=seconds_text, value=lambda found: found.run.ttft_s
    ),
    WaterfallMetric(
        key="e2e_s", name="End to end", unit="s", scale=1.0, text=seconds_text, value=lambda found: found.run.e2e_s
    ),
    WaterfallMetric(
        key="energy_per_output_token_j",
        name="Energy per token",
        unit="J",
        scale=1.0,
        text=joules_text,
        value=lambda found: found.energy_per_output_token_j,
    ),
    WaterfallMetric(
        key="weights_bytes",
        name="Weights per device",
        unit="GB",
        scale=GIGA,
        text=bytes_text,
        value=lambda found: found.run.memory.weights_bytes,
    ),
    WaterfallMetric(
        key="kv_bytes_per_token",
        name="KV cache per token",
        unit="kB",
        scale=KILO,
        text=bytes_text,
        value=lambda found: found.run.memory.kv_bytes_per_token,
    ),
)


def technique_waterfall_chart(
    steps: Sequence[TechniqueStep], *, metric: WaterfallMetric = WATERFALL_METRICS[0]
) -> Chart:
    """A metric from the published model to the whole scenario, one technique after the other."""
    found = [metric.value(step.result) for step in steps]
    names = (*(step.name for step in steps), "With all")
    changes = [now - before for before, now in itertools.pairwise(found)]
    values = (found[0], *changes, found[-1])
    change = change_text(found[-1], found[0]) or "no change"
    return Chart(
        key="technique_waterfall",
        title=f"{metric.name}: {metric.text(found[0])} to {metric.text(found[-1])} ({change})",
        x=Axis(title="", categories=names),
        y=Axis(title=metric.name, unit=metric.unit),
        series=(
            Series(
                name=metric.name,
                kind=SeriesKind.WATERFALL,
                x=tuple(float(place) for place in range(len(values))),
                y=tuple(value / metric.scale for value in values),
                labels=("total", *("" for _ in changes), "total"),
            ),
        ),
        caption="Each technique on top of those to its left: what it is worth depends on the order.",
    )
