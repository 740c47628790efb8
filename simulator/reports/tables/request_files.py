"""The per-request table of a served run as CSV or Parquet, piece by piece, because runs have millions of requests.

A served run in Chrome's trace format: steps of each replica, requests, and counters (chrome://tracing, Perfetto).

Reference: [TraceEvent2016]
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from io import RawIOBase, StringIO
from typing import Any

import numpy as np

from simulator.engine.events.arrays import step_length_s
from simulator.engine.events.state import (
    TRACE_DECODES,
    TRACE_PREFILLS,
    TRACE_START_S,
    TRACE_TOKENS,
    TRACE_USED,
    TRACE_WAITING,
)
from simulator.engine.runs.metrics import RequestColumn, ServeResult, request_columns
from simulator.errors import MissingPackageError, RoofcastError
from simulator.units import MICRO

FORMATS = (".csv", ".parquet")
_CSV_ROWS, _PARQUET_ROWS = 20_000, 250_000


def check_request_format(suffix: str, *, flag: str) -> None:
    """Refuse another suffix, and Parquet where it cannot be written, before work starts."""
    if suffix not in FORMATS:
        raise RoofcastError(f"{suffix or 'no suffix'!r}; allowed: {', '.join(FORMATS)}", field=flag)
    if suffix == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            raise MissingPackageError(
                "Parquet needs the package pyarrow, which is not installed",
                field=flag,
                hint="pip install pyarrow, or name a .csv file",
            )


def _texts(column: RequestColumn) -> list[str]:
    values = column.values.tolist()
    if column.values.dtype.kind == "f":
        return ["" if value != value else repr(value) for value in values]
    return [str(value) for value in values]


def request_csv(result: ServeResult) -> Iterator[bytes]:
    """One line per request; times that were never reached are empty."""
    for number, columns in enumerate(request_columns(result, rows_at_once=_CSV_ROWS)):
        stream = StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        if number == 0:
            writer.writerow([column.name for column in columns])
        writer.writerows(zip(*map(_texts, columns), strict=True))
        yield stream.getvalue().encode("utf-8")


class _Pieces(RawIOBase):
    """A file that hands over what has been written to it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, content: Any, /) -> int:
        self._written.append(bytes(content))
        self._size += len(self._written[-1])
        return len(self._written[-1])

    def taken(self) -> bytes:
        """What has been written since it was asked last."""
        piece = b"".join(self._written)
        self._written = []
        return piece


def request_parquet(result: ServeResult) -> Iterator[bytes]:
    """Requests as a Parquet file; times that were never reached are null."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    file, writer = _Pieces(), None
    for columns in request_columns(result, rows_at_once=_PARQUET_ROWS):
        arrays = [
            pyarrow.array(column.values.astype(np.int64) if kind == "i" else column.values, from_pandas=kind == "f")
            for column, kind in ((column, column.values.dtype.kind) for column in columns)
        ]
        table = pyarrow.Table.from_arrays(arrays, names=[column.name for column in columns])
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
        yield file.taken()
    if writer is not None:
        writer.close()
    yield file.taken()


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
            "dur": step_length_s(row) / MICRO,
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
