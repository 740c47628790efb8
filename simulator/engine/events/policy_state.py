"""The arrays of the event loop that walks over its sequences in every step.

The loop of one token per sequence and step (``state``) gets by with lists of who ends when. Here sequences may advance
by several tokens, several steps may be under way, and caches may load: whatever a scheduler's policy needs. The first
columns and places are those of ``state``, so that the block pool works on both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from simulator.engine.events.state import (
    ABORTED,
    BLOCK_COLUMNS,
    BLOCK_CONTENT,
    COUNTS,
    FREE_BLOCKS,
    FREE_SLOTS,
    FREE_STACK,
    SLOT_COLUMNS,
    TRACE_COLUMNS,
    USAGES,
    WAIT_HEAD,
    WAIT_TAIL,
    empty_lists,
    empty_series,
    free_block_rows,
)
from simulator.engine.settings import Policy, QueueOrder, SchedulerSettings
from simulator.traffic.requests import Requests

# One more status of a slot: its blocks are on the way from the host.
LOADING = ABORTED + 1

# Columns of ``PolicyState.slots`` beyond those of ``state``.
LAST_STEP, PUBLISHED, KEPT_ON_HOST, ANSWER, POLICY_SLOT_COLUMNS = range(SLOT_COLUMNS, SLOT_COLUMNS + 5)

# Places in ``PolicyState.count`` beyond those of ``state``.
LAUNCHED, RETURNED, PINNED, LOADED_BLOCKS, POLICY_COUNTS = range(COUNTS, COUNTS + 5)

# Places in ``PolicyState.clock``; columns of ``PolicyState.batch``.
BOUNDARY_S, RATIO, LINK_FREE_S, BUSY_UNTIL_S, CLOCKS = range(5)
BATCH_FIRSTS, BATCH_ENDS, BATCH_COLUMNS = range(3)
HOST_CONTENT, HOST_COLUMNS = 2, 3
HEAP_SIZE, DISPATCHED, NUMBERS = range(3)


class PolicyState(NamedTuple):
    """State of a replica, or (with one leading axis more) of all replicas; see ``state.EngineState`` for what is alike.

    links : running sequences by admission; ready_s : when the blocks of a loading slot have arrived
    firsts, ends : per batch under way the (request, slot) whose prompt it completes, and the slots that end with it
    batch, end_s : how many of each, and when the batch ends; stage_free_s : until when each pipeline stage is taken
    host : LRU queue of the places for blocks in host memory; host_holder : per content id its place, or -1
    pinned : places that preempted sequences hold
    """

    blocks: Any
    holder: Any
    slots: Any
    table: Any
    links: Any
    stacks: Any
    ready_s: Any
    firsts: Any
    ends: Any
    batch: Any
    end_s: Any
    stage_free_s: Any
    host: Any
    host_holder: Any
    pinned: Any
    count: Any
    clock: Any
    usage: Any
    trace: Any
    series: Any


class PolicyDemand(NamedTuple):
    """``state.Demand``, and for conversations: the turn that follows a request (or -1), whether it is one itself, what
    its client thinks and the way to the queue take [s], and how long clients wait [s]."""

    times_s: Any
    shape: Any
    list_start: Any
    block_ids: Any
    stage_end_s: Any
    follower: Any
    is_follower: Any
    think_s: Any
    delay_s: Any
    patience_s: float


class PolicyFate(NamedTuple):
    """``state.Fate``, when each request was sent, the order in which they came, and the turns still to be sent (a
    heap by time)."""

    times_s: Any
    notes: Any
    sent_s: Any
    log: Any
    heap_s: Any
    heap_request: Any
    numbers: Any


class PolicyLimits(NamedTuple):
    """Numbers of ``SchedulerSettings`` as compiled code takes them.

    depth : batches under way at once; batches : rows that hold them
    pipelined : a sequence's next token has to wait until the last one has returned
    """

    max_tokens: int
    max_seqs: int
    block_size: int
    blocks: int
    watermark_blocks: int
    depth: int
    batches: int
    verify_tokens: int
    host_blocks: int
    block_load_s: float
    prefix_caching: bool
    chunked: bool
    pipelined: bool
    prompts_first: bool
    full_length: bool
    retracts: bool
    longest_prefix_first: bool
    computed_on_arrival: bool
    routing: int


class Verification(NamedTuple):
    """Speculative steps: per position the chance that all up to it are accepted, drafting time by sequences, seed."""

    reach: Any
    draft_s: Any
    seed: int


def make_policy_limits(settings: SchedulerSettings, *, stages: int) -> PolicyLimits:
    """The compiled code's view of ``settings``."""
    depth = stages if stages > 1 else 2 if settings.async_scheduling else 1
    retracts = settings.policy in (Policy.PREFILL_FIRST, Policy.PREFILL_FIRST_MIXED)
    offload = settings.offload
    return PolicyLimits(
        max_tokens=settings.max_num_batched_tokens,
        max_seqs=settings.max_num_seqs,
        block_size=settings.block_size_tokens,
        blocks=settings.kv_blocks,
        watermark_blocks=settings.watermark_blocks,
        depth=depth,
        batches=depth + 1,
        verify_tokens=1 if settings.speculation is None else settings.speculation.verify_tokens,
        host_blocks=0 if offload is None else offload.blocks,
        block_load_s=0.0 if offload is None else float(offload.block_load_s),
        prefix_caching=settings.prefix_caching,
        chunked=settings.chunked_prefill,
        pipelined=stages > 1,
        prompts_first=settings.policy is Policy.PREFILL_FIRST,
        full_length=settings.policy is Policy.GUARANTEED_NO_EVICT,
        retracts=retracts,
        longest_prefix_first=settings.queue_order is QueueOrder.LONGEST_PREFIX,
        computed_on_arrival=settings.computed_on_arrival,
        routing=int(settings.routing),
    )


