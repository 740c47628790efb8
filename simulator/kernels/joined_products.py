"""Several matrix products as the cases of one, so that a step's products are priced in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.kernels.timing import Timing
from simulator.operators.step_shape import Array
from simulator.operators.work import GemmShape

# Products of more cases than this are priced one by one: joined, their intermediate arrays would leave the cache.
JOINED_CASES = 256


def join(shapes: Sequence[GemmShape]) -> GemmShape:
    """The cases of products of one format and batch, end to end."""
    sizes = [np.size(shape.m) for shape in shapes]
    # Prices broadcast n and k just as m, although a row of the operator list has one of each.
    n: Any = np.concatenate([_over_cases(shape.n, size) for shape, size in zip(shapes, sizes, strict=True)])
    k: Any = np.concatenate([_over_cases(shape.k, size) for shape, size in zip(shapes, sizes, strict=True)])
    m = np.concatenate([np.atleast_1d(np.asarray(shape.m, dtype=np.float64)) for shape in shapes])
    return replace(shapes[0], m=m, n=n, k=k)


def _over_cases(value: ArrayLike, size: int) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (size,))


def distinct(m: Array, n: Array, k: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One place of each product that differs, and for every case which of those it is.

    Steps of many batches hold the same products again and again: a full step has the token budget's rows whoever it
    serves. What is priced once costs half of it.
    """
    order = np.lexsort((m, n, k))
    new = np.ones(len(order), dtype=np.bool_)
    for sizes in (m[order], n[order], k[order]):
        new[1:] &= sizes[1:] == sizes[:-1]
    new[1:] = ~new[1:]
    cases = np.empty(len(order), dtype=np.intp)
    cases[order] = np.cumsum(new) - 1
    return order[new], cases


def split(timing: Timing, *, sizes: Sequence[int]) -> tuple[Timing, ...]:
    """The parts of a joined timing, with ``sizes`` cases each."""
    ends = np.cumsum(sizes)
    cuts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return tuple(
        Timing(
            seconds=timing.seconds[cut],
            compute_s=timing.compute_s[cut],
            memory_s=timing.memory_s[cut],
            network_s=timing.network_s[cut],
            log_sigma=timing.log_sigma[cut],
            provenance=timing.provenance[cut],
        )
        for cut in cuts
    )
