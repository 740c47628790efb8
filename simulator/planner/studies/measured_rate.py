"""A fleet sized by a rate that was measured on one accelerator, beside the one that is predicted."""

from __future__ import annotations

from typing import ClassVar

from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import size
from simulator.planner.records import Study
from simulator.planner.serving.shapes import replicas_for
from simulator.records import dataclass
from simulator.specs.question.plan import measured_objectives
from simulator.specs.question.plan_values import ObjectiveSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredObjective:
    """An objective [s], and the same percentile as it was measured at that rate; None where it was not said."""

    name: str
    bound_s: float
    measured_s: float | None

    @property
    def holds(self) -> bool | None:
        """Whether the measured percentile stays within the bound; None where it is not known."""
        return None if self.measured_s is None else self.measured_s <= self.bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRate(Study):
    """The fleet that the measured rate asks for.

    rate_per_gpu_per_s, predicted_per_gpu_per_s : what one accelerator of ``label`` carries, measured and planned for
    needed_devices, spare_devices, idle_devices : of ``devices``; cost_per_hour, typical_w : of all of them
    gpus_over : accelerators beyond the allowed number
    """

    key: ClassVar[str] = "measured_rate"

    hardware: str
    label: str
    rate_per_gpu_per_s: float
    predicted_per_gpu_per_s: float
    needed_devices: int
    spare_devices: int
    idle_devices: int
    devices: int
    cost_per_hour: float | None
    cost_per_million_requests: float | None
    typical_w: float
    gpus_over: int
    objectives: tuple[MeasuredObjective, ...]


def _measured(objective: ObjectiveSpec, given: tuple[ObjectiveSpec, ...]) -> MeasuredObjective:
    found = (item.bound_s for item in given if item.key == objective.key)
    return MeasuredObjective(name=objective.name, bound_s=objective.bound_s, measured_s=next(found, None))


def study(context: StudyContext) -> MeasuredRate | None:
    """Replicas in the number that the measured rate asks for; None where no rate was measured.

    The smallest replica that computes prompts and answers alike, as one is measured; only where none serves, the
    recommended pools. Every accelerator is taken to carry what the measured one did, with requests of the same lengths;
    spares are those of the question, and no margin for errors of the step times is added, because none enter.
    """
    spec, demand = context.question.spec, context.question.demand
    rate = spec.measured_rps_per_gpu
    if rate is None:
        return None
    whole = [item for item in context.shown if len(item.counts) == 1]
    planned = min(whole, key=lambda item: item.evaluated.replica.devices, default=context.shown[0])
    shape = planned.evaluated
    devices, answers = shape.devices(planned.counts), demand.answers_per_request
    replicas = replicas_for(demand.planned_rate_per_s, capacity_per_s=rate * answers * devices / planned.replicas)
    counts = shape.counts(demand.planned_rate_per_s, replicas=replicas)
    found = size(shape, demand=demand, spec=spec, prices=context.question.prices, counts=counts)
    return MeasuredRate(
        hardware=shape.candidate.hardware,
        label=shape.candidate.label,
        rate_per_gpu_per_s=rate,
        predicted_per_gpu_per_s=shape.capacity_per_s(planned.counts) / devices / answers,
        needed_devices=shape.devices(found.counts),
        spare_devices=shape.devices(found.spare),
        idle_devices=sum(item.idle_devices for item in found.housing),
        devices=found.devices,
        cost_per_hour=found.cost.per_hour,
        cost_per_million_requests=found.cost.per_million_requests,
        typical_w=found.typical_w,
        gpus_over=max(0, found.devices - spec.max_gpus) if spec.max_gpus is not None else 0,
        objectives=tuple(_measured(item, measured_objectives(spec)) for item in context.question.objectives),
    )
