"""Fill the arrays of the event loop and read them: plain numpy, so that reading a run loads no compiler."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.state import EngineState, Limits
from simulator.engine.settings import QueueOrder, SchedulerPolicy, SchedulerSettings
from simulator.phases.compiled import StepTables
from simulator.records import dataclass
from simulator.traffic.requests import Floats, RequestRecords, Requests
from simulator.units import MIB, MILLI


def make_limits(settings: SchedulerSettings, *, slots: int, stages: int, conversations: bool) -> Limits:
    """The compiled code's view of ``settings``."""
    depth = stages if stages > 1 else 2 if settings.async_scheduling else 1
    drafted, ratio = settings.speculation, settings.token_ratio
    return Limits(
        max_tokens=settings.max_num_batched_tokens,
        max_seqs=slots,
        block_size=settings.block_size_tokens,
        ranks=settings.ranks,
        blocks=settings.kv_blocks,
        watermark_blocks=settings.watermark_blocks,
        routing=int(settings.routing),
        groups=1,
        group=0,
        patience_s=np.inf if settings.timeout_s is None else float(settings.timeout_s),
        conversations=conversations,
        depth=depth,
        # Rows of the steps under way and of the one before them, as many as a power of two.
        step_mask=2 ** depth.bit_length() - 1,
        prefix_caching=settings.prefix_caching,
        chunked=settings.chunked_prefill,
        static=bool(settings.batching),
        pipelined=stages > 1,
        uneven=stages > 1 or drafted is not None or settings.computed_on_arrival,
        counted_ahead=settings.counted_ahead or stages > 1 or conversations,
        prompts_first=settings.policy is SchedulerPolicy.PREFILL_FIRST,
        full_length=settings.policy is SchedulerPolicy.GUARANTEED_NO_EVICT or bool(settings.batching),
        retracts=settings.policy in (SchedulerPolicy.PREFILL_FIRST, SchedulerPolicy.PREFILL_FIRST_MIXED),
        longest_prefix_first=settings.queue_order is QueueOrder.LONGEST_PREFIX,
        computed_on_arrival=settings.computed_on_arrival,
        tiers=np.array([(tier.blocks, tier.block_load_s, tier.latency_s) for tier in settings.tiers]).reshape(
            -1, at.TIER_COLUMNS
        ),
        shared_tier=settings.shared_tier,
        prompt_s=np.array(settings.prompt_s, dtype=np.float64),
        verify_tokens=1 if drafted is None else drafted.verify_tokens,
        reach=np.cumprod(() if drafted is None else drafted.acceptance, dtype=np.float64),
        seed=0 if drafted is None else settings.seed,
        ratio_first=float(ratio.initial),
        ratio_decay=(ratio.initial - ratio.least) / ratio.decay_steps,
        ratio_least=float(ratio.least),
    )


