"""The capacity plan: try every candidate, size a fleet for each that can serve, rank, and say what was refused."""

from __future__ import annotations

import re

from simulator.planner.candidates import platforms
from simulator.planner.fleet import Sized, complete
from simulator.planner.infeasible import nothing_fits, over_budget
from simulator.planner.plausibility import warnings_for
from simulator.planner.records import Assumption, CapacityPlan
from simulator.planner.search import Trial, join, resolve, try_platform
from simulator.specs.plan import PlanSpec

_ASSUMPTION = re.compile(r"(.*?) = (.*) \((.*)\)")


def _shown(ranked: list[Sized]) -> list[Sized]:
    """The best of every accelerator; where only one was tried, every candidate."""
    if len({item.evaluated.candidate.platform.hardware.name for item in ranked}) == 1:
        return ranked
    best: dict[str, Sized] = {}
    for item in ranked:
        best.setdefault(item.evaluated.candidate.platform.hardware.name, item)
    return list(best.values())


def plan_capacity(spec: PlanSpec) -> CapacityPlan:
    """The cheapest fleet that carries the demand within its objectives, and everything it was compared with.

    Raises
    ------
    InfeasibleError
        No candidate can serve, or none within ``max_gpus``; says which bound, by how much and what would be enough.
    RoofcastError, ProfileError, FileError
        The question itself is invalid.
    """
    question = resolve(spec)
    trial = Trial(sized=(), rejections=())
    for platform in platforms(spec):
        trial = join(trial, try_platform(question, platform))
    if not trial.sized:
        raise nothing_fits(question, trial)
    ranked = sorted(trial.sized, key=lambda item: item.rank)
    allowed = [item for item in ranked if spec.max_gpus is None or item.devices <= spec.max_gpus]
    if not allowed:
        raise over_budget(question, ranked)
    fleets = [
        complete(item, demand=question.demand, objectives=question.objectives, spec=spec) for item in _shown(allowed)
    ]
    best = fleets[0]
    return CapacityPlan(
        demand=question.demand,
        objectives=question.objectives,
        best=best,
        alternatives=tuple(fleets[1:]),
        rejections=trial.rejections,
        candidates=len(trial.sized) + len(trial.rejections),
        assumptions=(*question.assumptions, *_deployment_assumptions(best.replica.deployment.assumptions)),
        warnings=warnings_for(question, best, fleets),
    )


def _deployment_assumptions(texts: tuple[str, ...]) -> tuple[Assumption, ...]:
    """``name = value (source)`` taken apart; a text of another form is kept whole."""
    found = (_ASSUMPTION.fullmatch(text) for text in texts)
    return tuple(
        Assumption(name=match[1], value=match[2], source=match[3])
        if match
        else Assumption(name="replica", value=text, source="default")
        for match, text in zip(found, texts, strict=True)
    )
