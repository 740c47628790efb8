"""Fleets that no other fleet beats in cost, latency, power and quality of answers at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.planner.choice_records import ParetoPoint, ParetoSet
from simulator.planner.fleet import Sized, complete, fleet_power
from simulator.planner.format_quality import answer_quality, quality_note
from simulator.planner.search import Question
from simulator.planner.wide_search import pareto_front

AXES = ("cost per hour", "E2E p95", "power", "loss of answer quality")
_MOST = 40


def _loss(question: Question, item: Sized) -> float:
    """As a fraction; what nobody published stands behind everything that is known."""
    candidate = item.evaluated.candidate
    loss = answer_quality(question.model, candidate.precision, candidate.techniques).loss
    return 1.0 if loss is None else loss


def _point(question: Question, item: Sized) -> ParetoPoint:
    fleet = complete(item, demand=question.demand, objectives=question.objectives, spec=question.spec)
    engine, candidate = fleet.replica.deployment.engine, item.evaluated.candidate
    return ParetoPoint(
        hardware=fleet.hardware,
        label=fleet.label,
        devices=fleet.devices,
        devices_per_replica=fleet.replica.devices,
        replicas=fleet.replicas,
        spares=fleet.spares,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        cost_per_hour=fleet.cost.per_hour,
        typical_w=fleet.typical_w,
        ttft_p95_s=fleet.degraded.ttft_p95_s,
        tpot_p95_s=fleet.degraded.tpot_p95_s,
        e2e_p95_s=fleet.degraded.e2e_p95_s,
        quality=quality_note(question.model, candidate.precision, candidate.techniques),
    )


def pareto_of(question: Question, fleets: Sequence[Sized]) -> ParetoSet:
    """The front over cost, E2E p95 at a replica's planned load, typical power and published loss of quality.

    Fleets without a price compete on the others only among themselves, and stand at the end.
    """

    def axes(items: Sequence[Sized]) -> np.ndarray:
        rows = [
            (
                item.cost.per_hour or 0.0,
                item.evaluated.replica.at_capacity.e2e_p95_s,
                fleet_power(item).typical_w,
                _loss(question, item),
            )
            for item in items
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, len(AXES))

    priced = [item for item in fleets if item.cost.per_hour is not None]
    unpriced = [item for item in fleets if item.cost.per_hour is None]
    points: list[ParetoPoint] = []
    for group in (priced, unpriced):
        points += [_point(question, group[index]) for index in pareto_front(axes(group), limit=_MOST)]
    return ParetoSet(axes=AXES, considered=len(fleets), points=tuple(points))
