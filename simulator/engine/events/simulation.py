"""Simulate a demand on one deployment: prepare the arrays, run the compiled loop, hand back records.

Batch, queue and cache over time in bounded memory: a fixed number of buckets whose width doubles when a run outlasts
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.engine.events.policy_state import PolicyState
from simulator.engine.events.state import (
    ADMITTED_S,
    CACHED,
    FINISH_S,
    FIRST_TOKEN_S,
    FREE_BLOCKS,
    NOTES,
    OUTCOME,
    OUTPUT,
    PREEMPTED_TIMES,
    PROMPT,
    REPLICA,
    SERIES_BLOCK_S,
    SERIES_BUCKETS,
    SERIES_BUSY_S,
    SERIES_SEQUENCE_S,
    SERIES_TOKENS,
    SERIES_WAITING_S,
    SERIES_WIDTH_S,
    STALLED,
    STEPS_TAKEN,
    Demand,
    EngineState,
    Fate,
    make_limits,
    make_state,
    state_bytes,
)
from simulator.engine.settings import Batching, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.compiled import StepTables
from simulator.traffic.requests import NO_PREVIOUS, Floats, Outcome, RequestRecords, Requests, check_state_size


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
        merged[: SERIES_BUCKETS // 2] = rows[0::2] + rows[1::2]
        rows, width_s = merged, 2 * width_s
    return rows


def time_series(series: Floats, *, kv_blocks: int) -> TimeSeries:
    """Join the replicas' buckets ``series`` [replicas, buckets + 1, columns]. kv_blocks : of all replicas."""
    widths_s = series[:, SERIES_BUCKETS, SERIES_WIDTH_S]
    width_s = float(widths_s.max())
    rows = np.zeros_like(series[0, :SERIES_BUCKETS])
    for replica, own_s in zip(series, widths_s, strict=True):
        rows = rows + _at_width(replica[:SERIES_BUCKETS], float(own_s), width_s)
    used = np.flatnonzero(rows[:, SERIES_BUSY_S] > 0)
    rows = rows[: used[-1] + 1] if len(used) else rows[:0]
    return TimeSeries(
        width_s=width_s,
        start_s=np.arange(len(rows), dtype=np.float64) * width_s,
        batch=rows[:, SERIES_SEQUENCE_S] / width_s,
        waiting=rows[:, SERIES_WAITING_S] / width_s,
        kv_utilization=rows[:, SERIES_BLOCK_S] / (width_s * kv_blocks),
        busy=rows[:, SERIES_BUSY_S] / (width_s * len(series)),
        tokens_per_s=rows[:, SERIES_TOKENS] / width_s,
    )


SLICE_REQUESTS = 20_000
"""Requests between two reports of progress."""

Progress = Callable[[int, int], None]


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


def _queue_order(requests: Requests, settings: SchedulerSettings) -> tuple[Floats, np.ndarray]:
    ready_s = requests.arrival_s + settings.request_delay_s + settings.prompt_token_delay_s * requests.prompt_tokens
    return ready_s, np.argsort(ready_s, kind="stable")


def _demand(requests: Requests, settings: SchedulerSettings, *, ready_s: Floats, order: np.ndarray) -> Demand:
    patience_s = np.inf if settings.timeout_s is None else settings.timeout_s
    lengths = (requests.prompt_tokens, requests.output_tokens, requests.prefix_list)
    return Demand(
        times_s=np.stack([ready_s, np.minimum(requests.arrival_s + patience_s, requests.deadline_s)], axis=1)[order],
        shape=np.stack([column[order] for column in lengths], axis=1).astype(np.int32),
        list_start=requests.list_start,
        block_ids=requests.block_ids.astype(np.int32),
        stage_end_s=requests.stage_end_s,
    )


