"""Answers to the scenario kinds whose requests all have the same lengths: batch, closed_loop, offline.

A static batch has a closed form; the other two run step by step on the compiled step times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.static_batch import PhaseEstimate, decode_phase, prefill_phase
from simulator.engine.uniform_simulation import UniformDemand, UniformLimits, simulate_uniform
from simulator.errors import InfeasibleError
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan, memory_plan, sequences_that_fit
from simulator.phases.tabulate import compile_steps
from simulator.units import GIGA

# Rounds of a run without a given length: the first one starts in an empty engine, the others in a full one.
ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformRun:
    """What requests of equal lengths see, and what a replica delivers.

    TTFT includes queueing; TPOT = (E2E - TTFT) / (OSL - 1); throughput is per replica.
    ``log_sigma_*`` are standard deviations of log(measured / predicted) of each phase.
    """

    ttft_s: float
    tpot_s: float
    e2e_s: float
    requests_per_s: float
    isl_tokens: int
    osl_tokens: int
    sequences: int
    prefill: PhaseEstimate
    decode: PhaseEstimate | None
    memory: MemoryPlan
    notes: tuple[str, ...]

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second, first tokens included."""
        return self.requests_per_s * self.osl_tokens

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and generated tokens per second."""
        return self.requests_per_s * (self.isl_tokens + self.osl_tokens)


def _require_fit(deployment: Deployment, memory: MemoryPlan, *, tokens: int) -> None:
    if not memory.fits:
        raise InfeasibleError(
            f"weights, activations and reserve exceed the memory of a device by {memory.shortfall_bytes / GIGA:.1f} GB",
            field="hardware",
            code="does_not_fit",
            hint="use more tensor parallelism, fewer bits per weight or a device with more memory",
        )
    if sequences_that_fit(deployment, memory, tokens=tokens) < 1:
        raise InfeasibleError(
            f"one request of {tokens} tokens does not fit the cache, which holds {memory.kv_capacity_tokens}",
            field="isl_tokens",
            code="does_not_fit",
            hint="use more tensor parallelism, a smaller kv_cache dtype or shorter sequences",
        )


def _resident(deployment: Deployment, memory: MemoryPlan, *, wanted: int, tokens: float) -> int:
    """Sequences that run at once: limited by the engine and by the cache at ``tokens`` each."""
    by_cache = sequences_that_fit(deployment, memory, tokens=tokens)
    return int(max(1.0, min(wanted, deployment.engine.max_num_seqs, by_cache)))


def _phases(
    deployment: Deployment, *, sequences: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> tuple[PhaseEstimate, PhaseEstimate | None]:
    prefill = prefill_phase(deployment, sequences=sequences, isl_tokens=isl_tokens, limit_tokens=limit_tokens)
    decode = decode_phase(deployment, sequences=sequences, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
    return prefill, decode


def static_batch(
    deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> UniformRun:
    """A batch that enters together and leaves together.

    ``limit_tokens`` is the engine's max_num_batched_tokens where the user set one; None runs all prompts in one
    pass, as static batching does. The first token of the batch is there when the last prompt is through.
    """
    memory = memory_plan(deployment)
    _require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    notes: tuple[str, ...] = ()
    fitting = sequences_that_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    if batch_size > fitting:
        notes = (
            f"the cache holds {fitting:.0f} of the {batch_size} sequences at full length: an engine would queue or "
            "preempt; the estimate is for a cache that fits them all",
        )
    prefill, decode = _phases(
        deployment, sequences=batch_size, isl_tokens=isl_tokens, osl_tokens=osl_tokens, limit_tokens=limit_tokens
    )
    ttft_s = prefill.total_s
    decode_s = decode.total_s if decode else 0.0
    return UniformRun(
        ttft_s=ttft_s,
        tpot_s=decode_s / max(1, osl_tokens - 1),
        e2e_s=ttft_s + decode_s,
        requests_per_s=batch_size / (ttft_s + decode_s),
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        sequences=batch_size,
        prefill=prefill,
        decode=decode,
        memory=memory,
        notes=notes,
    )


def _simulated(
    deployment: Deployment, *, demand: UniformDemand, memory: MemoryPlan, held_tokens: float, notes: tuple[str, ...]
) -> UniformRun:
    """Run equal requests step by step, and price a typical prompt pass and decode step to explain them."""
    isl, osl = demand.isl_tokens, demand.osl_tokens
    resident = _resident(deployment, memory, wanted=demand.at_once, tokens=held_tokens)
    limit_tokens = max(deployment.engine.max_num_batched_tokens, resident + 1)
    records = simulate_uniform(
        compile_steps(deployment), demand=demand, limits=UniformLimits(resident=resident, step_tokens=limit_tokens)
    )
    ttft_s = float(np.mean(records.first_token_s - records.sent_s))
    e2e_s = float(np.mean(records.finish_s - records.sent_s))
    prefill, decode = _phases(
        deployment, sequences=resident, isl_tokens=isl, osl_tokens=osl, limit_tokens=limit_tokens
    )
    waiting = f"{resident} of {demand.at_once} requests run at once; the others wait"
    return UniformRun(
        ttft_s=ttft_s,
        tpot_s=(e2e_s - ttft_s) / max(1, osl - 1),
        e2e_s=e2e_s,
        requests_per_s=demand.requests / float(records.finish_s.max()),
        isl_tokens=isl,
        osl_tokens=osl,
        sequences=resident,
        prefill=prefill,
        decode=decode,
        memory=memory,
        notes=(*notes, waiting) if resident < demand.at_once else notes,
    )


def closed_loop(
    deployment: Deployment, *, concurrency: int, isl_tokens: int, osl_tokens: int, num_requests: int | None = None
) -> UniformRun:
    """``concurrency`` clients that send their next request when the last one is answered.

    Means over ``num_requests`` requests from an empty engine on, which is how benchmarks count; without a number,
    over enough rounds that the first one hardly shows.
    """
    memory = memory_plan(deployment)
    _require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    overheads = deployment.engine.overheads
    demand = UniformDemand(
        requests=max(num_requests or concurrency * ROUNDS, 1),
        at_once=min(concurrency, num_requests or concurrency),
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        delay_s=overheads.request_s + overheads.prompt_token_s * isl_tokens,
    )
    held = isl_tokens + (osl_tokens if deployment.engine.reserves_full_length else osl_tokens / 2)
    return _simulated(deployment, demand=demand, memory=memory, held_tokens=held, notes=())


def offline(deployment: Deployment, *, isl_tokens: int, osl_tokens: int, num_requests: int | None) -> UniformRun:
    """Everything queued at t = 0: ``num_requests`` requests, or several times what runs at once.

    Sequences at all stages of their lives hold ISL + OSL / 2 tokens on average; an engine that reserves the full
    length holds room for ISL + OSL.
    """
    memory = memory_plan(deployment)
    _require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    held = isl_tokens + (osl_tokens if deployment.engine.reserves_full_length else osl_tokens / 2)
    resident = _resident(deployment, memory, wanted=deployment.engine.max_num_seqs, tokens=held)
    requests = num_requests or resident * ROUNDS
    demand = UniformDemand(requests=requests, at_once=requests, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
    return _simulated(deployment, demand=demand, memory=memory, held_tokens=held, notes=())
