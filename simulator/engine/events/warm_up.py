"""Machine code for the event loop, made or found before somebody waits for an answer."""

from __future__ import annotations

import sys
import time

import numpy as np

from simulator.engine.events.compilation import FASTER, can_keep, compiler_version, is_on_disk
from simulator.engine.events.simulation import event_loop, simulate_requests
from simulator.engine.settings import SchedulerSettings
from simulator.errors import MissingPackageError
from simulator.phases.compiled import uniform_tables
from simulator.traffic.requests import make_requests

_LONGEST_TOKENS = 64


def is_warm() -> bool:
    """Whether nobody will wait for a compiler: an earlier process left machine code, or there is no compiler."""
    return compiler_version() is None or is_on_disk()


def leave_compiling() -> None:
    """Let this process load machine code as soon as another has made it, and make none; Python serves until then."""
    if can_keep():
        event_loop().worth_compiling = sys.maxsize


def warm_up() -> float:
    """Serve one request; the seconds with compilation. Raises MissingPackageError: no compiler."""
    if compiler_version() is None:
        raise MissingPackageError("nothing is compiled without numba: the event simulation runs in Python", hint=FASTER)
    tables = uniform_tables(
        step_s=1.0, max_tokens=_LONGEST_TOKENS, max_sequences=1, max_context=_LONGEST_TOKENS, per_token_s=1.0
    )
    count = np.ones(1, dtype=np.int64)
    one = make_requests(arrival_s=np.zeros(1), prompt_tokens=count, output_tokens=2 * count)
    settings = SchedulerSettings(
        max_num_batched_tokens=_LONGEST_TOKENS, max_num_seqs=1, max_model_len=_LONGEST_TOKENS, kv_blocks=_LONGEST_TOKENS
    )
    start = time.perf_counter()
    event_loop().compile()
    simulate_requests(tables, requests=one, settings=settings)
    return time.perf_counter() - start
