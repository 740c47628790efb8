"""One step: what it is made of, how long it takes, and the sums over steps that a run leaves.

In Python, steps that only decode go by in runs: between two in which anybody comes, ends or begins to answer, all at
once. Every sum is added up in the order of the steps, so that the bytes are those of machine code, which goes through
them one by one.

Reference: [VllmTeam2025]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, inlined
from simulator.phases.compiled import StepTables, decode_seconds, device_seconds, host_seconds


@inlined
def begin_step(state: Any, limits: Any) -> int:
    """Empty the step being formed. Returns its number."""
    count = state.count
    plan = state.plan[count[at.LAUNCHED] & limits.step_mask]
    plan[at.PLAN_FIRSTS] = plan[at.PLAN_ENDS] = 0
    count[at.PREFILL_SEQUENCES] = count[at.PREFILL_TOKENS] = count[at.PREFILL_WORK2] = count[at.PREFILL_DONE] = 0
    count[at.DECODING] = count[at.CONTEXT] = 0
    return int(count[at.LAUNCHED])


@compiled
def add_chunk(state: Any, slot: int, chunk: int) -> None:
    """Compute the next ``chunk`` prompt tokens of ``slot`` in the step being formed."""
    done = state.slots[slot, at.SLOT_COMPUTED]
    state.slots[slot, at.SLOT_COMPUTED] = done + chunk
    state.count[at.PREFILL_SEQUENCES] += 1
    state.count[at.PREFILL_TOKENS] += chunk
    state.count[at.PREFILL_WORK2] += chunk * (2 * done + chunk)


@compiled
def add_first_token(state: Any, limits: Any, slot: int) -> None:
    """Note that the step being formed completes the prompt of ``slot`` and yields a token."""
    row = state.count[at.LAUNCHED] & limits.step_mask
    place = state.plan[row, at.PLAN_FIRSTS]
    state.marked[row, place, at.FIRST_REQUEST] = state.slots[slot, at.SLOT_REQUEST]
    state.plan[row, at.PLAN_FIRSTS] += 1
    state.count[at.PREFILL_DONE] += 1


@inlined
def _stage_tables(tables: Any, stage: int) -> Any:
    """The tables of one pipeline stage out of those of all (arrays with one leading axis more)."""
    return StepTables(
        tables.token_s[stage],
        tables.shared_s,
        tables.logits_s[stage],
        tables.decode_s[stage],
        tables.prefill_s[stage],
        tables.decode_places,
        tables.sequence_places,
        tables.token_places,
        tables.step_s,
        tables.sequence_s,
        tables.prompt_s,
        tables.draft_s,
        tables.draft_token_s,
        tables.issue_s[stage],
        tables.context_nodes,
    )


@inlined
def launch(state: Any, limits: Any, tables: Any, now_s: float) -> None:
    """Send the step that was formed through the pipeline stages."""
    count, stage_free_s = state.count, state.clock[at.CLOCKS :]
    prefills, decodes = count[at.PREFILL_SEQUENCES], count[at.DECODING]
    host_s = host_seconds(tables, prefills, count[at.PREFILL_TOKENS], decodes)
    start_s = end_s = max(now_s, stage_free_s[0])
    length_s = work_s = 0.0
    for stage in range(len(stage_free_s)):
        begin_s = max(end_s, stage_free_s[stage])
        device_s = device_seconds(
            _stage_tables(tables, stage),
            prefills,
            count[at.PREFILL_TOKENS],
            count[at.PREFILL_WORK2],
            count[at.PREFILL_DONE],
            decodes,
            limits.verify_tokens,
            count[at.CONTEXT],
        )
        # Every stage pays the host's time between steps, a step pays it once.
        stage_free_s[stage] = begin_s + (host_s + device_s)
        end_s = stage_free_s[stage] if stage == 0 else begin_s + device_s
        length_s = host_s + device_s if stage == 0 else end_s - start_s
        work_s = host_s + device_s if stage == 0 else work_s + device_s
    row = count[at.LAUNCHED] & limits.step_mask
    span_s, plan = state.span_s[row], state.plan[row]
    span_s[at.STEP_START_S] = start_s
    span_s[at.STEP_END_S] = end_s
    span_s[at.STEP_LENGTH_S] = length_s
    span_s[at.STEP_WORK_S] = work_s
    plan[at.PLAN_DECODES] = decodes
    plan[at.PLAN_PREFILLS] = prefills
    plan[at.PLAN_TOKENS] = count[at.PREFILL_TOKENS] + limits.verify_tokens * decodes
    plan[at.PLAN_BLOCKS] = limits.blocks - count[at.FREE_BLOCKS]
    count[at.LAUNCHED] += 1


@compiled
def keep_pace(stack: Any, limits: Any, tables: Any, first: int) -> None:
    """Let ranks end the step that all have launched together: the slowest one's own time, and at their mean tokens what
    they share."""
    row, last = (stack.count[first, at.LAUNCHED] - 1) & limits.step_mask, first + limits.ranks
    own_s, tokens = -np.inf, 0
    for rank in range(first, last):
        mine = stack.plan[rank, row, at.PLAN_TOKENS]
        own_s = max(own_s, stack.span_s[rank, row, at.STEP_LENGTH_S] - tables.shared_s[mine])
        tokens += mine
    length_s = own_s + tables.shared_s[-(-tokens // limits.ranks)]
    for rank in range(first, last):
        span_s = stack.span_s[rank, row]
        span_s[at.STEP_LENGTH_S] = length_s
        span_s[at.STEP_END_S] = stack.clock[rank, at.CLOCKS] = span_s[at.STEP_START_S] + length_s


@compiled
def _double_width(series: Any) -> None:
    """Merge neighbouring buckets, so that twice the time fits."""
    half = at.SERIES_BUCKETS // 2
    for bucket in range(at.SERIES_BUCKETS):
        for column in range(series.shape[1]):
            merged = series[2 * bucket, column] + series[2 * bucket + 1, column] if bucket < half else 0.0
            series[bucket, column] = merged
    series[at.SERIES_BUCKETS, at.SERIES_WIDTH_S] *= 2.0


@compiled
def _add_to_series(
    series: Any, start_s: float, end_s: float, busy_s: float, sequences: int, waiting: int, blocks: int, tokens: int
) -> None:
    """Spread a step over the buckets of time that it touches.

    busy_s : how much of it, up to its end, no earlier step covers (less than the whole in a pipeline)
    """
    while end_s > series[at.SERIES_BUCKETS, at.SERIES_WIDTH_S] * at.SERIES_BUCKETS:
        _double_width(series)
    width_s = series[at.SERIES_BUCKETS, at.SERIES_WIDTH_S]
    bucket = int(start_s / width_s)
    at_s = start_s
    while at_s < end_s and bucket < at.SERIES_BUCKETS:
        until_s = min(end_s, (bucket + 1) * width_s)
        part_s = until_s - at_s
        if part_s > 0:
            row = series[bucket]
            alone_s = max(0.0, min(part_s, until_s - (end_s - busy_s)))
            row[at.SERIES_SEQUENCE_S] += part_s * sequences
            row[at.SERIES_TOKENS] += part_s / (end_s - start_s) * tokens
            row[at.SERIES_BUSY_S] += alone_s
            row[at.SERIES_BLOCK_S] += alone_s * blocks
            row[at.SERIES_WAITING_S] += alone_s * waiting
            at_s = until_s
        bucket += 1


@inlined
def account(state: Any, demand: Any, limits: Any) -> None:
    """Add the oldest step that is not in them to the sums of its stage of the demand, the series and the trace."""
    count, number = state.count, state.count[at.ACCOUNTED]
    plan, span_s = state.plan[number & limits.step_mask], state.span_s[number & limits.step_mask]
    start_s, end_s = span_s[at.STEP_START_S], span_s[at.STEP_END_S]
    # Overlapping steps are busy time once.
    covered = start_s < state.clock[at.BUSY_UNTIL_S]
    busy_s = end_s - state.clock[at.BUSY_UNTIL_S] if covered else span_s[at.STEP_LENGTH_S]
    state.clock[at.BUSY_UNTIL_S] = end_s
    sequences = plan[at.PLAN_DECODES] + plan[at.PLAN_PREFILLS]
    tokens, blocks = plan[at.PLAN_TOKENS], plan[at.PLAN_BLOCKS]
    waiting = max(count[at.OUTSTANDING] - count[at.RUNNING], 0)
    while count[at.STAGE] < len(demand.stage_end_s) and start_s >= demand.stage_end_s[count[at.STAGE]]:
        count[at.STAGE] += 1
    usage = state.usage[count[at.STAGE]]
    usage[at.BUSY_S] += busy_s
    usage[at.SEQUENCE_S] += span_s[at.STEP_LENGTH_S] * sequences
    usage[at.BLOCK_S] += busy_s * blocks
    usage[at.WAITING_S] += busy_s * waiting
    usage[at.WORK_S] += span_s[at.STEP_WORK_S]
    usage[at.STEPS] += 1
    usage[at.TOKENS] += tokens
    _add_to_series(state.series, start_s, end_s, busy_s, sequences, waiting, blocks, tokens)
    if number < len(state.trace):
        row = state.trace[number]
        row[at.TRACE_START_S] = start_s
        row[at.TRACE_END_S] = end_s
        row[at.TRACE_DECODES] = plan[at.PLAN_DECODES]
        row[at.TRACE_PREFILLS] = plan[at.PLAN_PREFILLS]
        row[at.TRACE_TOKENS] = tokens
        row[at.TRACE_USED] = blocks
        row[at.TRACE_FREE] = count[at.FREE_BLOCKS]
        row[at.TRACE_WAITING] = waiting
    count[at.ACCOUNTED] = number + 1


FEWEST_STEPS, MOST_STEPS = 2, 1024
"""A run of fewer is no faster than its steps; one of more is made in parts."""
STEPS = np.arange(MOST_STEPS + 1)


@compiled
def stay(state: Any, demand: Any, fate: Any, limits: Any, tables: Any, until_s: float) -> None:
    """Skip nothing."""


def _decodes_alone(state: Any, demand: Any, limits: Any) -> bool:
    """Whether the next step consists of those who decode in the last one, and nobody's patience ends."""
    count = state.count
    launched, returned = count[at.LAUNCHED], count[at.RETURNED]
    counted = launched if limits.counted_ahead else returned + 1
    if launched - returned != limits.depth or count[at.ACCOUNTED] != counted:
        return False
    if limits.static or limits.conversations or limits.pipelined or limits.ranks > 1 or len(limits.tiers) > 0:
        return False
    waits = count[at.WAIT_HEAD] >= 0 and count[at.RUNNING] < limits.max_seqs
    if waits or count[at.PREEMPTED_SLOTS] > 0 or count[at.ACCOUNTED] < len(state.trace):
        return False
    marked = state.plan[:, [at.PLAN_FIRSTS, at.PLAN_ENDS]].any(axis=1)
    return not any(marked[step & limits.step_mask] for step in range(returned, launched))


