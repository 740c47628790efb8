"""Answers to requests of equal lengths: kinds ``closed_loop``, ``offline`` (a full queue) and ``batch``."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

import numpy as np

from simulator.engine.settings import TokenRatio
from simulator.engine.uniform.clock import StepClock
from simulator.engine.uniform.loop_requests import Counts, LoopDemand, LoopLengths, LoopRecords
from simulator.engine.uniform.record import (
    UniformRun,
    fastest_run,
    held_tokens,
    request_tpot_s,
    require_fit,
    resident_sequences,
    run_phases,
    spread_of,
)
from simulator.engine.uniform.scheduler import LoopPolicy, LoopWork, Pipeline
from simulator.engine.uniform.simulation import Engine, simulate_loop
from simulator.engine.uniform.steps import speculation_notes, verify_rounds
from simulator.operators.work import mixed_step
from simulator.phases.compiled import StepBounds
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import with_drafts
from simulator.phases.memory import MemoryPlan, memory_plan, sequence_cache_bytes, sequences_that_fit
from simulator.phases.step import estimate_step
from simulator.phases.tabulate import compile_steps
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.engine.engine import PROMPTS_APART

REQUESTS_PER_CLIENT = 10
"""Of a closed loop without a given number, as InferenceX sends them."""
LEAST_ROUNDS = 4
"""Of a loop that has a steady state between the first and the last."""
ROUNDS = 5
"""Of all queued at once without a given number: the first starts in an empty engine, the others in a full one."""
_ROOMS = 1 << 31
"""Numbers of which a request draws one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReplica:
    """One replica of a loop, ready to make engines of.

    resident, step_tokens : sequences and new tokens of a rank's step
    most : sequences that it may have where ``cache_tokens`` of the cache are counted (infinite: it holds them all)
    lanes : steps of a rank that are under way at once, at most one per pipeline stage
    verify_tokens : of a decoding sequence in a step
    """

    deployment: Deployment
    memory: MemoryPlan
    resident: int
    most: int
    step_tokens: int
    lanes: int = 1
    cache_tokens: float = inf
    verify_tokens: int = 1


