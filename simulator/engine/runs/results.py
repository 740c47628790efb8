"""Parts of a result (phases, memory, speculation, intervals), with the field names of the contract's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Protocol

import numpy as np

from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.kernels.intervals import Range, interval
from simulator.kernels.timing import Provenance
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan, cache_room, cache_use, memory_provenance
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.engine.fits import EngineSpread

Intervals = Mapping[str, Range | None]
"""80 % interval of each number, by the name of its field; None where there is no such number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """The mean step of a phase: time, utilisation, what bounds the longest step, time by operator family [s].

    steps : how many there are; total_s : of all of them
    """

    step_s: float
    interval: Intervals
    steps: float
    total_s: float
    mfu: float
    mbu: float
    bound: str
    breakdown_s: Mapping[str, float]


def phase_result(phase: PhaseEstimate) -> PhaseResult:
    """A phase as results state it: how many steps, and the mean over them."""
    estimate, step_s = phase.estimate, phase.total_s / phase.steps
    return PhaseResult(
        step_s=step_s,
        interval={"step_s": interval(step_s, log_sigma=phase.log_sigma)},
        steps=phase.steps,
        total_s=phase.total_s,
        mfu=phase.mean(estimate.mfu),
        mbu=phase.mean(estimate.mbu),
        bound=estimate.bound[int(np.argmax(phase.weights * estimate.step_s))],
        breakdown_s=phase.family_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryResult:
    """The memory of a device; capacity in tokens and blocks is that of a replica.

    kv_utilization : share that equal requests take when they end together, at most 1; None under a varying load
    """

    weights_bytes: float
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    kv_capacity_tokens: int
    kv_blocks: int
    activation_bytes: float
    reserve_bytes: float
    fits: bool
    interval: Intervals
    provenance: Provenance
    kv_utilization: float | None = None


def memory_result(deployment: Deployment, memory: MemoryPlan, *, kv_utilization: float | None) -> MemoryResult:
    """A memory plan with what is known of its room."""
    room = cache_room(memory, block_size_tokens=deployment.engine.block_size_tokens)
    return MemoryResult(
        weights_bytes=memory.weights_bytes,
        kv_bytes_per_token=memory.kv_bytes_per_token,
        state_bytes_per_sequence=memory.state_bytes_per_sequence,
        kv_capacity_tokens=memory.kv_capacity_tokens,
        kv_blocks=memory.kv_blocks,
        activation_bytes=memory.activation_bytes,
        reserve_bytes=memory.reserve_bytes,
        fits=memory.fits,
        interval={"kv_capacity_tokens": (room.low_tokens, room.high_tokens)},
        provenance=memory_provenance(deployment),
        kv_utilization=kv_utilization,
    )


def uniform_kv_utilization(deployment: Deployment, run: UniformRun) -> float:
    """Share of the cache that equal requests take when they end together, at most 1."""
    running = min(run.sequences, run.memory.running_sequences)
    return cache_use(deployment, run.memory, sequences=running, tokens=run.isl_tokens + run.osl_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationResult:
    """What a round of speculation is; ``active`` is false where adaptive speculation is off.

    draft_share : of a round's time
    """

    method: str
    active: bool
    verify_tokens: int | None = None
    tokens_per_step: float | None = None
    draft_share: float | None = None
    draft_weights_bytes: float | None = None
    draft_kv_bytes_per_token: float | None = None


def speculation_result(
    deployment: Deployment, decode: PhaseEstimate | None, *, memory: MemoryPlan, whole_answer: bool
) -> SpeculationResult | None:
    """What a deployment's rounds are, None without any. whole_answer : the steps are those of one answer to its end."""
    if deployment.speculation is None or decode is None:
        return None
    plan, drafting = deployment.speculation.plan, decode.estimate.draft_s
    if drafting is None:
        return SpeculationResult(method=plan.method, active=False)
    return SpeculationResult(
        method=plan.method,
        active=True,
        verify_tokens=int(decode.estimate.step.decode_tokens.max()),
        tokens_per_step=(1 + float(np.ptp(decode.estimate.step.decode_context))) / decode.steps
        if whole_answer
        else plan.mean_tokens,
        draft_share=float(decode.weights @ drafting) / decode.total_s,
        draft_weights_bytes=memory.draft_weights_bytes,
        draft_kv_bytes_per_token=memory.draft_kv_bytes_per_token,
    )


class MeanRun(Protocol):
    """What runs of every kind say: mean latencies of their requests, throughput, and a typical step of each phase."""

    @property
    def ttft_s(self) -> float:
        """Time to first token [s]."""

    @property
    def tpot_s(self) -> float:
        """Time per token after the first [s]."""

    @property
    def e2e_s(self) -> float:
        """Time to the last token [s]."""

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second."""

    @property
    def prefill(self) -> PhaseEstimate:
        """The passes over prompts."""

    @property
    def decode(self) -> PhaseEstimate | None:
        """The steps after the first token, where there are any."""


def mean_intervals(run: MeanRun, *, spread: EngineSpread, pace: float, copies: float) -> Intervals:
    """80 % interval of each metric: errors of the kernels of each phase and of the engine, in quadrature.

    The two phases' errors count as independent. ``pace`` is the spread of accepted guesses that nobody gave (0 where
    there are none): they differ as they do between tasks. copies : of the run side by side, whose throughput adds up.
    """
    ahead = run.prefill.log_sigma
    after = hypot(run.decode.log_sigma, pace) if run.decode else ahead
    decode_share = 1 - run.ttft_s / run.e2e_s
    both = hypot(hypot((1 - decode_share) * ahead, decode_share * after), spread.e2e)
    return {
        "ttft_s": interval(run.ttft_s, log_sigma=hypot(ahead, spread.ttft)),
        "tpot_s": interval(run.tpot_s, log_sigma=hypot(after, spread.tpot)) if run.decode else None,
        "e2e_s": interval(run.e2e_s, log_sigma=both),
        "output_tokens_per_s": interval(run.output_tokens_per_s * copies, log_sigma=both),
    }


def loop_intervals(run: UniformRun, means: Intervals) -> Intervals:
    """80 % intervals of a closed loop: medians have the errors of means, all tokens those of generated ones."""
    spread = run.spread
    if spread is None:
        return means
    medians = {"ttft": spread.ttft.p50_s, "tpot": spread.tpot.p50_s if spread.tpot else None, "e2e": spread.e2e.p50_s}
    values = {"ttft": run.ttft_s, "tpot": run.tpot_s, "e2e": run.e2e_s}
    found: dict[str, Range | None] = dict(means)
    for name, median in medians.items():
        found[f"{name}_p50_s"] = _scaled(means[f"{name}_s"], value=median, known=values[name])
    found["total_tokens_per_s"] = _scaled(
        means["output_tokens_per_s"], value=run.total_tokens_per_s, known=run.output_tokens_per_s
    )
    return found


def _scaled(ends: Range | None, *, value: float | None, known: float) -> Range | None:
    if ends is None or value is None or known == 0:
        return None
    return ends[0] * value / known, ends[1] * value / known


def worst_provenance(run: MeanRun) -> Provenance:
    """Provenance of the phase that is known least."""
    return max(phase.provenance for phase in (run.prefill, run.decode) if phase is not None)


def steady_output_tokens_per_s(run: UniformRun | None, *, copies: float) -> float | None:
    """Generated tokens per second of a loop without its first and last rounds."""
    if run is None or run.steady_requests_per_s is None:
        return None
    return run.steady_requests_per_s * run.osl_tokens * copies


def untuned_notes(deployment: Deployment) -> tuple[Note, ...]:
    """Experts in 16 bits that a release runs on slower tiles, since it has no tuned ones for them here."""
    traits, engine = deployment.kernels.traits, deployment.engine
    if traits.untuned is None:
        return ()
    name, hardware = deployment.plan.format_for("experts").name, deployment.hardware.name
    where = {"engine": engine.name, "version": engine.version, "hardware": hardware, "until": traits.untuned.until}
    return tuple(
        Note("untuned_experts", {**where, "count": count, "width": width})
        for count, width in traits.without_tiles(deployment.model, deployment.parallelism, format_name=name)
    )
