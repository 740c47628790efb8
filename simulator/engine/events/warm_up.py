"""Machine code for both schedulers of the event loop, made or found before somebody waits for an answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import numpy as np

from simulator.engine.events import scheduler_lists, scheduler_walk
from simulator.engine.events.compilation import FASTER, can_keep, compiler_version, loops_on_disk
from simulator.engine.events.loop import loop_of
from simulator.engine.events.simulation import simulate_requests
from simulator.engine.events.state import Scheduler
from simulator.engine.settings import SchedulerPolicy, SchedulerSettings
from simulator.errors import MissingPackageError
from simulator.phases.compiled import uniform_tables
from simulator.traffic.requests import make_requests

_LONGEST_TOKENS = 64

SCHEDULERS: Mapping[str, tuple[SchedulerPolicy, Scheduler]] = {
    "requests in lists (vLLM)": (SchedulerPolicy.CHUNKED_MIXED, scheduler_lists.SCHEDULER),
    "a walk over sequences (SGLang, speculation, pipelines, pools)": (
        SchedulerPolicy.PREFILL_FIRST,
        scheduler_walk.SCHEDULER,
    ),
}
"""By what a reader knows of it, each scheduler with a policy of it; the loops of ranks that step together are compiled
when there is enough for them to do."""


def is_warm() -> bool:
    """Whether nobody will wait for a compiler: an earlier process left everything, or there is no compiler."""
    return compiler_version() is None or loops_on_disk() >= {loop_of(kind).name for _, kind in SCHEDULERS.values()}


def leave_compiling() -> None:
    """Let this process load machine code as soon as another has made it, and make none; Python serves until then."""
    if can_keep():
        for _, scheduler in SCHEDULERS.values():
            loop_of(scheduler).worth_compiling = sys.maxsize


def warm_up() -> dict[str, float]:
    """Serve one request by each scheduler; the seconds with compilation. Raises MissingPackageError: no compiler."""
    if compiler_version() is None:
        raise MissingPackageError("nothing is compiled without numba: the event simulation runs in Python", hint=FASTER)
    tables = uniform_tables(
        step_s=1.0, max_tokens=_LONGEST_TOKENS, max_sequences=1, max_context=_LONGEST_TOKENS, per_token_s=1.0
    )
    count = np.ones(1, dtype=np.int64)
    one = make_requests(arrival_s=np.zeros(1), prompt_tokens=count, output_tokens=2 * count)
    took = {}
    for name, (policy, scheduler) in SCHEDULERS.items():
        start = time.perf_counter()
        loop_of(scheduler).compile()
        settings = SchedulerSettings(
            max_num_batched_tokens=_LONGEST_TOKENS,
            max_num_seqs=1,
            max_model_len=_LONGEST_TOKENS,
            kv_blocks=_LONGEST_TOKENS,
            policy=policy,
        )
        simulate_requests(tables, requests=one, settings=settings)
        took[name] = time.perf_counter() - start
    return took
