"""Simulate a demand on one deployment: prepare the arrays, run the compiled loop, hand back records.

Batch, queue and cache over time in bounded memory: a fixed number of buckets whose width doubles when a run outlasts
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.arrays import (
    make_demand,
    make_fate,
    make_limits,
    make_state,
    queue_order,
    stacked_tables,
    state_bytes,
)
from simulator.engine.events.state import EngineState, Fate
from simulator.engine.settings import Batching, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.compiled import StepTables
from simulator.traffic.requests import NO_PREVIOUS, Floats, RequestRecords, Requests, check_state_size


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


def _records(fate: Fate, order: np.ndarray) -> RequestRecords:
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
) -> tuple[EngineState, RequestRecords]:
    """Run the loop with the scheduler that these settings need; the final state, and what became of each request."""
    order = queue_order(requests, settings)
    demand = make_demand(requests, settings, order=order)
    fate = make_fate(demand, settings, arrival_s=requests.arrival_s[order])
    # Only requests that will run shape the arrays.
    lengths = demand.shape[fate.notes[:, at.OUTCOME] == at.WAITING]
    longest = int((lengths[:, at.PROMPT] + lengths[:, at.OUTPUT]).max(initial=1))
    check_state_size(
        state_bytes(settings, distinct_blocks=requests.distinct_blocks, longest_tokens=longest),
        replicas=settings.replicas,
    )
    walks = _walks(stages, requests, settings)
    limits = make_limits(
        settings,
        stages=len(stages),
        longest_output_tokens=int(lengths[:, at.OUTPUT].max(initial=1)),
        conversations=bool((requests.previous != NO_PREVIOUS).any()),
        walks=walks,
    )
    state = make_state(
        limits,
        requests,
        replicas=settings.replicas,
        stages=len(stages),
        longest_tokens=longest,
        trace_steps=trace_steps,
    )
    tables = stacked_tables(stages)
    # A planner that never gets here need not load the loop.
    from simulator.engine.events import scheduler_lists, scheduler_walk
    from simulator.engine.events.loop import loop_of

    loop = loop_of(scheduler_walk.SCHEDULER if walks else scheduler_lists.SCHEDULER)
    for first in range(0, len(requests), SLICE_REQUESTS):
        last = min(first + SLICE_REQUESTS, len(requests))
        loop.run(state, demand, fate, limits, tables, first, last, requests=last - first)
        if progress is not None:
            progress(last, len(requests))
    return state, _records(fate, order)


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
        given,
        requests=requests,
        settings=settings,
        trace_steps=trace_steps,
        progress=progress,
    )
    if state.count[:, at.STALLED].any():
        raise RoofcastError("requests are left that can never run", field="engine", code="stalled")
    return SimulationRun(
        records=records,
        usage=state.usage.sum(axis=0),
        trace=tuple(state.trace[replica, : state.count[replica, at.ACCOUNTED]] for replica in range(settings.replicas)),
        steps=int(state.count[:, at.ACCOUNTED].sum()),
        free_blocks=int(state.count[:, at.FREE_BLOCKS].sum()),
        series=time_series(state.series, kv_blocks=settings.replicas * settings.kv_blocks),
    )
