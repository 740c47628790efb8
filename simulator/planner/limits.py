"""What holds a replica back, and how well that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.load_curve import SlotLimit
from simulator.engine.steady_state import LatencyMetric
from simulator.kernels.timing import Provenance
from simulator.operators.step_shape import mixed_step
from simulator.phases.step import StepEstimate, estimate_step
from simulator.planner.feasibility import Evaluated
from simulator.planner.records import Limit, Objective

RESOURCES = {"compute": "compute", "memory": "memory bandwidth", "network": "network", "host": "host overhead"}
SLOT_NAMES = {
    SlotLimit.KV_MEMORY: ("KV memory", "the KV cache is full"),
    SlotLimit.BATCH_LIMIT: ("batch limit", "max_num_seqs is reached"),
    SlotLimit.TOKEN_BUDGET: ("token budget", "max_num_batched_tokens is reached"),
}
# More slots are what is missing where ten percent of them move the saturation rate by at least a third of that.
_SLOTS_TRIED = 0.9
_SLOTS_MATTER = 1 / 3
# Normal deviate that leaves 10 % on either side.
DEVIATE_80 = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingSteps:
    """The plain and the prompt-carrying step of a replica where it saturates, weighted by their time."""

    estimate: StepEstimate
    prompt_share: float

    @property
    def bound(self) -> str:
        """What most of the time waits for: compute, memory, network or host."""
        return self.estimate.bound[1 if self.prompt_share >= 1 / 2 else 0]

    @property
    def log_sigma(self) -> float:
        """Standard deviation of log(measured / predicted) of the mean step, errors of both kinds taken as common."""
        plain, prompts = (float(value) for value in self.estimate.log_sigma)
        return (1 - self.prompt_share) * plain + self.prompt_share * prompts

    @property
    def provenance(self) -> str:
        """The word for how well the worse of the two steps is known."""
        return Provenance(int(self.estimate.provenance.max())).label


def operating_steps(evaluated: Evaluated) -> OperatingSteps:
    """Price a replica's two kinds of step at the batch of its planned capacity."""
    curve, replica = evaluated.curve, evaluated.replica
    sequences = max(1.0, replica.at_capacity.mean_sequences)
    tokens = float(np.interp(sequences, np.arange(curve.slots + 1), curve.prompt_step_tokens))
    chunk = min(tokens, curve.mix.new_prompt_tokens)
    estimate = estimate_step(
        replica.deployment,
        mixed_step(
            prefill_sequences=np.array([0.0, tokens / chunk]),
            prefill_tokens=chunk,
            prefill_context=max(0.0, curve.mix.isl.mean_tokens - curve.mix.new_prompt_tokens),
            decode_sequences=sequences,
            decode_context=curve.mix.decode_context_tokens,
        ),
    )
    return OperatingSteps(estimate=estimate, prompt_share=replica.at_capacity.prompt_share)


def _slots_matter(evaluated: Evaluated) -> bool:
    rates = evaluated.curve.rates_per_s
    slots = len(rates)
    fewer = max(1, int(_SLOTS_TRIED * slots))
    if fewer == slots:
        return True
    elasticity = np.log(rates[-1] / rates[fewer - 1]) / np.log(slots / fewer)
    return bool(elasticity >= _SLOTS_MATTER)


def limiting_resource(evaluated: Evaluated, steps: OperatingSteps, *, objectives: tuple[Objective, ...]) -> Limit:
    """Name the resource, and say how it was met.

    Where an objective holds capacity below the target utilisation it is named with what its time goes to; otherwise
    the slots where more of them would raise the rate, or else what the steps wait for.
    """
    replica = evaluated.replica
    resource = RESOURCES[steps.bound]
    if replica.binding is not None:
        objective = objectives[replica.binding]
        idle_s = replica.unloaded.objectives_s[replica.binding]
        if objective.metric is LatencyMetric.TTFT and idle_s < objective.bound_s / 2:
            resource = "queueing"
        detail = (
            f"{objective.name} reaches {objective.bound_s:g} s at {replica.utilization:.0%} of the rate "
            f"that saturates a replica"
        )
        return Limit(resource=f"{objective.name} ({resource})", detail=detail)
    if replica.slot_limit is not SlotLimit.TOKEN_BUDGET and _slots_matter(evaluated):
        name, how = SLOT_NAMES[replica.slot_limit]
        return Limit(resource=name, detail=f"{how} with {replica.slots} sequences at once")
    detail = f"steps of {replica.at_capacity.mean_sequences:.0f} sequences wait mostly for {resource}"
    return Limit(resource=resource, detail=detail)
