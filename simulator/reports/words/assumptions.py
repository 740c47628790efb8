"""What an answer rests on, in words: every assumption by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from simulator.assumptions import Assumption, ValueOrigin

_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"workload.spacing": "default: rate x duration requests at random moments"}
)
"""Defaults of which more is to be said than that they are."""


def _offload(item: Assumption) -> str:
    return f"{item.key} = twice the device's KV cache (default of SGLang's --hicache-ratio)"


def _engine_name(item: Assumption) -> str:
    if item.origin is ValueOrigin.RULE:
        return f"engine {item.detail} has no profile: priced as {item.value}"
    return _plainly(item)


def _ignore_eos(item: Assumption) -> str:
    return f"{item.key} = {item.value}: answers are as long as osl_tokens and osl_cv say"


_SENTENCES: Mapping[str, Callable[[Assumption], str]] = MappingProxyType(
    {
        "engine.cpu_kv_offload_bytes": _offload,
        "engine.name": _engine_name,
        "workload.ignore_eos": _ignore_eos,
    }
)


def source_text(item: Assumption) -> str:
    """Where a field of a scenario has its value from."""
    if item.origin is ValueOrigin.DEFAULT:
        return _DEFAULTS.get(item.key, "default" if item.detail is None else f"default of {item.detail}")
    if isinstance(item.detail, int):
        each = f"every running sequence takes {item.detail} tokens of a step"
        return each if item.detail > 1 else "a token a sequence and step"
    return str(item.origin) if item.detail is None else str(item.detail)


def _plainly(item: Assumption) -> str:
    return str(item.detail) if item.value is None else f"{item.key} = {item.value} ({source_text(item)})"


def assumption_text(item: Assumption) -> str:
    """``engine.max_num_seqs = 256 (default of vllm)``."""
    return _SENTENCES.get(item.key, _plainly)(item)


def assumption_texts(items: Iterable[Assumption]) -> list[str]:
    """All of them, as the JSON contract lists them."""
    return [assumption_text(item) for item in items]