def _first_outcome(demand: Demand, settings: SchedulerSettings) -> np.ndarray:
    """WAITING, or why the engine will not take a request at all."""
    total = demand.shape[:, PROMPT].astype(np.int64) + demand.shape[:, OUTPUT]
    room = settings.kv_blocks - settings.watermark_blocks
    outcome = np.full(len(total), int(Outcome.WAITING), dtype=np.int64)
    outcome[-(-total // settings.block_size_tokens) > room] = int(Outcome.TOO_LARGE)
    too_long = total > settings.max_model_len
    if not settings.chunked_prefill:
        # A preempted sequence is recomputed with its output in one piece.
        too_long |= total > settings.max_num_batched_tokens
    outcome[too_long] = int(Outcome.TOO_LONG)
    return outcome


def _fate(outcome: np.ndarray) -> Fate:
    notes = np.full((len(outcome), NOTES), -1, dtype=np.int32)
    notes[:, OUTCOME] = outcome
    notes[:, [CACHED, PREEMPTED_TIMES]] = 0
    return Fate(times_s=np.full((len(outcome), 3), np.nan), notes=notes)


def _check_tables(stages: tuple[StepTables, ...], settings: SchedulerSettings) -> None:
    tables = stages[0]
    verified = 1 if settings.speculation is None else settings.speculation.verify_tokens
    for field, needed, have in (
        ("max_num_batched_tokens", settings.max_num_batched_tokens, tables.max_tokens),
        ("max_num_seqs", settings.max_num_seqs, tables.max_sequences),
        ("max_num_seqs x verify_tokens", settings.max_num_seqs * verified, len(tables.logits_s) - 1),
    ):
        if needed > have:
            raise RoofcastError(f"{needed}; the step tables go to {have}", field=f"engine.{field}")
    smallest_s = tables.step_s + sum(float(part.token_s[1:].min()) + float(part.logits_s.min()) for part in stages)
    if not smallest_s > 0:
        raise RoofcastError("a step takes no time, so that the clock would stand still", field="tables")


def _plain_numbers(tables: StepTables) -> StepTables:
    """One set of types, because compiled code is made for types."""
    return StepTables(
        token_s=np.ascontiguousarray(tables.token_s, dtype=np.float64),
        logits_s=np.ascontiguousarray(tables.logits_s, dtype=np.float64),
        decode_s=np.ascontiguousarray(tables.decode_s, dtype=np.float64),
        prefill_s=np.ascontiguousarray(tables.prefill_s, dtype=np.float64),
        decode_places=np.ascontiguousarray(tables.decode_places, dtype=np.float64),
        sequence_places=np.ascontiguousarray(tables.sequence_places, dtype=np.float64),
        token_places=np.ascontiguousarray(tables.token_places, dtype=np.float64),
        step_s=float(tables.step_s),
        sequence_s=float(tables.sequence_s),
        issue_s=float(tables.issue_s),
        context_nodes=int(tables.context_nodes),
    )


def _records(fate: Fate, order: np.ndarray, sent_s: Floats) -> RequestRecords:
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    notes, times_s = fate.notes[back].astype(np.int64), fate.times_s[back]
    return RequestRecords(
        outcome=notes[:, OUTCOME],
        admitted_s=times_s[:, ADMITTED_S],
        first_token_s=times_s[:, FIRST_TOKEN_S],
        finish_s=times_s[:, FINISH_S],
        cached_tokens=notes[:, CACHED],
        preemptions=notes[:, PREEMPTED_TIMES],
        replica=notes[:, REPLICA],
        sent_s=sent_s[back],
    )


def _run_slices(run: Callable[[int, int], None], count: int, progress: Progress | None) -> None:
    for first in range(0, count, SLICE_REQUESTS):
        last = min(first + SLICE_REQUESTS, count)
        run(first, last)
        if progress is not None:
            progress(last, count)


def _walks(stages: tuple[StepTables, ...], requests: Requests, settings: SchedulerSettings) -> bool:
    """Whether the demand or the deployment needs the loop that walks over its sequences."""
    conversations = bool((requests.previous != NO_PREVIOUS).any())
    walks = settings.walks or len(stages) > 1 or conversations
    if walks and settings.batching is Batching.STATIC:
        raise RoofcastError(
            "static batching serves neither pipelines of several steps nor conversations",
            field="engine.scheduler",
            code="unsupported_option",
            hint="choose an engine with continuous batching",
        )
    return walks


def _simulate(
    stages: tuple[StepTables, ...],
    *,
    requests: Requests,
    settings: SchedulerSettings,
    trace_steps: int,
    progress: Progress | None,
) -> tuple[EngineState | PolicyState, RequestRecords]:
    """Run the loop that these settings need; the final state, and what became of each request."""
    ready_s, order = _queue_order(requests, settings)
    demand = _demand(requests, settings, ready_s=ready_s, order=order)
    fate = _fate(_first_outcome(demand, settings))
    # Only requests that will run shape the arrays.
    served = fate.notes[:, OUTCOME] == int(Outcome.WAITING)
    longest = int((demand.shape[:, PROMPT] + demand.shape[:, OUTPUT])[served].max(initial=1))
    check_state_size(
        state_bytes(settings, distinct_blocks=requests.distinct_blocks, longest_tokens=longest),
        replicas=settings.replicas,
    )
    # The compiler takes half a second to import, which a planner that never gets here need not pay.
    if _walks(stages, requests, settings):
        from simulator.engine.events.policy_loop import run_with_policy

        walked, sent_s = run_with_policy(
            stages,
            requests=requests,
            settings=settings,
            demand=demand,
            fate=fate,
            order=order,
            longest_tokens=longest,
            trace_steps=trace_steps,
            run_slices=lambda run: _run_slices(run, len(requests), progress),
        )
        return walked, _records(fate, order, sent_s)
    from simulator.engine.events.loop import run_requests

    limits = make_limits(settings, longest_output_tokens=int(demand.shape[:, OUTPUT][served].max(initial=1)))
    state = make_state(settings, requests, limits=limits, longest_tokens=longest, trace_steps=trace_steps)
    _run_slices(
        lambda first, last: run_requests(state, demand, fate, limits, stages[0], first, last),
        len(requests),
        progress,
    )
    return state, _records(fate, order, requests.arrival_s[order])


def simulate_requests(
    tables: StepTables | tuple[StepTables, ...],
    *,
    requests: Requests,
    settings: SchedulerSettings,
    trace_steps: int = 0,
    progress: Progress | None = None,
) -> SimulationRun:
    """Serve ``requests`` step by step and return when each of them got what.

    tables : of the whole step, or one per pipeline stage; trace_steps : steps of each replica to keep in ``trace``
    progress : called with (requests brought in, of how many)
    Deterministic: the same arguments give the same bytes. Memory grows with requests, not with steps. The first call
    on a machine compiles the loop (its speed is printed by benchmarks/serve_speed.py).
    """
    given = (tables,) if isinstance(tables, StepTables) else tables
    _check_tables(given, settings)
    state, records = _simulate(
        tuple(_plain_numbers(part) for part in given),
        requests=requests,
        settings=settings,
        trace_steps=trace_steps,
        progress=progress,
    )
    if state.count[:, STALLED].any():
        raise RoofcastError("requests are left that can never run", field="engine", code="stalled")
    return SimulationRun(
        records=records,
        usage=state.usage.sum(axis=0),
        trace=tuple(state.trace[replica, : state.count[replica, STEPS_TAKEN]] for replica in range(settings.replicas)),
        steps=int(state.count[:, STEPS_TAKEN].sum()),
        free_blocks=int(state.count[:, FREE_BLOCKS].sum()),
        series=time_series(state.series, kv_blocks=settings.replicas * settings.kv_blocks),
    )
