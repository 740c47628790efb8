"""Answers to the scenario kinds whose requests all have the same lengths: batch, closed_loop, offline."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine.static_batch import PhaseEstimate, decode_phase, prefill_phase
from simulator.errors import InfeasibleError
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan, memory_plan, sequences_that_fit
from simulator.units import GIGA


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


def closed_loop(deployment: Deployment, *, concurrency: int, isl_tokens: int, osl_tokens: int) -> UniformRun:
    """``concurrency`` clients that send their next request when the last one is answered, in the long run.

    With equal lengths the requests of a group that fit one prompt pass stay together; in one cycle every client's
    prompt passes once and OSL - 1 decode steps run, so that the cycle is the sum of both. A new request waits for
    clients beyond the resident ones and for its own prompt pass.
    """
    memory = memory_plan(deployment)
    _require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    resident = _resident(deployment, memory, wanted=concurrency, tokens=isl_tokens + osl_tokens)
    prefill, decode = _phases(
        deployment,
        sequences=resident,
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        limit_tokens=deployment.engine.max_num_batched_tokens,
    )
    decode_s = decode.total_s if decode else 0.0
    cycle_s = prefill.total_s + decode_s
    own_pass_s = prefill.total_s / prefill.steps * max(1.0, prefill.steps / resident)
    overheads = deployment.engine.overheads
    request_s = overheads.request_s + overheads.prompt_token_s * isl_tokens
    waiting_s = cycle_s * (concurrency - resident) / resident
    ttft_s = waiting_s + own_pass_s + request_s
    running_s = max(cycle_s - own_pass_s, decode_s)
    notes = (
        (f"{concurrency - resident} of {concurrency} clients wait: {resident} sequences fit at once",)
        if resident < concurrency
        else ()
    )
    return UniformRun(
        ttft_s=ttft_s,
        tpot_s=running_s / max(1, osl_tokens - 1),
        e2e_s=ttft_s + (running_s if osl_tokens > 1 else 0.0),
        requests_per_s=resident / (cycle_s + request_s),
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        sequences=resident,
        prefill=prefill,
        decode=decode,
        memory=memory,
        notes=notes,
    )


def offline(deployment: Deployment, *, isl_tokens: int, osl_tokens: int, num_requests: int | None) -> UniformRun:
    """Everything queued at t = 0: throughput with as many sequences as engine and cache hold.

    Sequences are at all stages of their lives, so that they hold ISL + OSL / 2 tokens on average; an engine that
    reserves the full length holds room for ISL + OSL. With
    ``num_requests`` the run ends: the last sequences drain at falling batch sizes, which costs half a decode phase
    at the end; TTFT is the mean wait in the queue plus the own pass.
    """
    memory = memory_plan(deployment)
    _require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    wanted = num_requests or deployment.engine.max_num_seqs
    held = isl_tokens + (osl_tokens if deployment.engine.reserves_full_length else osl_tokens / 2)
    resident = _resident(deployment, memory, wanted=wanted, tokens=held)
    prefill, decode = _phases(
        deployment,
        sequences=resident,
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        limit_tokens=deployment.engine.max_num_batched_tokens,
    )
    decode_s = decode.total_s if decode else 0.0
    cycle_s = prefill.total_s + decode_s
    waves = (num_requests or resident) / resident
    makespan_s = cycle_s * max(1.0, waves)
    ttft_s = (makespan_s - cycle_s) / 2 + prefill.total_s / 2
    return UniformRun(
        ttft_s=ttft_s,
        tpot_s=(cycle_s - prefill.total_s / resident) / max(1, osl_tokens - 1),
        e2e_s=ttft_s + cycle_s,
        requests_per_s=(num_requests or resident) / makespan_s,
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        sequences=resident,
        prefill=prefill,
        decode=decode,
        memory=memory,
        notes=(),
    )
