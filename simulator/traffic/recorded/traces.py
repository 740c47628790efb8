"""Rows of request traces in the formats that people have: Azure, BurstGPT, Mooncake and vLLM's serving benchmark.

- Azure 2023/2024, CSV: TIMESTAMP (ISO), ContextTokens, GeneratedTokens.
- BurstGPT, CSV: Timestamp (s), Request tokens, Response tokens; requests without a response failed and are left out.
- Mooncake, JSON lines: timestamp (ms), input_length, output_length, hash_ids (one per 512 tokens of prompt).
- ``vllm bench serve --save-result``, one JSON object: start_times (s), input_lens, output_lens; failed requests
  (no output) are left out.

A row names its line (CSV, JSON lines) or its place in the arrays where something is wrong with it.

Request traces from files: what they say about rate, burstiness and lengths (formats: ``trace_formats``).
"""

from __future__ import annotations

import csv
import os
import re
from datetime import UTC, datetime
from functools import lru_cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import FileError, RoofcastError
from simulator.records import dataclass
from simulator.specs.base import LARGEST_INTEGER
from simulator.specs.documents import read_text
from simulator.specs.measured.serving_results import VLLM_REQUEST_FIELDS
from simulator.specs.parsing import MalformedError, parse_json
from simulator.traffic.lengths import Array
from simulator.traffic.requests import LARGEST_TOKENS
from simulator.units import HOURS_PER_YEAR, MILLI, SECONDS_PER_HOUR, SECONDS_PER_MINUTE

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
HASH_BLOCK_TOKENS = 512
"""Prompt tokens that one hash of a Mooncake trace stands for [Qin2024]."""
_MICROSECOND_DIGITS = 6
_LONGEST_NUMBER = 40
_WRITTEN = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
LONGEST_TRACE_S = 10 * HOURS_PER_YEAR * SECONDS_PER_HOUR
"""Ten years: timestamps further apart are in another unit, or wrong."""
_FRACTION = re.compile(r"(.+?[T ][0-9:]+)(?:\.([0-9]+))?(Z|[-+][0-9:]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request: when it was sent [s], its lengths, the hashes of its prompt's blocks where the trace has them."""

    at_s: float
    isl_tokens: float
    osl_tokens: float
    hashes: tuple[int, ...] | None = None


def malformed(path: object, *, where: str, reason: str) -> RoofcastError:
    """The refusal of a trace, with file, place and reason."""
    return RoofcastError(f"{path}, {where}: {reason}", field="trace", code="malformed_trace")


def trace_rows(text: str, *, path: object) -> list[TraceRow]:
    """All requests of a trace, in the order of the file; the format follows from its beginning."""
    if not text.lstrip().startswith("{"):
        return _csv_rows(text, path=path)
    first = text.lstrip().splitlines()[0]
    try:
        head = parse_json(first)
    except MalformedError:
        head = None
    if isinstance(head, dict) and not any(field in head for field in VLLM_REQUEST_FIELDS):
        return _mooncake_rows(text, path=path)
    try:
        whole = head if head is not None and len(text.split("\n", 1)) == 1 else parse_json(text)
    except MalformedError:
        if head is not None:
            raise malformed(path, where="line 2", reason="several results in one file; keep one run a file") from None
        return _mooncake_rows(text, path=path)
    return _vllm_rows(whole, path=path)


def _float(value: object) -> float:
    """A number, or text that is one; NaN for everything else."""
    text = "" if isinstance(value, bool) else str(value)[:_LONGEST_NUMBER].strip()
    return float(text) if _WRITTEN.fullmatch(text) else float("nan")


def _number(value: object, *, path: object, where: str, field: str) -> float:
    number = _float(value)
    if not 0 <= number < float("inf"):
        raise malformed(path, where=where, reason=f"{field} must be a number of at least 0, got {value!r}")
    return number


def _tokens(value: object, *, path: object, where: str, field: str, least: int) -> float:
    count = _whole(value, path=path, where=where, field=field, least=least)
    if count > LARGEST_TOKENS:
        raise malformed(path, where=where, reason=f"{field} may be at most {LARGEST_TOKENS:,} tokens, got {value!r}")
    return count


def _whole(value: object, *, path: object, where: str, field: str, least: int) -> float:
    count = _float(value)
    if not least <= count < float("inf") or count != int(count):
        raise malformed(path, where=where, reason=f"{field} must be a whole number of at least {least}, got {value!r}")
    return count


def _csv_rows(text: str, *, path: object) -> list[TraceRow]:
    try:
        return _read_csv(csv.reader(StringIO(text)), path=path)
    except csv.Error as error:
        raise malformed(path, where="a line", reason=f"not CSV: {error}") from None


def _read_csv(reader: Any, *, path: object) -> list[TraceRow]:
    header = [name.strip() for name in next(reader, [])]
    burst = "Request tokens" in header or "Response tokens" in header
    columns = BURSTGPT_COLUMNS if burst else AZURE_COLUMNS
    if not all(name in header for name in columns):
        missing = ", ".join(name for name in columns if name not in header)
        known = f"a CSV trace has {', '.join(AZURE_COLUMNS)} (Azure) or {', '.join(BURSTGPT_COLUMNS)} (BurstGPT)"
        raise malformed(path, where="line 1", reason=f"the header lacks {missing} ({known})")
    at, isl, osl = (header.index(name) for name in columns)
    rows = []
    for fields in reader:
        if not fields:
            continue
        where = f"line {reader.line_num}"
        if len(fields) != len(header):
            raise malformed(path, where=where, reason=f"{len(header)} fields expected, found {len(fields)}")
        if burst and _tokens(fields[osl], path=path, where=where, field=columns[2], least=0) == 0:
            continue
        if burst:
            at_s = _number(fields[at], path=path, where=where, field=columns[0])
        else:
            at_s = _timestamp_s(fields[at], path=path, where=where)
        rows.append(
            TraceRow(
                at_s=at_s,
                isl_tokens=_tokens(fields[isl], path=path, where=where, field=columns[1], least=1),
                osl_tokens=_tokens(fields[osl], path=path, where=where, field=columns[2], least=1),
            )
        )
    return rows


def _timestamp_s(text: str, *, path: object, where: str) -> float:
    """Seconds of an ISO date and time, UTC where it names no zone; digits beyond microseconds, as of Azure, are cut.

    Without a zone the clock of this machine must not matter: summer time would open or close gaps of an hour.
    """
    found = _FRACTION.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError(text)
        whole, digits, zone = found.groups(default="")
        at = datetime.fromisoformat(f"{whole}.{digits[:_MICROSECOND_DIGITS]:0<6}{zone}")
    except ValueError:
        raise malformed(path, where=where, reason=f"TIMESTAMP is not an ISO date and time: {text!r}") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _mooncake_rows(text: str, *, path: object) -> list[TraceRow]:
    rows: list[TraceRow] = []
    for line, content in enumerate(text.splitlines(), start=1):
        if not content.strip():
            continue
        where = f"line {line}"
        try:
            record = parse_json(content)
        except MalformedError as error:
            raise malformed(path, where=where, reason=f"not JSON: {error.reason}") from None
        missing = [name for name in MOONCAKE_FIELDS if not isinstance(record, dict) or name not in record]
        if missing:
            raise malformed(path, where=where, reason=f"the field {missing[0]} is missing")
        stamp, isl, osl = (record[name] for name in MOONCAKE_FIELDS)
        isl_tokens = _tokens(isl, path=path, where=where, field=MOONCAKE_FIELDS[1], least=1)
        rows.append(
            TraceRow(
                at_s=_whole(stamp, path=path, where=where, field=MOONCAKE_FIELDS[0], least=0) * MILLI,
                isl_tokens=isl_tokens,
                osl_tokens=_tokens(osl, path=path, where=where, field=MOONCAKE_FIELDS[2], least=1),
                hashes=_hashes(record, isl_tokens=isl_tokens, path=path, where=where),
            )
        )
        if (rows[-1].hashes is None) != (rows[0].hashes is None):
            raise malformed(path, where=where, reason="hash_ids must be in all lines or in none")
    return rows


def _hashes(record: dict[str, Any], *, isl_tokens: float, path: object, where: str) -> tuple[int, ...] | None:
    hashes = record.get("hash_ids")
    if hashes is None:
        return None
    whole = isinstance(hashes, list) and all(type(item) is int and 0 <= item <= LARGEST_INTEGER for item in hashes)
    blocks = int(-(-isl_tokens // HASH_BLOCK_TOKENS))
    if not whole or len(hashes) > blocks:
        reason = f"hash_ids must be a list of at most {blocks} whole numbers (one per {HASH_BLOCK_TOKENS} tokens)"
        raise malformed(path, where=where, reason=reason)
    return tuple(hashes)


def _vllm_rows(record: Any, *, path: object) -> list[TraceRow]:
    missing = [
        name for name in VLLM_REQUEST_FIELDS if not isinstance(record, dict) or not isinstance(record.get(name), list)
    ]
    if missing:
        reason = f"the list {missing[0]} is missing (older versions of vllm bench serve do not save it)"
        raise malformed(path, where="result", reason=reason)
    sizes = {len(record[name]) for name in VLLM_REQUEST_FIELDS}
    if len(sizes) > 1:
        raise malformed(path, where="result", reason=f"{', '.join(VLLM_REQUEST_FIELDS)} differ in length")
    rows = []
    for place, (at_s, isl, osl) in enumerate(zip(*(record[name] for name in VLLM_REQUEST_FIELDS), strict=True)):
        where = f"request {place}"
        if _tokens(osl, path=path, where=where, field="output_lens", least=0) == 0:
            continue
        rows.append(
            TraceRow(
                at_s=_number(at_s, path=path, where=where, field="start_times"),
                isl_tokens=_tokens(isl, path=path, where=where, field="input_lens", least=1),
                osl_tokens=float(osl),
            )
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """Recorded requests in order of arrival (arrays of one length).

    arrival_s : since the first request [s]; isl_tokens, osl_tokens : prompt and answer lengths
    hashes : of the blocks of each prompt, equal where content is equal up to and with the block; None without
    model : what the recorder calls it; warnings : what was put right on reading
    first_s : time of the first request by the recorder's clock [s]
    has_dates : whether that clock is the world's (Unix time)
    """

    source: str
    arrival_s: Array
    isl_tokens: Array
    osl_tokens: Array
    hashes: tuple[tuple[int, ...], ...] | None = None
    warnings: tuple[str, ...] = ()
    first_s: float = 0.0
    has_dates: bool = False
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSummary:
    """Mean and coefficient of variation of token counts."""

    mean: float
    cv: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What a trace says. ``peak_to_mean`` compares the busiest minute with the whole."""

    source: str
    requests: int
    duration_s: float
    mean_rate_per_s: float
    peak_to_mean: float
    isl: LengthSummary
    osl: LengthSummary
    warnings: tuple[str, ...] = ()


def _disorder(rows: list[TraceRow], *, path: str | Path) -> tuple[str, ...]:
    """A warning where requests do not stand in the order of their times."""
    back = sum(later.at_s < earlier.at_s for earlier, later in pairwise(rows))
    times = "once" if back == 1 else f"{back:,} times"
    return (f"{path} is not in the order of its times (goes back {times}); it is read sorted",) if back else ()


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
        state = os.stat(os.path.expanduser(path))
        return _read(str(path), (state.st_mtime_ns, state.st_size))
    except (OSError, ValueError, MalformedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: cannot be read: {reason}", field="trace") from None


@lru_cache(maxsize=2)
def _read(path: str, state: tuple[int, int]) -> RequestTrace:
    """One file, read once for all questions about it; ``state`` retires it when the file changes."""
    text = read_text(os.path.expanduser(path), field="trace")
    rows = trace_rows(text, path=path)
    if len(rows) < 2:
        raise malformed(path, where="line 1", reason=f"a trace needs at least two requests, found {len(rows)}")
    warnings = _disorder(rows, path=path)
    # Logs are often written when requests end; what counts is when they were sent.
    rows.sort(key=lambda row: (row.at_s, row.isl_tokens, row.osl_tokens))
    table = np.array([(row.at_s, row.isl_tokens, row.osl_tokens) for row in rows], dtype=np.float64)
    if table[-1, 0] - table[0, 0] > LONGEST_TRACE_S:
        raise malformed(path, where="its times", reason="the requests are more than ten years apart")
    hashes = tuple(row.hashes for row in rows if row.hashes is not None)
    return RequestTrace(
        source=path,
        arrival_s=table[:, 0] - table[0, 0],
        isl_tokens=table[:, 1],
        osl_tokens=table[:, 2],
        hashes=hashes or None,
        warnings=warnings,
        first_s=float(table[0, 0]),
        has_dates=text.lstrip().startswith(AZURE_COLUMNS[0]),
        model=_named_model(text),
    )


def _named_model(text: str) -> str | None:
    """The model that a benchmark's result names."""
    if '"model_id"' not in text:
        return None
    try:
        named = parse_json(text)["model_id"]
    except (MalformedError, KeyError, TypeError):
        return None
    return named if isinstance(named, str) and named else None


def _lengths(tokens: Array) -> LengthSummary:
    mean = float(tokens.mean())
    return LengthSummary(mean=mean, cv=float(tokens.std() / mean))


def summarise(trace: RequestTrace) -> TraceSummary:
    """Rate, peak and lengths of a trace; the peak is taken over whole minutes.

    Raises
    ------
    RoofcastError
        All requests carry one time, so that there is no rate.
    """
    duration_s = float(trace.arrival_s[-1])
    if duration_s <= 0:
        raise malformed(trace.source, where="line 1", reason="all requests have the same time")
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
        isl=_lengths(trace.isl_tokens),
        osl=_lengths(trace.osl_tokens),
        warnings=trace.warnings,
    )
