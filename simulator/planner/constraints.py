"""Limits of the whole fleet: devices, money, power, racks. Which hold, and what is nearest where none do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.errors import InfeasibleError
from simulator.planner.facilities import facilities
from simulator.planner.fleet import Sized, complete, fleet_power
from simulator.planner.search import Question
from simulator.specs.ownership import load_ownership
from simulator.units import KILO


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimit:
    """A limit that was given: its flag, unit and value, and what a fleet takes of it (None where that is unknown)."""

    flag: str
    unit: str
    allowed: float
    taken: Callable[[Sized], float | None]

    def holds(self, sized: Sized) -> bool:
        """Whether a fleet stays within; one whose price is unknown does not."""
        value = self.taken(sized)
        return value is not None and value <= self.allowed


def _racks(question: Question) -> Callable[[Sized], float | None]:
    ownership = load_ownership("default", profiles=question.policy.profiles)

    def racks(sized: Sized) -> float | None:
        fleet = complete(sized, demand=question.demand, objectives=question.objectives, spec=question.spec)
        found = facilities(fleet, ownership=ownership).racks
        return None if found is None else float(found)

    return racks


def fleet_limits(question: Question) -> tuple[FleetLimit, ...]:
    """The limits that were given, in the order in which they are cheap to check."""
    spec, found = question.spec, []
    if spec.max_gpus is not None:
        found.append(
            FleetLimit(flag="--max-gpus", unit="GPUs", allowed=spec.max_gpus, taken=lambda item: float(item.devices))
        )
    if spec.max_cost_per_hour is not None:
        found.append(
            FleetLimit(
                flag="--max-cost-per-hour",
                unit=f"{question.prices.currency}/h",
                allowed=spec.max_cost_per_hour,
                taken=lambda item: item.cost.per_hour,
            )
        )
    if spec.max_power_kw is not None:
        found.append(
            FleetLimit(
                flag="--max-power-kw",
                unit="kW nameplate",
                allowed=spec.max_power_kw,
                taken=lambda item: fleet_power(item).maximum_w / KILO,
            )
        )
    if spec.max_racks is not None:
        found.append(FleetLimit(flag="--max-racks", unit="racks", allowed=spec.max_racks, taken=_racks(question)))
    return tuple(found)


def within(limits: Sequence[FleetLimit], ranked: Sequence[Sized]) -> list[Sized]:
    """Fleets that hold every limit, in their order."""
    return [item for item in ranked if all(limit.holds(item) for limit in limits)]


def _name(sized: Sized) -> str:
    candidate = sized.evaluated.candidate
    return f"{candidate.platform.hardware.name} {candidate.label}"


def _least(limit: FleetLimit, ranked: Sequence[Sized]) -> tuple[float, Sized] | None:
    taken = [(limit.taken(item), item) for item in ranked]
    known = [(value, item) for value, item in taken if value is not None]
    return min(known, key=lambda pair: (pair[0], pair[1].rank), default=None)


def over_limits(question: Question, ranked: Sequence[Sized], limits: Sequence[FleetLimit]) -> InfeasibleError:
    """Fleets exist but none within the limits: the first limit that nothing holds, or two that contradict."""
    rate = question.demand.mean_rate_per_s
    for limit in limits:
        least = _least(limit, ranked)
        if least is None:
            return InfeasibleError(
                "no fleet's share of it is known, so that none can be shown to stay within",
                field=limit.flag,
                code="over_budget",
                hint="add prices (--prices), or buy whole servers (--round-to server) for racks",
            )
        value, item = least
        if value > limit.allowed:
            return InfeasibleError(
                f"{rate:g} requests/s take at least {value:,.4g} {limit.unit} ({item.devices} x {_name(item)}), "
                f"{value - limit.allowed:,.4g} more than the {limit.allowed:,.4g} allowed",
                field=limit.flag,
                code="over_budget",
                hint=f"{limit.flag} {value:.4g} is the nearest that is feasible; --explain-gap lists what would help",
            )
    nearest = min(ranked, key=lambda item: max((limit.taken(item) or float("inf")) / limit.allowed for limit in limits))
    broken = [limit for limit in limits if not limit.holds(nearest)]
    shown = " and ".join(f"{limit.flag} {limit.allowed:g}" for limit in limits)
    needs = ", ".join(f"{limit.flag} {limit.taken(nearest) or float('inf'):.4g}" for limit in broken)
    return InfeasibleError(
        f"no fleet holds {shown} together, though each alone can be held; nearest is "
        f"{nearest.devices} x {_name(nearest)}",
        field=broken[0].flag if broken else limits[0].flag,
        code="contradiction",
        hint=f"it needs {needs}",
    )
