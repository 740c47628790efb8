"""What a kernel takes, what bound it, how we know; how two limits meet; several products as cases of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from enum import IntEnum
from itertools import accumulate
from math import exp, inf, isfinite, isnan, log
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.operators.work import Array, CollectiveShape, GemmShape, Work
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.precision import Dtype
from simulator.units import BITS_PER_BYTE

FLOPS_PER_INSTRUCTION = 2.0
"""The datasheet counts a multiply-add, one instruction of a lane, as 2 FLOPs."""


class Provenance(IntEnum):
    """How a number is known, best first; a sum is as good as its worst part."""

    MEASURED = 0
    CALIBRATED = 1
    EXTRAPOLATED = 2
    ASSUMED = 3

    @property
    def label(self) -> str:
        """The word shown to people."""
        return self.name.lower()


Range = tuple[float, float]
"""Low and high end of an interval."""
LEVEL = 0.8
"""Share of measured values that an interval should hold."""
DEVIATE: float = NormalDist().inv_cdf((1 + LEVEL) / 2)


def interval(value: float, *, log_sigma: float) -> Range | None:
    """The 80 % interval around a positive prediction with log-normal error; None where there is no prediction.

    value / s to value s with s = exp(z sigma) and z = 1.2816 the deviate that leaves a tenth on either side: at a
    spread of 10 %, 100 ms are 88 to 114 ms.

    >>> low, high = interval(0.1, log_sigma=0.1)
    >>> round(low, 4), round(high, 4)
    (0.088, 0.1137)
    """
    if isnan(value):
        return None
    spread = exp(DEVIATE * log_sigma)
    return value / spread, value * spread


def inverse_ends(value: float, *, now: float, ends: Range) -> Range:
    """The 80 % interval of ``value`` that stands inversely to a prediction ``now`` with the interval ``ends``.

    A known amount of work over a time, or a known rate of spending over a throughput: at the long end it is low. An end
    of nothing gives no bound.

    >>> inverse_ends(0.5, now=0.1, ends=(0.08, 0.125))
    (0.4, 0.625)
    """
    low, high = ends
    return value * now / high, value * now / low if low else inf


def chance_within(bound: float, *, value: float, ends: Range) -> float:
    """Probability that a prediction with an 80 % interval stays at or under a bound.

    Log-normal on either side of the value, with that side's own width, so that waiting times, which grow faster than
    step times, keep their longer upper end. A value without an interval is taken as certain, an infinite one as
    overload, which meets no bound; nothing takes no time.

    >>> round(chance_within(0.11, value=0.1, ends=(0.09, 0.11)), 2)
    0.9
    """
    if not isfinite(value) or bound <= 0 < value:
        return 0.0
    end = ends[1] if bound >= value else ends[0]
    if end == value:
        return 1.0 if value <= bound else 0.0
    if not 0 < end < inf:
        return 0.5
    return NormalDist().cdf(DEVIATE * log(bound / value) / abs(log(end / value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Price of one execution of a kernel on one device (arrays over the cases of its shape).

    seconds : predicted time [s]
    compute_s, memory_s, network_s : the roofline terms inside it, for "what bound it" [s]
    tensor_s : what its products, the padding of tiles too, would take at the tensor units' peak [s]
    log_sigma : standard deviation of log(measured / predicted) on shapes that the fit never saw
    provenance : Provenance value of each case
    """

    seconds: Array
    compute_s: Array
    memory_s: Array
    network_s: Array
    tensor_s: Array
    log_sigma: Array
    provenance: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a kernel's physics says, before any correction: the time, and the roofline terms inside it (arrays) [s]."""

    seconds: Array
    compute_s: Array
    memory_s: Array


def widened(timing: Timing, *, log_sigma_extra: float, known: Provenance = Provenance.EXTRAPOLATED) -> Timing:
    """``timing`` with a spread added in quadrature, at best ``known``; unchanged where nothing is added."""
    if log_sigma_extra == 0:
        return timing
    return replace(
        timing,
        log_sigma=np.hypot(timing.log_sigma, log_sigma_extra),
        provenance=np.maximum(timing.provenance, float(known)),
    )


TimesT = TypeVar("TimesT", Terms, Timing)


def matrix_vector_terms(
    weights: Array,
    rows: Array,
    *,
    bits: float,
    moved_bytes: Array,
    widen_s: float,
    hardware: AcceleratorSpec,
    parameters: Mapping[str, float],
) -> Terms:
    """A matrix-vector kernel (llama.cpp's mul_mat_vec): vector units multiply the rows that each weight meets and fill
    no tile [Williams2009]. Leaves out integer units, which multiply four 8-bit numbers at once.

    weights : of ``bits`` that are read; moved_bytes : of activations; widen_s : device time to widen one weight
    """
    compute = weights * (widen_s + rows * FLOPS_PER_INSTRUCTION / hardware.vector_flops_per_s[Dtype.FP32])
    rate = parameters["memory_fraction"] * hardware.memory_bytes_per_s
    memory = (weights * bits / BITS_PER_BYTE + moved_bytes) / rate
    seconds = parameters["launch_s"] + smooth_maximum(compute, memory, sharpness=parameters["overlap"])
    return Terms(seconds=seconds, compute_s=compute, memory_s=memory)


