"""The arrays that the event loop works on. Everything of one replica is a row of an array, so that any number of
replicas runs through the same compiled code and memory stays flat in the number of steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simulator.engine.settings import SchedulerSettings
from simulator.traffic.requests import Requests
from simulator.units import MILLI

# Status of a slot (a running or preempted sequence).
FREE, PREFILL, JOINING, DECODE, DONE, PREEMPTED, ABORTED = range(7)

# Columns of linked lists, and of ``EngineState.blocks``, whose first two columns are such a list.
NEXT, PREV = 0, 1
BLOCK_REFERENCES, BLOCK_CONTENT, BLOCK_STAMP, BLOCK_COLUMNS = range(2, 6)

# Columns of ``EngineState.slots``.
(
    SLOT_REQUEST,
    SLOT_STATUS,
    SLOT_TARGET,
    SLOT_COMPUTED,
    SLOT_GENERATED,
    SLOT_OFFSET,
    SLOT_BLOCKS,
    SLOT_SAVED,
    SLOT_EXTENDED,
    SLOT_COLUMNS,
) = range(10)
BLOCK, STAMP = 0, 1
FREE_STACK, PREEMPTED_STACK = 0, 1

# Columns of ``Demand`` and ``Fate``.
READY_S, DEADLINE_S = 0, 1
PROMPT, OUTPUT, PREFIX = range(3)
ADMITTED_S, FIRST_TOKEN_S, FINISH_S = range(3)
OUTCOME, CACHED, PREEMPTED_TIMES, REPLICA, SLOT, NEXT_WAITING, NOTES = range(7)

# Places in ``EngineState.clock``: seconds of the two plans, then the time of the next step boundary.
NOW = 2

# Places in ``EngineState.count``.
(
    FREE_BLOCKS,
    FREE_SLOTS,
    RUNNING,
    PREEMPTED_SLOTS,
    DECODING,
    CONTEXT,
    STEP,
    EXECUTING,
    NEXT_IS_FORMED,
    PARTIAL,
    WAIT_HEAD,
    WAIT_TAIL,
    OUTSTANDING,
    LIVE,
    STAGE,
    DEADLINE,
    STALLED,
    STEPS_TAKEN,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    PREFILL_WORK2,
    PREFILL_DONE,
    COUNTS,
) = range(23)

# Places in ``EngineState.plan[parity]``: what the step that is formed or runs consists of.
PLAN_FIRSTS, PLAN_DECODES, PLAN_PREFILLS, PLAN_TOKENS, PLAN_BLOCKS, PLAN_COUNTS = range(6)

# Columns of ``EngineState.usage``.
BUSY_S, SEQUENCE_S, BLOCK_S, STEPS, PREEMPTIONS, TOKENS, WAITING_S, USAGES = range(8)

# Columns of ``EngineState.trace``.
TRACE_START_S, TRACE_END_S, TRACE_DECODES, TRACE_PREFILLS, TRACE_TOKENS, TRACE_USED, TRACE_FREE, TRACE_WAITING = range(
    8
)
TRACE_COLUMNS = 8

# Columns of ``EngineState.series``, and how many buckets there are; the row behind them holds their width.
SERIES_SEQUENCE_S, SERIES_WAITING_S, SERIES_BLOCK_S, SERIES_BUSY_S, SERIES_TOKENS, SERIES_COLUMNS = range(6)
SERIES_WIDTH_S = 0
SERIES_BUCKETS = 512


class EngineState(NamedTuple):
    """State of a replica, or (with one leading axis more) of all replicas.

    A NamedTuple because compiled code takes it as it is; nothing outside the event loop touches it.
    Linked lists are circular, two columns each, with their heads behind the items.

    blocks : per KV block the BLOCK_* columns; its list is the LRU queue of unreferenced blocks (head: last row)
    holder : per content id the block that holds it, or -1
    slots : per slot (a running or preempted sequence) the SLOT_* columns
    table : per slot and place the block, and its stamp when the sequence was preempted
    links : three lists over slots: running by admission, who ends in which step, who next needs a block
    stacks : free slots, preempted slots; firsts : per parity the (request, slot) whose prompt a step completes
    plan, clock : what the step being formed or executed consists of, by parity; seconds of each, and now
    count : single numbers; usage : sums per stage; trace : the first steps, as far as asked for
    series : sums per bucket of time
    """

    blocks: Any
    holder: Any
    slots: Any
    table: Any
    links: Any
    stacks: Any
    firsts: Any
    plan: Any
    count: Any
    clock: Any
    usage: Any
    trace: Any
    series: Any


class Demand(NamedTuple):
    """Requests in the order in which they reach the scheduler: ``times_s`` [READY_S, DEADLINE_S], ``shape`` [PROMPT,
    OUTPUT, PREFIX], and the lists of block ids."""

    times_s: Any
    shape: Any
    list_start: Any
    block_ids: Any
    stage_end_s: Any


class Fate(NamedTuple):
    """What became of each request: ``times_s`` [ADMITTED_S, FIRST_TOKEN_S, FINISH_S], and the columns of ``notes``."""

    times_s: Any
    notes: Any


class Limits(NamedTuple):
    """Numbers of ``SchedulerSettings`` as compiled code takes them."""

    max_tokens: int
    max_seqs: int
    block_size: int
    blocks: int
    watermark_blocks: int
    ring: int
    finish_lists: int
    phase_lists: int
    prefix_caching: bool
    chunked: bool
    asynchronous: bool
    static: bool
    routing: int


def empty_lists(replicas: int, nodes: int) -> Any:
    """As many circular lists as nodes, each of itself alone."""
    return np.tile(np.arange(nodes, dtype=np.int64)[:, np.newaxis], (replicas, 1, 2))


def free_block_rows(blocks: int, *, columns: int, content: int) -> Any:
    """Blocks in one queue whose head is the last row; nothing is in them."""
    rows = np.zeros((blocks + 1, columns), dtype=np.int32)
    ring = np.arange(blocks + 1)
    rows[:, NEXT], rows[:, PREV] = np.roll(ring, -1), np.roll(ring, 1)
    rows[:, content] = -1
    return rows


def make_limits(settings: SchedulerSettings, *, longest_output_tokens: int) -> Limits:
    """The compiled code's view of ``settings``; a step index modulo ``ring`` never meets another one in use."""
    slots, ring = settings.max_num_seqs, longest_output_tokens + 3
    return Limits(
        max_tokens=settings.max_num_batched_tokens,
        max_seqs=settings.max_num_seqs,
        block_size=settings.block_size_tokens,
        blocks=settings.kv_blocks,
        watermark_blocks=settings.watermark_blocks,
        ring=ring,
        finish_lists=slots + 1,
        phase_lists=2 * slots + 1 + ring,
        prefix_caching=settings.prefix_caching,
        chunked=settings.chunked_prefill,
        asynchronous=settings.async_scheduling,
        static=bool(settings.batching),
        routing=int(settings.routing),
    )