def _lengths_s(state: Any, limits: Any, tables: Any, context: Any) -> Any:
    """Of the steps that come next [s]."""
    decodes, stage = state.count[at.DECODING], _stage_tables(tables, 0)
    tokens = decodes * limits.verify_tokens
    device_s = stage.token_s[tokens] + stage.logits_s[tokens] + decode_seconds(stage, decodes, context)
    return host_seconds(tables, 0, 0, decodes) + np.maximum(device_s, stage.issue_s)


def _added(row: Any, columns: dict[int, Any], steps: int) -> None:
    """Add to columns of ``row`` step by step."""
    sums = np.zeros((steps + 1, len(row)))
    sums[0] = row
    for column, values in columns.items():
        sums[1:, column] = values
    row[:] = np.add.accumulate(sums)[-1]


def _account_all(state: Any, start_s: Any, end_s: Any, length_s: Any, sequences: Any, tokens: Any, blocks: Any) -> None:
    """``account`` for steps one after the other that lie in one stage of the demand."""
    count, series, steps = state.count, state.series, len(start_s)
    waiting = max(int(count[at.OUTSTANDING] - count[at.RUNNING]), 0)
    columns = {
        at.BUSY_S: length_s,
        at.SEQUENCE_S: length_s * sequences,
        at.BLOCK_S: length_s * blocks,
        at.WAITING_S: length_s * waiting,
        at.WORK_S: length_s,
        at.STEPS: 1.0,
        at.TOKENS: tokens,
    }
    _added(state.usage[count[at.STAGE]], columns, steps)
    width_s = series[at.SERIES_BUCKETS, at.SERIES_WIDTH_S]
    bucket = (start_s / width_s).astype(np.int64)
    # A step that crosses the border of a bucket, or widens them, is added on its own.
    alone = (end_s > (bucket + 1) * width_s) | (bucket >= at.SERIES_BUCKETS)
    cuts = ((bucket[1:] != bucket[:-1]) | alone[1:] | alone[:-1]).nonzero()[0] + 1
    part_s = end_s - start_s
    busy_s = np.maximum(0.0, np.minimum(part_s, end_s - (end_s - length_s)))
    for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), steps], strict=True):
        one = slice(first, last)
        if alone[first] or series[at.SERIES_BUCKETS, at.SERIES_WIDTH_S] != width_s:
            for step in range(first, last):
                values = (start_s[step], end_s[step], length_s[step], sequences[step], waiting, blocks[step])
                _add_to_series(series, *values, tokens[step])
            continue
        columns = {
            at.SERIES_SEQUENCE_S: part_s[one] * sequences[one],
            at.SERIES_TOKENS: tokens[one],
            at.SERIES_BUSY_S: busy_s[one],
            at.SERIES_BLOCK_S: busy_s[one] * blocks[one],
            at.SERIES_WAITING_S: busy_s[one] * waiting,
        }
        _added(series[bucket[first]], columns, last - first)


