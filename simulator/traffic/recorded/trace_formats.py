"""Rows of request traces in the formats that people have: Azure, BurstGPT, Mooncake and vLLM's serving benchmark.

- Azure 2023/2024, CSV: TIMESTAMP (ISO), ContextTokens, GeneratedTokens.
- BurstGPT, CSV: Timestamp (s), Request tokens, Response tokens; requests without a response failed and are left out.
- Mooncake, JSON lines: timestamp (ms), input_length, output_length, hash_ids (one per 512 tokens of prompt). A turn of
  an agent has session_id and, in place of timestamp, delay (ms): from the answer before in its session to its sending,
  while tools run (AIPerf's fields, from memory, verify).
- ``vllm bench serve --save-result``, one JSON object: start_times (s), input_lens, output_lens; failed requests
  (no output) are left out.

A row names its line (CSV, JSON lines) or its place in the arrays where something is wrong with it.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.specs.base import LARGEST_INTEGER
from simulator.specs.measured.serving_results import VLLM_REQUEST_FIELDS
from simulator.specs.parsing import MalformedError, parse_json
from simulator.traffic.lengths import LARGEST_TOKENS
from simulator.units import MILLI

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
HASH_BLOCK_TOKENS = 512
"""Prompt tokens that one hash of a Mooncake trace stands for [Qin2024]."""
_MICROSECOND_DIGITS = 6
_LONGEST_NUMBER = 40
_WRITTEN = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_FRACTION = re.compile(r"(.+?[T ][0-9:]+)(?:\.([0-9]+))?(Z|[-+][0-9:]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request: when it was sent [s], its lengths, the hashes of its prompt's blocks where the trace has them.

    previous, wait_s : of a turn that waits for an answer the row of that answer in the file, and from it to the sending
        [s]; ``at_s`` is then the earliest time, as if answers took none
    """

    at_s: float
    isl_tokens: float
    osl_tokens: float
    hashes: tuple[int, ...] | None = None
    previous: int | None = None
    wait_s: float = 0.0


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
    """Seconds of an ISO time, UTC where it names no zone (not this machine's clock), cut to microseconds."""
    found = _FRACTION.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError(text)
        whole, digits, zone = found.groups(default="")
        at = datetime.fromisoformat(f"{whole}.{digits[:_MICROSECOND_DIGITS]:0<6}{zone}")
    except ValueError:
        raise malformed(path, where=where, reason=f"TIMESTAMP is not an ISO date and time: {text!r}") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _sent(
    record: dict[str, Any], rows: list[TraceRow], last: dict[object, int], *, path: object, where: str
) -> tuple[float, int | None, float]:
    """Time [s] of a line of a Mooncake trace, the row whose answer it waits for, and how long from there [s]; ``last``
    holds the last row of each session so far."""
    session, delay, previous, wait_s = record.get("session_id"), record.get("delay"), None, 0.0
    if isinstance(session, list | dict):
        raise malformed(path, where=where, reason="session_id must be a word or a number")
    if delay is None:
        at_s = _whole(record["timestamp"], path=path, where=where, field="timestamp", least=0) * MILLI
    else:
        if "timestamp" in record or session not in last:
            reason = "delay follows an earlier line of its session_id and stands in place of timestamp"
            raise malformed(path, where=where, reason=reason)
        previous, wait_s = last[session], _number(delay, path=path, where=where, field="delay") * MILLI
        at_s = rows[previous].at_s + wait_s
    if session is not None:
        last[session] = len(rows)
    return at_s, previous, wait_s


def _mooncake_rows(text: str, *, path: object) -> list[TraceRow]:
    rows: list[TraceRow] = []
    last: dict[object, int] = {}
    for line, content in enumerate(text.splitlines(), start=1):
        if not content.strip():
            continue
        where = f"line {line}"
        try:
            record = parse_json(content)
        except MalformedError as error:
            raise malformed(path, where=where, reason=f"not JSON: {error.reason}") from None
        given = record if isinstance(record, dict) else {}
        missing = [
            name for name in MOONCAKE_FIELDS if name not in given and (name != "timestamp" or "delay" not in given)
        ]
        if missing:
            raise malformed(path, where=where, reason=f"the field {missing[0]} is missing")
        isl, osl = (record[name] for name in MOONCAKE_FIELDS[1:])
        at_s, previous, wait_s = _sent(record, rows, last, path=path, where=where)
        isl_tokens = _tokens(isl, path=path, where=where, field=MOONCAKE_FIELDS[1], least=1)
        rows.append(
            TraceRow(
                at_s=at_s,
                isl_tokens=isl_tokens,
                osl_tokens=_tokens(osl, path=path, where=where, field=MOONCAKE_FIELDS[2], least=1),
                hashes=_hashes(record, isl_tokens=isl_tokens, path=path, where=where),
                previous=previous,
                wait_s=wait_s,
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
