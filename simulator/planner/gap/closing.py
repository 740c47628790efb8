"""What closes the gap between a fleet and its limits: one change after another, what each saves and what it costs.

The way is made of the changes that were taken, each the one that comes nearest. What remains is given as the share of
hits that would close it, and as the rate that the limits carry. A plan that nothing serves, or nothing within its
limits, is refused with it: which bound, by how much, and which change would be enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from simulator.errors import InfeasibleError, Option
from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import Sized, Trial, quality_of, size
from simulator.planner.gap import relaxed_objectives
from simulator.planner.gap.changes import GIVES_UP, GapChange, GapState, gap_changes, pinned_spec
from simulator.planner.gap.limits import FleetLimit, Overrun, fleet_limits, name_of, over_limits
from simulator.planner.gap.records import Gap, GapError, GapLimit, GapOption, GapStep, MissedBound
from simulator.planner.gap.screen import (
    GapScreen,
    can_screen,
    gap_options,
    usual_options,
    with_cache_hits,
    with_prefix_hits,
)
from simulator.planner.search.question import Question
from simulator.planner.search.search import search
from simulator.planner.search.usual_search import evaluate_all
from simulator.records import dataclass
from simulator.specs.question.plan import PlanSpec
from simulator.units import percent_text, plain_text

# The changes of a round that are evaluated exactly, those whose screened fleets come nearest.
_EXACT_CHANGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A change that was taken, and the fleet after it."""

    change: GapChange
    item: Sized
    state: GapState


class Path:
    """The changes taken so far, and the fleet after them."""

    def __init__(self, screen: GapScreen, start: Sized | None) -> None:
        self._screen = screen
        self.start, self.taken = start, list[Taken]()

    @property
    def now(self) -> Sized | None:
        """The fleet after the last change."""
        return self.taken[-1].item if self.taken else self.start

    @property
    def state(self) -> GapState:
        """Everything that was changed."""
        return self.taken[-1].state if self.taken else GapState()

    @property
    def is_done(self) -> bool:
        """The fleet holds every limit."""
        return self.now is not None and self._screen.overrun.holds(self.now)

    def follow(self, changes: Sequence[GapChange]) -> None:
        """Take the change that comes nearest to the limits, again and again, until they hold or nothing helps."""
        while not self.is_done:
            found = self._best(changes)
            if found is None:
                return
            self.taken.append(found)

    def _best(self, changes: Sequence[GapChange]) -> Taken | None:
        used = {item.change.kind for item in self.taken}
        screen, state = self._screen, self.state
        open_changes = [change for change in changes if change.kind not in used]
        screen.look_ahead([state.joined(change.state) for change in open_changes])
        open_changes.sort(key=lambda change: screen.least(state.joined(change.state)))
        screen.evaluate([state.joined(change.state) for change in open_changes[:_EXACT_CHANGES]])
        tried = []
        for change in open_changes[:_EXACT_CHANGES]:
            joined = state.joined(change.state)
            item = screen.exact(joined)
            if item is not None and change.is_in(item.evaluated.candidate):
                tried.append(Taken(change=change, item=item, state=joined))
        best = min(tried, key=self._preference, default=None)
        order = screen.overrun.order
        if best is None or (self.now is not None and order(best.item)[0] >= order(self.now)[0]):
            return None
        return best

    def _preference(self, taken: Taken) -> tuple[float, float, object]:
        """Of changes that close the gap the one with the smallest known loss, then the cheapest fleet."""
        over, rank = self._screen.overrun.order(taken.item)
        return over, _loss(taken.change), rank

    def drop_needless(self) -> None:
        """Leave out changes that later ones made superfluous, the dearest in quality first."""
        if not self.is_done:
            return
        for taken in sorted(self.taken, key=lambda item: -_loss(item.change)):
            rest = [item.change for item in self.taken if item.change is not taken.change]
            end = self._screen.exact(_joined(rest))
            if rest and end is not None and self._screen.overrun.holds(end):
                self.taken = self._again(rest) or self.taken
        # In their old order, those that remain may hold the limits before the last of them.
        while len(self.taken) > 1 and self._screen.overrun.holds(self.taken[-2].item):
            self.taken.pop()

    def _again(self, changes: Sequence[GapChange]) -> list[Taken] | None:
        """The same path with other changes; None where the first fleets of it do not serve."""
        found = list[Taken]()
        for place, change in enumerate(changes, start=1):
            state = _joined(changes[:place])
            item = self._screen.exact(state)
            if item is None:
                return None
            found.append(Taken(change=change, item=item, state=state))
        return found


