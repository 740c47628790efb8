"""What a recorded workload says about demand: rate, peak, lengths, burstiness, prefix hits, from seven sources."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.engine.prometheus import prometheus_demand
from simulator.engine.prometheus_ranges import parsed, range_demand
from simulator.engine.recorded import RecordedDemand, Spread, measured_demand
from simulator.engine.trace_files import read_trace
from simulator.engine.trace_formats import HASH_BLOCK_TOKENS
from simulator.errors import FileError, RoofcastError

FORMATS = (
    "Azure CSV (TIMESTAMP,ContextTokens,GeneratedTokens), BurstGPT CSV (Timestamp,Request tokens,Response tokens), "
    "Mooncake JSON lines, Prometheus text or range-query JSON of vLLM, results of vllm bench serve, GuideLLM or AIPerf"
)

_HEAD_CHARACTERS = 80
"""Within which an answer of Prometheus shows its status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """A file and its content."""

    path: str
    text: str


def _refuse(path: str, message: str, *, line: int | None = None, code: str = "malformed_trace") -> RoofcastError:
    where = f"{path}, line {line}" if line is not None else path
    return RoofcastError(f"{where}: {message}", field="FILE", code=code)


def _read(path: str) -> _Text:
    try:
        return _Text(path=path, text=Path(path).expanduser().read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise FileError(f"{path}: cannot be read: {reason}", field="FILE") from None


def prefix_hits(chains: Iterable[tuple[tuple[int, ...], float]]) -> float:
    """Share of prompt tokens whose block was seen before, in an endless cache that serves prompts in order.

    chains : (hash ids of the prompt's blocks, prompt tokens); a hit ends at the first unseen block

    References
    ----------
    [Qin2024] section on the trace: equal ids mean equal prefixes up to and including the block.
    """
    seen: set[int] = set()
    hit = total = 0.0
    for blocks, tokens in chains:
        length = next((place for place, block in enumerate(blocks) if block not in seen), len(blocks))
        hit += min(length * HASH_BLOCK_TOKENS, tokens)
        total += tokens
        seen.update(blocks)
    return hit / total if total else 0.0


def _trace(path: str, *, tool: str) -> RecordedDemand:
    trace = read_trace(path)
    if trace.hashes is None:
        return measured_demand(trace, tool=tool)
    hits = prefix_hits(zip(trace.hashes, trace.isl_tokens.tolist(), strict=True))
    note = "prefix hits: an endless cache that every request can reach; a replica's own cache hits less"
    return measured_demand(trace, tool=tool, prefix_hit=hits, notes=(note,))


def _benchmark(file: _Text) -> RecordedDemand:
    try:
        data = json.loads(file.text)
    except json.JSONDecodeError as error:
        raise _refuse(file.path, f"not JSON: {error.msg}", line=error.lineno) from None
    if not isinstance(data, dict):
        raise _refuse(file.path, "a JSON object is needed", code="unknown_format")
    if isinstance(data.get("benchmarks"), list) and data["benchmarks"]:
        return _guidellm(file, data["benchmarks"])
    if "input_sequence_length" in data:
        return _aiperf(file, data)
    if "total_input_tokens" in data:
        return _vllm_bench(file, data)
    raise RoofcastError(f"{file.path} is of no known kind", field="FILE", code="unknown_format", hint=FORMATS)


def _number(file: _Text, data: object, *path: str) -> float:
    """A number by its path of keys, refused by name."""
    node = data
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, bool) or not isinstance(node, int | float) or not np.isfinite(node) or node < 0:
        raise _refuse(file.path, f"{'.'.join(path)} must be a number of at least 0, got {node!r}", code="missing_field")
    return float(node)


