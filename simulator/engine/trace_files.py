"""Request traces from files: what they say about rate, burstiness and lengths.

Two formats: Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens) and Mooncake's JSON lines (timestamp in ms,
input_length, output_length).
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from pathlib import Path

import numpy as np

from simulator.engine.lengths import Array
from simulator.errors import FileError, RoofcastError
from simulator.units import MILLI, SECONDS_PER_MINUTE

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
_MICROSECOND_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """Recorded requests in order of arrival (arrays of one length).

    arrival_s : since the first request [s]; isl_tokens, osl_tokens : prompt and answer lengths
    """

    source: str
    arrival_s: Array
    isl_tokens: Array
    osl_tokens: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSummary:
    """Mean, coefficient of variation and percentiles of token counts."""

    mean: float
    cv: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What a trace says. ``peak_to_mean`` compares the busiest of ``window_s`` long windows with the whole."""

    source: str
    requests: int
    duration_s: float
    mean_rate_per_s: float
    peak_to_mean: float
    window_s: float
    isl: LengthSummary
    osl: LengthSummary


def read_trace(path: str | Path) -> RequestTrace:
    """Read a trace; the format follows from the first line.

    Raises
    ------
    FileError
        The file cannot be read.
    RoofcastError
        A line is malformed: names file, line and reason.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: cannot be read: {reason}", field="trace") from None
    rows = _mooncake_rows(text, path=path) if text.lstrip().startswith("{") else _azure_rows(text, path=path)
    if len(rows) < 2:
        raise _malformed(path, line=1, reason=f"a trace needs at least two requests, found {len(rows)}")
    table = np.array(sorted(rows), dtype=np.float64)
    return RequestTrace(
        source=str(path), arrival_s=table[:, 0] - table[0, 0], isl_tokens=table[:, 1], osl_tokens=table[:, 2]
    )


def _malformed(path: str | Path, *, line: int, reason: str) -> RoofcastError:
    return RoofcastError(f"{path}, line {line}: {reason}", field="trace", code="malformed_trace")


def _tokens(value: object, *, path: str | Path, line: int, field: str, least: int) -> float:
    try:
        count = float(str(value))
    except ValueError:
        count = -1.0
    if isinstance(value, bool) or count < least or count != int(count):
        raise _malformed(path, line=line, reason=f"{field} must be a whole number of at least {least}, got {value!r}")
    return count


def _azure_rows(text: str, *, path: str | Path) -> list[tuple[float, float, float]]:
    reader = csv.reader(StringIO(text))
    header = [name.strip() for name in next(reader, [])]
    if not all(name in header for name in AZURE_COLUMNS):
        missing = ", ".join(name for name in AZURE_COLUMNS if name not in header)
        reason = f"the header lacks {missing} (a CSV trace has {', '.join(AZURE_COLUMNS)})"
        raise _malformed(path, line=1, reason=reason)
    time_column, isl_column, osl_column = (header.index(name) for name in AZURE_COLUMNS)
    rows = []
    for fields in reader:
        if not fields:
            continue
        line = reader.line_num
        if len(fields) != len(header):
            raise _malformed(path, line=line, reason=f"{len(header)} fields expected, found {len(fields)}")
        rows.append(
            (
                _timestamp_s(fields[time_column], path=path, line=line),
                _tokens(fields[isl_column], path=path, line=line, field=AZURE_COLUMNS[1], least=1),
                _tokens(fields[osl_column], path=path, line=line, field=AZURE_COLUMNS[2], least=1),
            )
        )
    return rows


def _timestamp_s(text: str, *, path: str | Path, line: int) -> float:
    """Seconds of an ISO date and time; digits beyond microseconds, which Azure writes, are cut."""
    whole, dot, fraction = text.strip().partition(".")
    try:
        return datetime.fromisoformat(f"{whole}{dot}{fraction[:_MICROSECOND_DIGITS]}").timestamp()
    except ValueError:
        raise _malformed(path, line=line, reason=f"TIMESTAMP is not an ISO date and time: {text!r}") from None


def _mooncake_rows(text: str, *, path: str | Path) -> list[tuple[float, float, float]]:
    rows = []
    for line, content in enumerate(text.splitlines(), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except json.JSONDecodeError as error:
            raise _malformed(path, line=line, reason=f"not JSON: {error.msg} at column {error.colno}") from None
        missing = [name for name in MOONCAKE_FIELDS if not isinstance(record, dict) or name not in record]
        if missing:
            raise _malformed(path, line=line, reason=f"the field {missing[0]} is missing")
        stamp, isl, osl = (record[name] for name in MOONCAKE_FIELDS)
        rows.append(
            (
                _tokens(stamp, path=path, line=line, field=MOONCAKE_FIELDS[0], least=0) * MILLI,
                _tokens(isl, path=path, line=line, field=MOONCAKE_FIELDS[1], least=1),
                _tokens(osl, path=path, line=line, field=MOONCAKE_FIELDS[2], least=1),
            )
        )
    return rows


def _lengths(tokens: Array) -> LengthSummary:
    p50, p95, p99 = (float(value) for value in np.percentile(tokens, [50, 95, 99]))
    mean = float(tokens.mean())
    return LengthSummary(mean=mean, cv=float(tokens.std() / mean), p50=p50, p95=p95, p99=p99)


def summarise(trace: RequestTrace) -> TraceSummary:
    """Rate, peak and lengths of a trace; the peak is taken over whole minutes.

    Raises
    ------
    RoofcastError
        All requests carry one time, so that there is no rate.
    """
    duration_s = float(trace.arrival_s[-1])
    if duration_s <= 0:
        raise _malformed(trace.source, line=1, reason="all requests have the same time")
    window_s = min(SECONDS_PER_MINUTE, duration_s)
    windows = max(1, int(duration_s // window_s))
    inside = trace.arrival_s < windows * window_s
    counts = np.bincount((trace.arrival_s[inside] // window_s).astype(np.int64), minlength=windows)
    rate = (len(trace.arrival_s) - 1) / duration_s
    return TraceSummary(
        source=trace.source,
        requests=len(trace.arrival_s),
        duration_s=duration_s,
        mean_rate_per_s=rate,
        peak_to_mean=max(1.0, float(counts.max() / counts.mean())),
        window_s=window_s,
        isl=_lengths(trace.isl_tokens),
        osl=_lengths(trace.osl_tokens),
    )
