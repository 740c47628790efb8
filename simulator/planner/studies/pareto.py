"""Fleets that no other fleet beats in cost, latency, energy and quality of answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import Sized, complete
from simulator.planner.fleet.records import Fleet
from simulator.planner.records import Study
from simulator.planner.search.question import Question
from simulator.planner.search.screened_space import pareto_front
from simulator.records import dataclass
from simulator.techniques.quality import AnswerQuality, answer_quality


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """A fleet that no other fleet beats in cost, latency, energy and quality at once.

    energy_per_output_token_j : typical power over the answers at the planned peak [J]
    quality : what is known about the answers of this number format
    PICKED : what stands in a document, latencies with the spares down
    """

    PICKED: ClassVar[tuple[str, ...]] = (
        *("hardware=fleet.hardware", "label=fleet.label", "devices=fleet.devices"),
        *("devices_per_replica=fleet.replica.devices", "replicas=fleet.replicas", "spares=fleet.spares"),
        *(f"{name}=fleet.replica.deployment.engine.{name}" for name in ("max_num_seqs", "max_num_batched_tokens")),
        *("cost_per_hour=fleet.cost.per_hour", "typical_w=fleet.typical_w"),
        *(f"{name}_p95_s=fleet.degraded.{name}_p95_s" for name in ("ttft", "tpot", "e2e")),
        *("quality=quality.note", "energy_per_output_token_j", "quality_loss=quality.loss"),
    )

    fleet: Fleet
    quality: AnswerQuality
    energy_per_output_token_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoSet(Study):
    """Points by rising cost; ``considered`` fleets were compared in ``axes``."""

    key: ClassVar[str] = "pareto"

    axes: tuple[str, ...]
    considered: int
    points: tuple[ParetoPoint, ...]


AXES = ("cost per hour", "E2E p95", "energy", "loss of answer quality")
_MOST = 40


def _axes(point: ParetoPoint) -> tuple[float, float, float, float]:
    """Values along AXES, all to be small; what nobody published stands behind everything that is known."""
    fleet, loss = point.fleet, 1.0 if point.quality.loss is None else point.quality.loss
    return fleet.cost.per_hour or 0.0, fleet.degraded.e2e_p95_s, fleet.typical_w, loss


def _point(question: Question, item: Sized) -> ParetoPoint:
    candidate = item.evaluated.candidate
    fleet = complete(item, demand=question.demand, objectives=question.objectives, spec=question.spec)
    quality = answer_quality(question.model, candidate.precision, candidate.techniques)
    return ParetoPoint(
        fleet=fleet, quality=quality, energy_per_output_token_j=fleet.energy_per_output_token_j(question.demand)
    )


def pareto_of(question: Question, fleets: Sequence[Sized]) -> ParetoSet:
    """The front over cost, E2E p95 with the spares down, typical power and published loss of quality.

    All fleets carry the same demand, so that power orders them as energy per token does. Fleets without a price compete
    on the others only among themselves, and stand at the end.
    """
    compared = [_point(question, item) for item in fleets]
    points: list[ParetoPoint] = []
    for is_priced in (True, False):
        group = [point for point in compared if (point.fleet.cost.per_hour is not None) is is_priced]
        axes = np.array([_axes(point) for point in group], dtype=np.float64).reshape(-1, len(AXES))
        points += [group[index] for index in pareto_front(axes, limit=_MOST)]
    return ParetoSet(axes=AXES, considered=len(fleets), points=tuple(points))


def cheapest_or_fastest(fleets: Sequence[Fleet]) -> list[Fleet]:
    """Fleets that no other beats in both cost and TTFT."""
    found: list[Fleet] = []
    for fleet in sorted(fleets, key=lambda item: (item.cost.per_hour or 0.0, item.degraded.ttft_p95_s)):
        if not found or fleet.degraded.ttft_p95_s < found[-1].degraded.ttft_p95_s:
            found.append(fleet)
    return found


def study(context: StudyContext) -> ParetoSet:
    """The fleets that no other one beats."""
    return pareto_of(context.question, context.allowed)
