"""Prefill and decode in pools of their own: prompts in one, their KV cache over a link, answers in the other.

Nothing flows back from the decode pool, so that the pools are simulated one after the other. The first token travels
with the KV cache, and the decode pool streams it: clients see it when their answer has a seat there. Left out:
prefixes that the decode pool has already (all prompt tokens are sent), and prefill replicas that hold blocks until they
are fetched.

Reference: [Patel2024a], [Qin2024]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.engine.encoders import EncoderPool, at_scale
from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.simulation import simulate_requests
from simulator.engine.events.state import BUSY_S
from simulator.engine.pools import HAND_OVER_S, Pool, PoolUse, token_transfer_s, transfer_ends_s, transfer_link
from simulator.engine.runs import serving
from simulator.engine.runs.kv_tiers import TierUse, tier_uses
from simulator.engine.runs.metrics import ServeResult, serve_result
from simulator.engine.settings import Routing, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.attention_ffn import AttentionFfn, decode_tables
from simulator.phases.compiled import scale_tables
from simulator.phases.deployment import Deployment
from simulator.records import dataclass
from simulator.specs.engine.deployment import DisaggregationSpec, TransferOrder
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.requests import NO_PREFIX, NO_PREVIOUS, Floats, Ints, Outcome, RequestRecords, Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPools:
    """Two pools, for one run or, where their step tables are there already, for many.

    link : the link between them, None for scale-up where both fit one domain and the network elsewhere
    server : what says how fast the network is; encoders : what pictures pass first; timeout_s : as in a workload
    """

    prefill: Pool
    decode: Pool
    link: str | None = None
    server: ServerSpec | None = None
    encoders: EncoderPool | None = None
    timeout_s: float | None = None
    transfer: TransferOrder = "after_prefill"
    routing: Routing = Routing.ROUND_ROBIN

    def run(self, requests: Requests) -> ServeResult:
        """Serve requests in both pools, one after the other."""
        return serve_disaggregated(requests, self).result

    def at_scale(self, scale: float, *, decode_scale: float | None = None) -> ServedPools:
        """These pools with all steps that many times as long; decode_scale : those of the decode pool."""
        scales = (scale, scale if decode_scale is None else decode_scale)
        prefill, decode = (
            _compiled(pool, scale=own) for pool, own in zip((self.prefill, self.decode), scales, strict=True)
        )
        return replace(self, prefill=prefill, decode=decode, encoders=at_scale(self.encoders, scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedResult:
    """What clients see, with the engine figures of the decode pool; and what the other parts do.

    use : of both pools; a transfer is from the end of a prefill to the queue of the decode pool, hand-over included
    link_busy_fraction : share of the time in which the link is taken
    kv_tiers : what prompts found in the tiers of the prefill pool
    """

    result: ServeResult
    use: PoolUse
    link_busy_fraction: float
    kv_tiers: tuple[TierUse, ...] = ()


def _compiled(pool: Pool, *, scale: float = 1.0) -> Pool:
    """A pool with the tables of its steps, all that many times as long."""
    if pool.attention_ffn is None:
        return replace(pool, tables=serving.step_tables(pool.deployment, scale=scale), step_scale=scale)
    tables = decode_tables(pool.attention_ffn)
    return replace(pool, tables=(tables if scale == 1 else scale_tables(tables, factor=scale),), step_scale=scale)


def _settings(pool: Pool, *, timeout_s: float | None, decodes: bool, routing: Routing) -> SchedulerSettings:
    # The decode pool holds blocks without names, so that no replica has more of a prompt than another.
    unnamed = decodes and routing is Routing.PREFIX_AWARE
    settings = serving.scheduler_settings(
        pool.deployment,
        kv_blocks=serving.kv_blocks_of(pool.deployment),
        replicas=pool.replicas,
        timeout_s=None if decodes else timeout_s,
        routing=Routing.LEAST_OUTSTANDING if unnamed else routing,
    )
    if not decodes:
        return settings
    # What comes has passed the front end; its blocks carry no names to find them by.
    return replace(
        settings, computed_on_arrival=True, prefix_caching=False, request_delay_s=0.0, prompt_token_delay_s=0.0
    )


def _refused(requests: Requests, settings: SchedulerSettings) -> Ints:
    """WAITING, or why the decode pool will not take a request."""
    total = requests.prompt_tokens + requests.output_tokens
    outcome = np.full(len(requests), int(Outcome.WAITING), dtype=np.int64)
    blocks = settings.kv_blocks - settings.watermark_blocks
    outcome[-(-total // settings.block_size_tokens) > blocks] = int(Outcome.TOO_LARGE)
    outcome[total > settings.max_model_len] = int(Outcome.TOO_LONG)
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transfers:
    """KV caches on their way, in the order of their arrival: whose, when they set out and came [s]; the link's time."""

    requests: Ints
    ready_s: Floats
    arrived_s: Floats
    link_s: float


