"""Device memory as a stack: weights, activations, the runtime's own, and what is left for the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.engine.uniform.record import CacheUse
from simulator.phases.memory import MemoryPlan
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind, places
from simulator.reports.content.quantities import percent_text
from simulator.units import GIGA

_PARTS = (
    ("Weights", "weights_bytes", 0),
    ("Activations", "activation_bytes", 1),
    ("Runtime reserve", "reserve_bytes", 7),
)
_CACHE, _FREE = 2, 4


def _title(plans: Sequence[tuple[str, MemoryPlan]], *, ranks: int) -> str:
    label, plan = plans[0]
    if len(plans) > 1:
        return "Memory of one device"
    if plan.shortfall_bytes > 0:
        return f"{label} does not fit: {plan.shortfall_bytes / GIGA:.1f} GB short per device"
    whose = "per replica" if ranks == 1 else f"in each of {ranks} attention ranks"
    return f"Room for {plan.kv_capacity_tokens:,} cached tokens {whose}"


def memory_stack_chart(plans: Sequence[tuple[str, MemoryPlan]], *, used: Sequence[float] = (), ranks: int = 1) -> Chart:
    """One stacked bar per (label, memory plan): how the fullest device of a replica divides [GB].

    A plan that does not fit shows its shortfall on top, beyond the budget. ``used`` is the share of each plan's cache
    that is in use, where that is known; ``ranks`` of data-parallel attention each keep a cache of their own.
    """
    series = [_part(name, [getattr(plan, field) for _, plan in plans], color=color) for name, field, color in _PARTS]
    caches = [plan.kv_capacity_bytes for _, plan in plans]
    if used:
        taken = [share * cache for share, cache in zip(used, caches, strict=True)]
        free = [cache - part for part, cache in zip(taken, caches, strict=True)]
        series += [_part("KV cache in use", taken, color=_CACHE), _part("KV cache free", free, color=_FREE)]
    else:
        series.append(_part("KV cache", caches, color=_CACHE))
    if any(plan.shortfall_bytes > 0 for _, plan in plans):
        short = tuple(plan.shortfall_bytes / GIGA for _, plan in plans)
        series.append(Series(name="Over budget", kind=SeriesKind.STACKED_BAR, x=places(len(plans)), y=short, color=3))
    return Chart(
        key="memory_stack",
        title=_title(plans, ranks=ranks),
        x=Axis(title="", categories=tuple(label for label, _ in plans)),
        y=Axis(title="Memory per device", unit="GB"),
        series=tuple(series),
        caption="The fullest device of a replica, within the engine's memory budget.",
    )


def memory_over_time_chart(plan: MemoryPlan, use: CacheUse) -> Chart:
    """The fullest device of a replica as one bar a moment: what stays, and how the cache fills [GB]."""
    many = len(use.moments_s)
    series = [_part(name, [getattr(plan, field)] * many, color=color) for name, field, color in _PARTS]
    series += [
        _part("KV cache in use", [share * plan.kv_capacity_bytes for share in use.used], color=_CACHE),
        _part("KV cache free", [(1 - share) * plan.kv_capacity_bytes for share in use.used], color=_FREE),
    ]
    return Chart(
        key="memory_over_time",
        title=f"The KV cache fills to {percent_text(max(use.used))}",
        x=Axis(title="Time", unit="s", categories=tuple(f"{moment:.3g}" for moment in use.moments_s)),
        y=Axis(title="Memory per device", unit="GB"),
        series=tuple(replace(item, labels=()) for item in series),
        caption="The fullest device of the first replica, at the fullest moment of each stretch, within the engine's "
        "memory budget.",
    )


def _part(name: str, sizes_bytes: Sequence[float], *, color: int) -> Series:
    return Series(
        name=name,
        kind=SeriesKind.STACKED_BAR,
        x=places(len(sizes_bytes)),
        y=tuple(size / GIGA for size in sizes_bytes),
        labels=tuple(f"{name}: {size / GIGA:.1f} GB" for size in sizes_bytes),
        color=color,
    )