def empty_series(replicas: int, *, last_s: float) -> Any:
    """Buckets that take twice the time up to ``last_s`` before they have to widen."""
    series = np.zeros((replicas, SERIES_BUCKETS + 1, SERIES_COLUMNS))
    series[:, SERIES_BUCKETS, SERIES_WIDTH_S] = max(2 * last_s / SERIES_BUCKETS, MILLI)
    return series


def state_bytes(settings: SchedulerSettings, *, distinct_blocks: int, longest_tokens: int) -> float:
    """About what ``make_state`` takes for one replica [bytes]."""
    slots, blocks = settings.max_num_seqs, settings.kv_blocks
    table = slots * (longest_tokens // settings.block_size_tokens + 2.0)
    return 4.0 * (blocks * BLOCK_COLUMNS + distinct_blocks + 2 * table) + 8.0 * (
        slots * (SLOT_COLUMNS + 10) + SERIES_BUCKETS * SERIES_COLUMNS + 2 * longest_tokens
    )


def make_state(
    settings: SchedulerSettings, requests: Requests, *, limits: Limits, longest_tokens: int, trace_steps: int
) -> EngineState:
    """Empty replicas: every block in the free queue, every slot free, the clock asleep at infinity."""
    replicas, slots, blocks = settings.replicas, settings.max_num_seqs, settings.kv_blocks
    table_width = -(-longest_tokens // settings.block_size_tokens) + 1
    nodes = limits.phase_lists + slots + settings.block_size_tokens
    count = np.zeros((replicas, COUNTS), dtype=np.int64)
    count[:, FREE_BLOCKS], count[:, FREE_SLOTS] = blocks, slots
    count[:, [PARTIAL, WAIT_HEAD, WAIT_TAIL]] = -1
    stacks = np.zeros((replicas, 2, slots), dtype=np.int64)
    stacks[:, FREE_STACK] = np.arange(slots - 1, -1, -1)
    clock = np.zeros((replicas, 3))
    clock[:, NOW] = np.inf
    return EngineState(
        blocks=np.tile(free_block_rows(blocks, columns=BLOCK_COLUMNS, content=BLOCK_CONTENT), (replicas, 1, 1)),
        holder=np.full((replicas, max(requests.distinct_blocks, 1)), -1, dtype=np.int32),
        slots=np.zeros((replicas, slots, SLOT_COLUMNS), dtype=np.int64),
        table=np.zeros((replicas, slots, table_width, 2), dtype=np.int32),
        links=empty_lists(replicas, nodes),
        stacks=stacks,
        firsts=np.zeros((replicas, 2, slots, 2), dtype=np.int64),
        plan=np.zeros((replicas, 2, PLAN_COUNTS), dtype=np.int64),
        count=count,
        clock=clock,
        usage=np.zeros((replicas, len(requests.stage_end_s) + 1, USAGES)),
        trace=np.zeros((replicas, trace_steps, TRACE_COLUMNS)),
        series=empty_series(replicas, last_s=float(requests.stage_end_s[-1])),
    )
