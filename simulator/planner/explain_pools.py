"""How a prefill pool was sized, and what two pools change against one kind of replica."""

from __future__ import annotations

from simulator.planner.explain_memory import memory_text
from simulator.planner.records import CapacityPlan, Fleet, PrefillPool
from simulator.units import KILO, MILLI, percent_text


def _pool_lines(plan: CapacityPlan, fleet: Fleet, pool: PrefillPool) -> list[str]:
    replica, rate = pool.replica, plan.demand.planned_rate_per_s
    return [
        f"prefill pool, {memory_text(replica.memory)}",
        f"prefill pool: {rate:.4g} / {replica.capacity_per_s:.4g} requests/s a replica "
        f"({percent_text(replica.utilization)} of saturation) rounded up = {pool.replicas}, "
        f"plus {pool.spares} spare; limit: {pool.limit.detail}",
        f"decode pool: {rate:.4g} / {fleet.replica.capacity_per_s:.4g} requests/s a replica "
        f"({percent_text(fleet.replica.utilization)} of saturation) rounded up = {fleet.replicas}, "
        f"plus {fleet.spares} spare",
        "TTFT under load is that of prefill replicas that take turns at the requests (round robin); their number holds "
        "the objectives for requests at random moments as well, as that of aggregated replicas does",
        f"KV cache of a mean prompt: {pool.transfer_s / MILLI:.3g} ms over {pool.link}, which is busy for "
        f"{percent_text(pool.link_busy_fraction)} of the time of a prefill replica; the first token comes with it",
    ]


def _against(fleets: list[Fleet], currency: str) -> str:
    best = fleets[0]
    cost = "price unknown" if best.cost.per_hour is None else f"{best.cost.per_hour:,.2f} {currency}/h"
    return (
        f"{best.devices} x {best.hardware} {best.label} ({cost}, {best.typical_w / KILO:,.0f} kW, p95 with the spares "
        f"down: TTFT {best.degraded.ttft_p95_s / MILLI:.0f} ms, TPOT {best.degraded.tpot_p95_s / MILLI:.1f} ms)"
    )


def serving_lines(plan: CapacityPlan) -> list[str]:
    """The sizing of the prefill pool, where the best fleet has one; the best of both ways to serve, where compared."""
    fleets = [plan.best, *plan.alternatives]
    lines = [] if plan.best.prefill is None else _pool_lines(plan, plan.best, plan.best.prefill)
    apart = [fleet for fleet in fleets if fleet.prefill is not None]
    together = [fleet for fleet in fleets if fleet.prefill is None]
    if apart and together:
        currency = plan.best.cost.currency
        lines.append(f"aggregated at best: {_against(together, currency)}")
        lines.append(f"disaggregated at best: {_against(apart, currency)}")
    return lines
