"""The commands: what a person types and a program reads."""

import gc
import os
import sys

from simulator.units import MIB

COLLECT_EVERY = 200_000
"""Allocations between garbage collections: enough for a plan to finish before the first."""

# A command makes few cycles; looking for them takes a tenth of its time, half of that while its modules are imported.
gc.set_threshold(COLLECT_EVERY)

# Products of matrices are small here; threads that wait for large ones take a twelfth of an estimate's processor time
# on two cores, more on more.
os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))

# Numbers of options in glibc's malloc.h, with bytes: what is kept at the end of the heap when it is freed, by how much
# the heap grows, and from which size on an array is mapped by itself.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = {_M_TRIM_THRESHOLD: 64 * MIB, _M_TOP_PAD: 16 * MIB, _M_MMAP_THRESHOLD: 4 * MIB}


def keep_freed_memory() -> bool:
    """Have the C library keep what arrays leave for the next ones: a plan makes thousands, and asking the system for
    their pages again takes a few percent of its time. False where it is another library than glibc."""
    if sys.platform != "linux":
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, int(size)) for option, size in _KEPT_BYTES.items())
