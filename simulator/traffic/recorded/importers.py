"""What a recorded workload says about demand: rate, peak, lengths, burstiness, prefix hits, from seven sources."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import inf

from simulator.errors import FileError, Option, RoofcastError
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.measured.result_file import ResultFile
from simulator.specs.parsing import MalformedError, parse_json, read_text
from simulator.traffic.recorded.benchmarks import aiperf_demand, guidellm_demand, vllm_bench_demand
from simulator.traffic.recorded.demand import RecordedDemand, measured_demand
from simulator.traffic.recorded.prometheus import parsed, prometheus_demand, range_demand
from simulator.traffic.recorded.trace_formats import HASH_BLOCK_TOKENS
from simulator.traffic.recorded.traces import RequestTrace, read_trace
from simulator.traffic.requests import CACHE_TOKENS, NO_PREVIOUS

FORMATS = (
    "Azure CSV (TIMESTAMP,ContextTokens,GeneratedTokens), BurstGPT CSV (Timestamp,Request tokens,Response tokens), "
    "Mooncake JSON lines (turns of agents with session_id and delay), Prometheus text or range-query JSON of vLLM, "
    "results of vllm bench serve, GuideLLM or AIPerf"
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
        return _Text(path=path, text=read_text(os.path.expanduser(path), field="FILE"))
    except MalformedError as error:
        raise FileError(f"{path}: cannot be read: {error}", field="FILE") from None


def prefix_hits(chains: Iterable[tuple[tuple[int, ...], float]], *, cache_tokens: float = inf) -> float:
    """Share of prompt tokens whose block is in a cache that serves prompts in order and forgets the least recent.

    chains : (hash ids of the prompt's blocks, prompt tokens); a hit ends at the first block that is not there

    Reference: [Qin2024] section on the trace: equal ids mean equal prefixes up to and including the block.
    """
    kept: dict[int, None] = {}
    hit = total = 0.0
    for blocks, tokens in chains:
        length = next((place for place, block in enumerate(blocks) if block not in kept), len(blocks))
        hit += min(length * HASH_BLOCK_TOKENS, tokens)
        total += tokens
        for block in blocks:
            kept.pop(block, None)
            kept[block] = None
        while len(kept) * HASH_BLOCK_TOKENS > cache_tokens:
            del kept[next(iter(kept))]
    return hit / total if total else 0.0


def trace_hits(trace: RequestTrace, *, cache_tokens: float = CACHE_TOKENS) -> float | None:
    """Prefix hits of a recorded trace; None where it does not tell which prompts share a prefix."""
    if trace.hashes is None:
        return None
    return prefix_hits(zip(trace.hashes, trace.isl_tokens.tolist(), strict=True), cache_tokens=cache_tokens)


def _trace(path: str, *, tool: str) -> RecordedDemand:
    trace = read_trace(path)
    waits = () if trace.previous is None else (_waiting(trace),)
    if trace.hashes is None:
        return measured_demand(trace, tool=tool, notes=waits)
    endless = trace_hits(trace, cache_tokens=inf)
    note = Note("hits_of_cache", {"cache_tokens": CACHE_TOKENS, "endless": endless})
    return measured_demand(trace, tool=tool, prefix_hit=trace_hits(trace), notes=(*waits, note))


def _waiting(trace: RequestTrace) -> Note:
    """That the times of a trace are not those at which its requests were sent."""
    assert trace.previous is not None, "turns wait"
    assert trace.wait_s is not None, "for answers"
    waiting = trace.previous != NO_PREVIOUS
    turns = {"turns": int(waiting.sum()), "requests": len(waiting), "wait_s": float(trace.wait_s[waiting].mean())}
    return Note("turns_wait", turns)


def _benchmark(file: _Text) -> RecordedDemand:
    try:
        data = parse_json(file.text)
    except MalformedError as error:
        raise _refuse(file.path, f"not JSON: {error.reason}", line=error.line) from None
    if not isinstance(data, dict):
        raise _refuse(file.path, "a JSON object is needed", code="unknown_format")
    if isinstance(data.get("benchmarks"), list) and data["benchmarks"]:
        runs = [item if isinstance(item, dict) else {} for item in data["benchmarks"]]
        return guidellm_demand(
            [ResultFile(path=file.path, data=run, prefix=f"benchmarks[{place}].") for place, run in enumerate(runs)]
        )
    result = ResultFile(path=file.path, data=data)
    if "input_sequence_length" in data:
        return aiperf_demand(result)
    if "total_input_tokens" in data:
        return vllm_bench_demand(result)
    raise RoofcastError(f"{file.path} is of no known kind", field="FILE", code="unknown_format", hint=FORMATS)


def import_demand(path: str, *, over_s: float | None = None) -> RecordedDemand:
    """Demand from a file; its kind follows from its content.

    over_s : seconds that the counters of a Prometheus text cover; refused for every other kind, which knows it

    Raises FileError: the file cannot be read.
    Raises RoofcastError: its kind is unknown, a line is malformed, or ``over_s`` is missing or out of place.
    """
    file = _read(path)
    head = file.text.lstrip()
    if not head:
        raise RoofcastError(f"{path} is empty", field="FILE", code="unknown_format", hint=FORMATS)
    first = head.splitlines()[0]
    if first.startswith("#") or first.startswith("vllm:"):
        return prometheus_demand(file.text, source=path, over_s=over_s)
    if over_s is not None:
        raise RoofcastError(f"{path} states its own duration", field=Option("over"), hint="leave `over` out")
    if first.startswith("[") or '"status"' in head[:_HEAD_CHARACTERS]:
        return range_demand(parsed(file.text, source=path), source=path)
    if not first.startswith("{"):
        if "," not in first:
            raise RoofcastError(f"{path} is of no known kind", field="FILE", code="unknown_format", hint=FORMATS)
        return _trace(path, tool="BurstGPT trace" if "Request tokens" in first else "Azure trace")
    if '"input_length"' in first:
        return _trace(path, tool="Mooncake trace")
    return _benchmark(file)
