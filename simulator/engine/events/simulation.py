"""Simulate a demand on one deployment: prepare the arrays, run the compiled loop, hand back records."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.engine.events import state as at
from simulator.engine.events.arrays import (
    ReplicaSums,
    SimulationRun,
    StateSize,
    make_limits,
    make_state,
    replica_sums,
    stacked_tables,
    state_size,
    time_series,
)
from simulator.engine.events.columns import (
    fate_of_group,
    has_turns,
    make_demand,
    make_fate,
    queue_order,
    queue_rows,
    ready_s,
    records_of,
    refusals,
)
from simulator.engine.events.state import Fate, Limits
from simulator.engine.settings import Batching, Routing, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.compiled import StepTables
from simulator.records import dataclass
from simulator.traffic.requests import (
    LARGEST_STATE_BYTES,
    Ints,
    Requests,
    check_replicas,
    check_state_size,
    check_steps,
)

if TYPE_CHECKING:
    from simulator.engine.events.compilation import Loop

SLICE_REQUESTS = 20_000
"""Requests between two reports of progress."""

REQUEST_TOKENS = 200
"""Answer tokens that take Python as long as a usual request: 200 answers of 40,000 are many such requests."""

Progress = Callable[[int, int], None]


def _smallest_s(stages: tuple[StepTables, ...]) -> float:
    """What any step takes at least [s]."""
    return stages[0].step_s + sum(float(part.token_s[1:].min()) + float(part.logits_s.min()) for part in stages)


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
    if not _smallest_s(stages) > 0:
        raise RoofcastError("a step takes no time, so that the clock would stand still", field="tables")


def _threads() -> int:
    """Replicas that are simulated side by side."""
    return os.cpu_count() or 1


def _check_static(stages: tuple[StepTables, ...], settings: SchedulerSettings, *, conversations: bool) -> None:
    if settings.batching is Batching.STATIC and (settings.counted_ahead or len(stages) > 1 or conversations):
        raise RoofcastError(
            "static batching serves neither pipelines of several steps nor conversations",
            field="engine.scheduler",
            code="unsupported_option",
            hint="choose an engine with continuous batching",
        )


def _most_slots(settings: SchedulerSettings, requests: Requests) -> int:
    """Sequences that a replica can ever have at once. In turn, or to whom has fewest, nobody gets more than an even
    share; but a slot outlasts its request in a static batch and where clients give up."""
    count = len(requests)
    gives_up = settings.timeout_s is not None or bool(np.isfinite(requests.deadline_s).any())
    outlast = settings.batching is Batching.STATIC or gives_up
    even = settings.routing is Routing.ROUND_ROBIN or (settings.routing is Routing.LEAST_OUTSTANDING and not outlast)
    return min(settings.max_num_seqs, -(-count // settings.replicas) if even else count)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A demand before replicas, and where its fate is entered.

    groups : of replicas that are simulated one after another or side by side, because they never meet; most_slots : of
    a replica, where memory has room for fewer of all
    """

    stages: tuple[StepTables, ...]
    requests: Requests
    settings: SchedulerSettings
    order: Ints | None
    fate: Fate
    limits: Limits
    size: StateSize
    longest_tokens: int
    trace_steps: int
    most_slots: int

    def serve(
        self, loop: Callable[..., None], tables: StepTables, group: int, *, progress: Progress | None
    ) -> list[ReplicaSums]:
        """Let the replicas of one group serve what comes to them."""
        requests, settings, groups = self.requests, self.settings, self.limits.groups
        replicas = settings.replicas // groups
        limits = self.limits._replace(group=group)
        coming = queue_rows(self.order, group=group, groups=groups)
        demand = make_demand(requests, settings, rows=coming)
        fate = fate_of_group(self.fate, demand, settings, group=group, groups=groups)
        state = make_state(
            limits,
            requests,
            replicas=replicas,
            stages=len(self.stages),
            longest_tokens=self.longest_tokens,
            trace_steps=self.trace_steps,
        )
        count = len(fate.outcome)
        for first in range(0, count, SLICE_REQUESTS):
            rows = slice(first, min(first + SLICE_REQUESTS, count))
            coming = queue_rows(self.order, group=group, groups=groups, rows=rows)
            times_s = ready_s(requests.part(coming), settings)
            now = demand._replace(ready_s=times_s, holders=state.holder, places=state.places)
            loop(state, now, fate, limits, tables, rows.start, rows.stop)
            if limits.max_seqs < self.most_slots and state.count[:, at.FULL].any():
                check_state_size(self.size.of(self.most_slots), replicas=replicas)
            if progress is not None:
                progress(rows.stop, len(requests))
        if groups > 1:
            fate.replica[fate.replica >= 0] += group * settings.ranks
        return replica_sums(state)

    def serve_all(self, loop: Callable[..., None], *, threads: int, progress: Progress | None) -> list[ReplicaSums]:
        """Every group that has something to do; the loop as machine code does not hold the interpreter's lock."""
        tables, groups, total = stacked_tables(self.stages), self.limits.groups, len(self.requests)
        if groups == 1:
            return self.serve(loop, tables, 0, progress=progress)
        # What it imports, a run in one group does without.
        from concurrent.futures import ThreadPoolExecutor

        found, busy = [], min(groups, total)
        with ThreadPoolExecutor(max_workers=min(busy, threads)) as pool:
            parts = pool.map(lambda group: self.serve(loop, tables, group, progress=None), range(busy))
            for done, part in enumerate(parts, start=1):
                found += part
                if progress is not None:
                    progress(total * done // busy, total)
        return found


def _without_idle_places(settings: SchedulerSettings, requests: Requests) -> SchedulerSettings:
    """Settings whose tiers have no more places than twice what all requests could ever leave there."""
    if not settings.tiers:
        return settings
    tokens = requests.prompt_tokens + requests.output_tokens
    most = 2 * int(np.sum(-(-tokens // settings.block_size_tokens), dtype=np.int64))
    return replace(settings, tiers=tuple(replace(tier, blocks=min(tier.blocks, most)) for tier in settings.tiers))


def _prepare(
    stages: tuple[StepTables, ...], *, requests: Requests, settings: SchedulerSettings, trace_steps: int
) -> _Prepared:
    # Only requests that will run shape the arrays.
    taken, turns = refusals(requests, settings) == at.WAITING, has_turns(requests)
    longest = int((requests.prompt_tokens + requests.output_tokens).max(initial=1, where=taken))
    settings = _without_idle_places(settings, requests)
    # Replicas that take turns meet in conversations and in a shared tier alone.
    apart = settings.routing is Routing.ROUND_ROBIN and not turns and settings.shared_tier < 0
    groups = settings.replicas // settings.ranks if apart else 1
    together = settings.replicas if groups == 1 else settings.ranks * min(groups, _threads())
    size = state_size(settings, distinct_blocks=requests.distinct_blocks, longest_tokens=longest)
    most_slots = _most_slots(settings, requests)
    slots = max(1, min(most_slots, size.slots_within(LARGEST_STATE_BYTES / together)))
    check_replicas(settings.replicas)
    check_state_size(size.of(slots), replicas=together)
    limits = make_limits(settings, slots=slots, stages=len(stages), conversations=turns)
    prepared = _Prepared(
        stages=stages,
        requests=requests,
        settings=settings,
        order=queue_order(requests, settings),
        fate=make_fate(requests, settings),
        limits=limits._replace(groups=groups),
        size=size,
        longest_tokens=longest,
        trace_steps=trace_steps,
        most_slots=most_slots,
    )
    check_steps(_most_steps(prepared, taken))
    return prepared


_SEQUENCES_A_STEP = 4
"""Tokens of answers and pieces of prompts that are computed in the time of a step of a full batch."""


def _most_steps(prepared: _Prepared, taken: NDArray[np.bool_]) -> float:
    """Steps that a run can take, or what takes as long: one for every token and piece of a prompt; where the
    queue is counted as a step starts, no more than fit into the time of sending, and those of full batches after.
    Left out: what is computed twice because memory ran out. taken : the requests that will run"""
    settings, requests = prepared.settings, prepared.requests
    prompts = np.sum(requests.prompt_tokens, where=taken, dtype=np.float64)
    answers = np.sum(requests.output_tokens, where=taken, dtype=np.float64)
    # An empty step is as good as one where others step beside it.
    tokens = settings.ranks * float(answers + prompts / settings.max_num_batched_tokens)
    if prepared.limits.counted_ahead:
        return tokens / _SEQUENCES_A_STEP
    if settings.batching is Batching.STATIC:
        return tokens
    arrival_s, longest = requests.arrival_s, prepared.longest_tokens
    held = settings.kv_blocks * settings.block_size_tokens // longest
    full = max(1, min(settings.max_num_seqs, held))
    sending = settings.replicas * float(arrival_s[-1] - arrival_s[0]) / _smallest_s(prepared.stages)
    return min(tokens, sending + tokens / full + settings.replicas * longest)


def event_loop() -> Loop:
    """The loop of all engines; a planner that never simulates need not load it."""
    from simulator.engine.events.loop import loop_of
    from simulator.engine.events.scheduler import SCHEDULER

    return loop_of(SCHEDULER)


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
    _check_static(given, settings, conversations=has_turns(requests))
    prepared = _prepare(given, requests=requests, settings=settings, trace_steps=trace_steps)
    loop = event_loop()
    call = loop.for_requests(max(len(requests), int(requests.output_tokens.sum()) // REQUEST_TOKENS))
    sums = prepared.serve_all(call, threads=1 if loop.machine is None else _threads(), progress=progress)
    if any(replica.stalled for replica in sums):
        raise RoofcastError("requests are left that can never run", field="engine", code="stalled")
    idle = settings.replicas - len(sums)
    columns, order, groups = prepared.fate._asdict(), prepared.order, prepared.limits.groups
    del prepared
    return SimulationRun(
        records=records_of(requests, columns, order=order, groups=groups),
        usage=np.sum([replica.usage for replica in sums], axis=0),
        trace=(*(replica.trace for replica in sums), *(idle * [np.zeros((0, at.TRACE_COLUMNS))])),
        steps=sum(replica.steps for replica in sums),
        free_blocks=sum(replica.free_blocks for replica in sums) + idle * settings.kv_blocks,
        series=time_series(
            [replica.series for replica in sums], replicas=settings.replicas, kv_blocks=settings.kv_blocks
        ),
    )