def _joined_run(
    requests: Requests,
    outcome: Ints,
    *,
    taken: Ints,
    first: SimulationRun,
    transfers: _Transfers,
    second: SimulationRun | None,
) -> SimulationRun:
    """One run from those of both pools; engine time is the decode pool's. taken : who went into the prefill pool"""
    count, early = len(requests), first.records
    admitted_s, first_token_s, finish_s = (np.full(count, np.nan) for _ in range(3))
    cached, preemptions, replica = (np.zeros(count, dtype=np.int64) for _ in range(3))
    outcome = outcome.copy()
    outcome[taken], admitted_s[taken], replica[taken] = early.outcome, early.admitted_s, early.replica
    first_token_s[taken], finish_s[taken] = early.first_token_s, early.finish_s
    cached[taken], preemptions[taken] = early.cached_tokens, early.preemptions
    if second is not None:
        moved, late = transfers.requests, second.records
        first_token_s[moved], finish_s[moved] = late.admitted_s, late.finish_s
        outcome[moved], replica[moved] = late.outcome, late.replica
        preemptions[moved] += late.preemptions
    records = RequestRecords(
        outcome=outcome,
        admitted_s=admitted_s,
        first_token_s=first_token_s,
        finish_s=finish_s,
        cached_tokens=cached,
        preemptions=preemptions,
        replica=replica,
        sent_s=requests.arrival_s,
    )
    if second is None:
        return replace(first, records=records)
    return replace(
        second,
        records=records,
        trace=(*first.trace, *second.trace),
        steps=first.steps + second.steps,
        free_blocks=first.free_blocks + second.free_blocks,
    )


def _transfers(requests: Requests, taken: Ints, first: RequestRecords, *, token_s: float) -> _Transfers:
    done = (first.outcome == int(Outcome.FINISHED)) & (requests.output_tokens[taken] > 1)
    duration_s = requests.prompt_tokens[taken[done]] * token_s
    ready_s = first.first_token_s[done]
    arrived_s = transfer_ends_s(ready_s, duration_s, sender=first.replica[done]) + HAND_OVER_S
    order = np.argsort(arrived_s, kind="stable")
    return _Transfers(
        requests=taken[done][order], ready_s=ready_s[order], arrived_s=arrived_s[order], link_s=float(duration_s.sum())
    )


def _answers(requests: Requests, transfers: _Transfers, *, timeout_s: float | None) -> Requests:
    moved = transfers.requests
    answers = requests.part(moved)
    patience_s = np.inf if timeout_s is None else timeout_s
    return replace(
        answers,
        arrival_s=transfers.arrived_s,
        prefix_list=np.full(len(moved), NO_PREFIX),
        ahead_s=np.zeros(len(moved)),
        deadline_s=np.minimum(answers.deadline_s, requests.arrival_s[moved] + patience_s),
    )


def _second_run(decode: Pool, answers: Requests, *, settings: SchedulerSettings, trace_steps: int) -> SimulationRun:
    if decode.deployment.speculation is not None:
        settings = serving.speculating(settings, decode.deployment)
    tables = serving.drafting(decode, answers)
    return simulate_requests(tables, requests=answers, settings=settings, trace_steps=trace_steps)


