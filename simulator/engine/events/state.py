"""The arrays that the event loop works on. Everything of one replica is a row of an array, so that any number of
replicas runs through the same compiled code and memory stays flat in the number of steps.

Columns and places have names here; the modules of the loop read them as ``at.NAME``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simulator.traffic.requests import Outcome

# Outcomes as plain numbers, which compiled code compares faster than members of an enumeration.
WAITING, ADMITTED, FINISHED, TIMED_OUT = (
    int(outcome) for outcome in (Outcome.WAITING, Outcome.RUNNING, Outcome.FINISHED, Outcome.TIMED_OUT)
)

# Status of a slot (a running or preempted sequence). LOADING: its blocks are on the way from a tier.
FREE, PREFILL, DECODE, DONE, PREEMPTED, ABORTED, LOADING = range(7)

# Columns of linked lists, and of ``EngineState.blocks`` and ``places``, whose first two columns are such a list.
NEXT, PREV = 0, 1
BLOCK_REFERENCES, BLOCK_CONTENT, BLOCK_STAMP, BLOCK_COLUMNS = range(2, 6)
PLACE_CONTENT, PLACE_PINNED, PLACE_TIER, PLACE_COLUMNS = range(2, 6)

# Columns of ``Limits.tiers``; and of ``EngineState.tiers``: until when a link is taken, blocks that would come over it.
TIER_PLACES, TIER_LOAD_S, TIER_LATENCY_S, TIER_COLUMNS = range(4)
LINK_FREE_S, COMING_BLOCKS, TIER_STATES = range(3)
MOST_TIERS = 3
EMPTY = -2
"""Content of an empty place; -1 stands for content without an id."""

# Columns of ``EngineState.slots``: those of a sequence, and two stacks of slot numbers, not indexed by slot.
# COMPUTED and GENERATED of who decodes in an even batch are those of the decode step SINCE.
SLOT_REQUEST, SLOT_STATUS, SLOT_TARGET, SLOT_COMPUTED, SLOT_GENERATED, SLOT_SINCE, SLOT_BLOCKS = range(7)
SLOT_SAVED, SLOT_LAST_STEP, SLOT_PUBLISHED, SLOT_PINNED, SLOT_ANSWER = range(7, 12)
FREE_STACK, PREEMPTED_STACK, SLOT_COLUMNS = range(12, 15)
# Rows of ``EngineState.running``: slots in the order of admission; per slot the decode step that it sleeps up to.
ORDER, WAKE = 0, 1
NEVER = np.iinfo(np.int64).max
"""The step that wakes whoever does not decode."""
BLOCK, STAMP = 0, 1
ON_DEVICE, BELOW = 0, 1

# Places in ``Fate.numbers``.
HEAP_SIZE, DISPATCHED, NUMBERS = range(3)

# Places in ``EngineState.clock``: the next step boundary, until when a step runs;
# SGLang's new-token ratio; behind them until when each pipeline stage is taken.
NOW_S, BUSY_UNTIL_S, RATIO, CLOCKS = range(4)

# Places in ``EngineState.count``. Steps are numbered as they are LAUNCHED; those before RETURNED have ended, those
# before ACCOUNTED are in the sums; BATCH sequences with BATCH_CONTEXT cached tokens decode evenly, DECODE_STEPS have
# been formed of them; KV blocks from NEVER_USED on have not been handed out; FULL: all slots were taken at once.
FREE_BLOCKS, FREE_SLOTS, RUNNING, PREEMPTED_SLOTS, DECODING, CONTEXT, BATCH, BATCH_CONTEXT, DECODE_STEPS = range(9)
LAUNCHED, RETURNED, ACCOUNTED, WAIT_HEAD, WAIT_TAIL, OUTSTANDING, LIVE, STAGE, DEADLINE, STALLED = range(9, 19)
PREFILL_SEQUENCES, PREFILL_TOKENS, PREFILL_WORK2, PREFILL_DONE = range(19, 23)
PINNED, NEVER_USED, FULL, COUNTS = range(23, 27)

# Columns of ``EngineState.plan`` (what a step under way consists of) and of ``span_s`` (when it runs).
PLAN_FIRSTS, PLAN_ENDS, PLAN_DECODES, PLAN_PREFILLS, PLAN_TOKENS, PLAN_BLOCKS, PLAN_COLUMNS = range(7)
STEP_START_S, STEP_END_S, STEP_LENGTH_S, STEP_WORK_S, SPAN_COLUMNS = range(5)
# Columns of ``EngineState.marked``: requests whose prompt a step completes; slots that end with it.
FIRST_REQUEST, END_SLOT, MARKS = range(3)

# Columns of ``EngineState.usage``; from TIER_BLOCKS on the blocks that requests found in each tier.
BUSY_S, SEQUENCE_S, BLOCK_S, STEPS, PREEMPTIONS, TOKENS, WAITING_S, WORK_S, TIER_BLOCKS = range(9)
USAGES = TIER_BLOCKS + MOST_TIERS

# Columns of ``EngineState.trace``.
TRACE_START_S, TRACE_END_S, TRACE_DECODES, TRACE_PREFILLS, TRACE_TOKENS = range(5)
TRACE_USED, TRACE_FREE, TRACE_WAITING, TRACE_COLUMNS = range(5, 9)

# Columns of ``EngineState.series``, and how many buckets there are; the row behind them holds their width.
SERIES_SEQUENCE_S, SERIES_WAITING_S, SERIES_BLOCK_S, SERIES_BUSY_S, SERIES_TOKENS, SERIES_COLUMNS = range(6)
SERIES_WIDTH_S = 0
SERIES_BUCKETS = 512


class EngineState(NamedTuple):
    """State of a replica, or (with one leading axis more) of all replicas.

    A NamedTuple because compiled code takes it as it is; nothing outside the event loop touches it.
    Linked lists are circular, two columns each, with their heads behind the items.

    blocks : per KV block the BLOCK_* columns; its list is the LRU queue of unreferenced blocks (head: last row)
    holder : per content id the block that holds it ON_DEVICE, and the place that holds it BELOW, or -1
    slots : per slot (a running or preempted sequence) the SLOT_* columns
    table : per slot and place the block, and its stamp when the sequence was preempted
    running : who runs, by admission, and when each next needs more than a token (rows ORDER and WAKE)
    marked, plan, span_s : per step under way whose prompt it completes and who ends with it, what it consists of, and
        when it starts, ends and how long it takes
    places : LRU queues of the places for blocks in each tier, and a stack of those that preempted sequences hold;
        tiers : per tier the columns LINK_FREE_S and COMING_BLOCKS
    count, clock : single numbers; usage : sums per stage of the demand; trace : the first steps, as far as asked for
    series : sums per bucket of time
    """

    blocks: Any
    holder: Any
    slots: Any
    table: Any
    running: Any
    marked: Any
    plan: Any
    span_s: Any
    places: Any
    tiers: Any
    count: Any
    clock: Any
    usage: Any
    trace: Any
    series: Any


class RequestColumns(NamedTuple):
    """Requests in the order in which they reach the scheduler, and the lists of block ids.

    Columns that a run does not need are empty, because millions of requests are to fit into memory.

    ready_s : when those that are being brought in reach the queue, from the first of them on; NaN of later turns of
        conversations, which come when the answers before them have been read
    prompt_tokens, output_tokens : lengths; prefix : list of block ids, where prompts share any
    deadline_s : when clients give up, where that is not the same time after all of them were sent
    sent_s : when clients sent them, where all give up the same time after, or in conversations
    holders, places : those of ``EngineState`` of all replicas, which find each other's blocks in a shared tier
    think_s, delay_s, follower : in conversations what the client thinks and the way to the queue take, and the turn
        that follows (or -1)
    """

    ready_s: Any
    prompt_tokens: Any
    output_tokens: Any
    prefix: Any
    deadline_s: Any
    sent_s: Any
    think_s: Any
    delay_s: Any
    follower: Any
    list_start: Any
    block_ids: Any
    stage_end_s: Any
    holders: Any
    places: Any


class Fate(NamedTuple):
    """What became of each request; columns that a run does not need are empty.

    next_waiting : who stands behind it in its queue; cached_tokens : where prompts share blocks
    log, sent_s, heap_s, heap : in conversations the requests in the order of their coming, when each was sent, and a
        heap by time of the turns still to be sent
    loaded_s : with tiers below the device, when its blocks have come from there
    numbers : how many requests have come, and how many are in the heap; ``log`` and heap are not indexed by request
    """

    outcome: Any
    admitted_s: Any
    first_token_s: Any
    finish_s: Any
    preemptions: Any
    replica: Any
    next_waiting: Any
    cached_tokens: Any
    log: Any
    sent_s: Any
    heap_s: Any
    heap: Any
    loaded_s: Any
    numbers: Any


class Limits(NamedTuple):
    """Numbers of ``SchedulerSettings`` as compiled code takes them.

    max_seqs : sequences that have a slot at once
    ranks : replicas in a row that step together; groups, group : how many parts of the fleet are simulated one at a
        time, and which of them this is
    depth : steps under way at once; step_mask : the rows of a step are at its number & step_mask
    pipelined : a sequence's next token has to wait until the last one has returned
    uneven : sequences gain other than one token in each step that decodes, so that each is looked at in each
    counted_ahead : a step is added to the sums when it is formed, not when it starts
    tiers : below the device, a row of the TIER_* columns each; shared_tier : which of them all replicas read, or -1
    prompt_s : time to compute the first n blocks of a prompt, by n [s]; empty where every block that a tier holds is
        loaded
    reach : per position of a draft the chance that all up to it are accepted
    ratio_first, ratio_decay, ratio_least : SGLang's new-token ratio at first, its loss per step, and its least value
    """

    max_tokens: int
    max_seqs: int
    block_size: int
    ranks: int
    blocks: int
    watermark_blocks: int
    routing: int
    patience_s: float
    groups: int
    group: int
    conversations: bool
    depth: int
    step_mask: int
    prefix_caching: bool
    chunked: bool
    static: bool
    pipelined: bool
    uneven: bool
    counted_ahead: bool
    prompts_first: bool
    full_length: bool
    retracts: bool
    longest_prefix_first: bool
    computed_on_arrival: bool
    tiers: Any
    shared_tier: int
    prompt_s: Any
    verify_tokens: int
    reach: Any
    seed: int
    ratio_first: float
    ratio_decay: float
    ratio_least: float


class Scheduler(NamedTuple):
    """What a step is made of.

    route : (stack, demand, fate, limits, request) puts a request into the queue of a replica and returns which
    form : (state, demand, fate, limits, now_s) fills the step being formed; False when there is nothing to compute
    end_step : (state, demand, fate, limits, step, now_s) lets go who got its last token out of a step
    leave : (state, limits, slot) takes a sequence out whose client has given up
    skip : (state, demand, fate, limits, tables, until_s) may go to a later boundary, where Python is faster so
    """

    route: Any
    form: Any
    end_step: Any
    leave: Any
    skip: Any


class Coming(NamedTuple):
    """The steps that come next while nobody else comes, up to the first in which somebody ends.

    context : tokens that all sequences of a step attend to, by step
    extend : (steps) hands out the blocks that so many need, and returns those in use after each
    settle : (steps) brings what the scheduler holds of its sequences to the end of so many
    """

    context: Any
    extend: Callable[[int], Any]
    settle: Callable[[int], None]
