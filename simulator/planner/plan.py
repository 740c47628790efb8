"""The capacity plan: try every candidate, size a fleet for each that can serve, rank, and say what was refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from simulator.planner.candidates import platforms
from simulator.planner.contradictions import check_contradictions
from simulator.planner.demand import replays_trace
from simulator.planner.fleet import Sized, complete
from simulator.planner.plausibility import warnings_for
from simulator.planner.records import Assumption, CapacityPlan, Rejection
from simulator.planner.search import Question, resolve
from simulator.planner.studies import has_studies, with_finalists, with_studies
from simulator.planner.trials import try_platforms
from simulator.specs.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.planner.finalists import Outcome

_ASSUMPTION = re.compile(r"(.*?) = (.*) \((.*)\)")


def best_of_each(ranked: list[Sized]) -> list[Sized]:
    """The best of every accelerator, as one kind of replica and as two pools; where only one was tried, all of them."""
    if len({item.evaluated.candidate.platform.hardware.name for item in ranked}) == 1:
        return ranked
    best: dict[tuple[str, bool], Sized] = {}
    for item in ranked:
        candidate = item.evaluated.candidate
        best.setdefault((candidate.platform.hardware.name, candidate.prefill is None), item)
    return list(best.values())


def _allowed(question: Question, ranked: list[Sized]) -> tuple[list[Sized], tuple[Rejection, ...]]:
    """Fleets within every limit that was given, and the others with what they exceed; a refusal where none is within.

    Stock limits what is obtained beside it, not a fleet without it (see ``stock_plan``).
    """
    spec = question.spec
    given = (spec.max_gpus, spec.max_cost_per_hour, spec.max_power_kw, spec.max_racks)
    if spec.stock or given == (None,) * len(given):
        return ranked, ()
    from simulator.planner.constraints import beyond, fleet_limits, within

    limits = fleet_limits(question)
    allowed = within(limits, ranked)
    if not allowed:
        from simulator.planner.gap.infeasible import refuse_limits

        raise refuse_limits(question, ranked, limits)
    return allowed, beyond(limits, ranked)


def _simulated(question: Question, ranked: list[Sized]) -> Outcome | None:
    """The finalists in the event simulation, where that was asked for or the demand is a trace as it was recorded."""
    if not question.spec.verify and not replays_trace(question.spec):
        return None
    from simulator.planner.finalists import checked_finalists

    return checked_finalists(question, ranked)


def plan_capacity(spec: PlanSpec) -> CapacityPlan:
    """The cheapest fleet that carries the demand within its objectives, and everything it was compared with.

    Raises
    ------
    InfeasibleError
        No candidate can serve, or none within the limits of the fleet; says which bound, by how much and what would
        be enough.
    RoofcastError, ProfileError, FileError
        The question itself is invalid.
    """
    check_contradictions(spec)
    question = resolve(spec)
    tried = try_platforms(question, platforms(spec))
    trial = tried.trial
    if not trial.sized:
        from simulator.planner.gap.infeasible import refuse_nothing

        raise refuse_nothing(question, trial)
    ranked = sorted(trial.sized, key=lambda item: item.rank)
    simulated = _simulated(question, ranked)
    if simulated is not None:
        question, ranked = simulated.question, simulated.ranked
    allowed, excluded = _allowed(question, ranked)
    shown = best_of_each(allowed)
    fleets = [complete(item, demand=question.demand, objectives=question.objectives, spec=spec) for item in shown]
    best = fleets[0]
    plan = CapacityPlan(
        spec=spec,
        demand=question.demand,
        objectives=question.objectives,
        best=best,
        alternatives=tuple(fleets[1:]),
        rejections=(*trial.rejections, *excluded),
        candidates=tried.summary.candidates
        if tried.summary
        else len(trial.sized) + len(trial.rejections) + trial.more,
        assumptions=(*question.assumptions, *_deployment_assumptions(best.replica.deployment.assumptions)),
        warnings=(*question.demand.warnings, *warnings_for(question, best, fleets)),
        search=tried.summary,
    )
    if simulated is not None:
        plan = with_finalists(plan, simulated)
    return with_studies(plan, question, allowed=allowed, shown=shown) if has_studies(spec) else plan


def _deployment_assumptions(texts: tuple[str, ...]) -> tuple[Assumption, ...]:
    """``name = value (source)`` taken apart; a text of another form is kept whole."""
    found = (_ASSUMPTION.fullmatch(text) for text in texts)
    return tuple(
        Assumption(name=match[1], value=match[2], source=match[3])
        if match
        else Assumption(name="replica", value=text, source="default")
        for match, text in zip(found, texts, strict=True)
    )