def chosen(first: NDArray[np.bool_], one: TimesT, other: TimesT) -> TimesT:
    """The cases of ``one`` where ``first`` holds, of ``other`` elsewhere."""
    names = (field.name for field in fields(one))
    return type(one)(**{name: np.where(first, getattr(one, name), getattr(other, name)) for name in names})


def between(one: Timing, other: Timing, share: float) -> Timing:
    """A kernel that lies from ``one`` towards ``other`` by ``share``, as little known as the less known of the two."""
    names = ("seconds", "compute_s", "memory_s", "network_s", "tensor_s")
    mixed = {name: (1 - share) * getattr(one, name) + share * getattr(other, name) for name in names}
    return Timing(
        **mixed,
        log_sigma=np.maximum(one.log_sigma, other.log_sigma),
        provenance=np.maximum(one.provenance, other.provenance),
    )


def mean_timing(timings: Sequence[Timing]) -> Timing:
    """The mean of what several say of one kernel."""
    mean = timings[0]
    for place, timing in enumerate(timings[1:], start=2):
        mean = between(mean, timing, 1 / place)
    return mean


L2_SHARPNESS = 3.0
"""How abruptly the share of L2 hits falls when the working set outgrows the L2, where a fit does not say."""


def l2_hit_share(working_set_bytes: Array, *, l2_bytes: float, sharpness: float = L2_SHARPNESS) -> Array:
    """Share of the traffic that the L2 serves: near 1 below its capacity, falling off above [-]."""
    return 1.0 / (1.0 + (working_set_bytes / l2_bytes) ** sharpness)


def smooth_maximum(first: Array, second: Array | float, *, sharpness: float) -> Array:
    """(a**q + b**q)**(1/q): at least the larger of two positive terms, at most 2**(1/q) times it."""
    large = np.maximum(first, second)
    return large * (1.0 + (np.minimum(first, second) / large) ** sharpness) ** (1.0 / sharpness)


def without_idle(timing: Timing, work: Work) -> Timing:
    """``timing`` with nothing for the cases that have nothing to do."""
    # A collective moves its message over links, not through this device's memory. Most rows always have work.
    flops = np.asarray(work.flops)
    if isinstance(work.shape, CollectiveShape) or np.count_nonzero(flops) == flops.size:
        return timing
    moved = np.asarray(work.bytes)
    if np.count_nonzero(moved) == moved.size:
        return timing
    idle = (flops == 0) & (moved == 0)
    if not idle.any():
        return timing
    return replace(
        timing,
        seconds=np.where(idle, 0.0, timing.seconds),
        log_sigma=np.where(idle, 0.0, timing.log_sigma),
        provenance=np.where(idle, 0.0, timing.provenance),
    )


# Products of more cases than this are priced one by one: joined, their intermediate arrays would leave the cache.
JOINED_CASES = 256


def join(shapes: Sequence[GemmShape]) -> GemmShape:
    """The cases of products of one format and batch, end to end."""
    sizes = [np.size(shape.m) for shape in shapes]
    m = np.concatenate([np.atleast_1d(np.asarray(shape.m, dtype=np.float64)) for shape in shapes])
    # Prices broadcast n and k just as m; few rows have one of each for every case.
    of_columns: Any = {name: _repeated([getattr(shape, name) for shape in shapes], sizes) for name in ("n", "k")}
    return replace(shapes[0], m=m, **of_columns)


def _repeated(values: Sequence[Any], sizes: Sequence[int]) -> Array:
    """Each value as often as its row has cases, unless it has one for every case."""
    if any(np.ndim(value) for value in values):
        return np.concatenate(
            [np.full(size, value, dtype=np.float64) for value, size in zip(values, sizes, strict=True)]
        )
    return np.repeat(np.array(values, dtype=np.float64), sizes)


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


def priced_once(shape: GemmShape, price: Callable[[GemmShape], Timing | None]) -> Timing | None:
    """``price`` of the products that differ; every case gets its own back."""
    m, n, k = (
        np.asarray(size, dtype=np.float64) for size in np.broadcast_arrays(np.atleast_1d(shape.m), shape.n, shape.k)
    )
    once, cases = distinct(m, n, k)
    of_columns: Any = {"n": n[once], "k": k[once]}
    timing = price(replace(shape, m=m[once], **of_columns))
    if timing is None:
        return None
    return Timing(**{field.name: getattr(timing, field.name)[cases] for field in fields(Timing)})


def split(timing: Timing, *, sizes: Sequence[int]) -> tuple[Timing, ...]:
    """The parts of a joined timing, with ``sizes`` cases each."""
    joined = {field.name: getattr(timing, field.name) for field in fields(Timing)}
    ends = list(accumulate(sizes))
    cuts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return tuple(Timing(**{name: values[cut] for name, values in joined.items()}) for cut in cuts)
