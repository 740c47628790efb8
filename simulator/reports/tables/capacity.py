"""A simulated capacity as text and as a JSON document. Formatting only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.engine.runs.capacity_interval import CapacityInterval
from simulator.engine.runs.capacity_search import SimulatedCapacity
from simulator.engine.runs.metrics import LATENCIES, ObjectiveCheck, objective_name
from simulator.engine.runs.rate_simulation import RatePoint
from simulator.reports.content.quantities import percent_text, seconds_text
from simulator.reports.contract import finite
from simulator.reports.formats.text import text_table
from simulator.specs.question.plan import ObjectiveSpec

SCHEMA_VERSION = "1.0"
Json = dict[str, Any]


def _named(objective: ObjectiveSpec) -> str:
    return f"{objective.metric.upper()} p{objective.percentile:g}"


def _binding(capacity: SimulatedCapacity) -> str:
    objective = capacity.binding
    if objective is None:
        return "beyond it the queue grows as long as the load lasts"
    failing = next(point for point in capacity.points if point.rate_per_s == capacity.failing_per_s)
    check = next(check for check in failing.checks if check.objective == objective)
    return (
        f"{_named(objective)} binds: {seconds_text(check.value_s)} at {capacity.failing_per_s:.4g}/s, "
        f"bound {seconds_text(objective.bound_s)}"
    )


def _verdict(point: RatePoint, capacity: SimulatedCapacity) -> str:
    if point.saturated:
        return "saturated"
    if not point.holds:
        return "misses"
    return "holds <- capacity" if point.rate_per_s == capacity.rate_per_s else "holds"


def _row(point: RatePoint, capacity: SimulatedCapacity) -> tuple[str, ...]:
    extra = [check for check in point.checks if check.objective.percentile != 95]
    return (
        f"{point.rate_per_s:.4g}",
        *(seconds_text(spread.pooled_s) for spread in point.p95),
        *(seconds_text(check.value_s) for check in extra),
        f"{point.mean_batch:.1f}",
        percent_text(point.kv_utilization),
        _verdict(point, capacity),
    )


def points_table(capacity: SimulatedCapacity) -> str:
    """The load-latency points that were visited, ascending."""
    extra = [_named(check.objective) for check in capacity.points[0].checks if check.objective.percentile != 95]
    columns = ("rate/s", *(f"{name.upper()} p95" for name in LATENCIES), *extra, "batch", "KV used", "objectives")
    return text_table(columns, [_row(point, capacity) for point in capacity.points])


def capacity_text(
    capacity: SimulatedCapacity,
    *,
    interval: CapacityInterval,
    setup: str,
    assumptions: Sequence[str],
    listed: bool,
    of_pools: bool = False,
) -> str:
    """The answer for people: the rate, what binds it, the points visited. ``setup`` names what was searched."""
    parts = [
        f"{capacity.rate_per_s:.4g} requests/s: {setup}",
        _binding(capacity),
        "",
        points_table(capacity),
        "",
        f"80 % interval {interval.low_per_s:.4g} to {interval.high_per_s:.4g}/s with the errors of step times "
        f"({interval.provenance}); {capacity.low_per_s:.4g} to {capacity.high_per_s:.4g}/s from {capacity.seeds} "
        f"seeds of {capacity.requests} requests alone.",
        f"The first of the pools to fill up saturates at about {capacity.saturation_per_s:.4g}/s."
        if of_pools
        else f"Steady state estimates {capacity.steady_per_s:.4g}/s, and saturation at "
        f"{capacity.saturation_per_s:.4g}/s.",
    ]
    if listed:
        parts += ["", "Assumptions", *(f"- {text}" for text in assumptions)]
    else:
        parts.append(f"({len(assumptions)} assumptions: --assumptions lists them)")
    return "\n".join(parts) + "\n"


def _check(check: ObjectiveCheck) -> Json:
    return {"objective": objective_name(check.objective), "value_s": finite(check.value_s), "holds": check.holds}


def point_object(point: RatePoint) -> Json:
    """One visited rate."""
    item: Json = {"rate_per_s": point.rate_per_s, "holds": point.holds, "saturated": point.saturated}
    for name, mean, p95 in zip(LATENCIES, point.means, point.p95, strict=True):
        item[f"{name}_mean_s"], item[f"{name}_p95_s"] = mean.pooled_s, finite(p95.pooled_s)
    item |= {
        "mean_batch": point.mean_batch,
        "kv_utilization": point.kv_utilization,
        "unanswered_fraction": point.unanswered_fraction,
        "objectives": [_check(check) for check in point.checks],
    }
    return item


def capacity_object(
    capacity: SimulatedCapacity,
    *,
    identifier: str | int,
    objectives: tuple[ObjectiveSpec, ...],
    interval: CapacityInterval,
    assumptions: Sequence[str],
) -> Json:
    """The JSON document of ``roofcast capacity``."""
    return {
        "id": identifier,
        "schema_version": SCHEMA_VERSION,
        "rate_per_s": capacity.rate_per_s,
        "interval": {"rate_per_s": [interval.low_per_s, interval.high_per_s]},
        "seed_interval": {"rate_per_s": [capacity.low_per_s, capacity.high_per_s]},
        "binding": None if capacity.binding is None else objective_name(capacity.binding),
        "failing_rate_per_s": capacity.failing_per_s,
        "objectives": [{"objective": objective_name(item), "bound_s": item.bound_s} for item in objectives],
        "points": [point_object(point) for point in capacity.points],
        "steady_state_rate_per_s": capacity.steady_per_s,
        "saturation_rate_per_s": capacity.saturation_per_s,
        "seeds": capacity.seeds,
        "requests_per_seed": capacity.requests,
        "provenance": interval.provenance,
        "assumptions": list(assumptions),
    }
