"""Answers to the scenario kinds whose requests all have the same lengths: batch, closed_loop, offline.

A static batch has a closed form; the other two run step by step on the compiled step times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.uniform.simulation import UniformDemand, UniformLimits, simulate_uniform
from simulator.engine.uniform.speculation_gain import run_lengths, token_s
from simulator.engine.uniform.steps import PhaseEstimate, decode_phase, prefill_phase, speculation_notes, uniform_rounds
from simulator.errors import InfeasibleError
from simulator.phases.deployment import Deployment, without_speculation
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
    """Sequences that run at once: limited by the engine and by the cache at ``tokens`` each.

    Each of them takes a token of every step, and one is left for prompts.
    """
    by_cache = sequences_that_fit(deployment, memory, tokens=tokens)
    by_step = deployment.engine.max_num_batched_tokens - 1
    return int(max(1.0, min(wanted, deployment.engine.max_num_seqs, by_cache, by_step)))


def _held_tokens(deployment: Deployment, *, isl_tokens: int, osl_tokens: int) -> float:
    """Cache that a running sequence takes: sequences at all stages of their lives hold ISL + OSL / 2 tokens on average;
    an engine that reserves the full length holds room for ISL + OSL."""
    return isl_tokens + (osl_tokens if deployment.engine.reserves_full_length else osl_tokens / 2)


def _phases(
    deployment: Deployment,
    *,
    sequences: int,
    isl_tokens: int,
    osl_tokens: int,
    limit_tokens: int | None,
    together: bool = False,
) -> tuple[PhaseEstimate, PhaseEstimate | None]:
    prefill = prefill_phase(deployment, sequences=sequences, isl_tokens=isl_tokens, limit_tokens=limit_tokens)
    decode = decode_phase(
        deployment, sequences=sequences, isl_tokens=isl_tokens, osl_tokens=osl_tokens, together=together
    )
    return prefill, decode


def _fastest(
    deployment: Deployment, run: Callable[[Deployment], UniformRun], *, sequences: int, context: float
) -> UniformRun:
    """The run, or with adaptive speculation the better of none and the run length that decodes fastest."""
    speculation = deployment.speculation
    if speculation is None or not speculation.spec.adaptive:
        return run(deployment)
    plain = run(without_speculation(deployment))
    if plain.decode is None:
        return plain
    chosen = min(run_lengths(deployment), key=lambda one: float(token_s(one, sequences=sequences, context=context)[0]))
    best = run(chosen)
    assert chosen.speculation is not None, "run lengths of a deployment that speculates"
    if best.requests_per_s > plain.requests_per_s:
        return replace(best, notes=(*best.notes, f"adaptive speculation: k = {chosen.speculation.plan.k}"))
    off = f"adaptive speculation: off, it does not pay with {sequences} sequences"
    return replace(plain, notes=(*plain.notes, off))


def static_batch(
    deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> UniformRun:
    """A batch that enters together and leaves together.

    ``limit_tokens`` is the engine's max_num_batched_tokens where the user set one; None runs all prompts in one
    pass, as static batching does. The first token of the batch is there when the last prompt is through.
    An engine with a scheduler starts as many sequences as it has room for and the others when room is free: such a
    batch runs step by step, TTFT is a mean over its requests, and it ends with the last answer.
    """
    if deployment.engine.scheduler != "static":
        held = _held_tokens(deployment, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
        memory = memory_plan(deployment)
        _require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
        if _resident(deployment, memory, wanted=batch_size, tokens=held) < batch_size:
            return _queued_batch(deployment, batch_size=batch_size, isl_tokens=isl_tokens, osl_tokens=osl_tokens)

    def run(one: Deployment) -> UniformRun:
        return _static_batch(
            one, batch_size=batch_size, isl_tokens=isl_tokens, osl_tokens=osl_tokens, limit_tokens=limit_tokens
        )

    return _fastest(deployment, run, sequences=batch_size, context=isl_tokens + osl_tokens / 2)


def _queued_batch(deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int) -> UniformRun:
    """A batch of which a part waits; its end is that of the last request."""
    queued = offline(deployment, isl_tokens=isl_tokens, osl_tokens=osl_tokens, num_requests=batch_size)
    e2e_s = batch_size / queued.requests_per_s
    return replace(queued, e2e_s=e2e_s, tpot_s=(e2e_s - queued.ttft_s) / max(1, osl_tokens - 1))


def _static_batch(
    deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> UniformRun:
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
        deployment,
        sequences=batch_size,
        isl_tokens=isl_tokens,
        osl_tokens=osl_tokens,
        limit_tokens=limit_tokens,
        together=True,
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
        notes=(*notes, *speculation_notes(deployment, decode, memory)),
    )


def _simulated(deployment: Deployment, *, demand: UniformDemand, held_tokens: float) -> UniformRun:
    """Run equal requests step by step, with the run length of speculation that is best for them where it may choose."""
    memory = memory_plan(deployment)
    sequences = _resident(deployment, memory, wanted=demand.at_once, tokens=held_tokens)
    context = demand.isl_tokens + demand.osl_tokens / 2

    def run(one: Deployment) -> UniformRun:
        return _simulated_once(one, demand=demand, held_tokens=held_tokens)

    return _fastest(deployment, run, sequences=sequences, context=context)


def _simulated_once(deployment: Deployment, *, demand: UniformDemand, held_tokens: float) -> UniformRun:
    """Run equal requests step by step, and price a typical prompt pass and decode step to explain them."""
    isl, osl = demand.isl_tokens, demand.osl_tokens
    memory = memory_plan(deployment)
    resident = _resident(deployment, memory, wanted=demand.at_once, tokens=held_tokens)
    limit_tokens = max(deployment.engine.max_num_batched_tokens, resident + 1)
    verify = 1 if deployment.speculation is None else deployment.speculation.plan.verify_tokens
    if verify > 1:
        # Every running sequence verifies its guesses in every step, within the step's tokens.
        resident = max(1, min(resident, (limit_tokens - 1) // verify))
    records = simulate_uniform(
        compile_steps(deployment) if verify == 1 else compile_steps(deployment, decode_tokens=verify),
        demand=demand,
        limits=UniformLimits(resident=resident, step_tokens=limit_tokens),
        rounds=uniform_rounds(deployment, demand=demand, resident=resident),
    )
    ttft_s = float(np.mean(records.first_token_s - records.sent_s))
    e2e_s = float(np.mean(records.finish_s - records.sent_s))
    prefill, decode = _phases(deployment, sequences=resident, isl_tokens=isl, osl_tokens=osl, limit_tokens=limit_tokens)
    waiting = (f"{resident} of {demand.at_once} requests run at once; the others wait",)
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
        notes=(
            *(waiting if resident < demand.at_once else ()),
            *speculation_notes(deployment, decode, memory),
        ),
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
    held = _held_tokens(deployment, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
    return _simulated(deployment, demand=demand, held_tokens=held)


def offline(deployment: Deployment, *, isl_tokens: int, osl_tokens: int, num_requests: int | None) -> UniformRun:
    """Everything queued at t = 0: ``num_requests`` requests, or several times what runs at once."""
    memory = memory_plan(deployment)
    _require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    held = _held_tokens(deployment, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
    resident = _resident(deployment, memory, wanted=deployment.engine.max_num_seqs, tokens=held)
    requests = num_requests or resident * ROUNDS
    demand = UniformDemand(requests=requests, at_once=requests, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
    return _simulated(deployment, demand=demand, held_tokens=held)
