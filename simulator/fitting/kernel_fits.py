"""Fits a user's own measurements can carry: three parameters a kernel family and format, and their errors."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.errors import RoofcastError
from simulator.fitting.measured_work import measured_work
from simulator.fitting.three_parameter import (
    PARAMETERS,
    ParameterRange,
    Points,
    identified,
    roofline_seconds,
    search,
    settled,
)
from simulator.kernels.library import KernelLibrary
from simulator.kernels.roofline import math_dtype, peak_flops_per_s
from simulator.operators.work import Array, Family, Work
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import FitError, KernelFit
from simulator.specs.measured.kernel_times import MeasuredKernel, MeasuredTable
from simulator.units import MICRO

NORMAL_80 = 1.2816
"""Half width of the central 80 % of a normal distribution, in standard deviations."""
SMALLEST_SIGMA = 0.005


def interval_sigma(log_residuals: Array, *, smallest: float = SMALLEST_SIGMA) -> float:
    """Sigma whose 80 % interval covers 80 % of held-out residuals: their 0.8 quantile of |r| over 1.2816."""
    return max(float(np.quantile(np.abs(log_residuals), 0.8)) / NORMAL_80, smallest)


def fit_error(measured: Array, predicted: Array, *, log_sigma: Array, is_score: NDArray[np.bool_]) -> FitError:
    """Errors on both parts; the overall log_sigma and the coverage are those of the score part. Every argument has one
    entry per measured point; ``log_sigma`` is the interval that the model states for it."""
    relative = predicted / measured - 1.0
    log_residual = np.log(measured / predicted)
    covered = np.abs(log_residual) <= NORMAL_80 * log_sigma
    return FitError(
        score_mape=round(float(np.mean(np.abs(relative[is_score]))), 5),
        fit_mape=round(float(np.mean(np.abs(relative[~is_score]))), 5) if not is_score.all() else 0.0,
        score_bias=round(float(np.mean(relative[is_score])), 5),
        log_sigma=round(interval_sigma(log_residual[is_score]), 5),
        coverage_80=round(float(np.mean(covered[is_score])), 4),
        score_points=int(is_score.sum()),
        fit_points=int((~is_score).sum()),
    )


POINTS_AT_LEAST = 15
"""Of one family and format: three parameters, and a fifth held out."""
HELD_OUT_SHARE = 5
"""One shape in five is scored and not fitted."""
PEAK_TOLERANCE = 1.1
"""A product this much faster than the dense peak was not run on this accelerator."""
# Bounds keep each number meaningful: a launch of 0.05 to 500 us, no faster than the datasheet.
RANGE = ParameterRange(lower=np.log([0.05 * MICRO, 0.002, 0.002]), upper=np.log([500 * MICRO, 1.0, 1.0]))
FULL_RATE = 0.995
SAME_ERROR = 1e-3
"""Two fits whose errors differ by less than this share are the same fit, priced along two ways."""
PASS_FORMAT = "bf16"
"""The name under which the kernel library looks up passes of any format."""
ELEMENTWISE_SHARE = {"l2_speedup": 1.0, "l2_share": 0.9, "l2_sharpness": 6.0}
"""Turns the pass model into launch plus bytes over bandwidth: the harness measures cold operands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFamily:
    """Measured kernels of one family and format; arrays over its rows, FLOPs and bytes as seconds at the peaks."""

    family: str
    format: str
    rows: tuple[MeasuredKernel, ...]
    works: tuple[Work, ...]
    peak_s: Array
    bandwidth_s: Array
    seconds: Array
    held_out: NDArray[np.bool_]

    def points(self, chosen: NDArray[np.bool_]) -> Points:
        """The chosen rows as the fit wants them."""
        return Points(peak_s=self.peak_s[chosen], bandwidth_s=self.bandwidth_s[chosen], seconds=self.seconds[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFit:
    """A fit and what it is worth on the held-out rows: mean absolute error before (current fits) and after."""

    fit: KernelFit
    before_mape: float
    after_mape: float
    kept: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """Whether it is as close to the held-out rows as the fits in force, or closer; only then it replaces them.

        As close is the same fit again, which a file that is written anew must still hold.
        """
        return self.after_mape <= self.before_mape * (1 + SAME_ERROR)


def _shape_hash(row: MeasuredKernel) -> int:
    sizes = (row.m, row.n, row.k, row.sequences, row.query_tokens, row.context_tokens)
    heads = (row.num_heads, row.num_kv_heads, row.head_dim, row.bytes)
    text = f"{row.family}|score|" + ",".join(str(int(value)) for value in (*sizes, *heads))
    return zlib.crc32(text.encode("ascii"))


def held_out(rows: Sequence[MeasuredKernel]) -> NDArray[np.bool_]:
    """One shape in five, those with the lowest hash; rows of equal shape fall on the same side."""
    hashes = np.array([_shape_hash(row) for row in rows], dtype=np.int64)
    shapes = np.unique(hashes)
    limit = shapes[max(1, len(shapes) // HELD_OUT_SHARE) - 1]
    chosen: NDArray[np.bool_] = hashes <= limit
    return chosen


def check_points(demand: MeasuredFamily) -> None:
    """Refuse what three parameters and a fifth held out cannot be taken from."""
    if len(demand.rows) < POINTS_AT_LEAST:
        raise RoofcastError(
            f"row {demand.rows[0].line}: {len(demand.rows)} points of {demand.family} {demand.format}; at least "
            f"{POINTS_AT_LEAST} are needed",
            field="family",
            code="too_few_points",
            hint="give the measurement more time, or choose the families to fit",
        )


def _check_demand(demand: MeasuredFamily, *, hardware: AcceleratorSpec) -> None:
    too_fast = np.flatnonzero(demand.peak_s > PEAK_TOLERANCE * demand.seconds)
    if too_fast.size:
        row, share = demand.rows[too_fast[0]], demand.peak_s[too_fast[0]] / demand.seconds[too_fast[0]]
        raise RoofcastError(
            f"row {row.line}: {row.seconds:g} s is {share:.1f} times the {demand.format} peak of {hardware.name}",
            field="seconds",
            code="faster_than_peak",
            hint="is that the device that was measured?",
        )


def demands(table: MeasuredTable, *, hardware: AcceleratorSpec) -> tuple[MeasuredFamily, ...]:
    """What was measured of each family and format that can be priced; refuses times that the hardware cannot reach."""
    groups: dict[tuple[str, str], list[tuple[MeasuredKernel, Work]]] = {}
    for row in table.rows:
        work = measured_work(row)
        # Without a peak of its own a format is emulated, and no share of a peak describes it.
        dtype = math_dtype(work) if work is not None else None
        if work is not None and (dtype is None or dtype in hardware.peak_flops_per_s):
            # A pass is priced by its bytes, whatever the numbers in them.
            fmt = PASS_FORMAT if row.family == Family.ELEMENTWISE else row.format
            groups.setdefault((row.family, fmt), []).append((row, work))
    found = []
    for (family, fmt), pairs in groups.items():
        rows, works = tuple(row for row, _ in pairs), tuple(work for _, work in pairs)
        peaks = np.array([peak_flops_per_s(work, hardware) for work in works])
        demand = MeasuredFamily(
            family=family,
            format=fmt,
            rows=rows,
            works=works,
            peak_s=np.array([float(work.flops[0]) for work in works]) / peaks,
            bandwidth_s=np.array([float(work.bytes[0]) for work in works]) / hardware.memory_bytes_per_s,
            seconds=np.array([row.seconds for row in rows]),
            held_out=held_out(rows),
        )
        _check_demand(demand, hardware=hardware)
        found.append(demand)
    return tuple(found)


def _current_logs(demand: MeasuredFamily, kernels: KernelLibrary) -> Array:
    """The three parameters in force, of this format or of 16-bit numbers, or ones in mid-range for passes."""
    fits = kernels.roofline
    family = "gemm" if demand.family == Family.ELEMENTWISE else demand.family
    fit = fits.find(family=family, fmt=demand.format) or fits.find(family=family, fmt="bf16")
    assert fit is not None, "every roofline calibration holds the bf16 families"
    return np.log([fit.parameters[name] for name in PARAMETERS])


def _mape(predicted: Array, measured: Array) -> float:
    return float(np.abs(predicted / measured - 1).mean())


def _error(ratio: Array, held: NDArray[np.bool_]) -> FitError:
    """Errors of predicted / measured; the spread comes from the held-out rows as soon as there are enough."""
    sigma = interval_sigma(np.log(ratio[held] if held.sum() >= POINTS_AT_LEAST else ratio))
    error = fit_error(np.ones_like(ratio), ratio, log_sigma=np.full(len(ratio), sigma), is_score=held)
    return error.model_copy(update={"log_sigma": round(sigma, 5)})


def _as_written(logs: Array) -> Array:
    """The parameters with the digits of their file: a fit is scored as what reads the file will price."""
    return np.log([float(f"{value:.5g}") for value in np.exp(logs)])


def _named(logs: Array, demand: MeasuredFamily) -> Mapping[str, float]:
    values = {name: float(f"{value:.5g}") for name, value in zip(PARAMETERS, np.exp(logs), strict=True)}
    if demand.family != Family.ELEMENTWISE:
        return values
    return {"launch_s": values["launch_s"], "memory_fraction": values["memory_fraction"], **ELEMENTWISE_SHARE}


def _note(parameters: Mapping[str, float], *, kept: Sequence[str]) -> str:
    """What a reader should know: values that were kept, and rates that reach the datasheet's."""
    notes = [f"not identified by the measured shapes, value kept: {', '.join(kept)}"] if kept else []
    full = [name for name in PARAMETERS[1:] if name not in kept and parameters.get(name, 0.0) >= FULL_RATE]
    if full:
        notes.append(f"at or above the datasheet rate (operands in a cache?): {', '.join(full)}")
    return "; ".join(notes)


def fit_demand(demand: MeasuredFamily, *, kernels: KernelLibrary) -> UserFit:
    """Fit one family and format on four fifths of its shapes and score it, and the fits in force, on the others."""
    seen = demand.points(~demand.held_out)
    logs, current = search(seen, within=RANGE), _current_logs(demand, kernels)
    known = identified(logs, seen, within=RANGE)
    if not known[1:].any():
        raise RoofcastError(
            f"row {demand.rows[0].line}: the {len(demand.rows)} shapes of {demand.family} {demand.format} are all so "
            "small that launches hide what they do",
            field="seconds",
            code="not_identifiable",
            hint="measure larger shapes",
        )
    logs = _as_written(settled(logs, seen, within=RANGE, otherwise=current))
    predicted = roofline_seconds(logs, peak_s=demand.peak_s, bandwidth_s=demand.bandwidth_s)[0]
    held = demand.held_out
    before = np.array([float(kernels.price(work).seconds[0]) for work in demand.works])
    parameters = _named(logs, demand)
    kept = tuple(name for name, is_known in zip(PARAMETERS, known, strict=True) if not is_known and name in parameters)
    is_pass = demand.family == Family.ELEMENTWISE
    moved = [float(work.bytes[0]) for work in demand.works]
    fit = KernelFit(
        family=demand.family,
        format=demand.format,
        variant="pass" if is_pass else "",
        model="launch_plus_bytes" if is_pass else "three_parameter",
        parameters=dict(parameters),
        box={"bytes": (min(moved), max(moved))},
        error=_error(predicted / demand.seconds, held),
        note=_note(parameters, kept=kept),
    )
    return UserFit(
        fit=fit,
        before_mape=_mape(before[held], demand.seconds[held]),
        after_mape=_mape(predicted[held], demand.seconds[held]),
        kept=kept,
    )
