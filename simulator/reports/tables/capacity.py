"""A simulated capacity as text. Formatting only."""

from __future__ import annotations

from simulator.engine.runs.capacity import CapacityResult
from simulator.engine.runs.disaggregation import ServedPools
from simulator.engine.runs.metrics import LATENCIES
from simulator.engine.runs.rate_simulation import RatePoint
from simulator.reports.answer import Cells
from simulator.reports.content.quantities import percent_text, seconds_text
from simulator.reports.formats.text import text_table
from simulator.reports.tables.serving import pools_setup_text, setup_text
from simulator.reports.words.fields import assumption_texts


def _binding(capacity: CapacityResult) -> str:
    objective, rate_per_s = capacity.binding, capacity.failing_rate_per_s
    if objective is None:
        return "beyond it the queue grows as long as the load lasts"
    failing = next(point for point in capacity.points if point.rate_per_s == rate_per_s)
    value_s = next(check.value_s for check in failing.objectives if check.objective == objective)
    return (
        f"{objective.name} binds: {seconds_text(value_s)} at {rate_per_s:.4g}/s, "
        f"bound {seconds_text(objective.bound_s)}"
    )


def _verdict(point: RatePoint, capacity: CapacityResult) -> str:
    if point.saturated:
        return "saturated"
    if not point.holds:
        return "misses"
    return "holds <- capacity" if point.rate_per_s == capacity.rate_per_s else "holds"


def _row(point: RatePoint, capacity: CapacityResult) -> tuple[str, ...]:
    extra = [check for check in point.objectives if check.objective.percentile != 95]
    return (
        f"{point.rate_per_s:.4g}",
        *(seconds_text(latency.p95_s) for latency in (point.ttft, point.tpot, point.e2e)),
        *(seconds_text(check.value_s) for check in extra),
        f"{point.mean_batch:.1f}",
        percent_text(point.kv_utilization),
        _verdict(point, capacity),
    )


def points_cells(capacity: CapacityResult) -> Cells:
    """Columns and rows of the rates that were tried."""
    extra = [check.objective.name for check in capacity.points[0].objectives if check.objective.percentile != 95]
    columns = ("rate/s", *(f"{name.upper()} p95" for name in LATENCIES), *extra, "batch", "KV used", "objectives")
    return columns, [_row(point, capacity) for point in capacity.points]


def _searched(capacity: CapacityResult) -> tuple[str, str]:
    """What was searched, and where its steady state saturates."""
    served, limit = capacity.served, f"{capacity.saturation_rate_per_s:.4g}/s"
    if isinstance(served, ServedPools):
        setup = pools_setup_text(served.prefill, served.decode)
        return setup, f"The first of the pools to fill up saturates at about {limit}."
    setup = setup_text(served.deployment, replicas=served.replicas)
    return setup, f"Steady state estimates {capacity.steady_state_rate_per_s:.4g}/s, and saturation at {limit}."


def _range_text(ends: tuple[float, float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}/s"


def capacity_text(capacity: CapacityResult, *, listed: bool) -> str:
    """The answer for people: the rate, what binds it, the points visited. listed : with its assumptions"""
    setup, steady = _searched(capacity)
    answers = capacity.answers_per_request
    prompts = "" if answers == 1 else f" = {capacity.prompts_per_s:.4g} prompts/s of {answers} answers"
    parts = [
        f"{capacity.rate_per_s:.4g} requests/s{prompts}: {setup}",
        _binding(capacity),
        "",
        text_table(*points_cells(capacity)),
        "",
        f"80 % interval {_range_text(capacity.interval['rate_per_s'])} with the errors of step times "
        f"({capacity.provenance.label}); {_range_text(capacity.seed_interval['rate_per_s'])} from {capacity.seeds} "
        f"seeds of {capacity.requests_per_seed} requests alone.",
        steady,
    ]
    if capacity.requests_per_seed < capacity.fewest_requests:
        parts.append(
            f"Runs of {capacity.requests_per_seed:,} requests are too short to tell a queue that grows from batches "
            f"that fill (at this rate at least {capacity.fewest_requests:,}): the capacity may be much higher. Without "
            "--requests runs are as long as it takes."
        )
    if listed:
        parts += ["", "Assumptions", *(f"- {text}" for text in assumption_texts(capacity.assumptions))]
    else:
        parts.append(f"({len(capacity.assumptions)} assumptions: --assumptions lists them)")
    return "\n".join(parts) + "\n"
