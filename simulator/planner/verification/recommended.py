"""The recommended fleet in the event simulation, wherever that takes a second and no compiler. No fleet changes here:
one that misses is said to, and planned again with a size that holds (see ``checked``)."""

from __future__ import annotations

from dataclasses import replace

from simulator.engine.events.compilation import loops_on_disk
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.records import NotConfirmed
from simulator.planner.verification.simulation import SURE, hold_chance
from simulator.planner.verified import FleetVerification

_LOOPS = frozenset({"scheduler_lists", "scheduler_walk"})


def with_check(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` with its best fleet simulated, all replicas up and with the spares down. As it was where it is not the
    answer alone (stock, a measured rate), and where the event simulation is not compiled or does not model it."""
    spec = plan.spec
    if not plan.objectives or spec.stock or spec.measured_rps_per_gpu is not None:
        return plan
    if not loops_on_disk() >= _LOOPS:
        return plan
    from simulator.planner.verification.traces import sure_simulation

    question, sized = plan.basis.question, plan.basis.shown[0]
    try:
        at = sure_simulation(question, sized)
        degraded = at(sized.replicas)
        found = FleetVerification(
            at_peak=at(sized.replicas + sized.spares) if sized.spares else degraded, degraded=degraded
        )
    except RoofcastError:
        return plan
    warnings = plan.warnings if found.holds else (*plan.warnings, NotConfirmed(reason=found.reason))
    return replace(plan, verification=found, warnings=warnings)


def surely_holds(found: FleetVerification) -> bool:
    """Whether nine of ten further replays would hold, as far as the runs tell, with the spares up and down."""
    return found.holds and min(map(hold_chance, (found.at_peak, found.degraded))) >= SURE
