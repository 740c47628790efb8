"""Device memory as a stack: weights, activations, the runtime's own, and what is left for the cache."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.phases.memory import MemoryPlan
from simulator.reports.figures.chart import Axis, Chart, Series, SeriesKind
from simulator.units import GIGA

_PARTS = (
    ("Weights", "weights_bytes", 0),
    ("Activations", "activation_bytes", 1),
    ("Runtime reserve", "reserve_bytes", 7),
    ("KV cache", "kv_capacity_bytes", 2),
)


def _title(plans: Sequence[tuple[str, MemoryPlan]]) -> str:
    label, plan = plans[0]
    if len(plans) > 1:
        return "Memory of one device"
    if plan.shortfall_bytes > 0:
        return f"{label} does not fit: {plan.shortfall_bytes / GIGA:.1f} GB short per device"
    return f"Room for {plan.kv_capacity_tokens:,} cached tokens per replica"


def memory_stack_chart(plans: Sequence[tuple[str, MemoryPlan]]) -> Chart:
    """One stacked bar per (label, memory plan): how the fullest device of a replica divides [GB].

    A plan that does not fit shows its shortfall on top, beyond the budget.
    """
    places = tuple(float(place) for place in range(len(plans)))
    series = [
        Series(
            name=name,
            kind=SeriesKind.STACKED_BAR,
            x=places,
            y=tuple(getattr(plan, field) / GIGA for _, plan in plans),
            labels=tuple(f"{name}: {getattr(plan, field) / GIGA:.1f} GB" for _, plan in plans),
            color=color,
        )
        for name, field, color in _PARTS
    ]
    if any(plan.shortfall_bytes > 0 for _, plan in plans):
        short = tuple(plan.shortfall_bytes / GIGA for _, plan in plans)
        series.append(Series(name="Over budget", kind=SeriesKind.STACKED_BAR, x=places, y=short, color=3))
    return Chart(
        key="memory_stack",
        title=_title(plans),
        x=Axis(title="", categories=tuple(label for label, _ in plans)),
        y=Axis(title="Memory per device", unit="GB"),
        series=tuple(series),
        caption="The fullest device of a replica, within the engine's memory budget.",
    )
