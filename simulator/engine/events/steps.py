"""One step: what it is made of, how long it takes, and the sums over steps that a run leaves.

Reference: [VllmTeam2025]
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, inlined
from simulator.phases.compiled import StepTables, device_seconds


@inlined
def begin_step(state: Any, limits: Any) -> int:
    """Empty the step being formed. Returns its number."""
    count = state.count
    plan = state.plan[count[at.LAUNCHED] & limits.step_mask]
    plan[at.PLAN_FIRSTS] = plan[at.PLAN_ENDS] = 0
    count[at.PREFILL_SEQUENCES] = count[at.PREFILL_TOKENS] = count[at.PREFILL_WORK2] = count[at.PREFILL_DONE] = 0
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
    state.marked[row, place, at.FIRST_SLOT] = slot
    state.plan[row, at.PLAN_FIRSTS] += 1
    state.count[at.PREFILL_DONE] += 1


@inlined
def _stage_tables(tables: Any, stage: int) -> Any:
    """The tables of one pipeline stage out of those of all (arrays with one leading axis more)."""
    return StepTables(
        tables.token_s[stage],
        tables.logits_s[stage],
        tables.decode_s[stage],
        tables.prefill_s[stage],
        tables.decode_places,
        tables.sequence_places,
        tables.token_places,
        tables.step_s,
        tables.sequence_s,
        tables.prompt_s,
        tables.issue_s[stage],
        tables.context_nodes,
    )


@inlined
def launch(state: Any, limits: Any, tables: Any, now_s: float) -> None:
    """Send the step that was formed through the pipeline stages."""
    count, stage_free_s = state.count, state.clock[at.CLOCKS :]
    prefills, decodes = count[at.PREFILL_SEQUENCES], count[at.DECODING]
    host_s = tables.step_s + tables.sequence_s * (prefills + decodes) + limits.drafts[at.DRAFT_S, decodes]
    host_s += tables.prompt_s * prefills
    start_s = end_s = max(now_s, stage_free_s[0])
    length_s = 0.0
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
    row = count[at.LAUNCHED] & limits.step_mask
    span_s, plan = state.span_s[row], state.plan[row]
    span_s[at.STEP_START_S] = start_s
    span_s[at.STEP_END_S] = end_s
    span_s[at.STEP_LENGTH_S] = length_s
    plan[at.PLAN_DECODES] = decodes
    plan[at.PLAN_PREFILLS] = prefills
    plan[at.PLAN_TOKENS] = count[at.PREFILL_TOKENS] + limits.verify_tokens * decodes
    plan[at.PLAN_BLOCKS] = limits.blocks - count[at.FREE_BLOCKS]
    count[at.LAUNCHED] += 1


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
