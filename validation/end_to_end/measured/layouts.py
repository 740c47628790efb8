"""How a run of InferenceX was spread over devices, read from the notes of its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from validation.end_to_end.measured.runs import Row

# Engines behind a router that sends prompts and answers to pools of their own.
_ROUTED = {
    "dynamo-sglang": "sglang",
    "dynamo-tensorrt-llm": "tensorrt-llm",
    "dynamo-vllm": "vllm",
    "mori-sglang": "sglang",
    "vllm-disagg": "vllm",
}
_WORKERS = r"(\d+) workers x tp(\d+) ep(\d+) dpattn([01])"
_POOLS = re.compile(rf"prefill {_WORKERS} \(([\d.]+) GPUs\); decode {_WORKERS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayout:
    """Workers of one pool, each with attention in ``tp`` parts, or replicated over as many ranks."""

    workers: int
    tp: int
    ep: int
    attention_dp: bool

    @property
    def each(self) -> int:
        """Accelerators of a worker: rows that label tp 1 beside a larger ep mean the ranks of attention."""
        return max(self.tp, self.ep)

    @property
    def devices(self) -> int:
        """Accelerators of the pool."""
        return self.workers * self.each


def served_by(engine: str) -> str:
    """The engine that computes, whatever routes to it."""
    return _ROUTED.get(engine, engine)


def pools_of(row: Row) -> tuple[PoolLayout, PoolLayout] | None:
    """The prefill and the decode pool of a row; None where there are none, or where their sizes contradict the devices
    that the row counts for the prefill pool."""
    found = _POOLS.search(row["notes"])
    if found is None:
        return None
    prefill, decode = (
        PoolLayout(
            workers=int(found[first]),
            tp=int(found[first + 1]),
            ep=int(found[first + 2]),
            attention_dp=found[first + 3] == "1",
        )
        for first in (1, 6)
    )
    return (prefill, decode) if prefill.devices == float(found[5]) else None


def degrees(tp: int, ep: int, *, attention_dp: bool, experts_follow: bool = False) -> dict[str, int]:
    """Parallel degrees as a scenario says them: attention data parallelism shards experts over the same devices.

    experts_follow : experts are sharded over the tensor-parallel devices, whatever the label says
    """
    if attention_dp:
        return {"dp_size": tp, "ep_size": tp}
    return {"tp_size": tp, "ep_size": tp if experts_follow else ep}


def disaggregation(prefill: PoolLayout, decode: PoolLayout) -> dict[str, Any]:
    """Both pools as a scenario says them."""
    said: dict[str, Any] = {"prefill_replicas": prefill.workers, "decode_replicas": decode.workers}
    for name, pool in (("prefill", prefill), ("decode", decode)):
        own = degrees(pool.each, pool.ep, attention_dp=pool.attention_dp)
        said |= {f"{name}_{degree}": size for degree, size in own.items()}
    return said


def decode_sequences(decode: PoolLayout, *, concurrency: int, most: int) -> int:
    """Sequences that each rank of a decode worker takes at once in TensorRT-LLM's recipes for pools: a power of two.

    Recipes name it (from memory, verify) and rows do not; their most clients (``most``, of one configuration and pair
    of lengths) are 1 to 1.5 times as many. Rows agree: where the last of a list are 1.5 times a power of two a worker
    (48 clients of four, 60 of five), a request takes 1.5 to 1.7 times its decoding, while half as many take 1.05 to 1.3
    times. Fewer clients than two a worker that shares attention are a recipe of one sequence.
    """
    ranks = decode.workers * (decode.each if decode.attention_dp else 1)
    alone = concurrency < 2 * decode.workers and not decode.attention_dp
    return 1 << max(int((concurrency if alone else most) / ranks).bit_length() - 1, 0)
