"""What each technique takes off (or adds to) the time per token."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from simulator.planner.what_if import TechniqueStep
from simulator.reports.figures.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import change_text, seconds_text
from simulator.units import MILLI


def technique_waterfall_chart(steps: Sequence[TechniqueStep]) -> Chart:
    """TPOT from the published model to the whole scenario, one technique after the other [ms]."""
    tpots_s = [step.result.run.tpot_s for step in steps]
    names = (*(step.name for step in steps), "With all")
    changes = [now - before for before, now in itertools.pairwise(tpots_s)]
    values = (tpots_s[0], *changes, tpots_s[-1])
    change = change_text(tpots_s[-1], tpots_s[0]) or "no change"
    return Chart(
        key="technique_waterfall",
        title=f"TPOT {seconds_text(tpots_s[0])} to {seconds_text(tpots_s[-1])} ({change})",
        x=Axis(title="", categories=names),
        y=Axis(title="TPOT", unit="ms"),
        series=(
            Series(
                name="TPOT",
                kind=SeriesKind.WATERFALL,
                x=tuple(float(place) for place in range(len(values))),
                y=tuple(value / MILLI for value in values),
                labels=("total", *("" for _ in changes), "total"),
            ),
        ),
        caption="Each technique on top of those to its left: what it is worth depends on the order.",
    )
