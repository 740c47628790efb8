"""Which search a question gets: the usual one candidate by candidate, or the wide one over arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.planner.search.candidates import Platform
from simulator.planner.search.question import Question
from simulator.planner.search.search import Trial, join, look_ahead, try_platform

if TYPE_CHECKING:
    from simulator.planner.studies.choice_records import SearchSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a search found; ``summary`` is None for the usual one."""

    trial: Trial
    summary: SearchSummary | None


def is_wide(question: Question) -> bool:
    """Whether more is varied than hardware and tensor parallelism."""
    spec = question.spec
    return spec.search == "wide" or spec.any_precision or spec.any_technique


def try_platforms(question: Question, tried: tuple[Platform, ...]) -> Tried:
    """Search the given platforms."""
    if is_wide(question):
        from simulator.planner.search.wide_search import wide_search

        found = wide_search(question, tried)
        return Tried(trial=found.trial, summary=found.summary)
    trial = Trial(sized=(), rejections=())
    look_ahead(question, tried)
    for platform in tried:
        trial = join(trial, try_platform(question, platform))
    return Tried(trial=trial, summary=None)
