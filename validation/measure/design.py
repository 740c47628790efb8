"""Shapes that fill their box evenly: a Halton sequence on logarithmic axes, which can stop anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PRIMES = (2, 3, 5, 7, 11, 13)
SKIPPED = 20
"""The first points of a Halton sequence lie on a line where bases are close; they are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One coordinate, log-uniform between ``low`` and ``high`` and rounded to a multiple of ``step``."""

    low: int
    high: int
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One coordinate that takes one of ``values``, each as often as the others."""

    values: tuple[int, ...]


def radical_inverse(index: int, *, base: int) -> float:
    """Digits of ``index`` in ``base`` mirrored at the point: 6 = 110 (base 2) becomes 0.011 = 0.375."""
    value, weight = 0.0, 1.0 / base
    while index > 0:
        index, digit = divmod(index, base)
        value += digit * weight
        weight /= base
    return value


def halton(count: int, *, dimensions: int) -> NDArray[np.float64]:
    """The first ``count`` points of the Halton sequence in [0, 1)^dimensions, as [count, dimensions]."""
    if not 1 <= dimensions <= len(PRIMES):
        raise ValueError(f"dimensions = {dimensions}; allowed: 1 to {len(PRIMES)}")
    bases = PRIMES[:dimensions]
    points = [[radical_inverse(SKIPPED + index, base=base) for base in bases] for index in range(1, count + 1)]
    return np.array(points, dtype=np.float64).reshape(count, dimensions)


def _value(axis: Axis | Choice, share: float) -> int:
    if isinstance(axis, Choice):
        return axis.values[int(share * len(axis.values))]
    exact = axis.low * (axis.high / axis.low) ** share
    rounded = axis.step * round(exact / axis.step)
    return int(min(max(rounded, axis.low), axis.high))


def shapes(count: int, *, axes: Sequence[Axis | Choice]) -> list[tuple[int, ...]]:
    """Up to ``count`` different shapes, in an order in which every beginning fills the box."""
    points = halton(count, dimensions=len(axes))
    found = (tuple(_value(axis, float(share)) for axis, share in zip(axes, point, strict=True)) for point in points)
    return list(dict.fromkeys(found))
