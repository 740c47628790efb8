"""Solving backwards: the highest rate, or the longest requests, with which a fleet stays within the limits given."""

from __future__ import annotations

from math import inf, sqrt
from typing import Literal

from simulator.errors import InfeasibleError, Option, missing_field
from simulator.planner.gap.limits import fleet_limits, within
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import resolve
from simulator.planner.search.search import search, try_platforms
from simulator.planner.studies.stock import stock_plan
from simulator.records import dataclass
from simulator.specs.question.plan import PlanSpec

DemandField = Literal["rate_per_s", "isl_tokens", "osl_tokens"]
_DIGITS = 3
_HALVINGS = 12
"""Of what was asked, until it counts as nothing."""


def _asked(spec: PlanSpec, field: DemandField) -> float:
    demand = resolve(spec).demand
    match field:
        case "rate_per_s":
            return demand.mean_rate_per_s
        case "isl_tokens":
            return demand.mix.isl.mean_tokens
        case "osl_tokens":
            return demand.mix.osl.mean_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestDemand:
    """The value of the field, and the accelerators on which a fleet for it holds the limits: with stock those asked."""

    field: DemandField
    value: float
    hardware: tuple[str, ...]


def _within(spec: PlanSpec) -> tuple[str, ...]:
    question = resolve(spec)
    found = within(fleet_limits(question), search(question).trial.sized)
    return tuple(dict.fromkeys(item.evaluated.candidate.platform.hardware.name for item in found))


def _obtains_nothing(spec: PlanSpec) -> bool:
    """Whether what exists is enough: with nothing to buy beside it; a plan also asks that something could be bought."""
    question = resolve(spec)
    try:
        stock_plan(question, [])
    except InfeasibleError:
        return False
    return any(try_platforms(question, (item,)).trial.sized for item in platforms(spec))


class _Probes:
    """Values that were tried: the highest that holds, and the lowest above it that does not. Accelerators without a
    fleet for a smaller demand have none for a larger one: they are not tried again."""

    def __init__(self, spec: PlanSpec, field: DemandField) -> None:
        self._spec, self._field = spec, field
        self.low, self.high, self.hardware = 0.0, inf, spec.hardware

    def _found(self, value: float) -> tuple[str, ...] | None:
        # Pools on two kinds need both of them.
        hardware = self._spec.hardware if self._spec.prefill_hardware else self.hardware
        asked = self._spec.model_copy(update={self._field: value, "hardware": hardware})
        if asked.stock:
            return self.hardware if _obtains_nothing(asked) else None
        return _within(asked) or None

    def holds(self, value: float) -> bool:
        """Try a value between the two."""
        found = self._found(value)
        if found is None:
            self.high = value
            return False
        self.low, self.hardware = value, found
        return True


def largest_demand(spec: PlanSpec, *, field: DemandField, most: float) -> LargestDemand:
    """The highest value of a field of the demand, to three digits and at most ``most``, all else as asked.

    Found by doubling, then by halving between what holds and what does not: a plan for it on the accelerators that
    are named holds the limits.

    Raises RoofcastError: no limit and no stock was given.
    Raises InfeasibleError: even next to nothing does not fit the limits.
    """
    if not spec.stock and not fleet_limits(resolve(spec)):
        hint = "a number of GPUs, a cost per hour, a power, or what exists"
        raise missing_field("nothing limits the fleet", field=Option("max_gpus"), hint=hint)

    def rounded(value: float) -> float:
        return min(float(f"{value:.{_DIGITS}g}"), most)

    tried, value = _Probes(spec, field), rounded(_asked(spec, field))
    for _ in range(_HALVINGS):
        if tried.holds(value):
            break
        value = rounded(value / 2)
    else:
        hint = "raise a limit; a fleet has its spares and, unless bought by the device, whole servers"
        raise InfeasibleError(f"not even {value:g} fits the limits", field=Option(field), hint=hint)
    while tried.high == inf and tried.low < most:
        tried.holds(rounded(2 * tried.low))
    while tried.low < (middle := rounded(sqrt(tried.low * min(tried.high, most)))) < tried.high:
        tried.holds(middle)
    return LargestDemand(field=field, value=tried.low, hardware=tried.hardware)
