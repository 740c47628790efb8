"""Memory that short processes keep: how often garbage is collected, and what the C library does not give back.

A process that answers one command or one line after another makes thousands of arrays and few cycles of references.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

from simulator.units import MIB

Make = TypeVar("Make", bound=Callable[..., Any])

COLLECT_EVERY = 200_000
"""Allocations between garbage collections: enough for a plan to finish before the first."""

# Numbers of options in glibc's malloc.h, with bytes: what is kept at the end of the heap when it is freed, by how much
# the heap grows, and from which size on an array is mapped by itself.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = {_M_TRIM_THRESHOLD: 64 * MIB, _M_TOP_PAD: 16 * MIB, _M_MMAP_THRESHOLD: 4 * MIB}


def _array_bytes(made: object) -> int:
    return sum(map(_array_bytes, made)) if isinstance(made, tuple) else int(getattr(made, "nbytes", 0))


def kept_within(*, most: int, most_bytes: float) -> Callable[[Make], Make]:
    """``lru_cache`` for arrays and tuples of arrays, the last ``most``; all are forgotten before those made since
    take more than ``most_bytes``."""

    def decorated(make: Make) -> Make:
        made_bytes = 0

        @lru_cache(maxsize=most)
        def kept(*arguments: Any) -> Any:
            nonlocal made_bytes
            made = make(*arguments)
            made_bytes += _array_bytes(made)
            if made_bytes > most_bytes:
                kept.cache_clear()
                made_bytes = _array_bytes(made)
            return made

        return cast(Make, kept)

    return decorated


def collect_seldom() -> None:
    """Look for cycles of references every COLLECT_EVERY allocations: looking takes a tenth of a command's time, half of
    that while its modules are imported."""
    gc.set_threshold(COLLECT_EVERY)


@cache
def keep_freed_memory() -> bool:
    """Have the C library keep what arrays leave for the next ones: a plan makes thousands, and asking the system for
    their pages again takes a few percent of its time. Arrays of millions of requests go back as they are given up: the
    library keeps more the larger they are, unless it is told what to keep. False where it is another library than
    glibc."""
    if sys.platform != "linux":
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, int(size)) for option, size in _KEPT_BYTES.items())
