"""What holds a replica back, and how well that is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from simulator.engine.lanes.load_curve import LoadCurve, Saturation, SlotLimit, lanes
from simulator.engine.lanes.steady_state import LatencyMetric, Objective
from simulator.kernels.roofline import DEQUANTISATION, HOST, LINK, MEMORY, OCCUPANCY, TENSOR_CORE
from simulator.kernels.timing import Provenance
from simulator.phases.step import PROVENANCE_SHARE
from simulator.planner.fleet.records import Limit, Replica, Resource
from simulator.planner.serving.capacity import KnownSteps
from simulator.planner.serving.replica import Part, Policy, Prepared
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nearest:
    """The priced steps nearest to a replica's batch: places of the plain and of the prompt-carrying one."""

    plain: int
    prompts: int
    prompt_share: float

    def log_sigma(self, steps: KnownSteps, speculation: SpeculationSpec | None) -> float:
        """Standard deviation of log(measured / predicted) of the mean step."""
        sigma, share = steps.log_sigma, self.prompt_share
        kernels = (1 - share) * sigma[self.plain] + share * sigma[self.prompts]
        if speculation is None:
            return float(kernels)
        from simulator.techniques.speculation.acceptance import pace_sigma

        return float(np.hypot(kernels, (1 - share) * pace_sigma(speculation)))

    def known(self, steps: KnownSteps) -> Provenance:
        """How well the worse of those that take part of the time is known: a prefill pool generates nothing."""
        shares = {self.plain: 1 - self.prompt_share, self.prompts: self.prompt_share}
        run = [case for case, share in shares.items() if share >= PROVENANCE_SHARE]
        return Provenance(int(steps.provenance[run].max()))


def _nearest(curve: LoadCurve, *, sequences: float, prompt_share: float, limit: SlotLimit) -> _Nearest:
    plain = int(np.argmin(np.abs(curve.nodes - max(1.0, sequences))))
    # Where prompts saturate the token budget, full steps are what counts; otherwise those with the usual company.
    kind = 2 if limit is SlotLimit.TOKEN_BUDGET else 1
    return _Nearest(plain=plain, prompts=plain + kind * len(curve.nodes), prompt_share=prompt_share)


def saturated_log_sigma(found: Prepared, limit: Saturation) -> float:
    """Spread of the steps of a candidate whose lanes are full, before it is known how far they are loaded."""
    prefill_s = float(np.interp(limit.sequences, np.arange(found.curve.slots + 1), found.curve.prefill_s))
    share = min(limit.rate_per_s * prefill_s, 1.0) if found.curve.mix.decode_steps > 0 else 1.0
    near = _nearest(found.curve, sequences=limit.sequences, prompt_share=share, limit=limit.limit)
    return near.log_sigma(found.steps, found.candidate.techniques.speculation)


def step_margin(found: Prepared, limit: Saturation, policy: Policy) -> float:
    """How many times as long as predicted the steps of a candidate may take while its capacity holds."""
    return exp(policy.deviate * saturated_log_sigma(found, limit)) if policy.deviate else 1.0


def operating_steps(part: Part) -> OperatingSteps:
    """Look up a replica's two kinds of step at the priced batch nearest to its planned one."""
    steps, at, speculation = part.steps, part.replica.at_capacity, part.candidate.techniques.speculation
    near = _nearest(
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
