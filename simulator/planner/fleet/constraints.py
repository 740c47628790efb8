"""Limits of the whole fleet: devices, money, power, racks. Which hold, by how much, and what is nearest otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Literal

from simulator.errors import InfeasibleError, Option
from simulator.planner.candidate import BeyondLimit, BeyondLimits, Rejection, refuse
from simulator.planner.fleet.fleet import Sized, complete, fleet_power
from simulator.planner.money.facilities import facilities
from simulator.planner.search.question import Question
from simulator.specs.money.ownership import load_ownership
from simulator.units import KILO

_DIGITS = 4
LimitKind = Literal["devices", "cost", "power", "racks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimit:
    """A limit that was given: its field, unit and value, and what a fleet takes of it (None where that is unknown)."""

    kind: LimitKind
    field: str
    unit: str
    allowed: float
    taken: Callable[[Sized], float | None]

    def share(self, sized: Sized) -> float:
        """What a fleet takes over what is allowed; infinite where that is unknown."""
        value = self.taken(sized)
        return float("inf") if value is None else value / self.allowed

    def holds(self, sized: Sized) -> bool:
        """Whether a fleet stays within; one whose price is unknown does not."""
        return self.share(sized) <= 1


def _racks(question: Question) -> Callable[[Sized], float | None]:
    ownership = load_ownership("default", profiles=question.policy.profiles)

    def racks(sized: Sized) -> float | None:
        fleet = complete(sized, demand=question.demand, objectives=question.objectives, spec=question.spec)
        found = facilities(fleet, ownership=ownership).racks
        return None if found is None else float(found)

    return racks


def fleet_limits(question: Question) -> tuple[FleetLimit, ...]:
    """The limits that were given, in the order in which they are cheap to check."""
    spec = question.spec
    every: tuple[tuple[LimitKind, str, str, float | None, Callable[[Sized], float | None]], ...] = (
        ("devices", "max_gpus", "GPUs", spec.max_gpus, lambda item: float(item.devices)),
        (
            "cost",
            "max_cost_per_hour",
            f"{question.prices.currency}/h",
            spec.max_cost_per_hour,
            lambda item: item.cost.per_hour,
        ),
        (
            "power",
            "max_power_kw",
            "kW nameplate",
            spec.max_power_kw,
            lambda item: fleet_power(item).maximum_w / KILO,
        ),
        ("racks", "max_racks", "racks", spec.max_racks, _racks(question) if spec.max_racks else lambda _: None),
    )
    return tuple(
        FleetLimit(kind=kind, field=field, unit=unit, allowed=allowed, taken=taken)
        for kind, field, unit, allowed, taken in every
        if allowed is not None
    )


def within(limits: Sequence[FleetLimit], ranked: Sequence[Sized]) -> list[Sized]:
    """Fleets that hold every limit, in their order."""
    return [item for item in ranked if all(limit.holds(item) for limit in limits)]


def beyond(limits: Sequence[FleetLimit], ranked: Sequence[Sized]) -> tuple[Rejection, ...]:
    """Fleets that serve but break a limit, each with the limits that it breaks and by how much."""
    found = []
    for item in ranked:
        broken = [limit for limit in limits if not limit.holds(item)]
        if broken:
            reason = BeyondLimits(limits=tuple(_by_how_much(limit, item) for limit in broken))
            excess = max(limit.share(item) for limit in broken) - 1
            found.append(refuse(item.evaluated.candidate, code="limit", reason=reason, excess=excess))
    return tuple(found)


def _by_how_much(limit: FleetLimit, sized: Sized) -> BeyondLimit:
    return BeyondLimit(
        field=limit.field,
        unit=limit.unit,
        allowed=limit.allowed,
        taken=limit.taken(sized),
        devices=None if limit.kind == "devices" else sized.devices,
    )


def name_of(sized: Sized) -> str:
    """``h100-sxm-80gb TP4``."""
    candidate = sized.evaluated.candidate
    return f"{candidate.platform.hardware.name} {candidate.label}"


def _least(limit: FleetLimit, ranked: Sequence[Sized]) -> tuple[float, Sized] | None:
    taken = [(limit.taken(item), item) for item in ranked]
    known = [(value, item) for value, item in taken if value is not None]
    return min(known, key=lambda pair: (pair[0], pair[1].rank), default=None)


def _unknown(limit: FleetLimit) -> InfeasibleError:
    """No fleet can be shown to hold the limit."""
    racks = limit.kind == "racks"
    return InfeasibleError(
        "nobody sells these accelerators in servers that have a profile, so that racks cannot be counted"
        if racks
        else "no price is known for any accelerator that serves, so that none can be shown to stay within",
        field=Option(limit.field),
        code="over_budget",
        hint="add a server profile (`profiles`)" if racks else "add prices (`prices`)",
    )


def over_limits(question: Question, ranked: Sequence[Sized], limits: Sequence[FleetLimit]) -> InfeasibleError:
    """Fleets exist but none within the limits: the first limit that nothing holds, or two that contradict."""
    rate = question.demand.mean_rate_per_s
    for limit in limits:
        least = _least(limit, ranked)
        if least is None:
            return _unknown(limit)
        value, item = least
        if value > limit.allowed:
            return InfeasibleError(
                f"{rate:g} requests/s take at least {value:,.4g} {limit.unit} ({item.devices} x {name_of(item)}), "
                f"{value - limit.allowed:,.4g} more than the {limit.allowed:,.4g} allowed",
                field=Option(limit.field),
                code="over_budget",
                hint=f"`{limit.field}` {_rounded_up(value)} is the nearest that is feasible as asked",
            )
    nearest = min(ranked, key=lambda item: (max(limit.share(item) for limit in limits), item.rank))
    broken = [limit for limit in limits if not limit.holds(nearest)]
    shown = " and ".join(f"`{limit.field}` {limit.allowed:g}" for limit in limits)
    needs = ", ".join(f"`{limit.field}` {_rounded_up(limit.taken(nearest) or float('inf'))}" for limit in broken)
    return InfeasibleError(
        f"no fleet holds {shown} together, though each alone can be held; nearest is "
        f"{nearest.devices} x {name_of(nearest)}",
        field=Option((broken or limits)[0].field),
        code="contradiction",
        hint=f"it needs {needs}",
    )


def _rounded_up(value: float) -> str:
    """Four digits, or all before the point; never below ``value``, so that it can be typed."""
    before_point = len(str(int(value)))
    digits = Context(prec=max(_DIGITS, before_point), rounding=ROUND_CEILING)
    return f"{digits.create_decimal(repr(value)).normalize():f}"