@compiled
def deadline_s(demand: Any, limits: Any, request: int) -> float:
    """When the client of a request gives up [s]."""
    if len(demand.deadline_s) > 0:
        return float(demand.deadline_s[request])
    return float(demand.sent_s[request] + limits.patience_s)


def _patient_until_s(demand: Any, fate: Any, limits: Any, place: int) -> float:
    """Until when no client gives up whose request has come, from the one at ``place`` on [s]."""
    pending = (fate.outcome[place : fate.numbers[at.DISPATCHED]] <= at.ADMITTED).nonzero()[0]
    if len(pending) == 0 or (limits.patience_s == np.inf and len(demand.deadline_s) == 0):
        return float(np.inf)
    return float(deadline_s(demand, limits, place + int(pending[0])))


def run_decodes(
    state: Any,
    demand: Any,
    fate: Any,
    limits: Any,
    tables: Any,
    until_s: float,
    coming_of: Callable[[Any, Any, Any, int], at.Coming | None],
) -> None:
    """Go through the steps before ``until_s`` that only decode, if they are worth it, up to a boundary between two."""
    count, clock = state.count, state.clock
    if clock[at.NOW_S] >= until_s or not _decodes_alone(state, demand, limits):
        return
    until_s = min(until_s, _patient_until_s(demand, fate, limits, int(count[at.DEADLINE])))
    returned, launched = int(count[at.RETURNED]), int(count[at.LAUNCHED])
    under_way = [step & limits.step_mask for step in range(returned, launched)]
    # About as many as there is time for; what is left makes another run.
    last_s = float(state.span_s[under_way[-1], at.STEP_LENGTH_S])
    most = int(min(MOST_STEPS, (until_s - clock[at.NOW_S]) / last_s + limits.depth + 1))
    coming = coming_of(state, demand, limits, most) if most >= FEWEST_STEPS else None
    if coming is None or len(coming.context) < FEWEST_STEPS:
        return
    length_s, decodes = _lengths_s(state, limits, tables, coming.context), int(count[at.DECODING])
    chain_s = np.add.accumulate(np.append(clock[at.CLOCKS], length_s))
    now_s = np.append(state.span_s[under_way[:-1], at.STEP_END_S], chain_s)
    counted = [step & limits.step_mask for step in range(int(count[at.ACCOUNTED]), launched)]
    start_s = np.append(state.span_s[counted, at.STEP_START_S], chain_s[:-1])
    steps = min(len(coming.context), int(now_s.searchsorted(until_s)))
    if count[at.STAGE] < len(demand.stage_end_s):
        steps = min(steps, int(start_s.searchsorted(demand.stage_end_s[count[at.STAGE]])))
    if steps < FEWEST_STEPS:
        return
    plan, span_s, verify = state.plan[counted], state.span_s[counted], limits.verify_tokens
    blocks = np.append(plan[:, at.PLAN_BLOCKS], coming.extend(steps))
    end_s = np.append(span_s[:, at.STEP_END_S], chain_s[1:])
    length_s = np.append(span_s[:, at.STEP_LENGTH_S], length_s)
    sequences = np.append(plan[:, at.PLAN_DECODES], np.full(steps, decodes))
    tokens = np.append(plan[:, at.PLAN_TOKENS], np.full(steps, decodes * verify))
    done = slice(0, steps)
    _account_all(state, start_s[done], end_s[done], length_s[done], sequences[done], tokens[done], blocks[done])
    for place in range(max(0, steps - limits.step_mask - 1), steps):
        row, place_of = (launched + place) & limits.step_mask, place + len(counted)
        state.span_s[row] = start_s[place_of], end_s[place_of], length_s[place_of], length_s[place_of]
        state.plan[row] = 0
        state.plan[row, [at.PLAN_DECODES, at.PLAN_TOKENS]] = decodes, decodes * verify
        state.plan[row, at.PLAN_BLOCKS] = blocks[place_of]
    count[[at.LAUNCHED, at.RETURNED, at.ACCOUNTED]] += steps
    count[[at.PREFILL_SEQUENCES, at.PREFILL_TOKENS, at.PREFILL_WORK2, at.PREFILL_DONE]] = 0
    clock[at.NOW_S], clock[at.CLOCKS] = now_s[steps], chain_s[steps]
    clock[at.BUSY_UNTIL_S] = end_s[steps - 1]
    coming.settle(steps)
