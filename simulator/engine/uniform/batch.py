"""Answers to kind ``batch``: sequences that enter together and leave together, in closed form."""

from __future__ import annotations

from dataclasses import replace

from simulator.engine.uniform.loops import offline
from simulator.engine.uniform.record import (
    UniformRun,
    fastest_run,
    held_tokens,
    require_fit,
    resident_sequences,
    run_phases,
)
from simulator.engine.uniform.steps import speculation_notes
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan, sequences_that_fit


def static_batch(
    deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> UniformRun:
    """A batch that enters together and leaves together.

    ``limit_tokens`` is the engine's max_num_batched_tokens where the user set one; None runs all prompts in one
    pass, as static batching does. The first token of the batch is there when the last prompt is through.
    An engine with a scheduler starts as many sequences as it has room for and the others when room is free: such a
    batch runs step by step, TTFT and TPOT are means over its requests, and it ends with the last answer.
    """
    if deployment.engine.scheduler != "static":
        held = held_tokens(deployment, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
        memory = memory_plan(deployment)
        require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
        if resident_sequences(deployment, memory, wanted=batch_size, tokens=held) < batch_size:
            return _queued_batch(deployment, batch_size=batch_size, isl_tokens=isl_tokens, osl_tokens=osl_tokens)

    def run(one: Deployment) -> UniformRun:
        return _static_batch(
            one, batch_size=batch_size, isl_tokens=isl_tokens, osl_tokens=osl_tokens, limit_tokens=limit_tokens
        )

    return fastest_run(deployment, run, sequences=batch_size, context=isl_tokens + osl_tokens / 2)


def _queued_batch(deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int) -> UniformRun:
    """A batch of which a part waits: it is answered with its last request, TTFT and TPOT are means over all."""
    requests = batch_size * deployment.parallelism.dp_size
    queued = offline(deployment, isl_tokens=isl_tokens, osl_tokens=osl_tokens, num_requests=requests)
    e2e_s = requests / queued.requests_per_s
    said = f"E2E is that of the whole batch; a request has its answer after {queued.e2e_s:.3g} s on average"
    return replace(queued, e2e_s=e2e_s, notes=(*queued.notes, said))


def _static_batch(
    deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> UniformRun:
    memory = memory_plan(deployment)
    require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    notes: tuple[str, ...] = ()
    fitting = sequences_that_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    if batch_size > fitting:
        notes = (
            f"the cache holds {fitting:.0f} of the {batch_size} sequences at full length: an engine would queue or "
            "preempt; the estimate is for a cache that fits them all",
        )
    prefill, decode = run_phases(
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
