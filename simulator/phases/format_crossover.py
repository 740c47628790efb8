"""Which number format decodes fastest at which batch, and where one overtakes another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.operators.step_shape import Array, decode_step
from simulator.phases.deployment import Deployment
from simulator.phases.step import estimate_step

LARGEST_BATCH = 4096
"""Beyond any engine's number of running sequences."""

GRID_POINTS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatCrossover:
    """From ``batch`` decoding sequences on, ``later`` is faster than ``earlier``; None: not up to 4,096."""

    earlier: str
    later: str
    batch: int | None


def decode_seconds(deployment: Deployment, batches: Array, *, context_tokens: float) -> Array:
    """Time of one decode step at each batch size [s]."""
    return estimate_step(deployment, decode_step(sequences=batches, context=context_tokens)).step_s


def format_crossover(first: Deployment, second: Deployment, *, context_tokens: float) -> int | None:
    """The batch that best separates those where ``first`` decodes faster from those where ``second`` does.

    1 where ``second`` always is, None where ``first`` is up to 4,096. Weight-only formats win while the step waits for
    weights and lose where dequantisation meets the compute roof, so that W8A8 overtakes them: the answer depends on the
    device's ridge point and on the kernels, not on a rule of thumb. Times wobble where kernels change tiles; the
    batch returned leaves the fewest sizes on the wrong side. Both replicas are taken as if every batch fitted.

    References
    ----------
    [Williams2009], [Frantar2024]
    """
    grid = _grid(1, LARGEST_BATCH)
    place = _threshold(_wins(first, second, grid, context_tokens=context_tokens))
    if place in (0, len(grid)):
        return 1 if place == 0 else None
    between = np.arange(grid[place - 1] + 1, grid[place] + 1)
    inside = _threshold(_wins(first, second, between, context_tokens=context_tokens))
    return int(between[min(inside, len(between) - 1)])


def _threshold(wins: NDArray[np.bool_]) -> int:
    """The place from which on wins count, so that the fewest entries are on the wrong side."""
    wins_before = np.concatenate(([0], np.cumsum(wins)))
    losses_after = np.concatenate((np.cumsum(~wins[::-1])[::-1], [0]))
    return int(np.argmin(wins_before + losses_after))


def _grid(low: int, high: int) -> Array:
    """Whole batch sizes from ``low`` to ``high``, evenly spread in their logarithm."""
    points: Array = np.unique(np.geomspace(low, high, GRID_POINTS).round())
    return points


def _wins(first: Deployment, second: Deployment, batches: Array, *, context_tokens: float) -> NDArray[np.bool_]:
    slower = decode_seconds(first, batches, context_tokens=context_tokens)
    wins: NDArray[np.bool_] = decode_seconds(second, batches, context_tokens=context_tokens) < slower
    return wins


def format_crossovers(named: Sequence[tuple[str, Deployment]], *, context_tokens: float) -> tuple[FormatCrossover, ...]:
    """For each pair that changes places: which is faster at one sequence, and from where the other is."""
    found = []
    for place, (name, replica) in enumerate(named):
        for other, rival in named[place + 1 :]:
            single = np.array([1.0])
            ours, theirs = (
                float(decode_seconds(one, single, context_tokens=context_tokens)[0]) for one in (replica, rival)
            )
            pair = ((name, replica), (other, rival)) if ours <= theirs else ((other, rival), (name, replica))
            batch = format_crossover(pair[0][1], pair[1][1], context_tokens=context_tokens)
            found.append(FormatCrossover(earlier=pair[0][0], later=pair[1][0], batch=batch))
    return tuple(found)
