"""Each change alone, everything else as asked: what it would need, or why it is no way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.planner.fleet.fleet import Sized, quality_of
from simulator.planner.gap.changes import GapChange
from simulator.planner.gap.commands import pinned_spec
from simulator.planner.gap.overrun import Overrun
from simulator.planner.gap.records import GapOption
from simulator.planner.gap.screen import GapScreen
from simulator.planner.gap.single_changes import single_changes
from simulator.planner.records import FieldValue
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.search import usual_search

# Fleets of a change alone that are evaluated exactly: fewer than of a step, there are many changes.
_FINALISTS = 2


def option_of(
    question: Question,
    item: Sized,
    *,
    name: str,
    given: tuple[FieldValue, ...],
    overrun: Overrun,
    start: Sized | None,
    texts: tuple[str, ...] = (),
) -> GapOption:
    """A fleet that one change leads to."""
    candidate, closes = item.evaluated.candidate, overrun.holds(item)
    quality = quality_of(item.evaluated)
    if start is None:
        helps = True
    elif overrun.holds(start):  # then only a cheaper or a smaller fleet is of use
        helps = closes and item.rank[:3] < start.rank[:3]
    else:
        helps = closes or overrun.order(item)[0] < overrun.order(start)[0]
    reason = "" if helps else "needs no less than as asked"
    return GapOption(
        name=name,
        given=given,
        hardware=candidate.platform.hardware.name,
        label=candidate.label,
        devices=item.devices,
        taken=overrun.taken(item),
        closes=closes,
        reason=reason,
        quality=quality.note,
        quality_loss=quality.loss,
        cost_per_hour=item.cost.per_hour,
        spec=pinned_spec(question, candidate, texts=texts, keeps_limits=closes),
    )


def _nothing(change: GapChange, overrun: Overrun) -> GapOption:
    return GapOption(
        name=change.name,
        given=change.given,
        hardware="",
        label="",
        devices=None,
        taken=(None,) * len(overrun.limits),
        closes=False,
        reason="nothing serves with it alone",
        quality=change.quality.note,
        quality_loss=change.quality.loss,
        cost_per_hour=None,
        spec=None,
    )


def _alone(question: Question, screen: GapScreen, change: GapChange, start: Sized | None) -> GapOption | None:
    item = screen.exact(change.state, among=_FINALISTS)
    if item is None:
        return _nothing(change, screen.overrun)
    if not change.is_in(item.evaluated.candidate):
        return None
    return option_of(
        question,
        item,
        name=change.name,
        given=change.given_with(item.evaluated.candidate),
        overrun=screen.overrun,
        start=start,
        texts=change.state.texts,
    )


def _order(option: GapOption) -> tuple[bool, bool, bool, float, float]:
    """Ways out first, known losses before unknown ones, small fleets before large ones."""
    loss = float("inf") if option.quality_loss is None else option.quality_loss
    devices = float("inf") if option.devices is None else float(option.devices)
    return option.devices is None, not option.closes, bool(option.reason), devices, loss


def gap_options(
    question: Question, screen: GapScreen, changes: Sequence[GapChange], *, start: Sized | None
) -> tuple[GapOption, ...]:
    """Every change alone, the best first."""
    screen.evaluate([change.state for change in changes], among=_FINALISTS)
    found = [_alone(question, screen, change, start) for change in changes]
    return tuple(sorted((item for item in found if item is not None), key=_order))


def usual_options(question: Question, overrun: Overrun, *, start: Sized | None) -> tuple[GapOption, ...]:
    """For questions that cannot be screened: smaller formats, free degrees and other hardware by the usual search."""
    found = []
    for change in single_changes(question):
        sized = usual_search(replace(question, spec=change.spec), platforms(change.spec)).sized
        item = min(sized, key=overrun.order, default=None)
        if item is None:
            continue
        given = (change.given(item.evaluated.candidate),)
        found.append(option_of(question, item, name=change.name, given=given, overrun=overrun, start=start))
    return tuple(sorted(found, key=_order))