def serve_disaggregated(
    requests: Requests, pools: ServedPools, *, objectives: tuple[ObjectiveSpec, ...] = (), trace_steps: int = 0
) -> DisaggregatedResult:
    """Send ``requests`` through both pools."""
    prefill, decode, timeout_s, routing = pools.prefill, pools.decode, pools.timeout_s, pools.routing
    if pools.encoders is not None:
        requests = pools.encoders.sent_on(requests)
    if (requests.previous != NO_PREVIOUS).any():
        raise RoofcastError("conversations are not modelled", field="disaggregation", code="unsupported_option")
    link_name, link_bytes_per_s = transfer_link(prefill, decode, link=pools.link, server=pools.server)
    tables = serving.drafting(prefill, requests)
    first_settings = _settings(prefill, timeout_s=timeout_s, decodes=False, routing=routing)
    first_settings = serving.tiered(first_settings, prefill.deployment, tables)
    second_settings = _settings(decode, timeout_s=timeout_s, decodes=True, routing=routing)
    outcome = _refused(requests, second_settings)
    taken = np.flatnonzero(outcome == int(Outcome.WAITING))
    if not len(taken):
        raise RoofcastError("no request fits the decode pool", field="workload", code="nothing_finished")
    ones = np.ones(len(taken), dtype=np.int64)
    prompts = replace(requests.part(taken), output_tokens=ones)
    first = simulate_requests(tables, requests=prompts, settings=first_settings, trace_steps=trace_steps)
    mean_prompt = max(1, round(float(np.mean(requests.prompt_tokens))))
    token_s = token_transfer_s(
        prefill, decode, link_bytes_per_s=link_bytes_per_s, transfer=pools.transfer, prompt_tokens=mean_prompt
    )
    transfers = _transfers(requests, taken, first.records, token_s=token_s)
    second = None
    if len(transfers.requests):
        answers = _answers(requests, transfers, timeout_s=timeout_s)
        second = _second_run(decode, answers, settings=second_settings, trace_steps=trace_steps)
    run = _joined_run(requests, outcome, taken=taken, first=first, transfers=transfers, second=second)
    last_s = float(np.nanmax(run.records.finish_s, initial=0.0))
    prefill_s = max(last_s, float(requests.stage_end_s[-1])) * first_settings.replicas
    result = serve_result(
        requests,
        run,
        kv_blocks=second_settings.kv_blocks,
        replicas=second_settings.replicas,
        timeout_s=timeout_s,
        objectives=objectives,
    )
    use = PoolUse(
        prefill=prefill,
        decode=decode,
        prefill_busy_fraction=min(float(first.usage[:, BUSY_S].sum()) / prefill_s, 1.0),
        decode_busy_fraction=result.device_busy_fraction(stages=decode.deployment.parallelism.pp_size),
        link=link_name,
        transfer_s=float(np.mean(transfers.arrived_s - transfers.ready_s)) if second is not None else 0.0,
    )
    return DisaggregatedResult(
        result=result,
        use=use,
        link_busy_fraction=transfers.link_s / prefill_s,
        kv_tiers=tier_uses(prefill.deployment, first_settings, prompts, first),
    )


def served_pools(
    prefill: Deployment,
    decode: Deployment,
    *,
    spec: DisaggregationSpec,
    server: ServerSpec | None,
    timeout_s: float | None = None,
    routing: Routing = Routing.ROUND_ROBIN,
    encoders: EncoderPool | None = None,
    attention_ffn: AttentionFfn | None = None,
) -> ServedPools:
    """Compile both pools once. Raises RoofcastError for what is not modelled or leaves no room for a cache."""
    serving.kv_blocks_of(prefill, pool="prefill")
    serving.kv_blocks_of(decode, pool="decode")
    return ServedPools(
        prefill=Pool(deployment=prefill, replicas=spec.prefill_replicas, tables=serving.step_tables(prefill)),
        decode=_compiled(
            Pool(
                deployment=decode,
                replicas=spec.decode_replicas * (1 if attention_ffn is None else attention_ffn.ranks),
                attention_ffn=attention_ffn,
            )
        ),
        link=spec.link,
        server=server,
        encoders=encoders,
        timeout_s=timeout_s,
        transfer=spec.transfer,
        routing=routing,
    )


Served = serving.ServedDeployment | ServedPools
