"""What holds of every answer, whatever was asked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

from simulator.errors import FileError, ProfileError
from simulator.specs.hardware.accelerator import load_hardware

_ROUNDING = 1e-6
_PERCENTILE = re.compile(r"(?:(.+)_)?p(\d{2}(?:\.\d+)?)(_.*)?")
_PARTS = ("weights", "activation", "reserve")
_SHARES = ("mfu", "mbu", "kv_utilization")
_SIGNED = (
    "saving",
    "change",
    "difference",
    "delta",
    "margin",
    "net",
    "npv",
    "error",
    "residual",
    "slope",
    "elasticity",
)
_POSITIVE_ENDS = ("_s", "_bytes", "_per_s", "_tokens", "_w", "_j", "_usd")


class BrokenError(Exception):
    """An answer that is none: more than a line, the wrong exit code, a fault of the program."""


def broken(document: dict[str, Any]) -> Iterator[str]:
    """Laws that a result or a plan breaks, one line each."""
    for place, held, hardware in _objects(document, "", None):
        yield from _numbers(place, held)
        yield from _ordered(place, held)
        yield from _intervals(place, held)
        yield from _memory(place, held, hardware)
        yield from _conserved(place, held)


def _objects(value: Any, place: str, outer: str | None) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """Every object, its place, and the accelerator that it is about: its own, else that of what holds it."""
    if isinstance(value, dict):
        own = value.get("hardware", outer)
        hardware = own if isinstance(own, str) else outer
        yield place, value, hardware
        for key, item in value.items():
            yield from _objects(item, f"{place}.{key}", hardware)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item, f"{place}[]", outer)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(place: str, held: dict[str, Any]) -> Iterator[str]:
    for key, value in held.items():
        for number in value if isinstance(value, list) else [value]:
            if not _is_number(number):
                continue
            if not math.isfinite(number):
                yield f"{place}.{key} is not finite"
            elif (key in _SHARES or key.endswith("_fraction")) and not -_ROUNDING <= number <= 1 + _ROUNDING:
                yield f"{place}.{key} is a share and not in 0..1"
            elif number < -_ROUNDING and key.endswith(_POSITIVE_ENDS) and not any(word in key for word in _SIGNED):
                yield f"{place}.{key} is negative"


def _ordered(place: str, held: dict[str, Any]) -> Iterator[str]:
    families: dict[tuple[str, str], dict[float, float]] = {}
    for key, value in held.items():
        if _is_number(value) and (found := _PERCENTILE.fullmatch(key)):
            families.setdefault((found[1], found[3]), {})[float(found[2])] = value
        whole = held.get(f"e2e{key.removeprefix('ttft')}") if key.startswith("ttft_") else None
        if _is_number(value) and _is_number(whole) and value > whole * (1 + _ROUNDING) + _ROUNDING:
            yield f"{place}: TTFT is above E2E ({key})"
    for (metric, _), values in families.items():
        if any(values[low] > values[high] * (1 + _ROUNDING) for low, high in pairwise(sorted(values))):
            yield f"{place}: percentiles of {metric} are out of order"


def _intervals(place: str, held: dict[str, Any]) -> Iterator[str]:
    inside = held.get("interval")
    beside = {key.removesuffix("_interval"): bounds for key, bounds in held.items() if key.endswith("_interval")}
    for name, bounds in {**beside, **(inside if isinstance(inside, dict) else {})}.items():
        value = held.get(name)
        if not isinstance(bounds, list) or not _is_number(value) or None in bounds:
            continue
        low, high = bounds
        slack = _ROUNDING * abs(value) + _ROUNDING * _ROUNDING
        if not low - slack <= value <= high + slack:
            yield f"{place}.interval.{name} does not hold the value"


@cache
def _visible_bytes(hardware: str) -> float | None:
    """None of an accelerator that is not built in, whose own file may have given it a name that reads like a path."""
    with suppress(ProfileError, FileError):
        return load_hardware(hardware).memory_visible_bytes
    return None


def _memory(place: str, held: dict[str, Any], hardware: str | None) -> Iterator[str]:
    """The parts of a device's memory are its budget: all of it where the cache takes the rest in blocks."""
    memory, engine = held.get("memory"), held.get("engine")
    visible = None if hardware is None else _visible_bytes(hardware)
    if not isinstance(memory, dict) or visible is None or not memory.get("fits"):
        return
    cached = memory["kv_capacity_tokens"] * memory["kv_bytes_per_token"]
    left = visible - cached - sum(memory[f"{name}_bytes"] for name in _PARTS)
    if isinstance(engine, dict) and engine.get("name") == "vllm" and "gpu_memory_utilization" in engine:
        left -= (1 - engine["gpu_memory_utilization"]) * visible
        states = memory.get("state_bytes_per_sequence") or not cached
        if not states and left > memory["kv_bytes_per_token"] * memory["kv_capacity_tokens"] / memory["kv_blocks"]:
            yield f"{place}: the parts of memory leave {left:.3g} bytes of the budget"
    if left < -_ROUNDING * visible:
        yield f"{place}: the parts of memory are {-left:.3g} bytes above the budget"


def _conserved(place: str, held: dict[str, Any]) -> Iterator[str]:
    ended = [held.get(name) for name in ("requests", "finished", "timed_out", "rejected")]
    if all(_is_number(value) for value in ended) and sum(ended[1:]) > ended[0] * (1 + _ROUNDING):
        yield f"{place}: more requests end than come"
    output, total, rate = (held.get(f"{name}_per_s") for name in ("output_tokens", "total_tokens", "requests"))
    if _is_number(output) and _is_number(total) and output > total * (1 + _ROUNDING):
        yield f"{place}: more output tokens than tokens"
    if _is_number(output) and _is_number(rate) and rate > output * (1 + _ROUNDING) and held.get("osl_tokens"):
        yield f"{place}: a request has less than one token"
    parts = held.get("breakdown_s")
    if isinstance(parts, dict) and _is_number(held.get("step_s")):
        summed = sum(value for value in parts.values() if _is_number(value))
        if not math.isclose(summed, held["step_s"], rel_tol=1e-3, abs_tol=1e-9):
            yield f"{place}: the parts of a step do not sum to it"
