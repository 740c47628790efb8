"""The capacity plan: try every candidate, size a fleet for each that can serve, rank, and say what was refused."""

from __future__ import annotations

import re

from simulator.errors import InfeasibleError
from simulator.planner.candidates import platforms
from simulator.planner.fleet import Sized, complete
from simulator.planner.infeasible import nothing_fits, over_budget
from simulator.planner.plausibility import warnings_for
from simulator.planner.records import Assumption, CapacityPlan
from simulator.planner.search import Question, resolve
from simulator.planner.studies import has_studies, with_studies
from simulator.planner.trials import try_platforms
from simulator.specs.plan import PlanSpec

_ASSUMPTION = re.compile(r"(.*?) = (.*) \((.*)\)")


def best_of_each(ranked: list[Sized]) -> list[Sized]:
    """The best of every accelerator; where only one was tried, every candidate."""
    if len({item.evaluated.candidate.platform.hardware.name for item in ranked}) == 1:
        return ranked
    best: dict[str, Sized] = {}
    for item in ranked:
        best.setdefault(item.evaluated.candidate.platform.hardware.name, item)
    return list(best.values())


def _allowed(question: Question, ranked: list[Sized]) -> list[Sized]:
    """Fleets within every limit that was given, or a refusal with the nearest; a gap study explains it in full."""
    spec = question.spec
    if spec.stock:
        # What is obtained beside the stock is limited, not a fleet without it (see ``stock_plan``).
        return ranked
    only_devices = (spec.max_cost_per_hour, spec.max_power_kw, spec.max_racks) == (None, None, None)
    if only_devices:
        allowed = [item for item in ranked if spec.max_gpus is None or item.devices <= spec.max_gpus]
        if not allowed:
            smallest = min(ranked, key=lambda item: (item.devices, item.rank))
            raise _with_gap(question, over_budget(question, ranked), smallest=smallest)
        return allowed
    from simulator.planner.constraints import fleet_limits, over_limits, within

    limits = fleet_limits(question)
    allowed = within(limits, ranked)
    if not allowed:
        raise over_limits(question, ranked, limits)
    return allowed


def _with_gap(question: Question, refusal: InfeasibleError, *, smallest: Sized | None) -> InfeasibleError:
    """The refusal; where a number of accelerators was given, or the gap asked for, with what would close it."""
    spec = question.spec
    if spec.max_gpus is None and not spec.explain_gap:
        return refusal
    from simulator.planner.gap import gap_of
    from simulator.planner.gap_error import GapError

    return GapError(refusal, gap=gap_of(question, smallest), currency=question.prices.currency)


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
    question = resolve(spec)
    tried = try_platforms(question, platforms(spec))
    trial = tried.trial
    if not trial.sized:
        raise _with_gap(question, nothing_fits(question, trial), smallest=None)
    ranked = sorted(trial.sized, key=lambda item: item.rank)
    allowed = _allowed(question, ranked)
    shown = best_of_each(allowed)
    fleets = [complete(item, demand=question.demand, objectives=question.objectives, spec=spec) for item in shown]
    best = fleets[0]
    plan = CapacityPlan(
        spec=spec,
        demand=question.demand,
        objectives=question.objectives,
        best=best,
        alternatives=tuple(fleets[1:]),
        rejections=trial.rejections,
        candidates=tried.summary.candidates if tried.summary else len(trial.sized) + len(trial.rejections),
        assumptions=(*question.assumptions, *_deployment_assumptions(best.replica.deployment.assumptions)),
        warnings=warnings_for(question, best, fleets),
        search=tried.summary,
    )
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
