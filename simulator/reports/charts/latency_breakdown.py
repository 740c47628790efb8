"""Where the time of a step goes, by operator family, each of one name and one colour everywhere; and device memory as a
stack: weights, activations, the runtime's own, and what is left for the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.record import CacheUse, UniformRun
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.phases.memory import MemoryPlan
from simulator.reports.charts.chart import NEUTRAL, Axis, Chart, Series, SeriesKind, places, waterfall_chart
from simulator.reports.content.quantities import percent_text, seconds_text
from simulator.units import GIGA, MILLI

FAMILIES = {
    "gemm": ("Matrix products", 0),
    "moe": ("Experts", 0),
    "prefill_attention": ("Attention (prefill)", 1),
    "decode_attention": ("Attention (decode)", 1),
    "recurrent": ("Recurrent", 6),
    "elementwise": ("Elementwise", 2),
    "embedding": ("Embedding", 6),
    "lm_head": ("LM head", 5),
    "collective": ("Communication", 3),
    "host": ("Host", 7),
    "draft": ("Drafting", 4),
}
"""Operator families in words, and the index of each in the palette, the same in every figure."""
_OTHER = ("Other", NEUTRAL)


def _takes(name: str) -> str:
    """``Matrix products take``, ``LM head takes``."""
    return f"{name} {'take' if name.endswith('s') else 'takes'}"


# Below this share a family is summed up with the others: nobody sees a slice that thin.
_LEAST_SHARE = 0.01


def latency_breakdown_chart(phases: Sequence[tuple[str, PhaseEstimate]]) -> Chart:
    """One stacked bar per (name, phase): shares of its mean step [%], absolute times in the labels. Shares because a
    prompt pass takes a hundred times as long as a decode step: on one scale the latter vanishes."""
    parts = [phase.family_s for _, phase in phases]
    totals = [sum(part.values()) for part in parts]
    order = list(dict.fromkeys(family for part in parts for family in part))
    shown = [
        family
        for family in order
        if any(part.get(family, 0.0) >= _LEAST_SHARE * total for part, total in zip(parts, totals, strict=True))
    ]
    order.sort(
        key=lambda family: -sum(part.get(family, 0.0) / total for part, total in zip(parts, totals, strict=True))
    )
    series = [_series(family, parts=parts, totals=totals) for family in order if family in shown]
    rest = [{"": sum(part[family] for family in part if family not in shown)} for part in parts]
    if any(part[""] > 0 for part in rest):
        series.append(_series("", parts=rest, totals=totals))
    names = tuple(f"{name} ({seconds_text(total)})" for (name, _), total in zip(phases, totals, strict=True))
    largest = max(parts[-1], key=lambda family: parts[-1][family])
    share = parts[-1][largest] / totals[-1]
    return Chart(
        key="latency_breakdown",
        title=f"{_takes(FAMILIES[largest][0])} {percent_text(share)} of a {phases[-1][0].lower()} step",
        x=Axis(title="", categories=names),
        y=Axis(title="Share of the step", unit="%", low=0.0, high=100.0),
        series=tuple(series),
        caption="Mean step of each phase, by operator family.",
    )


def _series(family: str, *, parts: Sequence[Mapping[str, float]], totals: Sequence[float]) -> Series:
    values = [part.get(family, 0.0) for part in parts]
    name, color = FAMILIES[family] if family else _OTHER
    return Series(
        name=name,
        kind=SeriesKind.STACKED_BAR,
        x=places(len(parts)),
        y=tuple(100 * value / total for value, total in zip(values, totals, strict=True)),
        labels=tuple(f"{name}: {seconds_text(value)}" for value in values),
        color=color,
    )


_SHOWN_ROWS = 14
"""Longest operators of a step that stand alone; the others are one bar where the first of them runs."""


_PART_COLORS = {"Queue": 6, "Prefill": 0, "KV transfer": 4, "Decode": 1}
"""As in the roofline of both phases; the network within a phase is drawn as any other, and the whole as a total."""


def request_waterfall_chart(run: ServedRun | UniformRun) -> Chart:
    """A mean request from its arrival to its last token, one bar for each thing it waits for."""
    parts = run.waits_s
    whole_s = sum(parts.values())
    longest = max(parts, key=lambda name: parts[name])
    unit, scale = ("s", 1.0) if whole_s > 1 else ("ms", MILLI)
    bars = [(name, seconds / scale, False) for name, seconds in parts.items()]
    return waterfall_chart(
        "request_waterfall",
        f"{longest} takes {percent_text(parts[longest] / whole_s)} of a request's {seconds_text(whole_s)}",
        y=f"Time [{unit}]",
        parts=[*bars, ("End to end", whole_s / scale, True)],
        colors=[*(_PART_COLORS.get(name, FAMILIES["collective"][1]) for name in parts), NEUTRAL],
        caption="Means over all requests; the network's share within a phase is that of its mean step."
        if isinstance(run, ServedRun)
        else "Every prompt of the batch starts at once; the network's share within a phase is that of its mean step.",
    )


def _lanes(phase: PhaseEstimate) -> list[tuple[str, float]]:
    """Operators of the mean step in the order in which they run; the short ones are summed up behind them."""
    found = phase.operator_s
    kept = sorted(found, key=lambda name: -found[name])[:_SHOWN_ROWS]
    lanes = [(name, seconds) for name, seconds in found.items() if name in kept and seconds > 0]
    rest_s = sum(seconds for name, seconds in found.items() if name not in kept)
    return [*lanes, ("others", rest_s)] if rest_s > 0 else lanes


def step_timeline_chart(name: str, phase: PhaseEstimate) -> Chart:
    """The mean step of a phase as a timeline: each operator from where the ones before it end."""
    lanes = _lanes(phase)
    ends_s = np.cumsum([seconds for _, seconds in lanes])
    starts_s = (0.0, *ends_s[:-1].tolist())
    longest, seconds = max(lanes, key=lambda lane: lane[1])
    starts, ends = (tuple(float(at) / MILLI for at in moments) for moments in (starts_s, ends_s))
    families = phase.operator_families
    colors = tuple(FAMILIES[families[lane]][1] if lane in families else NEUTRAL for lane, _ in lanes)
    spans = Series(
        name=name, kind=SeriesKind.TORNADO, x=places(len(lanes)), y=starts, low=starts, high=ends, colors=colors
    )
    return Chart(
        key="step_timeline",
        title=f"{_takes(longest)} {percent_text(seconds / float(ends_s[-1]))} of a {name.lower()} step",
        x=Axis(title=f"Time within the {name.lower()} step", unit="ms"),
        y=Axis(title="", categories=tuple(f"{lane}, {seconds_text(seconds)}" for lane, seconds in lanes)),
        series=(spans,),
        caption="Mean step, each operator over all layers, in the order in which a layer runs them.",
    )


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
