"""The device under test, and cold operands on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from validation.measure.timing import Case

CACHE_SHARE = 3.0
"""Copies of the operands together are this many times the cache, so that none of them survives a round."""
COPIES_AT_MOST = 2048
"""Operands of 80 kB outgrow a cache of 50 MB by then; smaller ones are launch time alone."""
CPU_COPIES_AT_MOST = 64
"""Building more would take longer than measuring."""
MEMORY_SHARE = 0.8
"""Of the free memory that the operands of one case may take."""
CPU_CACHE_BYTES = 4 * 1024**2
"""Of a core and its share of what is common; more copies would take longer to fill than to measure."""
CPU_MEMORY_BYTES = 2 * 1024**3
POOL_NUMBERS = 500_009
UNKNOWN_L2_BYTES = 128 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where kernels run, and how much its cache and its memory hold."""

    device: torch.device
    cache_bytes: int
    memory_bytes: int

    @property
    def is_cuda(self) -> bool:
        """Whether CUDA events and graphs are there."""
        return self.device.type == "cuda"

    @property
    def points(self) -> int:
        """Shapes to design for a family: the budget decides how many are reached."""
        return 300 if self.is_cuda else 120

    def copies(self, case: Case) -> int:
        """Copies of a case's operands: enough to outgrow the cache, one at least, within the memory."""
        wanted = math.ceil(CACHE_SHARE * self.cache_bytes / max(1, case.footprint_bytes))
        fitting = int(MEMORY_SHARE * self.memory_bytes / max(1, case.footprint_bytes))
        return max(1, min(wanted, fitting, COPIES_AT_MOST if self.is_cuda else CPU_COPIES_AT_MOST))

    def fits(self, case: Case) -> bool:
        """Whether one copy fits the memory."""
        return case.footprint_bytes <= MEMORY_SHARE * self.memory_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that share a share of the budget; ``weight`` is that share against the other groups'."""

    name: str
    cases: Sequence[Case]
    weight: float = 1.0


GroupsOf = Callable[[Bench], list[Group]]


def bench_of(device: str) -> Bench:
    """The bench of ``cuda``, ``cuda:N`` or ``cpu``."""
    target = torch.device(device)
    if target.type != "cuda":
        return Bench(device=target, cache_bytes=CPU_CACHE_BYTES, memory_bytes=CPU_MEMORY_BYTES)
    if target.index is None:
        # torch sets and compares devices by their number.
        target = torch.device("cuda", torch.cuda.current_device())
    torch.cuda.set_device(target)
    properties = torch.cuda.get_device_properties(target)
    free_bytes, _ = torch.cuda.mem_get_info(target)
    cache_bytes = int(getattr(properties, "L2_cache_size", 0)) or UNKNOWN_L2_BYTES
    return Bench(device=target, cache_bytes=cache_bytes, memory_bytes=free_bytes)


def random_tensor(*size: int, bench: Bench, dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers of unit variance, rounded to ``dtype``; integers of all values for integer types."""
    if bench.device.type != "cpu":
        return _drawn(size, device=bench.device, dtype=dtype)
    count = math.prod(size)
    pool = _pool(dtype)
    return pool.repeat(-(-count // len(pool)))[:count].reshape(size)


@lru_cache(maxsize=8)
def _pool(dtype: torch.dtype) -> torch.Tensor:
    """Random numbers that a CPU copies rather than draws again: drawing would take most of a small budget."""
    return _drawn((POOL_NUMBERS,), device=torch.device("cpu"), dtype=dtype)


def _drawn(size: tuple[int, ...], *, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max + 1, size, device=device, dtype=dtype)
    # Types of 8 bits have no generator of their own.
    wide = torch.float32 if dtype.itemsize == 1 else dtype
    return torch.randn(size, device=device, dtype=wide).to(dtype)
