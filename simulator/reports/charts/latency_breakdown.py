"""Where the time of a step goes, by operator family, each of one name and one colour everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine.uniform.steps import PhaseEstimate
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.content.quantities import percent_text, seconds_text

FAMILY_NAMES = {
    "gemm": "Matrix products",
    "moe": "Experts",
    "prefill_attention": "Attention (prefill)",
    "decode_attention": "Attention (decode)",
    "recurrent": "Recurrent",
    "elementwise": "Elementwise",
    "embedding": "Embedding",
    "lm_head": "LM head",
    "collective": "Communication",
    "host": "Host",
    "draft": "Drafting",
}
_COLORS = {
    "gemm": 0,
    "moe": 0,
    "prefill_attention": 1,
    "decode_attention": 1,
    "recurrent": 6,
    "elementwise": 2,
    "embedding": 6,
    "lm_head": 5,
    "collective": 3,
    "host": 7,
    "draft": 4,
}


def family_name(family: str) -> str:
    """A family in words."""
    return FAMILY_NAMES.get(family, family.replace("_", " "))


def family_color(family: str) -> int | None:
    """Its index in the palette, the same in every figure."""
    return _COLORS.get(family)


# Below this share a family is summed up with the others: nobody sees a slice that thin.
_LEAST_SHARE = 0.01


def _families(phase: PhaseEstimate) -> tuple[tuple[str, float], ...]:
    """Mean seconds of a step by family, as in the contract's ``breakdown_s``."""
    return tuple(
        (family, float(phase.weights @ values) / phase.steps) for family, values in phase.estimate.breakdown_s.items()
    )


def latency_breakdown_chart(phases: Sequence[tuple[str, PhaseEstimate]]) -> Chart:
    """One stacked bar per (name, phase): shares of its mean step [%], absolute times in the labels.

    Shares because a prompt pass takes a hundred times as long as a decode step: on one scale the latter vanishes.
    """
    parts = [dict(_families(phase)) for _, phase in phases]
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
        title=f"{family_name(largest)} take {percent_text(share)} of a {phases[-1][0].lower()} step",
        x=Axis(title="", categories=names),
        y=Axis(title="Share of the step", unit="%", low=0.0, high=100.0),
        series=tuple(series),
        caption="Mean step of each phase, by operator family.",
    )


def _series(family: str, *, parts: Sequence[dict[str, float]], totals: Sequence[float]) -> Series:
    values = [part.get(family, 0.0) for part in parts]
    name = family_name(family) if family else "Other"
    return Series(
        name=name,
        kind=SeriesKind.STACKED_BAR,
        x=tuple(float(place) for place in range(len(parts))),
        y=tuple(100 * value / total for value, total in zip(values, totals, strict=True)),
        labels=tuple(f"{name}: {seconds_text(value)}" for value in values),
        color=family_color(family) if family else 7,
    )
