"""What closes the gap between a fleet and its limits: one change after another, what each saves and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.constraints import fleet_limits
from simulator.planner.fleet.fleet import Sized, quality_of
from simulator.planner.gap.changes import GapChange, GapState, gap_changes
from simulator.planner.gap.commands import pinned_spec
from simulator.planner.gap.options import gap_options, usual_options
from simulator.planner.gap.overrun import Overrun
from simulator.planner.gap.path import Path, walked
from simulator.planner.gap.records import Gap, GapLimit, GapOption, GapStep, MissedBound
from simulator.planner.gap.remaining import remaining_of
from simulator.planner.gap.screen import GapScreen, can_screen
from simulator.planner.search.question import Question
from simulator.specs.question.plan import PlanSpec

# The first change of each of these kinds shows which accelerators are worth going on with; "" is none at all.
_PROBES = ("", "hardware", "speculation", "weights")


def _narrowed(question: Question, overrun: Overrun, changes: Sequence[GapChange]) -> GapScreen:
    """A screen of the accelerators that are worth going on with."""
    screen = GapScreen(question, overrun)
    for kind in _PROBES if changes else ():
        screen.least(next((change.state for change in changes if change.kind == kind), GapState()))
        screen.narrow()
    return screen


def _steps(question: Question, path: Path, screen: GapScreen) -> tuple[GapStep, ...]:
    before, found = path.start, []
    searched = question.spec.any_precision or question.spec.any_technique
    for taken in path.taken:
        item, change = taken.item, taken.change
        candidate, speculation = item.evaluated.candidate, item.evaluated.replica.deployment.speculation
        alone = screen.exact(change.state)
        # Where the question leaves formats open, any change may come with another one.
        quality = quality_of(item.evaluated) if searched else change.quality
        found.append(
            GapStep(
                name=change.name,
                given=change.given_with(candidate),
                hardware=candidate.platform.hardware.name,
                label=candidate.label,
                devices=item.devices,
                saved_devices=None if before is None else before.devices - item.devices,
                alone_devices=None if alone is None else alone.devices,
                quality=quality.note,
                quality_loss=quality.loss,
                cost_per_hour=item.cost.per_hour,
                assumes=speculation.plan.assumptions if speculation and change.kind == "speculation" else (),
                taken=screen.overrun.taken(item),
                spec=_pinned(question, item, taken.state, overrun=screen.overrun),
            )
        )
        before = item
    return tuple(found)


def _pinned(question: Question, item: Sized, state: GapState, *, overrun: Overrun) -> PlanSpec:
    holds = overrun.holds(item)
    return pinned_spec(question, item.evaluated.candidate, texts=state.texts, keeps_limits=holds)


def _limits(path: Path, overrun: Overrun) -> tuple[GapLimit, ...]:
    start, end = path.start, path.now
    return tuple(
        GapLimit(
            field=limit.field,
            unit=limit.unit,
            allowed=float(limit.allowed),
            start=None if start is None else limit.taken(start),
            end=None if end is None else limit.taken(end),
        )
        for limit in overrun.limits
    )


def gap_of(
    question: Question,
    start: Sized | None,
    *,
    options: tuple[GapOption, ...] = (),
    bounds: tuple[MissedBound, ...] = (),
) -> Gap:
    """From the fleet ``start`` that comes nearest to the limits of a question (None: nothing serves) towards them.

    First what leaves answers as published, then what does not, then what the question fixed. Every step is a fleet
    that was found by screening and evaluated exactly; its command asks for that fleet. What a change in the workload
    would bring (hits of the prefix and the answer cache) is given as the share that would be needed.

    options : ways out that are known already, such as fewer spares; bounds : why nothing serves
    """
    # Two pools are not screened for changes: what would help is sought among replicas that do both.
    question = replace(question, spec=question.spec.model_copy(update={"pareto": False, "serving": ()}))
    overrun = Overrun(limits=fleet_limits(question))
    changes = gap_changes(question) if can_screen(question) else []
    screen = _narrowed(question, overrun, changes)
    path = walked(screen, changes, start)
    if can_screen(question):
        alone = gap_options(question, screen, changes, start=start)
    else:
        alone = usual_options(question, overrun, start=start)
    end, remaining = path.now, remaining_of(question, path.now, overrun=overrun)
    first, budget = (None if start is None else start.evaluated.candidate), question.spec.max_gpus
    quality = None if end is None else quality_of(end.evaluated)
    return Gap(
        budget_devices=budget,
        start_hardware=first.platform.hardware.name if first else "",
        start_label=first.label if first else "",
        start_devices=start.devices if start is not None else None,
        steps=_steps(question, path, screen),
        end_devices=end.devices if end is not None else None,
        remaining_devices=None if end is None else max(0, end.devices - (budget or end.devices)),
        needed_prefix_hit=remaining.prefix_hit,
        needed_cache_hit=remaining.cache_hit,
        limits=_limits(path, overrun),
        options=(*options, *alone),
        bounds=bounds,
        quality="" if quality is None else quality.note,
        quality_loss=None if quality is None else quality.loss,
        carried_rate_per_s=remaining.rate_per_s,
        spec=None if end is None else _pinned(question, end, path.state, overrun=overrun),
        start_cost_per_hour=start.cost.per_hour if start is not None else None,
    )


def study(context: StudyContext) -> Gap:
    """What would bring the smallest fleet within the limits nearer to them."""
    return gap_of(context.question, min(context.allowed, key=lambda item: (item.devices, item.rank)))
