"""What remains of a gap: the share of hits that would close it, and the rate that the limits carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.planner.fleet.fleet import Sized, size
from simulator.planner.gap.overrun import Overrun
from simulator.planner.gap.screen import with_cache_hits, with_prefix_hits
from simulator.planner.search.question import Question
from simulator.planner.search.search import evaluate_all

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
    """Of the whole demand, the requests/s that a set-up carries within the limits, spares and servers kept [1/s]."""
    rate = question.demand.mean_rate_per_s
    low, high = 0.0, rate
    for _ in range(_RATE_HALVINGS):
        middle = (low + high) / 2
        less = replace(question.demand, mean_rate_per_s=middle)
        fits = overrun.holds(size(item.evaluated, demand=less, spec=question.spec, prices=question.prices))
        low, high = (middle, high) if fits else (low, middle)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Shares of hits that would close what remains, the rate within the limits [1/s]; None where nothing remains."""

    prefix_hit: float | None = None
    cache_hit: float | None = None
    rate_per_s: float | None = None


def remaining_of(question: Question, end: Sized | None, *, overrun: Overrun) -> Remaining:
    """After the last change; nothing where the limits hold, where none was given, or where nothing serves."""
    if end is None or not overrun.limits or overrun.holds(end):
        return Remaining()
    return Remaining(
        prefix_hit=_needed_share(question, end, overrun=overrun, changed=with_prefix_hits),
        cache_hit=_needed_share(question, end, overrun=overrun, changed=with_cache_hits),
        rate_per_s=carried_rate_per_s(question, end, overrun=overrun),
    )
