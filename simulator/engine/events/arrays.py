"""Fill the arrays of the event loop and read them: an empty engine, the demand as it queues; what a run leaves.

Batch, queue and cache over time in bounded memory: a fixed number of buckets whose width doubles when a run outlasts
them.

Plain numpy, so that what only prepares or reads a run does not load the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.state import Demand, EngineState, Fate, Limits
from simulator.engine.settings import Policy, QueueOrder, SchedulerSettings
from simulator.phases.compiled import StepTables
from simulator.traffic.requests import NO_PREVIOUS, Floats, Ints, Outcome, RequestRecords, Requests
from simulator.units import MILLI


def make_limits(
    settings: SchedulerSettings, *, stages: int, longest_output_tokens: int, conversations: bool, walks: bool
) -> Limits:
    """The compiled code's view of ``settings``; a step number modulo ``ring`` never meets another one in use."""
    slots, ring = settings.max_num_seqs, longest_output_tokens + 3
    depth = stages if stages > 1 else 2 if settings.async_scheduling else 1
    offload, drafted, ratio = settings.offload, settings.speculation, settings.token_ratio
    drafts = np.zeros((2, slots + 2 if drafted is None else slots + 2 + len(drafted.acceptance)))
    if drafted is not None:
        drafts[at.DRAFT_S, : slots + 1] = drafted.draft_s[: slots + 1] or 0.0
        drafts[at.REACH, : len(drafted.acceptance)] = np.cumprod(drafted.acceptance)
    return Limits(
        max_tokens=settings.max_num_batched_tokens,
        max_seqs=slots,
        block_size=settings.block_size_tokens,
        blocks=settings.kv_blocks,
        watermark_blocks=settings.watermark_blocks,
        routing=int(settings.routing),
        patience_s=np.inf if settings.timeout_s is None else float(settings.timeout_s),
        conversations=conversations,
        depth=depth,
        # Rows of the steps under way and of the one before them, as many as a power of two.
        step_mask=2 ** depth.bit_length() - 1,
        prefix_caching=settings.prefix_caching,
        chunked=settings.chunked_prefill,
        static=bool(settings.batching),
        pipelined=stages > 1,
        counted_ahead=walks,
        ring=ring,
        finish_lists=slots + 1,
        phase_lists=2 * slots + 1 + ring,
        prompts_first=settings.policy is Policy.PREFILL_FIRST,
        full_length=settings.policy is Policy.GUARANTEED_NO_EVICT,
        retracts=settings.policy in (Policy.PREFILL_FIRST, Policy.PREFILL_FIRST_MIXED),
        longest_prefix_first=settings.queue_order is QueueOrder.LONGEST_PREFIX,
        computed_on_arrival=settings.computed_on_arrival,
        host_blocks=0 if offload is None else offload.blocks,
        block_load_s=0.0 if offload is None else float(offload.block_load_s),
        verify_tokens=1 if drafted is None else drafted.verify_tokens,
        drafts=drafts,
        seed=0 if drafted is None else settings.seed,
        ratio_first=float(ratio.initial),
        ratio_decay=(ratio.initial - ratio.least) / ratio.decay_steps,
        ratio_least=float(ratio.least),
    )


def _lru_queue(rows: int, *, columns: int, content: int) -> Any:
    """Blocks in one queue whose head is the last row; nothing is in them."""
    queue = np.zeros((rows + 1, columns), dtype=np.int32)
    ring = np.arange(rows + 1)
    queue[:, at.NEXT], queue[:, at.PREV] = np.roll(ring, -1), np.roll(ring, 1)
    queue[:, content] = -1
    return queue


