"""``roofcast demand``: a recorded workload as a workload file for plan-capacity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist

import numpy as np

from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, picked
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.content.quantities import number_text
from simulator.reports.words.fields import flagged, note_text, note_texts
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import HOURS_PER_DAY, LARGEST_CV
from simulator.traffic.lengths import LengthDistribution
from simulator.traffic.recorded.demand import RecordedDemand, Spread, burst_note
from simulator.traffic.workload_presets import CHAT, WorkloadPreset, kind_by_lengths

_CACHED_AT_MOST = 0.99


def workload_fields(demand: RecordedDemand) -> dict[str, float]:
    """The fields of a workload file that are numbers, in the units of plan-capacity's flags."""
    fields: dict[str, float] = {"rate_per_s": demand.rate_per_s}
    if demand.busiest_to_mean is not None:
        fields["peak_to_mean"] = demand.busiest_to_mean
    fields |= _spread("isl", demand.isl) | _spread("osl", demand.osl)
    if demand.prefix_hit is not None:
        fields["prefix_hit"] = min(demand.prefix_hit, _CACHED_AT_MOST)
    return fields


def _spread(name: str, spread: Spread) -> dict[str, float]:
    found = {f"{name}_tokens": max(1.0, spread.mean)}
    if spread.cv is not None:
        found[f"{name}_cv"] = min(spread.cv, LARGEST_CV)
    return found


def _shape(name: str, spread: Spread) -> str:
    """What the record says about lengths beyond the fields: measured percentiles beside those that are planned with."""
    if spread.cv is None:
        return f"# {name}: the spread is not known; plan-capacity assumes its default unless {name}_cv is set"
    if spread.p50 is None or spread.p95 is None:
        return ""
    planned = LengthDistribution(mean_tokens=max(1.0, spread.mean), cv=min(spread.cv, LARGEST_CV))
    p50, p95 = planned.at(np.array([NormalDist().inv_cdf(share) for share in (0.5, 0.95)]))
    return (
        f"# {name}: p50 {spread.p50:.0f}, p95 {spread.p95:.0f} tokens; planned as log-normal with "
        f"p50 {p50:.0f}, p95 {p95:.0f}"
    )


def _lines(demand: RecordedDemand, *, digest: str) -> Iterator[str]:
    yield f"# Workload for plan-capacity --workload, from {demand.tool}: {Path(demand.source).name}"
    yield f"# {demand.requests:,} requests in {demand.duration_s:,.0f} s; SHA-256 {digest}"
    yield f"# imported {datetime.now(UTC).date().isoformat()}"
    for note in (*demand.warnings, *demand.notes):
        yield f"# note: {flagged(note_text(note))}"
    if demand.dispersion is not None:
        yield f"# bursts: {flagged(note_text(burst_note('bursts', demand.dispersion)))}"
    yield from filter(None, (_shape("isl", demand.isl), _shape("osl", demand.osl)))
    if demand.model is not None:
        yield f"model: {json.dumps(demand.model)}"
    for name, value in workload_fields(demand).items():
        yield f"{name}: {value:.6g}"
    if demand.load_profile:
        period = "week from Monday" if len(demand.load_profile) > HOURS_PER_DAY else "day"
        yield f"# by hour of a {period}, UTC; the mix of rentals that it asks for is planned too"
        yield "rental: true"
        yield f"load_profile: [{', '.join(f'{value:.3g}' for value in demand.load_profile)}]"


def demand_text(demand: RecordedDemand, *, sha256: str) -> str:
    """The workload file, commented."""
    return "\n".join(_lines(demand, digest=sha256)) + "\n"


@dataclass(frozen=True, slots=True)
class DemandAnswer(Answer):
    """A recorded workload."""

    demand: RecordedDemand
    sha256: str

    def to_dict(self) -> Json:
        """The document of ``roofcast demand --json``."""
        demand = self.demand
        hours = {"rental": True, "load_profile": list(demand.load_profile)} if demand.load_profile else {}
        return {
            "schema_version": SCHEMA_VERSION,
            "source": demand.source,
            "sha256": self.sha256,
            **picked(demand, "tool", "requests", "duration_s", "model", "dispersion"),
            "workload": self.fields() | hours | ({"model": demand.model} if demand.model else {}),
            "lengths": {"isl": asdict(demand.isl), "osl": asdict(demand.osl)},
            "notes": [flagged(note) for note in note_texts(demand.notes)],
            "warnings": note_texts(demand.warnings),
        }

    def to_text(self) -> str:
        """The workload file that ``roofcast demand`` writes."""
        return demand_text(self.demand, sha256=self.sha256)

    def fields(self) -> dict[str, float]:
        """The fields of a plan: ``plan(answer.fields(), model=...)``."""
        return workload_fields(self.demand)

    def chart(self) -> Chart:
        """Demand by hour, where the record says it; its mean otherwise."""
        hours = self.demand.load_profile or (1.0,)
        title = f"{self.demand.requests:,} requests, {self.demand.rate_per_s:.4g}/s"
        names = [str(hour) for hour in range(len(hours))]
        return bars_chart("demand", title, y="Relative demand", names=names, of={"demand": hours})


_WORDS = {
    "rate_per_s": "requests per second",
    "isl_tokens": "prompt tokens",
    "osl_tokens": "answer tokens",
    "isl_cv": "variation of prompt lengths (standard deviation over mean)",
    "osl_cv": "variation of answer lengths (standard deviation over mean)",
    "prefix_hit": "share of prompt tokens that a cache holds",
}


def peak_fields(workload: PlanSpec) -> dict[str, float]:
    """The numbers of a workload file as a plan of its peak asks them, tokens whole."""
    lengths = {"isl_tokens": workload.isl_tokens, "osl_tokens": workload.osl_tokens}
    peak_per_s = float(f"{workload.peak_rate_per_s or 0.0:.6g}")
    found = {"rate_per_s": peak_per_s, **{name: value and round(value) for name, value in lengths.items()}}
    found |= {name: getattr(workload, name) for name in ("isl_cv", "osl_cv", "prefix_hit")}
    return {name: value for name, value in found.items() if value is not None}


def demand_rows(workload: PlanSpec) -> list[tuple[str, str, str]]:
    """Each of these numbers beside that of the nearest kind of demand, which stands in the heading of the last one."""
    found = peak_fields(workload)
    kind = _nearest(workload)
    return [(_WORDS[name], number_text(value), number_text(getattr(kind, name))) for name, value in found.items()]


def demand_columns(workload: PlanSpec) -> tuple[str, str, str]:
    """Headings of ``demand_rows``."""
    return "at the peak", "recorded", _nearest(workload).name


def _nearest(workload: PlanSpec) -> WorkloadPreset:
    return kind_by_lengths(workload.isl_tokens or CHAT.isl_tokens, workload.osl_tokens or CHAT.osl_tokens)
