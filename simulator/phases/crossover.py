"""At which batch decoding stops waiting for memory, and which number format decodes fastest at which batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.roofline import FLOOR, roofline_timing
from simulator.kernels.timing import Provenance
from simulator.operators.work import Array, Family, decode_step
from simulator.phases.deployment import Deployment
from simulator.phases.step import StepEstimate, estimate_step
from simulator.records import dataclass
from simulator.techniques.applied import device_rows

_WEIGHT_FAMILIES = (Family.GEMM, Family.MOE, Family.LM_HEAD)
LARGEST_BATCH = 4096
_TRIED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverRange:
    """A crossover batch and where kernels as uncertain as in validation turn; None beyond 4,096.

    provenance : of the kernels that the width of the range comes from
    """

    batch: int | None
    low: int | None
    high: int | None
    provenance: Provenance


def crossover_batch(deployment: Deployment, *, context_tokens: int, ratio: float = 1.0) -> int | None:
    """Smallest number of decoding sequences whose weight products are bound by compute [-]; None beyond 4,096.

    Equation
    --------
    min b with sum of F(b) / P >= ratio x sum of B(b) / W over the weight products

    Parameters
    ----------
    deployment : weight products with their FLOPs F [FLOP] and bytes B [bytes], datasheet peak P [FLOP/s] and bandwidth
        W [bytes/s]
    context_tokens : cached tokens of a sequence [-]
    ratio : compute over memory time that counts as turned [-]

    Range of validity
    -----------------
    Below it a further sequence is nearly free, because the weights are read anyway; above it each one costs. Real
    kernels turn later and gradually. Leaves out attention, whose intensity does not depend on the batch.

    References
    ----------
    [Williams2009]

    Examples
    --------
    The ridge of an H100 is at 295 FLOPs a byte of weights; activations move it by a tenth.

    >>> from simulator import deploy, load_hardware, load_model
    >>> replica = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"))
    >>> crossover_batch(replica, context_tokens=1024)
    326
    """
    low, high = 0, LARGEST_BATCH
    if not _computes(deployment, np.array([float(high)]), context_tokens=context_tokens, ratio=ratio)[0]:
        return None
    while high - low > 1:
        # A few points a round: one vectorised count prices them all.
        tried = np.linspace(low + 1, high, min(_TRIED_AT_ONCE, high - low)).astype(int)
        bound = _computes(deployment, tried.astype(float), context_tokens=context_tokens, ratio=ratio)
        first = int(np.argmax(bound))
        low, high = (int(tried[first - 1]) if first else low), int(tried[first])
    return high


def crossover_range(deployment: Deployment, *, context_tokens: int, z: float) -> CrossoverRange:
    """The crossover and its range at ``z`` standard deviations of the kernels' errors.

    Either side of the roof may be off by as much as the weight products are in validation, independently: the batch
    is moved to where the ratio of the two has changed by sqrt(2) of that spread.

    Reference: [Williams2009]
    """
    batch = crossover_batch(deployment, context_tokens=context_tokens)
    at = decode_step(sequences=float(batch or LARGEST_BATCH), context=float(context_tokens))
    sigma, provenance = _weight_products(estimate_step(deployment, at))
    spread = math.exp(z * math.sqrt(2) * sigma)
    low, high = (
        crossover_batch(deployment, context_tokens=context_tokens, ratio=ratio) for ratio in (1 / spread, spread)
    )
    return CrossoverRange(batch=batch, low=low, high=high, provenance=provenance)


def _weight_products(estimate: StepEstimate) -> tuple[float, Provenance]:
    """Log standard deviation of the weight products of one step, weighted by time, and their worst provenance."""
    rows = [row for row in estimate.rows if row.work.family in _WEIGHT_FAMILIES]
    seconds = np.array([row.seconds[0] for row in rows])
    sigmas = np.array([row.timing.log_sigma[0] for row in rows])
    worst = max(int(row.timing.provenance[0]) for row in rows)
    return float(seconds @ sigmas / seconds.sum()), Provenance(worst)


def _computes(deployment: Deployment, batches: Array, *, context_tokens: int, ratio: float) -> NDArray[np.bool_]:
    """Whether the weight products of each batch take ``ratio`` times as long to compute as to read."""
    step = decode_step(sequences=batches, context=float(context_tokens))
    compute_s, memory_s = np.zeros_like(batches), np.zeros_like(batches)
    for stage in range(deployment.parallelism.pp_size):
        for work in device_rows(deployment.techniques, parallelism=deployment.parallelism, step=step, stage=stage):
            if work.family in _WEIGHT_FAMILIES:
                floor = roofline_timing(work, hardware=deployment.hardware, parameters=FLOOR)
                compute_s += work.count * floor.compute_s
                memory_s += work.count * floor.memory_s
    return compute_s >= ratio * memory_s


LARGEST_FORMAT_BATCH = 4096
"""Beyond any engine's number of running sequences."""

GRID_POINTS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatCrossover:
    """From ``batch`` decoding sequences on, ``later`` is faster than ``earlier``; None: not up to 4,096."""

    earlier: str
    later: str
    batch: int | None

    @property
    def last_before(self) -> int | None:
        """The largest batch at which ``earlier`` is the faster one."""
        return None if self.batch is None else self.batch - 1


def decode_seconds(deployment: Deployment, batches: Array, *, context_tokens: float) -> Array:
    """Time of one decode step at each batch size [s]."""
    return estimate_step(deployment, decode_step(sequences=batches, context=context_tokens)).step_s


def format_crossover(first: Deployment, second: Deployment, *, context_tokens: float) -> int | None:
    """The batch that best separates those where ``first`` decodes faster from those where ``second`` does.

    1 where ``second`` always is, None where ``first`` is up to 4,096. Weight-only formats win while the step waits for
    weights and lose where dequantisation meets the compute roof, so that W8A8 overtakes them: the answer depends on the
    device's ridge point and on the kernels, not on a rule of thumb. Times wobble where kernels change tiles; the
    batch returned leaves the fewest sizes on the wrong side. Both replicas are taken as if every batch fitted.

    Reference: [Williams2009], [Frantar2024]
    """
    grid = _grid(1, LARGEST_FORMAT_BATCH)
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
    # Not np.unique: its first call imports numpy.ma, a twentieth of a command that asks for one step.
    return np.array(sorted(set(np.geomspace(low, high, GRID_POINTS).round().tolist())))


def _wins(first: Deployment, second: Deployment, batches: Array, *, context_tokens: float) -> NDArray[np.bool_]:
    slower = decode_seconds(first, batches, context_tokens=context_tokens)
    return decode_seconds(second, batches, context_tokens=context_tokens) < slower


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