def _tier_queues(sizes: Sequence[int]) -> Any:
    """Places of each tier in a queue of its own, whose heads are the last rows; nothing is in them."""
    queues = np.zeros((sum(sizes) + len(sizes), at.PLACE_COLUMNS), dtype=np.int32)
    first = 0
    for tier, size in enumerate(sizes):
        members = np.append(np.arange(first, first + size), sum(sizes) + tier)
        queues[members, at.NEXT], queues[members, at.PREV] = np.roll(members, -1), np.roll(members, 1)
        queues[members, at.PLACE_TIER] = tier
        first += size
    queues[:, at.PLACE_CONTENT] = at.EMPTY
    return queues


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSize:
    """About what ``make_state`` takes for one replica: in any case, and for each slot [bytes]."""

    fixed_bytes: float
    slot_bytes: float

    def slots_within(self, most_bytes: float) -> int:
        """How many slots such memory has room for."""
        return int((most_bytes - self.fixed_bytes) // self.slot_bytes)

    def of(self, slots: int) -> float:
        """Memory with so many slots [bytes]."""
        return self.fixed_bytes + slots * self.slot_bytes


def state_size(settings: SchedulerSettings, *, distinct_blocks: int, longest_tokens: int) -> StateSize:
    """Memory of a replica that serves requests of at most ``longest_tokens``."""
    places = sum(tier.blocks for tier in settings.tiers)
    held = settings.kv_blocks * at.BLOCK_COLUMNS + places * at.PLACE_COLUMNS
    ids = distinct_blocks * (2 if places else 1)
    table = longest_tokens // settings.block_size_tokens + 2.0
    return StateSize(
        fixed_bytes=4.0 * (held + ids) + 8.0 * at.SERIES_BUCKETS * at.SERIES_COLUMNS,
        slot_bytes=8.0 * (table + at.SLOT_COLUMNS + 10),
    )


_PAGED_BYTES = 4 * MIB


def _untouched(shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Zeros whose memory is taken page by page as replicas come to use it; numpy asks for pages of 2 MiB."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < _PAGED_BYTES:
        return np.zeros(shape, dtype=dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype=dtype).reshape(shape)


def make_state(
    limits: Limits, requests: Requests, *, replicas: int, stages: int, longest_tokens: int, trace_steps: int
) -> EngineState:
    """Empty replicas: every block unused, every slot free, the clock asleep at infinity."""
    slots, rows = limits.max_seqs, limits.step_mask + 1
    # The state of one replica is read over and over, that of many is mostly never used.
    zeros: Any = np.zeros if replicas == 1 else _untouched
    count = np.zeros((replicas, at.COUNTS), dtype=np.int64)
    count[:, at.FREE_BLOCKS], count[:, at.FREE_SLOTS] = limits.blocks, slots
    count[:, [at.WAIT_HEAD, at.WAIT_TAIL]] = -1
    seats = zeros((replicas, slots, at.SLOT_COLUMNS), dtype=np.int64)
    seats[:, :, at.FREE_STACK] = np.arange(slots - 1, -1, -1)
    clock = np.zeros((replicas, at.CLOCKS + stages))
    clock[:, at.NOW_S], clock[:, at.RATIO] = np.inf, limits.ratio_first
    # Buckets take twice the time up to the last arrival before they have to widen.
    series = zeros((replicas, at.SERIES_BUCKETS + 1, at.SERIES_COLUMNS))
    series[:, -1, at.SERIES_WIDTH_S] = max(2 * float(requests.stage_end_s[-1]) / at.SERIES_BUCKETS, MILLI)
    contents = max(requests.distinct_blocks, 1)
    blocks = zeros((replicas, limits.blocks + 1, at.BLOCK_COLUMNS), dtype=np.int32)
    blocks[:, -1, [at.NEXT, at.PREV]] = limits.blocks
    queues = _tier_queues(limits.tiers[:, at.TIER_PLACES].astype(int).tolist())
    return EngineState(
        blocks=blocks,
        holder=np.full((replicas, 2 if len(limits.tiers) else 1, contents), -1, dtype=np.int32),
        slots=seats,
        table=zeros((replicas, slots, -(-longest_tokens // limits.block_size) + 1, 2), dtype=np.int32),
        running=zeros((replicas, 2, slots), dtype=np.int64),
        marked=zeros((replicas, rows, slots, at.MARKS), dtype=np.int64),
        plan=np.zeros((replicas, rows, at.PLAN_COLUMNS), dtype=np.int64),
        span_s=np.zeros((replicas, rows, at.SPAN_COLUMNS)),
        places=np.tile(queues, (replicas, 1, 1)),
        tiers=np.zeros((replicas, max(len(limits.tiers), 1), at.TIER_STATES)),
        count=count,
        clock=clock,
        usage=np.zeros((replicas, len(requests.stage_end_s) + 1, at.USAGES)),
        trace=zeros((replicas, trace_steps, at.TRACE_COLUMNS)),
        series=series,
    )


def stacked_tables(stages: tuple[StepTables, ...]) -> Any:
    """One set of arrays with a leading axis of stages, so that any pipeline runs through the same compiled code.

    A ``StepTables`` whose arrays, and ``issue_s``, have one entry per stage; plain numbers elsewhere, because compiled
    code is made for types.
    """
    first = stages[0]
    issue_s: Any = np.array([tables.issue_s for tables in stages], dtype=np.float64)
    return StepTables(
        token_s=np.stack([tables.token_s for tables in stages]).astype(np.float64),
        shared_s=np.ascontiguousarray(first.shared_s, dtype=np.float64),
        logits_s=np.stack([tables.logits_s for tables in stages]).astype(np.float64),
        decode_s=np.stack([tables.decode_s for tables in stages]).astype(np.float64),
        prefill_s=np.stack([tables.prefill_s for tables in stages]).astype(np.float64),
        decode_places=np.ascontiguousarray(first.decode_places, dtype=np.float64),
        sequence_places=np.ascontiguousarray(first.sequence_places, dtype=np.float64),
        token_places=np.ascontiguousarray(first.token_places, dtype=np.float64),
        step_s=float(first.step_s),
        sequence_s=float(first.sequence_s),
        prompt_s=float(first.prompt_s),
        draft_s=np.ascontiguousarray(first.draft_s, dtype=np.float64),
        draft_token_s=float(first.draft_token_s),
        issue_s=issue_s,
        context_nodes=int(first.context_nodes),
    )


def step_length_s(row: Floats) -> float:
    """How long a step took, of its row of the trace [s]."""
    return float(row[at.TRACE_END_S] - row[at.TRACE_START_S])


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

    @property
    def end_s(self) -> float:
        """When the last bucket ends [s]."""
        return float(self.start_s[-1] + self.width_s) if len(self.start_s) else 0.0


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


def _at_width(own: Floats, wanted_s: float) -> Floats:
    """A replica's buckets, widened; own : those in use, and their width in the last row."""
    rows, width_s = np.zeros((at.SERIES_BUCKETS, at.SERIES_COLUMNS)), float(own[-1, at.SERIES_WIDTH_S])
    rows[: len(own) - 1] = own[:-1]
    while width_s < wanted_s:
        merged = np.zeros_like(rows)
        merged[: at.SERIES_BUCKETS // 2] = rows[0::2] + rows[1::2]
        rows, width_s = merged, 2 * width_s
    return rows


def time_series(series: Sequence[Floats], *, replicas: int, kv_blocks: int) -> TimeSeries:
    """Join the buckets of those replicas that had something to do. kv_blocks : of each"""
    width_s = max(float(own[-1, at.SERIES_WIDTH_S]) for own in series)
    rows = np.zeros((at.SERIES_BUCKETS, at.SERIES_COLUMNS))
    for own in series:
        rows = rows + _at_width(own, width_s)
    used = np.flatnonzero(rows[:, at.SERIES_BUSY_S] > 0)
    rows = rows[: used[-1] + 1] if len(used) else rows[:0]
    return TimeSeries(
        width_s=width_s,
        start_s=np.arange(len(rows), dtype=np.float64) * width_s,
        batch=rows[:, at.SERIES_SEQUENCE_S] / width_s,
        waiting=rows[:, at.SERIES_WAITING_S] / width_s,
        kv_utilization=rows[:, at.SERIES_BLOCK_S] / (width_s * (replicas * kv_blocks)),
        busy=rows[:, at.SERIES_BUSY_S] / (width_s * replicas),
        tokens_per_s=rows[:, at.SERIES_TOKENS] / width_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSums:
    """What is left of a replica when its state is gone.

    usage : per stage; trace : the first steps; series : the buckets of time in use, and their width in the last row
    """

    usage: Floats
    trace: Floats
    series: Floats
    steps: int
    free_blocks: int
    stalled: bool


def replica_sums(state: EngineState) -> list[ReplicaSums]:
    """Sums of every replica of ``state``, in their order."""
    found = []
    for replica, count in enumerate(state.count):
        series = state.series[replica]
        used = np.flatnonzero(series[:-1].any(axis=1))
        found.append(
            ReplicaSums(
                usage=state.usage[replica].copy(),
                trace=state.trace[replica, : count[at.ACCOUNTED]].copy(),
                series=np.concatenate([series[: used[-1] + 1 if len(used) else 0], series[-1:]]),
                steps=int(count[at.ACCOUNTED]),
                free_blocks=int(count[at.FREE_BLOCKS]),
                stalled=bool(count[at.STALLED]),
            )
        )
    return found


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
