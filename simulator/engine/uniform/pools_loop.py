"""A closed loop on a prefill and a decode pool: clients wait for answers that pass through both."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from simulator.engine.pools import HAND_OVER_S, Pool, PoolUse, token_transfer_s, transfer_link
from simulator.engine.uniform import loops
from simulator.engine.uniform.loop_requests import LoopDemand, LoopLengths
from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.simulation import Engine, simulate_loop
from simulator.engine.uniform.steps import PhaseEstimate, prefill_phase
from simulator.phases.deployment import Deployment
from simulator.specs.base import Note
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.hardware.accelerator import ServerSpec


def _share(at_once: int, *, replicas: int, deployment: Deployment) -> int:
    """Requests of one rank of a pool when all are there."""
    return -(-at_once // (replicas * deployment.parallelism.dp_size))


def _busy(engines: list[Engine], *, span_s: float) -> float:
    return min(sum(engine.busy_s for engine in engines) / (len(engines) * span_s), 1.0)


def _prompt_engines(pool: Pool, *, demand: LoopDemand, lengths: LoopLengths) -> tuple[loops.LoopReplica, list[Engine]]:
    """Engines that compute prompts, through the drafter too where there is one."""
    wanted = _share(demand.at_once, replicas=pool.replicas, deployment=pool.deployment)
    replica = loops.loop_replica(pool.deployment, wanted=wanted, lengths=lengths, prompts_only=True)
    return replica, loops.engines_of(replica, demand=demand, answers=False, copies=pool.replicas)


def _answer_engines(pool: Pool, *, demand: LoopDemand, lengths: LoopLengths) -> tuple[loops.LoopReplica, list[Engine]]:
    """Engines that go on with prompts that others have computed."""
    wanted = _share(demand.at_once, replicas=pool.replicas, deployment=pool.deployment)
    replica = loops.loop_replica(pool.deployment, wanted=wanted, lengths=lengths)
    return replica, loops.engines_of(replica, demand=demand, computes=False, copies=pool.replicas)


def disaggregated_loop(
    prefill: Deployment,
    decode: Deployment,
    *,
    spec: DisaggregationSpec,
    server: ServerSpec | None,
    concurrency: int,
    lengths: LoopLengths,
    num_requests: int | None = None,
    ramp_s: float = 0.0,
) -> UniformRun:
    """``concurrency`` clients of the pools of ``spec``, made of copies of ``prefill`` and ``decode``. Throughput is
    that of both pools; a first token is seen when the answer has a seat in the decode pool."""
    pools = (
        Pool(deployment=prefill, replicas=spec.prefill_replicas),
        Pool(deployment=decode, replicas=spec.decode_replicas),
    )
    link, link_bytes_per_s = transfer_link(*pools, link=spec.link, server=server)
    requests = num_requests or concurrency * loops.REQUESTS_PER_CLIENT
    at_once = min(concurrency, requests)
    demand = loops.loop_demand(prefill, lengths=lengths, requests=requests, at_once=at_once, ramp_s=ramp_s)
    ahead, first = _prompt_engines(pools[0], demand=demand, lengths=lengths)
    after, second = _answer_engines(pools[1], demand=demand, lengths=lengths)
    isl = lengths.mean_isl_tokens
    token_s = token_transfer_s(*pools, link_bytes_per_s=link_bytes_per_s, transfer=spec.transfer, prompt_tokens=isl)
    transfer_s = np.where(demand.osl_tokens > 1, demand.isl_tokens * token_s, inf)
    records = simulate_loop(
        demand, engines=first, decode=second, transfer_s=transfer_s.tolist(), hand_over_s=HAND_OVER_S
    )
    span_s = float(records.finish_s.max())
    use = PoolUse(
        prefill=pools[0],
        decode=pools[1],
        prefill_busy_fraction=_busy(first, span_s=span_s),
        decode_busy_fraction=_busy(second, span_s=span_s),
        link=link,
        transfer_s=float(demand.isl_tokens.mean()) * token_s,
    )
    copies = spec.decode_replicas
    notes = (Note("pools_loop", {"use": use, "hand_over_s": HAND_OVER_S}), Note("decode_pool_shown"))
    run = loops.run_record(after, demand=demand, records=records, lengths=lengths, copies=copies, notes=notes)
    return replace(run, prefill=_prompt(ahead, lengths=lengths), pools=use)


def _prompt(replica: loops.LoopReplica, *, lengths: LoopLengths) -> PhaseEstimate:
    """A mean prompt alone."""
    isl = lengths.mean_isl_tokens
    return prefill_phase(replica.deployment, sequences=1, isl_tokens=isl, limit_tokens=replica.step_tokens)
