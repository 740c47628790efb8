"""The way from a fleet to its limits: the changes that were taken, each the one that comes nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.planner.fleet.fleet import Sized
from simulator.planner.gap.changes import GIVES_UP, GapChange, GapState
from simulator.planner.gap.screen import GapScreen

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
        if best is None or (self.now is not None and not self._is_nearer(best.item, self.now)):
            return None
        return best

    def _preference(self, taken: Taken) -> tuple[float, float, object]:
        """Of changes that close the gap the one with the smallest known loss, then the cheapest fleet."""
        over, rank = self._screen.overrun.order(taken.item)
        loss = taken.change.quality.loss
        return over, float("inf") if loss is None else loss, rank

    def _is_nearer(self, item: Sized, than: Sized) -> bool:
        return self._screen.overrun.order(item)[0] < self._screen.overrun.order(than)[0]

    def drop_needless(self) -> None:
        """Leave out changes that later ones made superfluous, the dearest in quality first."""
        if not self.is_done:
            return
        for taken in sorted(self.taken, key=lambda item: -_cost_of(item.change)):
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


def _cost_of(change: GapChange) -> float:
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