def _joined(changes: Sequence[GapChange]) -> GapState:
    state = GapState()
    for change in changes:
        state = state.joined(change.state)
    return state


def _loss(change: GapChange) -> float:
    return float("inf") if change.quality.loss is None else change.quality.loss


def walked(screen: GapScreen, changes: Sequence[GapChange], start: Sized | None) -> Path:
    """First what leaves answers as published, then what is known to change them, then the rest, then what gives up."""
    techniques = [change for change in changes if change.kind not in GIVES_UP]
    path = Path(screen, start)
    path.follow([change for change in techniques if change.quality.loss == 0])
    path.follow([change for change in techniques if change.quality.loss is not None])
    path.follow(techniques)
    if screen.overrun.limits or start is None:
        path.follow(changes)
    path.drop_needless()
    return path


_HALVINGS = 8
_RATE_HALVINGS = 24


def _needed_share(
    question: Question, item: Sized, *, overrun: Overrun, changed: Callable[[Question, float], Question]
) -> float | None:
    """Smallest share in (0, 1) with which a set-up holds the limits, found by halving; None where none does."""
    low, high, found = 0.0, 1 - 1 / 2**_HALVINGS, None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        trial = evaluate_all(changed(question, middle), (item.evaluated.candidate,))
        if trial.sized and overrun.holds(trial.sized[0]):
            high, found = middle, middle
        else:
            low = middle
    return found


def carried_rate_per_s(question: Question, item: Sized, *, overrun: Overrun) -> float:
    """The rate that a set-up carries within the limits, spares and whole servers kept [1/s]."""
    rate = question.demand.mean_rate_per_s
    low, high = 0.0, rate
    for _ in range(_RATE_HALVINGS):
        middle = (low + high) / 2
        less = replace(question.demand, mean_rate_per_s=middle)
        fits = overrun.holds(size(item.evaluated, demand=less, spec=question.spec, prices=question.prices))
        low, high = (middle, high) if fits else (low, middle)
    return low


