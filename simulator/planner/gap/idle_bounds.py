"""Objectives that even an idle replica misses: by how much, and what the time goes to."""

from __future__ import annotations

from dataclasses import replace

from simulator.planner.candidate import Rejection
from simulator.planner.fleet.fleet import Sized, Trial
from simulator.planner.gap.records import MissedBound
from simulator.planner.search.question import Question
from simulator.planner.search.search import evaluate_all
from simulator.planner.serving.capacity import UNLOADED_SHARE
from simulator.planner.serving.shapes import Shape
from simulator.units import MILLI


def closest_refusal(trial: Trial) -> Rejection:
    """The refusal that came nearest to serving."""
    return min(trial.rejections, key=lambda item: item.distance)


def _without_objectives(question: Question, refused: Rejection) -> Sized | None:
    """The refused set-up when no objective binds."""
    free = replace(question, objectives=())
    return next(iter(evaluate_all(free, (refused.candidate,)).sized), None)


def _made_of(evaluated: Shape, question: Question) -> str:
    """What the time of an idle replica goes to."""
    idle, steps = evaluated.replica.unloaded, question.demand.mix.decode_steps
    prompt = f"{question.demand.mix.isl.mean_tokens:,.0f} prompt tokens in {idle.ttft_mean_s / MILLI:.0f} ms"
    if steps <= 0:
        return f"{prompt} on average"
    return f"{prompt}, then {steps:,.0f} steps of {idle.tpot_mean_s / MILLI:.1f} ms on average"


def missed_bounds(question: Question, trial: Trial) -> tuple[MissedBound, ...]:
    """Every objective beside what an idle replica of the nearest set-up takes; none where memory is what misses."""
    closest = closest_refusal(trial)
    if closest.code != "objective":
        return ()
    sized = _without_objectives(question, closest)
    if sized is None:
        return ()
    evaluated = sized.evaluated
    rate = evaluated.replica.saturation_per_s * UNLOADED_SHARE
    (idle,) = evaluated.latencies(rate, objectives=question.objectives)
    return tuple(
        MissedBound(
            objective=item.name,
            bound_s=item.bound_s,
            idle_s=value_s,
            hardware=closest.hardware,
            label=closest.label,
            made_of=_made_of(evaluated, question),
        )
        for item, value_s in zip(question.objectives, idle.objectives_s, strict=True)
    )
