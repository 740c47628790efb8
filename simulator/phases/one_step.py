"""One forward pass with all that is told about it: operators and what they reach of the device, energy, memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

import numpy as np

from simulator.errors import Option, RoofcastError, no_effect
from simulator.kernels.intervals import DEVIATE, Range, interval
from simulator.kernels.roofline import floor_seconds
from simulator.kernels.timing import Provenance
from simulator.operators.work import CollectiveShape, HostTransferShape, Work, prefill_step
from simulator.phases.crossover import CrossoverRange, crossover_range
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import decode_round
from simulator.phases.memory import MemoryPlan, memory_plan, sequences_that_fit
from simulator.phases.power import EnergySplit, energy_split
from simulator.phases.step import StepEstimate, estimate_step
from simulator.records import dataclass

PHASES = ("prefill", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """A pass of ``batch_size`` sequences, which attention-data-parallel ranks share: prompts of ``context_tokens``, or
    one more token after as many.

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

    @property
    def most_sequences(self) -> float:
        """Sequences of ``context_tokens`` whose keys and values the caches of all ranks hold at once."""
        each = sequences_that_fit(self.deployment, self.memory, tokens=self.context_tokens)
        return each * self.deployment.parallelism.dp_size


def one_step(deployment: Deployment, *, phase: str, batch_size: int, context_tokens: int) -> OneStep:
    """Price one pass of a deployment. Raises RoofcastError: the phase is unknown, or a prompt pass with speculation."""
    check_phase(phase)
    sequences = -(-batch_size // deployment.parallelism.dp_size)
    if phase == "prefill":
        if deployment.speculation is not None:
            raise no_effect(
                "speculation changes nothing in a prompt pass", field=Option("speculation"), hint="`phase` decode"
            )
        estimate = estimate_step(deployment, prefill_step(sequences=sequences, tokens=context_tokens))
    else:
        estimate = decode_round(deployment, sequences=sequences, context=context_tokens)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """One operator of one phase on one device: all its executions in a step.

    arithmetic_intensity : FLOPs per byte of device memory; flops_per_s : reached rate
    floor_s : the plain roofline, NaN for transfers between devices; share : of the step's time
    work : of one execution, the first of that name
    """

    phase: str
    name: str
    count: float
    flops: float
    bytes: float
    seconds: float
    floor_s: float
    share: float
    provenance: str
    work: Work

    @property
    def arithmetic_intensity(self) -> float:
        """FLOPs per byte; NaN for what moves no device memory."""
        return self.flops / self.bytes if self.bytes else nan

    @property
    def flops_per_s(self) -> float:
        """Reached rate [FLOP/s]."""
        return self.flops / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Reached rate of device memory [B/s]."""
        return self.bytes / self.seconds

    @property
    def title(self) -> str:
        """``gate_up_proj (decode)``: its name among all points."""
        return f"{self.name} ({self.phase})"


def roofline_points(
    phase: str, estimate: StepEstimate, *, deployment: Deployment, every: bool = False
) -> tuple[RooflinePoint, ...]:
    """Operators of the first case of ``estimate`` that compute and move memory, summed by name.

    every : also passes without FLOPs, and transfers between devices or with the host

    Reference: [Williams2009]
    """
    found: dict[str, RooflinePoint] = {}
    step_s = float(estimate.step_s[0])
    for row in estimate.rows:
        work = row.work
        transfer = isinstance(work.shape, CollectiveShape | HostTransferShape)
        if row.seconds[0] <= 0 or (not every and (transfer or work.flops[0] <= 0)):
            continue
        seconds, known = float(row.seconds[0]), found.get(work.name)
        floor_s = nan if transfer else work.count * float(floor_seconds(work, hardware=deployment.hardware)[0])
        found[work.name] = RooflinePoint(
            phase=phase,
            name=work.name,
            count=work.count + (known.count if known else 0.0),
            flops=work.count * float(work.flops[0]) + (known.flops if known else 0.0),
            bytes=work.count * float(work.bytes[0]) + (known.bytes if known else 0.0),
            seconds=seconds + (known.seconds if known else 0.0),
            floor_s=floor_s + (known.floor_s if known else 0.0),
            share=seconds / step_s + (known.share if known else 0.0),
            provenance=Provenance(int(row.timing.provenance[0])).label,
            work=known.work if known else work,
        )
    return tuple(sorted(found.values(), key=lambda point: -point.seconds))


def reached_share(points: Iterable[RooflinePoint]) -> float:
    """Time that the plain roofline of ``points`` allows over the time that they take; 1 is the roofline itself."""
    shown = tuple(points)
    return sum(point.floor_s for point in shown) / sum(point.seconds for point in shown)