def _vllm_bench(file: _Text, data: dict[str, object]) -> RecordedDemand:
    answered = _number(file, data, "completed")
    if answered < 1:
        raise _refuse(file.path, "no request was answered")
    isl, osl = data.get("input_lens"), data.get("output_lens")
    starts = data.get("start_times")
    lengths = isinstance(isl, list) and isinstance(osl, list) and len(isl) >= 2
    return RecordedDemand(
        source=file.path,
        tool="vllm bench serve",
        requests=round(answered),
        duration_s=_number(file, data, "duration"),
        rate_per_s=_number(file, data, "request_throughput"),
        peak_to_mean=None,
        isl=Spread.of(np.array(isl, dtype=float))
        if lengths
        else Spread.mean_only(_number(file, data, "total_input_tokens") / answered),
        osl=Spread.of(np.array(osl, dtype=float))
        if lengths
        else Spread.mean_only(_number(file, data, "total_output_tokens") / answered),
        prefix_hit=None,
        arrival_cv=Spread.of(np.diff(np.sort(np.array(starts, dtype=float)))).cv
        if isinstance(starts, list) and len(starts) > 2
        else None,
        notes=("the rate is what the server answered, not what clients would have sent",),
    )


def _guidellm(file: _Text, benchmarks: list[object]) -> RecordedDemand:
    """The benchmark with the highest rate of answers."""
    key = ("metrics", "requests_per_second", "successful", "mean")
    best = max(benchmarks, key=lambda item: _number(file, item, *key))
    answered = _number(file, best, "metrics", "request_totals", "successful")
    rate = _number(file, best, *key)

    def spread(field: str) -> Spread:
        block = ("metrics", field, "successful")
        mean = _number(file, best, *block, "mean")
        return Spread(mean=mean, cv=_number(file, best, *block, "std_dev") / mean if mean else None)

    return RecordedDemand(
        source=file.path,
        tool="GuideLLM",
        requests=round(answered),
        duration_s=answered / rate if rate else 0.0,
        rate_per_s=rate,
        peak_to_mean=None,
        isl=spread("prompt_token_count"),
        osl=spread("output_token_count"),
        prefix_hit=None,
        arrival_cv=None,
        notes=(f"the fastest of {len(benchmarks)} benchmarks; its rate is what the server answered",),
    )


def _aiperf(file: _Text, data: dict[str, object]) -> RecordedDemand:
    answered, rate = _number(file, data, "request_count", "avg"), _number(file, data, "request_throughput", "avg")

    def spread(field: str) -> Spread:
        mean, block = _number(file, data, field, "avg"), data[field]
        has_std = isinstance(block, dict) and "std" in block
        return Spread(mean=mean, cv=_number(file, data, field, "std") / mean if has_std and mean else None)

    return RecordedDemand(
        source=file.path,
        tool="AIPerf",
        requests=round(answered),
        duration_s=answered / rate if rate else 0.0,
        rate_per_s=rate,
        peak_to_mean=None,
        isl=spread("input_sequence_length"),
        osl=spread("output_sequence_length"),
        prefix_hit=None,
        arrival_cv=None,
        notes=("the rate is what the server answered, not what clients would have sent",),
    )


def import_demand(path: str, *, over_s: float | None = None) -> RecordedDemand:
    """Demand from a file; its kind follows from its content.

    over_s : seconds that the counters of a Prometheus text cover; refused for every other kind, which knows it

    Raises
    ------
    FileError
        The file cannot be read.
    RoofcastError
        Its kind is unknown, a line is malformed, or ``over_s`` is missing or out of place.
    """
    file = _read(path)
    head = file.text.lstrip()
    first = head.splitlines()[0] if head else ""
    if first.startswith("#") or first.startswith("vllm:"):
        return prometheus_demand(file.text, source=path, over_s=over_s)
    if over_s is not None:
        raise RoofcastError(f"{path} states its own duration", field="--over", hint="leave --over out")
    if first.startswith("[") or '"status"' in head[:_HEAD_CHARACTERS]:
        return range_demand(parsed(file.text, source=path), source=path)
    if not first.startswith("{"):
        if "," not in first:
            raise RoofcastError(f"{path} is of no known kind", field="FILE", code="unknown_format", hint=FORMATS)
        return _trace(path, tool="BurstGPT trace" if "Request tokens" in first else "Azure trace")
    if '"input_length"' in first:
        return _trace(path, tool="Mooncake trace")
    return _benchmark(file)