def loop_replica(
    deployment: Deployment, *, wanted: int, lengths: LoopLengths, prompts_only: bool = False, evicts: bool = False
) -> LoopReplica:
    """How a replica takes ``wanted`` requests on each of its ranks; prompts_only : no answers are generated there;
    evicts : it takes more than the cache holds at their full lengths, unless its engine reserves those."""
    memory = memory_plan(deployment)
    isl, osl = lengths.mean_isl_tokens, 1 if prompts_only else lengths.mean_osl_tokens
    said_by = "lengths_trace" if lengths.isl_given else "isl_tokens"
    longest = lengths.longest_tokens(prompts_only=prompts_only)
    require_fit(deployment, memory, tokens=longest, field=said_by)
    held = held_tokens(deployment, isl_tokens=isl, osl_tokens=osl)
    resident = resident_sequences(deployment, memory, wanted=wanted, tokens=held)
    step_tokens = max(deployment.engine.max_num_batched_tokens, resident + 1)
    verify = 1 if deployment.speculation is None or prompts_only else deployment.speculation.plan.verify_tokens
    if verify > 1:
        # Every running sequence verifies its guesses in every step, within the step's tokens.
        resident = max(1, min(resident, (step_tokens - 1) // verify))
    lanes = min(wanted, deployment.parallelism.pp_size)
    each = sequence_cache_bytes(deployment, memory, tokens=held)
    cache_tokens = memory.kv_capacity_bytes / each * held / lanes if each else inf
    most = max(1, min(-(-wanted // lanes), memory.running_sequences // lanes, (step_tokens - 1) // verify))
    if not evicts or deployment.engine.reserves_full_length or most * longest <= cache_tokens:
        most, cache_tokens = resident, inf
    return LoopReplica(
        deployment=deployment,
        memory=memory,
        resident=resident,
        most=most,
        step_tokens=step_tokens,
        lanes=lanes,
        cache_tokens=cache_tokens,
        verify_tokens=verify,
    )


def loop_work(
    demand: LoopDemand,
    *,
    rounds: Counts | None = None,
    computes: bool = True,
    answers: bool = True,
    drawn: bool = False,
) -> LoopWork:
    """What requests take of a replica that computes prompts, generates answers, or does both. rounds : verify steps;
    drawn : a random number of each request says which rank takes it"""
    further = (demand.osl_tokens - 1) * answers
    steps = further if rounds is None else rounds * answers
    growth = np.divide(further, steps, out=np.zeros(len(steps)), where=steps > 0)
    prompts, context = demand.computed_tokens * computes, demand.isl_tokens
    least, most = int(context.min()), ceil((context + steps * growth).max())
    return LoopWork(
        prompt_tokens=prompts.tolist(),
        context_tokens=context.tolist(),
        decode_steps=steps.tolist(),
        growth=growth.tolist(),
        prompts=(int(prompts.min()), int(prompts.max())),
        contexts=(least, most),
        rooms=np.random.default_rng(0).integers(_ROOMS, size=demand.requests).tolist() if drawn else (),
    )


def _bounds(replica: LoopReplica, *, work: LoopWork) -> StepBounds:
    beside = replica.most * replica.verify_tokens if replica.deployment.engine.scheduler != PROMPTS_APART else 0
    least, most = work.contexts
    return StepBounds(
        sequences=replica.most,
        contexts=(least, most + replica.verify_tokens),
        prompts=work.prompts if replica.cache_tokens == inf else (work.prompts[0], most),
        budget=(max(1, replica.step_tokens - beside), replica.step_tokens),
    )


def _stage_shares(replica: LoopReplica, *, work: LoopWork) -> list[float]:
    """Of the time of a mean step, of the host and of each stage."""
    prompt_tokens, decode_steps = sum(work.prompt_tokens), sum(work.decode_steps)
    steps = max(decode_steps / replica.resident, prompt_tokens / replica.step_tokens)
    mean = mixed_step(
        prefill_sequences=min(prompt_tokens, 1.0),
        prefill_tokens=ceil(prompt_tokens / steps),
        decode_sequences=ceil(decode_steps / steps),
        decode_context=sum(work.contexts) / 2,
    )
    step = estimate_step(replica.deployment, mean)
    part_s = np.append(step.host_s, step.stage_s)
    shares: list[float] = (part_s / part_s.sum()).tolist()
    return shares


def engines_of(
    replica: LoopReplica, *, demand: LoopDemand, computes: bool = True, answers: bool = True, copies: int = 1
) -> list[Engine]:
    """Engines of ``copies`` replicas that compute prompts, generate answers, or do both. Attention-data-parallel ranks
    are one engine where they share experts, else as many of their own; in a pipeline each is as many as there are
    stages, which their steps pass in turn."""
    deployment, verify = replica.deployment, replica.verify_tokens
    rounds = verify_rounds(deployment, demand=demand) if answers else None
    drawn = deployment.engine.prompt_ranks_drawn and not answers
    work = loop_work(demand, rounds=rounds, computes=computes, answers=answers, drawn=drawn)
    tables = compile_steps(deployment, decode_tokens=verify, bounds=_bounds(replica, work=work))
    lengths = float(demand.isl_tokens.mean()), float(demand.osl_tokens.mean())
    drafts = with_drafts(tables, deployment, prompt_tokens=lengths[0], answer_tokens=lengths[1])
    clock = StepClock(drafts, verify_tokens=verify)
    engine, together = deployment.engine, deployment.parallelism.ranks_in_step
    policy = LoopPolicy(
        resident=replica.most,
        step_tokens=replica.step_tokens,
        decodes_beside=engine.scheduler != PROMPTS_APART,
        chunked=engine.chunked_prefill,
        ahead=engine.async_scheduling and engine.scheduler != "static" and replica.lanes == 1,
        gather_steps=engine.prompt_gather_steps,
        cache_tokens=replica.cache_tokens,
        token_ratio=TokenRatio() if engine.scheduler == PROMPTS_APART and replica.cache_tokens < inf else None,
    )
    host, *shares = _stage_shares(replica, work=work) if replica.lanes > 1 else [0.0]
    several = range(copies * deployment.parallelism.dp_size // together)
    pipelines = [Pipeline(shares, host=host) if shares else None for _ in several]
    return [
        Engine(clock, policy=policy, work=work, ranks=together, pipeline=pipeline)
        for pipeline in pipelines
        for _ in range(replica.lanes)
    ]


def loop_demand(
    deployment: Deployment,
    *,
    lengths: LoopLengths,
    requests: int,
    at_once: int,
    waits: bool = True,
    ramp_s: float = 0.0,
) -> LoopDemand:
    """``requests`` requests to ``deployment``; waits : each passes its front end, which a full queue has behind it."""
    isl, osl = lengths.drawn(requests)
    engine = deployment.engine
    shares, overheads = lengths.answers > 1 and engine.prefix_caching, engine.overheads
    return LoopDemand(
        isl_tokens=isl,
        osl_tokens=osl,
        cached_tokens=lengths.cached(isl, block_size_tokens=engine.block_size_tokens) if shares else None,
        at_once=at_once,
        answers=lengths.answers,
        delay_s=overheads.request_s if waits else 0.0,
        prompt_token_delay_s=overheads.prompt_token_s if waits else 0.0,
        ramp_s=ramp_s,
    )


def steady_requests_per_s(demand: LoopDemand, records: LoopRecords) -> float:
    """Rate between the first round and the end of sending [1/s], over the whole of short runs.

    From the tokens that the window generates, those of a request evenly between its first and its last: requests that
    end in it are shorter than others where lengths vary.
    """
    whole = demand.requests / float(records.finish_s.max())
    if demand.requests < LEAST_ROUNDS * demand.at_once:
        return whole
    start_s, end_s = float(records.sent_s[2 * demand.at_once - 1]), float(records.sent_s.max())
    if end_s <= start_s or not (demand.osl_tokens > 1).all():
        return whole
    span_s = np.maximum(records.finish_s - records.first_token_s, np.finfo(float).eps)
    inside_s = np.minimum(records.finish_s, end_s) - np.maximum(records.first_token_s, start_s)
    tokens = float((demand.osl_tokens * np.clip(inside_s / span_s, 0.0, 1.0)).sum())
    return tokens / float(demand.osl_tokens.mean()) / (end_s - start_s)


def run_record(
    replica: LoopReplica,
    *,
    demand: LoopDemand,
    records: LoopRecords,
    lengths: LoopLengths,
    copies: int = 1,
    notes: tuple[Note, ...] = (),
) -> UniformRun:
    """The run of a loop on ``copies`` replicas, with a typical prompt pass and decode step that explain it."""
    deployment, ranks = replica.deployment, replica.deployment.parallelism.dp_size
    prefill, decode = run_phases(
        deployment,
        sequences=replica.resident,
        isl_tokens=lengths.mean_isl_tokens,
        osl_tokens=lengths.mean_osl_tokens,
        limit_tokens=replica.step_tokens,
    )
    tpot_s = request_tpot_s(demand, records)
    sequences = replica.resident * replica.lanes
    resident = sequences * ranks * copies
    waiting = (Note("some_wait", {"running": resident, "sent": demand.at_once}),)
    return UniformRun(
        ttft_s=float(np.mean(records.first_token_s - records.sent_s)),
        tpot_s=float(np.mean(tpot_s)) if len(tpot_s) else 0.0,
        e2e_s=float(np.mean(records.finish_s - records.sent_s)),
        requests_per_s=demand.requests / float(records.finish_s.max()),
        isl_tokens=float(demand.isl_tokens.mean()),
        osl_tokens=float(demand.osl_tokens.mean()),
        sequences=sequences,
        prefill=prefill,
        decode=decode,
        memory=replica.memory,
        notes=(
            *(waiting if resident < demand.at_once else ()),
            *notes,
            *speculation_notes(deployment, decode, replica.memory),
        ),
        ranks=ranks,
        spread=spread_of(demand, records),
        steady_requests_per_s=steady_requests_per_s(demand, records),
        busy_fraction=replica.lanes / deployment.parallelism.pp_size,
    )


def _simulated(deployment: Deployment, *, demand: LoopDemand, lengths: LoopLengths) -> UniformRun:
    """Run requests on one replica, with the run length of speculation that is best for them where it may choose."""
    wanted = -(-demand.at_once // deployment.parallelism.dp_size)

    def run(one: Deployment) -> UniformRun:
        replica = loop_replica(one, wanted=wanted, lengths=lengths, evicts=True)
        records = simulate_loop(demand, engines=engines_of(replica, demand=demand))
        return run_record(replica, demand=demand, records=records, lengths=lengths)

    resident = loop_replica(deployment, wanted=wanted, lengths=lengths).resident
    context = lengths.mean_isl_tokens + lengths.mean_osl_tokens / 2
    return fastest_run(deployment, run, sequences=resident, context=context)


def closed_loop(
    deployment: Deployment,
    *,
    concurrency: int,
    lengths: LoopLengths,
    num_requests: int | None = None,
    ramp_s: float = 0.0,
) -> UniformRun:
    """``concurrency`` clients that send their next request when the last one is answered.

    Means over ``num_requests`` requests (ten for each client where none are given) from an empty engine to the last
    answer, which is how benchmarks count. ramp_s : over which the clients start, evenly [s]
    """
    requests = (num_requests or concurrency * REQUESTS_PER_CLIENT) * lengths.answers
    at_once = min(concurrency * lengths.answers, requests)
    demand = loop_demand(deployment, lengths=lengths, requests=requests, at_once=at_once, ramp_s=ramp_s)
    run = _simulated(deployment, demand=demand, lengths=lengths)
    idle = (Note("idle_clients", {"requests": num_requests, "clients": concurrency}),)
    return replace(run, notes=run.notes + idle * (at_once < concurrency * lengths.answers))


def offline(deployment: Deployment, *, lengths: LoopLengths, num_requests: int | None) -> UniformRun:
    """Everything queued at t = 0: ``num_requests`` equal requests, or several times what runs at once."""
    replica = loop_replica(deployment, wanted=deployment.engine.max_num_seqs, lengths=lengths)
    at_once = replica.resident * replica.lanes * deployment.parallelism.dp_size
    requests = (num_requests or 0) * lengths.answers or at_once * ROUNDS
    demand = loop_demand(deployment, lengths=lengths, requests=requests, at_once=requests, waits=False)
    return _simulated(deployment, demand=demand, lengths=lengths)


def static_batch(
    deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> UniformRun:
    """A batch that enters together and leaves together.

    ``limit_tokens`` is the engine's max_num_batched_tokens where the user set one; None runs all prompts in one
    pass, as static batching does, where the engine can. The first token is there when the last prompt is through.
    An engine with a scheduler starts as many sequences as it has room for and the others when room is free: such a
    batch runs step by step, TTFT and TPOT are means over its requests, and it ends with the last answer.
    """
    if not deployment.engine.one_pass_batches:
        limit_tokens = limit_tokens or deployment.engine.max_num_batched_tokens
    if deployment.engine.scheduler != "static":
        held = held_tokens(deployment, isl_tokens=isl_tokens, osl_tokens=osl_tokens)
        memory = memory_plan(deployment)
        require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
        resident = resident_sequences(deployment, memory, wanted=batch_size, tokens=held)
        if resident * deployment.parallelism.pp_size < batch_size:
            return _queued_batch(deployment, batch_size=batch_size, isl_tokens=isl_tokens, osl_tokens=osl_tokens)

    def run(one: Deployment) -> UniformRun:
        return _static_batch(
            one, batch_size=batch_size, isl_tokens=isl_tokens, osl_tokens=osl_tokens, limit_tokens=limit_tokens
        )

    return fastest_run(deployment, run, sequences=batch_size, context=isl_tokens + osl_tokens / 2)


def _queued_batch(deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int) -> UniformRun:
    """A batch of which a part waits: it is answered with its last request, TTFT and TPOT are means over all."""
    requests = batch_size * deployment.parallelism.dp_size
    lengths = LoopLengths(isl_tokens=isl_tokens, osl_tokens=osl_tokens)
    queued = offline(deployment, lengths=lengths, num_requests=requests)
    e2e_s = requests / queued.requests_per_s
    whole = Note("whole_batch", {"mean_s": queued.e2e_s})
    return replace(queued, e2e_s=e2e_s, notes=(*queued.notes, whole))


def _static_batch(
    deployment: Deployment, *, batch_size: int, isl_tokens: int, osl_tokens: int, limit_tokens: int | None
) -> UniformRun:
    memory = memory_plan(deployment)
    require_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    fitting = sequences_that_fit(deployment, memory, tokens=isl_tokens + osl_tokens)
    crowded = (Note("cache_for_all", {"fitting": fitting, "sequences": batch_size}),) * (batch_size > fitting)
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
        notes=(*crowded, *speculation_notes(deployment, decode, memory)),
        busy_fraction=1 / deployment.parallelism.pp_size,
    )
