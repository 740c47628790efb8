"""A served run in Chrome's trace format: steps of each replica, requests, and counters (chrome://tracing, Perfetto).

References
----------
[TraceEvent2016]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from simulator.engine.metrics import ServeResult
from simulator.engine.state import (
    TRACE_DECODES,
    TRACE_END_S,
    TRACE_PREFILLS,
    TRACE_START_S,
    TRACE_TOKENS,
    TRACE_USED,
    TRACE_WAITING,
)
from simulator.units import MICRO

TRACED_STEPS = 100_000
"""Steps of each replica that a trace holds at most; what opens such files slows down beyond."""
TRACED_REQUESTS = 5_000
_ENGINE, _REQUESTS = 1, 2

Event = dict[str, Any]


def _named(replica: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": replica, "args": {"name": f"replica {replica}"}}
    yield {"ph": "M", "name": "thread_name", "pid": replica, "tid": _ENGINE, "args": {"name": "engine steps"}}


def _step_name(prefills: int, decodes: int) -> str:
    parts = [f"prefill {prefills}"] * (prefills > 0) + [f"decode {decodes}"] * (decodes > 0)
    return " + ".join(parts)


def _steps(replica: int, rows: np.ndarray) -> Iterator[Event]:
    """A complete event per step, and counters at its start (they hold until the next)."""
    for row in rows:
        at_us = float(row[TRACE_START_S]) / MICRO
        prefills, decodes, waiting = (int(row[column]) for column in (TRACE_PREFILLS, TRACE_DECODES, TRACE_WAITING))
        yield {
            "ph": "X",
            "cat": "step",
            "name": _step_name(prefills, decodes),
            "pid": replica,
            "tid": _ENGINE,
            "ts": at_us,
            "dur": float(row[TRACE_END_S] - row[TRACE_START_S]) / MICRO,
            "args": {"prefill_sequences": prefills, "decode_sequences": decodes, "new_tokens": int(row[TRACE_TOKENS])},
        }
        counts = {"running": prefills + decodes, "waiting": waiting}
        yield {"ph": "C", "name": "requests", "pid": replica, "ts": at_us, "args": counts}
        used = {"used": int(row[TRACE_USED])}
        yield {"ph": "C", "name": "KV blocks", "pid": replica, "ts": at_us, "args": used}


def _requests(result: ServeResult) -> Iterator[Event]:
    """Waiting, prompt and answer of the first requests as nested asynchronous spans."""
    requests, records = result.requests, result.run.records
    for index in range(min(len(requests), TRACED_REQUESTS)):
        moments = (
            requests.arrival_s[index],
            records.admitted_s[index],
            records.first_token_s[index],
            records.finish_s[index],
        )
        shared = {"cat": "request", "id": index, "pid": int(max(records.replica[index], 0)), "tid": _REQUESTS}
        lengths = {
            "prompt_tokens": int(requests.prompt_tokens[index]),
            "output_tokens": int(requests.output_tokens[index]),
            "cached_tokens": int(records.cached_tokens[index]),
        }
        for name, begin_s, end_s in zip(("waiting", "prompt", "answer"), moments, moments[1:], strict=False):
            if np.isfinite(begin_s) and np.isfinite(end_s):
                yield {"ph": "b", "name": name, "ts": float(begin_s) / MICRO, **shared, "args": lengths}
                yield {"ph": "e", "name": name, "ts": float(end_s) / MICRO, **shared}


def trace_json(result: ServeResult) -> str:
    """The trace as a JSON document, one event a line; times in microseconds, processes are replicas."""
    events: list[Event] = []
    for replica, rows in enumerate(result.run.trace):
        events += [*_named(replica), *_steps(replica, rows)]
    events += _requests(result)
    lines = ",\n".join(json.dumps(event) for event in events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n'