def make_verification(settings: SchedulerSettings) -> Verification:
    """Cumulated acceptance and drafting time; nothing is drafted without speculation."""
    chosen = settings.speculation
    draft_s = np.zeros(settings.max_num_seqs + 1)
    if chosen is None:
        return Verification(reach=np.zeros(0), draft_s=draft_s, seed=0)
    if chosen.draft_s:
        draft_s[:] = chosen.draft_s[: len(draft_s)]
    return Verification(reach=np.cumprod(np.array(chosen.acceptance)), draft_s=draft_s, seed=settings.seed)


def make_policy_state(
    settings: SchedulerSettings,
    requests: Requests,
    *,
    limits: PolicyLimits,
    stages: int,
    longest_tokens: int,
    trace_steps: int,
) -> PolicyState:
    """Empty replicas: every block in the free queue, every slot free, the clock asleep at infinity."""
    replicas, slots = settings.replicas, settings.max_num_seqs
    count = np.zeros((replicas, POLICY_COUNTS), dtype=np.int64)
    count[:, FREE_BLOCKS], count[:, FREE_SLOTS] = settings.kv_blocks, slots
    count[:, [WAIT_HEAD, WAIT_TAIL]] = -1
    stacks = np.zeros((replicas, 2, slots), dtype=np.int64)
    stacks[:, FREE_STACK] = np.arange(slots - 1, -1, -1)
    clock = np.zeros((replicas, CLOCKS))
    clock[:, BOUNDARY_S] = np.inf
    clock[:, RATIO] = settings.token_ratio.initial
    contents = max(requests.distinct_blocks, 1)
    empty = free_block_rows(settings.kv_blocks, columns=BLOCK_COLUMNS, content=BLOCK_CONTENT)
    table_width = -(-longest_tokens // settings.block_size_tokens) + 1
    return PolicyState(
        blocks=np.tile(empty, (replicas, 1, 1)),
        holder=np.full((replicas, contents), -1, dtype=np.int32),
        slots=np.zeros((replicas, slots, POLICY_SLOT_COLUMNS), dtype=np.int64),
        table=np.zeros((replicas, slots, table_width, 2), dtype=np.int32),
        links=empty_lists(replicas, slots + 1),
        stacks=stacks,
        ready_s=np.zeros((replicas, slots)),
        firsts=np.zeros((replicas, limits.batches, slots, 2), dtype=np.int64),
        ends=np.zeros((replicas, limits.batches, slots), dtype=np.int64),
        batch=np.zeros((replicas, limits.batches, BATCH_COLUMNS), dtype=np.int64),
        end_s=np.zeros((replicas, limits.batches)),
        stage_free_s=np.zeros((replicas, stages)),
        host=np.tile(free_block_rows(limits.host_blocks, columns=HOST_COLUMNS, content=HOST_CONTENT), (replicas, 1, 1)),
        host_holder=np.full((replicas, contents if limits.host_blocks else 1), -1, dtype=np.int32),
        pinned=np.zeros((replicas, max(limits.host_blocks, 1)), dtype=np.int64),
        count=count,
        clock=clock,
        usage=np.zeros((replicas, len(requests.stage_end_s) + 1, USAGES)),
        trace=np.zeros((replicas, trace_steps, TRACE_COLUMNS)),
        series=empty_series(replicas, last_s=float(requests.stage_end_s[-1])),
    )
