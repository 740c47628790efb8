"""What holds a replica back, and how well that is known."""

from __future__ import annotations

import numpy as np

from simulator.engine.lanes.load_curve import SlotLimit, lanes
from simulator.engine.lanes.steady_state import LatencyMetric, Objective
from simulator.kernels.roofline import DEQUANTISATION, HOST, LINK, MEMORY, OCCUPANCY, TENSOR_CORE
from simulator.kernels.timing import Provenance
from simulator.planner.serving.capacity import Limit, Replica, Resource
from simulator.planner.serving.replica import Part, nearest_steps
from simulator.records import dataclass
from simulator.specs.question.techniques import SpeculationSpec

_RESOURCES = {
    MEMORY: Resource.MEMORY,
    TENSOR_CORE: Resource.TENSOR_CORE,
    DEQUANTISATION: Resource.DEQUANTISATION,
    OCCUPANCY: Resource.OCCUPANCY,
    LINK: Resource.LINK,
    HOST: Resource.HOST,
}
_SLOTS = {
    SlotLimit.KV_MEMORY: Resource.KV_MEMORY,
    SlotLimit.BATCH_LIMIT: Resource.BATCH_LIMIT,
    SlotLimit.TOKEN_BUDGET: Resource.TOKEN_BUDGET,
}
# More slots are what is missing where ten percent of them move the saturation rate by at least a third of that.
_SLOTS_TRIED = 0.9
_SLOTS_MATTER = 1 / 3
# Normal deviate that leaves 10 % on either side.
DEVIATE_80 = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingSteps:
    """The plain and the prompt-carrying step of a replica near its planned capacity.

    bound : what most of the time waits for, one of BOUNDS
    log_sigma : standard deviation of log(measured / predicted) of the mean step, errors of both taken as common, with
        that of the guesses which speculation has accepted where nobody gave it
    provenance : the word for how well the worse of the two is known, of one alone where the other takes no time
    """

    bound: str
    log_sigma: float
    provenance: str


def _known_pace(speculation: SpeculationSpec | None) -> Provenance:
    """How well the tokens of a step are known: an acceptance that nobody gave is assumed."""
    given = speculation is None or speculation.acceptance is not None or speculation.accepted_tokens is not None
    return Provenance.MEASURED if given else Provenance.ASSUMED


def operating_steps(part: Part) -> OperatingSteps:
    """Look up a replica's two kinds of step at the priced batch nearest to its planned one."""
    steps, at, speculation = part.steps, part.replica.at_capacity, part.candidate.techniques.speculation
    near = nearest_steps(
        part.curve,
        sequences=at.mean_sequences / lanes(part.replica.deployment),
        prompt_share=at.prompt_share,
        limit=part.replica.slot_limit,
    )
    worst = max(near.known(steps), _known_pace(speculation))
    return OperatingSteps(
        bound=steps.bound[near.prompts if at.prompt_share >= 1 / 2 else near.plain],
        log_sigma=near.log_sigma(steps, speculation),
        provenance=worst.label,
    )


def _slots_matter(part: Part) -> bool:
    rates = part.curve.rates_per_s
    slots = len(rates)
    fewer = max(1, int(_SLOTS_TRIED * slots))
    if fewer == slots:
        return True
    elasticity = np.log(rates[-1] / rates[fewer - 1]) / np.log(slots / fewer)
    return bool(elasticity >= _SLOTS_MATTER)


def _behind(replica: Replica, objective: Objective, *, bound: Resource) -> Resource:
    """What uses up an objective: waiting for a slot, waiting for the running steps, or the steps themselves."""
    if objective.metric is not LatencyMetric.TTFT or replica.binding is None:
        return bound
    # The percentile's own request waits for a slot where at least the share above the percentile does.
    if replica.at_capacity.slot_wait_probability >= 1 - objective.percentile / 100:
        return _SLOTS[replica.slot_limit]
    idle_s = replica.unloaded.objectives_s[replica.binding]
    return Resource.QUEUEING if idle_s < objective.bound_s / 2 else bound


def limiting_resource(part: Part, steps: OperatingSteps, *, objectives: tuple[Objective, ...]) -> Limit:
    """The resource, and how it is met; what prompts alone are held back by where they have a pool.

    Where an objective holds capacity below the target utilisation it is named with what its time goes to; otherwise
    the slots where more of them would raise the rate, or else what the steps wait for.
    """
    replica = part.replica
    resource = _RESOURCES[steps.bound]
    if replica.binding is not None:
        objective = objectives[replica.binding]
        return Limit(
            resource=_behind(replica, objective, bound=resource),
            objective=objective,
            utilization=replica.utilization,
            step_margin=replica.step_margin,
            random_moments=part.role == "prefill",
        )
    if part.role == "prefill":
        return Limit(resource=resource, utilization=replica.utilization)
    if replica.slot_limit is not SlotLimit.TOKEN_BUDGET and _slots_matter(part):
        return Limit(resource=_SLOTS[replica.slot_limit], sequences=replica.slots)
    return Limit(resource=resource, sequences=replica.at_capacity.mean_sequences / lanes(replica.deployment))
