"""What closes the gap between a fleet and its budget: one change after another, what each saves and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simulator.planner.choice_records import Gap, GapStep
from simulator.planner.fleet import Sized
from simulator.planner.gap_changes import GapChange, GapState, gap_changes
from simulator.planner.gap_screen import GapScreen, with_cache_hits, with_prefix_hits
from simulator.planner.search import Question, evaluate_all

# The changes of a round that are evaluated exactly, those with the smallest screened fleets.
_EXACT_CHANGES = 3
_HALVINGS = 8
# The first change of each of these kinds shows which accelerators are worth going on with; "" is none at all.
_PROBES = ("", "hardware", "speculation", "weights")


def _step(change: GapChange, item: Sized, *, before: int | None, alone: Sized | None) -> GapStep:
    candidate, speculation = item.evaluated.candidate, item.evaluated.replica.deployment.speculation
    return GapStep(
        name=change.name,
        flags=change.flags,
        hardware=candidate.platform.hardware.name,
        label=candidate.label,
        devices=item.devices,
        saved_devices=None if before is None else before - item.devices,
        alone_devices=None if alone is None else alone.devices,
        quality=change.quality.note,
        quality_loss=change.quality.loss,
        cost_per_hour=item.cost.per_hour,
        assumes=speculation.plan.assumptions if speculation is not None and change.kind == "speculation" else (),
    )


class _Path:
    """The changes taken so far, and the fleet after them."""

    def __init__(self, screen: GapScreen, start: Sized | None, *, budget: int | None) -> None:
        self._screen, self._budget = screen, budget
        self.now, self.state, self.steps = start, GapState(), list[GapStep]()
        self._used: set[str] = set()

    @property
    def is_done(self) -> bool:
        """The fleet fits into the budget."""
        return self._budget is not None and self.now is not None and self.now.devices <= self._budget

    def follow(self, changes: list[GapChange]) -> None:
        """Take the change that leaves the fewest devices, again and again, until the budget holds or nothing helps."""
        while not self.is_done:
            found = self._best(changes)
            if found is None:
                return
            item, change = found
            alone = self._screen.exact(change.state)
            before = None if self.now is None else self.now.devices
            self.steps.append(_step(change, item, before=before, alone=alone))
            self.now, self.state = item, self.state.joined(change.state)
            self._used.add(change.kind)

    def _best(self, changes: list[GapChange]) -> tuple[Sized, GapChange] | None:
        open_changes = [change for change in changes if change.kind not in self._used]
        open_changes.sort(key=lambda change: self._screen.least_devices(self.state.joined(change.state)))
        tried = [(self._screen.exact(self.state.joined(item.state)), item) for item in open_changes[:_EXACT_CHANGES]]
        serving = [(item, change) for item, change in tried if item is not None]
        if not serving:
            return None
        item, change = min(serving, key=lambda pair: (pair[0].devices, pair[0].rank))
        return None if self.now is not None and item.devices >= self.now.devices else (item, change)


def _needed_share(
    question: Question, item: Sized, *, budget: int, changed: Callable[[Question, float], Question]
) -> float | None:
    """Smallest share in (0, 1) with which a set-up stays within the budget, found by halving; None where none does."""
    low, high, found = 0.0, 1 - 1 / 2**_HALVINGS, None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        trial = evaluate_all(changed(question, middle), (item.evaluated.candidate,))
        if trial.sized and trial.sized[0].devices <= budget:
            high, found = middle, middle
        else:
            low = middle
    return found


def gap_of(question: Question, start: Sized | None) -> Gap:
    """From the smallest fleet ``start`` that the question allows (None: nothing serves) towards its ``max_gpus``.

    First what leaves answers as published, then what does not. Every step is a fleet that was found by screening and
    evaluated exactly. What a change in the workload would bring (hits of the prefix and the answer cache) is given as
    the share that would be needed.
    """
    budget, changes = question.spec.max_gpus, gap_changes(question)
    screen = GapScreen(replace(question, spec=question.spec.model_copy(update={"pareto": False})))
    for kind in _PROBES:
        probe = next((change.state for change in changes if change.kind == kind), GapState())
        screen.least_devices(probe)
    screen.narrow()
    path = _Path(screen, start, budget=budget)
    path.follow([change for change in changes if change.quality.loss == 0])
    path.follow(changes)
    end, needed_prefix, needed_cache = path.now, None, None
    remaining = None if end is None else max(0, end.devices - (budget or end.devices))
    if end is not None and budget is not None and remaining:
        needed_prefix = _needed_share(question, end, budget=budget, changed=with_prefix_hits)
        needed_cache = _needed_share(question, end, budget=budget, changed=with_cache_hits)
    candidate = start.evaluated.candidate if start is not None else None
    return Gap(
        budget_devices=budget,
        start_hardware=candidate.platform.hardware.name if candidate else "",
        start_label=candidate.label if candidate else "",
        start_devices=start.devices if start is not None else None,
        steps=tuple(path.steps),
        end_devices=end.devices if end is not None else None,
        remaining_devices=remaining,
        needed_prefix_hit=needed_prefix,
        needed_cache_hit=needed_cache,
    )