def _with_what_remains(gap: Gap, question: Question, end: Sized, *, overrun: Overrun) -> Gap:
    """The gap with the shares of hits that would close what its last change leaves, and the rate within the limits."""
    return replace(
        gap,
        needed_prefix_hit=_needed_share(question, end, overrun=overrun, changed=with_prefix_hits),
        needed_cache_hit=_needed_share(question, end, overrun=overrun, changed=with_cache_hits),
        carried_rate_per_s=carried_rate_per_s(question, end, overrun=overrun),
    )


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
    for taken in path.taken:
        item, change = taken.item, taken.change
        candidate, speculation = item.evaluated.candidate, item.evaluated.replica.deployment.speculation
        alone = screen.exact(change.state)
        quality = quality_of(item.evaluated)
        found.append(
            GapStep(
                name=change.name,
                given=change.given_with(candidate),
                hardware=candidate.hardware,
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
    # Neither two pools nor steps in halves, whose exchanges no set-ups share, are screened for changes: what would help
    # is sought among replicas that do both in whole steps.
    plain = {"pareto": False, "serving": (), "prefill_hardware": (), "two_batch_overlap": False}
    question = replace(question, spec=question.spec.model_copy(update=plain))
    overrun = Overrun(limits=fleet_limits(question))
    changes = gap_changes(question) if can_screen(question) else []
    screen = _narrowed(question, overrun, changes)
    path = walked(screen, changes, start)
    if can_screen(question):
        alone = gap_options(question, screen, changes, start=start)
    else:
        alone = usual_options(question, overrun, start=start)
    end = path.now
    first, budget = (None if start is None else start.evaluated.candidate), question.spec.max_gpus
    quality = None if end is None else quality_of(end.evaluated)
    gap = Gap(
        budget_devices=budget,
        start_hardware=first.hardware if first else "",
        start_label=first.label if first else "",
        start_devices=start.devices if start is not None else None,
        start_quality=quality_of(start.evaluated).note if start is not None else "",
        steps=_steps(question, path, screen),
        end_devices=end.devices if end is not None else None,
        remaining_devices=None if end is None else max(0, end.devices - (budget or end.devices)),
        limits=_limits(path, overrun),
        options=(*options, *alone),
        bounds=bounds,
        quality="" if quality is None else quality.note,
        quality_loss=None if quality is None else quality.loss,
        spec=None if end is None else _pinned(question, end, path.state, overrun=overrun),
        start_cost_per_hour=start.cost.per_hour if start is not None else None,
    )
    remains = end is not None and overrun.limits and not overrun.holds(end)
    return _with_what_remains(gap, question, end, overrun=overrun) if end and remains else gap


def study(context: StudyContext) -> Gap:
    """What would bring the smallest fleet within the limits nearer to them."""
    return gap_of(context.question, min(context.allowed, key=lambda item: (item.devices, item.rank)))


def over_budget(question: Question, ranked: list[Sized], overrun: Overrun, gap: Gap) -> InfeasibleError:
    """Candidates can serve, but none with ``max_gpus`` accelerators: what is missing, and what would close the gap."""
    budget = question.spec.max_gpus or 0
    smallest = min(ranked, key=lambda item: (item.devices, item.rank))
    carried = [carried_rate_per_s(question, item, overrun=overrun) for item in ranked]
    most = max(carried)
    rate = question.demand.mean_rate_per_s
    carriers = f"{budget} GPUs carry" if budget > 1 else f"{budget} GPU carries"
    share = f"{percent_text(most / rate)}, {name_of(ranked[carried.index(most)])}"
    carries = f"; {carriers} at most {plain_text(most)} requests/s ({share})" if most > 0 else ""
    message = (
        f"{rate:g} requests/s need at least {smallest.devices} GPUs ({name_of(smallest)}), "
        f"{smallest.devices - budget} more than the {budget} allowed{carries}"
    )
    return InfeasibleError(message, field=Option("max_gpus"), code="over_budget", hint=gap.hint)


def _every(question: Question) -> Sequence[Sized]:
    return search(question).trial.sized


def refuse_nothing(question: Question, trial: Trial) -> GapError:
    """Nothing serves: the refusal with the bounds that bind and every change that was tried."""
    missed = relaxed_objectives.missed_bounds(question, trial)
    gap = gap_of(
        question, None, options=relaxed_objectives.relaxed_options(question, missed, search=_every), bounds=missed
    )
    closest = relaxed_objectives.closest_refusal(trial)
    among = f"no feasible plan for {question.model.name} among {len(trial.rejections)} candidates"
    error = InfeasibleError(
        f"{among}; closest is {closest.hardware} {closest.label}", field=closest.field, hint=gap.hint
    )
    return GapError(error, gap=gap, currency=question.prices.currency, reason=closest.reason)


def refuse_limits(question: Question, ranked: list[Sized], limits: Sequence[FleetLimit]) -> GapError:
    """Fleets serve, but none within the limits: the refusal with what would close the gap."""
    overrun = Overrun(limits=tuple(limits))
    if not question.spec.hardware:
        ranked = [item for item in ranked if item.cost.per_hour is not None] or ranked
    start = min(ranked, key=overrun.order)
    given_up = (
        *relaxed_objectives.smaller_fleets(question, ranked, overrun, start, search=_every),
        *relaxed_objectives.later_options(question, overrun, start),
    )
    gap = gap_of(question, start, options=given_up)
    only_devices = all(limit.kind == "devices" for limit in limits)
    refused = over_budget if only_devices else _over_limits
    return GapError(refused(question, ranked, overrun, gap), gap=gap, currency=question.prices.currency)


def _over_limits(question: Question, ranked: list[Sized], overrun: Overrun, gap: Gap) -> InfeasibleError:
    refusal = over_limits(question, ranked, overrun.limits)
    if gap.closed or any(item.closes for item in gap.options):
        refusal.hint = f"{refusal.hint}; {gap.hint}"
    return refusal