def state_bytes(settings: SchedulerSettings, *, distinct_blocks: int, longest_tokens: int) -> float:
    """About what ``make_state`` takes for one replica [bytes]."""
    slots, blocks = settings.max_num_seqs, settings.kv_blocks
    table = slots * (longest_tokens // settings.block_size_tokens + 2.0)
    return 4.0 * (blocks * at.BLOCK_COLUMNS + distinct_blocks + 2 * table) + 8.0 * (
        slots * (at.SLOT_COLUMNS + 10) + at.SERIES_BUCKETS * at.SERIES_COLUMNS + 2 * longest_tokens
    )


def make_state(
    limits: Limits,
    requests: Requests,
    *,
    replicas: int,
    stages: int,
    longest_tokens: int,
    trace_steps: int,
) -> EngineState:
    """Empty replicas: every block in the free queue, every slot free, the clock asleep at infinity."""
    slots, rows = limits.max_seqs, limits.step_mask + 1
    count = np.zeros((replicas, at.COUNTS), dtype=np.int64)
    count[:, at.FREE_BLOCKS], count[:, at.FREE_SLOTS] = limits.blocks, slots
    count[:, [at.PARTIAL, at.WAIT_HEAD, at.WAIT_TAIL]] = -1
    seats = np.zeros((replicas, slots, at.SLOT_COLUMNS), dtype=np.int64)
    seats[:, :, at.FREE_STACK] = np.arange(slots - 1, -1, -1)
    clock = np.zeros((replicas, at.CLOCKS + stages))
    clock[:, at.NOW_S], clock[:, at.RATIO] = np.inf, limits.ratio_first
    # Buckets take twice the time up to the last arrival before they have to widen.
    series = np.zeros((replicas, at.SERIES_BUCKETS + 1, at.SERIES_COLUMNS))
    series[:, -1, at.SERIES_WIDTH_S] = max(2 * float(requests.stage_end_s[-1]) / at.SERIES_BUCKETS, MILLI)
    contents = max(requests.distinct_blocks, 1)
    blocks = _lru_queue(limits.blocks, columns=at.BLOCK_COLUMNS, content=at.BLOCK_CONTENT)
    host = _lru_queue(limits.host_blocks, columns=at.HOST_COLUMNS, content=at.HOST_CONTENT)
    # The scheduler that walks keeps no lists but that of the running.
    nodes = slots + 1 if limits.counted_ahead else limits.phase_lists + slots + limits.block_size
    return EngineState(
        blocks=np.tile(blocks, (replicas, 1, 1)),
        holder=np.full((replicas, 2 if limits.host_blocks else 1, contents), -1, dtype=np.int32),
        slots=seats,
        table=np.zeros((replicas, slots, -(-longest_tokens // limits.block_size) + 1, 2), dtype=np.int32),
        links=np.tile(np.arange(nodes, dtype=np.int64)[:, np.newaxis], (replicas, 1, 2)),
        marked=np.zeros((replicas, rows, slots, at.MARKS), dtype=np.int64),
        plan=np.zeros((replicas, rows, at.PLAN_COLUMNS), dtype=np.int64),
        span_s=np.zeros((replicas, rows, at.SPAN_COLUMNS)),
        host=np.tile(host, (replicas, 1, 1)),
        count=count,
        clock=clock,
        usage=np.zeros((replicas, len(requests.stage_end_s) + 1, at.USAGES)),
        trace=np.zeros((replicas, trace_steps, at.TRACE_COLUMNS)),
        series=series,
    )


def queue_order(requests: Requests, settings: SchedulerSettings) -> Ints:
    """Requests in the order in which they reach the scheduler's queue."""
    return np.argsort(_ready_s(requests, settings), kind="stable")


def _ready_s(requests: Requests, settings: SchedulerSettings) -> Floats:
    return requests.arrival_s + settings.request_delay_s + settings.prompt_token_delay_s * requests.prompt_tokens


def make_demand(requests: Requests, settings: SchedulerSettings, *, order: Ints) -> Demand:
    """``requests`` in the order of the queue."""
    patience_s = np.inf if settings.timeout_s is None else settings.timeout_s
    deadline_s = np.minimum(requests.arrival_s + patience_s, requests.deadline_s)
    delay_s = settings.request_delay_s + settings.prompt_token_delay_s * requests.prompt_tokens
    times_s = (_ready_s(requests, settings), deadline_s, requests.think_s, delay_s)
    turns = requests.previous != NO_PREVIOUS
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    follower = np.full(len(order), -1, dtype=np.int64)
    follower[requests.previous[turns]] = place[turns]
    shape = (requests.prompt_tokens, requests.output_tokens, requests.prefix_list, follower, turns)
    return Demand(
        times_s=np.stack(times_s, axis=1)[order],
        shape=np.stack([column[order] for column in shape], axis=1).astype(np.int32),
        list_start=requests.list_start,
        block_ids=requests.block_ids.astype(np.int32),
        stage_end_s=requests.stage_end_s,
    )


def make_fate(demand: Demand, settings: SchedulerSettings, *, arrival_s: Floats) -> Fate:
    """Everybody waits, except for whom the engine will not take at all. arrival_s : in the order of the queue"""
    total = demand.shape[:, at.PROMPT].astype(np.int64) + demand.shape[:, at.OUTPUT]
    room = settings.kv_blocks - settings.watermark_blocks
    too_long = total > settings.max_model_len
    if not settings.chunked_prefill:
        # A sequence that may be preempted is recomputed with its output in one piece.
        evicted = settings.policy is not Policy.GUARANTEED_NO_EVICT
        whole = total if evicted else demand.shape[:, at.PROMPT].astype(np.int64)
        too_long |= whole > settings.max_num_batched_tokens
    notes = np.full((len(total), at.NOTES), -1, dtype=np.int32)
    notes[:, at.OUTCOME] = at.WAITING
    notes[-(-total // settings.block_size_tokens) > room, at.OUTCOME] = int(Outcome.TOO_LARGE)
    notes[too_long, at.OUTCOME] = int(Outcome.TOO_LONG)
    notes[:, [at.CACHED, at.PREEMPTED_TIMES]] = 0
    times_s = np.full((len(total), at.TIMES), np.nan)
    times_s[:, at.SENT_S] = np.where(demand.shape[:, at.IS_FOLLOWER] > 0, np.nan, arrival_s)
    return Fate(times_s=times_s, notes=notes, numbers=np.zeros(at.NUMBERS, dtype=np.int64))


def stacked_tables(stages: tuple[StepTables, ...]) -> Any:
    """One set of arrays with a leading axis of stages, so that any pipeline runs through the same compiled code.

    A ``StepTables`` whose arrays, and ``issue_s``, have one entry per stage; plain numbers elsewhere, because compiled
    code is made for types.
    """
    first = stages[0]
    issue_s: Any = np.array([tables.issue_s for tables in stages], dtype=np.float64)
    return StepTables(
        token_s=np.stack([tables.token_s for tables in stages]).astype(np.float64),
        logits_s=np.stack([tables.logits_s for tables in stages]).astype(np.float64),
        decode_s=np.stack([tables.decode_s for tables in stages]).astype(np.float64),
        prefill_s=np.stack([tables.prefill_s for tables in stages]).astype(np.float64),
        decode_places=np.ascontiguousarray(first.decode_places, dtype=np.float64),
        sequence_places=np.ascontiguousarray(first.sequence_places, dtype=np.float64),
        token_places=np.ascontiguousarray(first.token_places, dtype=np.float64),
        step_s=float(first.step_s),
        sequence_s=float(first.sequence_s),
        issue_s=issue_s,
        context_nodes=int(first.context_nodes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries:
    """What went on over time, all replicas together. Arrays have one entry per bucket, at most 512.

    width_s : width of a bucket; start_s : where each begins [s]
    batch : sequences that are being computed; waiting : requests that wait (time-weighted means over the bucket, in
        which idle time counts as nothing)
    kv_utilization : share of all KV blocks in use; busy : share of the replicas' time in which a step runs
    tokens_per_s : prompt and answer tokens computed per second
    """

    width_s: float
    start_s: Floats
    batch: Floats
    waiting: Floats
    kv_utilization: Floats
    busy: Floats
    tokens_per_s: Floats


NO_SERIES = TimeSeries(
    width_s=0.0,
    start_s=np.zeros(0),
    batch=np.zeros(0),
    waiting=np.zeros(0),
    kv_utilization=np.zeros(0),
    busy=np.zeros(0),
    tokens_per_s=np.zeros(0),
)
"""Of a run without steps."""


def _at_width(rows: Floats, width_s: float, wanted_s: float) -> Floats:
    while width_s < wanted_s:
        merged = np.zeros_like(rows)
        merged[: at.SERIES_BUCKETS // 2] = rows[0::2] + rows[1::2]
        rows, width_s = merged, 2 * width_s
    return rows


def time_series(series: Floats, *, kv_blocks: int) -> TimeSeries:
    """Join the replicas' buckets ``series`` [replicas, buckets + 1, columns]. kv_blocks : of all replicas."""
    widths_s = series[:, at.SERIES_BUCKETS, at.SERIES_WIDTH_S]
    width_s = float(widths_s.max())
    rows = np.zeros_like(series[0, : at.SERIES_BUCKETS])
    for replica, own_s in zip(series, widths_s, strict=True):
        rows = rows + _at_width(replica[: at.SERIES_BUCKETS], float(own_s), width_s)
    used = np.flatnonzero(rows[:, at.SERIES_BUSY_S] > 0)
    rows = rows[: used[-1] + 1] if len(used) else rows[:0]
    return TimeSeries(
        width_s=width_s,
        start_s=np.arange(len(rows), dtype=np.float64) * width_s,
        batch=rows[:, at.SERIES_SEQUENCE_S] / width_s,
        waiting=rows[:, at.SERIES_WAITING_S] / width_s,
        kv_utilization=rows[:, at.SERIES_BLOCK_S] / (width_s * kv_blocks),
        busy=rows[:, at.SERIES_BUSY_S] / (width_s * len(series)),
        tokens_per_s=rows[:, at.SERIES_TOKENS] / width_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRun:
    """What a run leaves: a record per request, and sums over the time of each stage.

    usage : per stage (and after the last) the columns of ``state.USAGES`` summed over replicas
    trace : per replica, step and ``state.TRACE_*`` column, the first steps as far as asked for
    steps : steps taken by all replicas; free_blocks : KV blocks that nobody holds at the end
    series : batch, queue and cache over time
    """

    records: RequestRecords
    usage: Floats
    trace: tuple[Floats, ...]
    steps: int
    free_blocks: int
    series: TimeSeries = NO_SERIES


def records_of(fate: Fate, order: np.ndarray) -> RequestRecords:
    """What became of each request, in the order in which they came."""
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    notes, times_s = fate.notes[back].astype(np.int64), fate.times_s[back]
    return RequestRecords(
        outcome=notes[:, at.OUTCOME],
        admitted_s=times_s[:, at.ADMITTED_S],
        first_token_s=times_s[:, at.FIRST_TOKEN_S],
        finish_s=times_s[:, at.FINISH_S],
        cached_tokens=notes[:, at.CACHED],
        preemptions=notes[:, at.PREEMPTED_TIMES],
        replica=notes[:, at.REPLICA],
        sent_s=times_s[:, at.SENT_S],
    )
