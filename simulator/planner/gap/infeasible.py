"""When nothing serves, or not within the limits: which bound, by how much, and which change would be enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulator.errors import InfeasibleError, Option
from simulator.planner.fleet.constraints import FleetLimit, name_of, over_limits
from simulator.planner.fleet.fleet import Sized, Trial, size
from simulator.planner.gap.closing import carried_rate_per_s, gap_of
from simulator.planner.gap.overrun import Overrun
from simulator.planner.gap.records import Gap, GapError, GapOption
from simulator.planner.gap.relaxed_objectives import closest_refusal, later_options, missed_bounds, relaxed_options
from simulator.planner.gap.screen import option_of
from simulator.planner.records import FieldValue
from simulator.planner.search.question import Question
from simulator.units import percent_text

_SUGGESTIONS = 3
_FIELDS = {
    "objective": "objectives",
    "memory": "memory",
    "slots": "memory",
    "token_budget": Option("max_num_batched_tokens"),
    "quality": Option("max_quality_loss"),
}


def _hint(gap: Gap) -> str:
    """The best single changes, or that none is enough."""
    enough = [item for item in gap.options if item.closes or (not gap.limits and item.devices is not None)]
    shown = [
        f"{' '.join(map(str, item.given))} ({item.devices} x {item.hardware} {item.label})"
        for item in enough[:_SUGGESTIONS]
    ]
    if shown:
        return f"enough would be {' or '.join(shown)}"
    if gap.steps and gap.closed:
        end, names = gap.steps[-1], ", ".join(step.name for step in gap.steps)
        return f"no single change is enough, together are {names} ({end.devices} x {end.hardware} {end.label})"
    return "no single change of format, technique, hardware, spares or rounding is enough"


def nothing_fits(question: Question, trial: Trial, gap: Gap) -> InfeasibleError:
    """No candidate can serve even one request within its bounds."""
    closest = closest_refusal(trial)
    count = len(trial.rejections)
    message = f"no feasible plan for {question.model.name} among {count} candidates; closest is {closest.hardware} "
    return InfeasibleError(
        f"{message}{closest.label}: {closest.reason}",
        field=_FIELDS.get(closest.code, closest.code),
        hint=_hint(gap),
    )


def smaller_fleets(question: Question, ranked: list[Sized], overrun: Overrun, start: Sized) -> tuple[GapOption, ...]:
    """Spares and whole servers that may be given up to stay within the limits: one of them, else both."""
    spec = question.spec
    # Single accelerators have no rack, and are counted without the power of their hosts: that would close no gap.
    of_servers = any(limit.kind in ("racks", "power") for limit in overrun.limits)
    loose: dict[str, Any] = {} if spec.round_to == "device" or of_servers else {"round_to": "device"}
    kept = (spec.server_spares, spec.availability) != (None, None) or spec.spares == 0
    bare: dict[str, Any] = {} if kept else {"spares": 0}

    def option(name: str, update: dict[str, Any]) -> list[GapOption]:
        if not update:
            return []
        changed = replace(question, spec=spec.model_copy(update=update))
        sized = [
            size(item.evaluated, demand=question.demand, spec=changed.spec, prices=question.prices) for item in ranked
        ]
        best = min(sized, key=overrun.order)
        if not overrun.holds(best):
            return []
        given = tuple(FieldValue(field=field, value=value) for field, value in update.items())
        return [option_of(changed, best, name=name, given=given, overrun=overrun, start=start)]

    single = [
        *option("single devices", loose),
        *option("no spare replica", bare),
    ]
    both = {**loose, **bare} if loose and bare else {}
    return tuple(single or option("neither spares nor whole servers", both))


def over_budget(question: Question, ranked: list[Sized], overrun: Overrun, gap: Gap) -> InfeasibleError:
    """Candidates can serve, but none with ``max_gpus`` accelerators: what is missing, and what would close the gap."""
    budget = question.spec.max_gpus or 0
    smallest = min(ranked, key=lambda item: (item.devices, item.rank))
    carried = [carried_rate_per_s(question, item, overrun=overrun) for item in ranked]
    most = max(carried)
    rate = question.demand.mean_rate_per_s
    carriers = f"{budget} GPUs carry" if budget > 1 else f"{budget} GPU carries"
    message = (
        f"{rate:g} requests/s need at least {smallest.devices} GPUs ({name_of(smallest)}), "
        f"{smallest.devices - budget} more than the {budget} allowed; {carriers} at most "
        f"{most:.4g} requests/s ({percent_text(most / rate)}, {name_of(ranked[carried.index(most)])})"
    )
    return InfeasibleError(message, field=Option("max_gpus"), code="over_budget", hint=_hint(gap))


def refuse_nothing(question: Question, trial: Trial) -> GapError:
    """Nothing serves: the refusal with the bounds that bind and every change that was tried."""
    missed = missed_bounds(question, trial)
    gap = gap_of(question, None, options=relaxed_options(question, missed), bounds=missed)
    return GapError(nothing_fits(question, trial, gap), gap=gap, currency=question.prices.currency)


def refuse_limits(question: Question, ranked: list[Sized], limits: Sequence[FleetLimit]) -> GapError:
    """Fleets serve, but none within the limits: the refusal with what would close the gap."""
    overrun = Overrun(limits=tuple(limits))
    start = min(ranked, key=overrun.order)
    given_up = (*smaller_fleets(question, ranked, overrun, start), *later_options(question, overrun, start))
    gap = gap_of(question, start, options=given_up)
    only_devices = all(limit.kind == "devices" for limit in limits)
    refused = over_budget if only_devices else _over_limits
    return GapError(refused(question, ranked, overrun, gap), gap=gap, currency=question.prices.currency)


def _over_limits(question: Question, ranked: list[Sized], overrun: Overrun, gap: Gap) -> InfeasibleError:
    refusal = over_limits(question, ranked, overrun.limits)
    if gap.closed or any(item.closes for item in gap.options):
        refusal.hint = f"{refusal.hint}; {_hint(gap)}"
    return refusal
