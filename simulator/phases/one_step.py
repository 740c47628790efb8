"""One forward pass with all that is told about it: operators, energy, speculation, whether its memory fits."""

from __future__ import annotations

import numpy as np

from simulator.errors import Option, RoofcastError, no_effect
from simulator.kernels.timing import DEVIATE, Range, interval
from simulator.operators.work import prefill_step
from simulator.phases.crossover import CrossoverRange, crossover_range
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import decode_round
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.power import EnergySplit, energy_split
from simulator.phases.step import StepEstimate, estimate_step
from simulator.records import dataclass

PHASES = ("prefill", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """A pass of ``batch_size`` sequences: prompts of ``context_tokens``, or one more token after as many.

    interval : 80 % interval of its time [s]; crossover : batch at which a decode step turns compute bound, else None
    """

    deployment: Deployment
    phase: str
    batch_size: int
    context_tokens: int
    estimate: StepEstimate
    energy: EnergySplit
    memory: MemoryPlan
    interval: Range | None
    crossover: CrossoverRange | None


def one_step(deployment: Deployment, *, phase: str, batch_size: int, context_tokens: int) -> OneStep:
    """Price one pass of a deployment. Raises RoofcastError: the phase is unknown, or a prompt pass with speculation."""
    check_phase(phase)
    if phase == "prefill":
        if deployment.speculation is not None:
            raise no_effect(
                "speculation changes nothing in a prompt pass", field=Option("speculation"), hint="`phase` decode"
            )
        estimate = estimate_step(deployment, prefill_step(sequences=batch_size, tokens=context_tokens))
    else:
        estimate = decode_round(deployment, sequences=batch_size, context=context_tokens)
    return OneStep(
        deployment=deployment,
        phase=phase,
        batch_size=batch_size,
        context_tokens=context_tokens,
        estimate=estimate,
        energy=energy_split(deployment, estimate=estimate, weights=np.ones(1)),
        memory=memory_plan(deployment),
        interval=interval(float(estimate.step_s[0]), log_sigma=float(estimate.log_sigma[0])),
        crossover=None if phase == "prefill" else crossover_range(deployment, context_tokens=context_tokens, z=DEVIATE),
    )


def check_phase(phase: str) -> None:
    """Refuse a name of a phase that is none."""
    if phase not in PHASES:
        raise RoofcastError(f"{phase!r} is not a phase; allowed: {', '.join(PHASES)}", field=Option("phase"))
