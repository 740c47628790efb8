"""Simulate a demand on one deployment: prepare the arrays, run the compiled loop, hand back records."""

from __future__ import annotations

from collections.abc import Callable

from simulator.engine.events import state as at
from simulator.engine.events.arrays import (
    SimulationRun,
    make_demand,
    make_fate,
    make_limits,
    make_state,
    queue_order,
    records_of,
    stacked_tables,
    state_bytes,
    time_series,
)
from simulator.engine.events.state import EngineState
from simulator.engine.settings import Batching, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.compiled import StepTables
from simulator.traffic.requests import NO_PREVIOUS, RequestRecords, Requests, check_state_size

SLICE_REQUESTS = 20_000
"""Requests between two reports of progress."""

Progress = Callable[[int, int], None]


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
    return state, records_of(fate, order)


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
