"""What is left of a fleet carries the planned peak: load of the survivors, case by case."""

from __future__ import annotations

from math import exp, isfinite

from simulator.planner.limits import DEVIATE_80
from simulator.planner.records import Fleet
from simulator.planner.risk_records import Resilience
from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind

_NOTHING = "nothing"
_HEADROOM = 1.15
"""Room above the tallest bar for the texts of horizontal lines."""


def loss_cases_chart(found: Resilience, *, fleet: Fleet) -> Chart:
    """Load of the replicas that remain, as a share of the rate that saturates them, after each loss.

    Cases that leave no replica have no load and are named in the caption. A load goes with the step time, and so do its
    whiskers: the ends of the 80 % interval.
    """
    loads = [(_NOTHING, fleet.at_peak.load), *((case.name, case.load) for case in found.cases)]
    shown = [(name, 100 * load) for name, load in loads if isfinite(load)]
    gone = [name for name, load in loads if not isfinite(load)]
    allowed = 100 * found.load_target.by_objectives
    spread = exp(DEVIATE_80 * fleet.log_sigma)
    ends = [(load / spread, load * spread) for _, load in shown]
    tallest = max([allowed, *(high for _, high in ends)])
    return Chart(
        key="loss_cases",
        title=_title(found),
        x=Axis(title="Lost at the planned peak", categories=tuple(name for name, _ in shown)),
        y=Axis(title="Load of what is left", unit="% of saturation", low=0.0, high=_HEADROOM * tallest),
        series=(
            Series(
                name="load",
                kind=SeriesKind.BAR,
                x=tuple(float(place) for place, _ in enumerate(shown)),
                y=tuple(load for _, load in shown),
                low=tuple(low for low, _ in ends),
                high=tuple(high for _, high in ends),
                labels=tuple(f"{load:.0f} %" for _, load in shown),
                color=0,
            ),
        ),
        annotations=(Annotation(text="", y=allowed),),
        caption=" ".join(
            [
                f"The line is what the objectives allow: {allowed:.0f} %. Spares carry load until they are needed. "
                "Whiskers: 80 % interval; above 100 % the queue grows.",
                *([f"No replica is left after losing {' or '.join(gone)}."] if gone else []),
            ]
        ),
    )


def _title(found: Resilience) -> str:
    missed = [case.name for case in found.cases if not case.holds]
    if not missed:
        return "The objectives hold in every loss case"
    held = [case.name for case in found.cases if case.holds]
    first = f"Losing {held[-1]} is covered" if held else "No loss is covered"
    return f"{first}; losing {missed[0]} breaks the objectives"
