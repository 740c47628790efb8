"""Fit the GEMM model of an accelerator and library: ``python -m validation.fit.kernels.gemm --hardware h100``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import interval_sigma
from simulator.kernels.gemm import gemm_machine, gemm_seconds
from simulator.kernels.timing import Lattice, log2_coordinates, log_correction, shape_confidence
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import KernelFit, LatticeSpec
from simulator.units import BITS_PER_BYTE
from validation.fit.corrected import Fitted, Predicted, report, scored, write_fits
from validation.fit.files import fit_tables
from validation.fit.lattice import Smoothness, fit_lattice, held_out_corrections
from validation.fit.physics import Bound, fit_parameters, stratified_sample
from validation.fit.residuals import NOT_SCORED, regime_sigmas
from validation.silicon.formats import GEMM_FORMATS, WIDENED
from validation.silicon.split import folds, is_score
from validation.silicon.tables import load_table

Array = NDArray[np.float64]

AXES = ("m", "n", "k")
SHAPE = ("n", "k")
M_REGIMES = (8.0, 128.0, 1024.0, 65536.0)
CHUNK = 4096

TIMED_EAGERLY = {("vllm", "fp8_block")}
"""Tables whose floor is the host's launch, not the kernel: not fitted."""

BOUNDS: dict[str, Bound] = {
    "launch_s": Bound(low=3e-7, high=2e-5, start=2e-6),
    "compute_fraction": Bound(low=0.2, high=1.0, start=0.85),
    "prologue": Bound(low=1.0, high=2000.0, start=200.0),
    "half_tile": Bound(low=0.1, high=200.0, start=15.0),
    "wave_quantisation": Bound(low=0.01, high=1.0, start=0.6),
    "l2_share": Bound(low=0.1, high=2.0, start=0.7),
    "l2_sharpness": Bound(low=2.0, high=20.0, start=3.0),
    "l2_speedup": Bound(low=1.0, high=8.0, start=2.5),
    "memory_fraction": Bound(low=0.3, high=1.0, start=0.85),
    "unit_bandwidth": Bound(low=1.0, high=20.0, start=4.0),
    "overlap": Bound(low=1.2, high=12.0, start=4.0),
    "split_s": Bound(low=1e-8, high=3e-5, start=5e-7),
    "droop": Bound(low=0.001, high=0.6, start=0.1),
    "droop_s": Bound(low=1e-6, high=1e-1, start=1e-3),
}

QUANTISE_BOUNDS: dict[str, Bound] = {
    "quantise_s": Bound(low=1e-7, high=2e-5, start=2e-6),
    "quantise_fraction": Bound(low=0.05, high=1.0, start=0.6),
    "quantise_row_s": Bound(low=1e-9, high=5e-6, start=2e-7),
    "quantise_element_s": Bound(low=1e-13, high=2e-9, start=5e-11),
}

REACH_OCTAVES = 2.0
"""How far the correction reaches beyond the box; chosen by leaving out the largest n and k of H100 and B200."""

UNINITIALISED = (
    "measured on weights that the benchmark left uninitialised: large products run at a higher clock than on random "
    "data (H100: 0.80 of the peak against 0.73 under sglang), so real models may take up to a tenth longer"
)

WEIGHTS_ALONE = "of a table of 8-bit weights on units that multiply no such numbers: half the bytes, the 16-bit rate"

CONSTANT = "measured on constant weights: large products may run at a higher clock than on real data"

EVENED = (
    "products that take over 1.5 times as long as the same with more rows (1 to 4 in a hundred, 1.6 to 2 times "
    "in the median) are fitted at the time of those, and scored as measured"
)

NOTES = {("vllm", "bfloat16"): UNINITIALISED, ("vllm", "fp8"): CONSTANT, ("sglang", "fp8_block"): EVENED}
"""Systematic errors of a table that no fit on it can see, and rows that were changed before they were fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """How a table was measured and how densely.

    cold : weights came from memory in every repetition, because the loop went through more copies than a cache holds
    octaves : every shape has token counts of its own, so that the correction varies smoothly over whole octaves of m
    """

    cold: bool = False
    octaves: bool = False


COMMON_GRID = Sweep()
"""Weights that may stay in L2, and the same m for every shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to fit the correction: its prior, and how firmly outliers are set aside."""

    length: float
    noise: float
    outlier: float = 2.0
    rounds: int = 3

    def prior(self, sweep: Sweep) -> tuple[Smoothness, ...]:
        """Rows of different m are corrected separately where every shape was measured at the same m: the tile a library
        picks jumps between neighbouring m."""
        along_m = 1.0 if sweep.octaves else 0.003
        return (Smoothness(lengths=(along_m, self.length, self.length), noise=self.noise),)


FIRST_ROW = 1.5
"""vLLM's FP8 table of Blackwell has 13 to 16 us more for one row than for two, at every size and on all four chips
(factors of 2.2 to 2.8); its other tables and SGLang's of the same CUTLASS kernels have factors below 1.2."""

UNEVEN = {("sglang", "fp8_block")}
"""Tables that hold products far slower than the same ones with more rows, at sizes of their own: 902 of 29,500 in
SGLang 0.5.14's on B200, 1,226 on H200 (914 of them on H100 too, so that the release's choice of tiles is to blame).
They take 1.6 to 1.9 times as long as TensorRT-LLM's same kernels on six accelerators, at the time of more rows 0.87 to
1.04, as all others do; on H100 SGLang 0.5.6 has none of them (2.9 times; mean difference over all shapes at 512 to
4,096 rows 0.14 to 0.24 before, 0.08 to 0.15 after)."""
FEWER_ROWS = 1.5
"""How much longer than one with more rows such a product takes at least."""

CANDIDATES = (
    Candidate(length=4.0, noise=0.1),
    Candidate(length=4.0, noise=0.03),
    Candidate(length=8.0, noise=0.1),
    Candidate(length=2.5, noise=0.1),
    Candidate(length=4.0, noise=0.1, outlier=1.0, rounds=5),
)


def gemm_rows(table: pd.DataFrame, *, gemm_dtype: str, library: str) -> pd.DataFrame:
    """Rows of one format: m, n, k, measured_s (median over repeats), seconds, which differ from it where the table is
    known to be wrong and are what is fitted, and which part each row belongs to."""
    rows = table[table["gemm_dtype"] == gemm_dtype]
    rows = rows.groupby(["m", "n", "k"], as_index=False)["seconds"].median()
    rows = _with_first_rows(rows.assign(measured_s=rows["seconds"]))
    if (library, gemm_dtype) in UNEVEN:
        rows = _no_slower_than_more_rows(rows)
    rows["is_score"] = is_score(rows, family="gemm", columns=SHAPE)
    rows["fold"] = folds(rows, family="gemm", columns=SHAPE, count=4)
    return rows


def _with_first_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows``, products of one row at the times of two where half of them take over ``FIRST_ROW`` times as long.

    One row fills no more of a tile than two and can be padded to them: what takes longer is how it was measured.
    """
    times = rows.pivot(index=["n", "k"], columns="m", values="seconds")
    if not {1, 2} <= set(times.columns) or not (times[1] / times[2]).median() > FIRST_ROW:
        return rows
    two = times[2].reindex(pd.MultiIndex.from_frame(rows[["n", "k"]])).to_numpy()
    return rows.assign(seconds=np.where(rows["m"] == 1, np.fmin(rows["seconds"], two), rows["seconds"]))


def _no_slower_than_more_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows``, products that take over ``FEWER_ROWS`` times as long as the same with more rows at the time of those.

    Rows can be filled up to any number: what is slower alone is the tile that a release picks for it.
    """
    ordered = rows.sort_values("m", ascending=False)
    more = ordered.groupby(["n", "k"])["seconds"].cummin().groupby([ordered["n"], ordered["k"]]).shift()
    more = more.reindex(rows.index)
    return rows.assign(seconds=rows["seconds"].where(~(rows["seconds"] > FEWER_ROWS * more), more))


def physics_seconds(
    rows: pd.DataFrame,
    *,
    hardware: AcceleratorSpec,
    format: MatmulFormat,
    parameters: Mapping[str, float],
    sweep: Sweep = COMMON_GRID,
    batch: float = 1.0,
) -> Array:
    """``gemm_seconds`` of every row, in chunks that stay in cache."""
    machine = gemm_machine(hardware, format)
    sizes = [rows[axis].to_numpy(dtype=float) for axis in AXES]
    parts = [
        gemm_seconds(
            *(size[start : start + CHUNK] for size in sizes),
            machine=machine,
            parameters=parameters,
            weight_bytes=format.weight_bits / BITS_PER_BYTE,
            activation_bytes=format.activation_bits / BITS_PER_BYTE,
            quantises=format.quantises_activations,
            cold=sweep.cold,
            batch=batch,
        ).seconds
        for start in range(0, len(rows), CHUNK)
    ]
    return np.concatenate(parts)


def correction_nodes(points: Array, *, sweep: Sweep) -> tuple[Array, ...]:
    """Nodes at every size that was measured; of m at whole octaves where the shapes share no grid."""
    nodes = [np.unique(points[:, axis]) for axis in range(len(AXES))]
    if sweep.octaves:
        nodes[0] = np.arange(np.floor(nodes[0][0]), np.ceil(nodes[0][-1]) + 1.0)
    return tuple(nodes)


def fit_format(
    rows: pd.DataFrame,
    *,
    hardware: AcceleratorSpec,
    format: MatmulFormat,
    file: str,
    note: str = "",
    sweep: Sweep = COMMON_GRID,
) -> Fitted:
    """Physics, then the prior chosen by cross-validation inside the fit part, then the correction; scored last."""
    seen = rows[~rows["is_score"]].reset_index(drop=True)
    sample = seen.iloc[stratified_sample(np.log2(seen["m"].to_numpy(dtype=float)), count=5000)]
    bounds = BOUNDS | (QUANTISE_BOUNDS if format.quantises_activations else {})
    parameters = fit_parameters(
        lambda trial: physics_seconds(sample, hardware=hardware, format=format, parameters=trial, sweep=sweep),
        sample["seconds"].to_numpy(),
        bounds=bounds,
    )
    physics = physics_seconds(seen, hardware=hardware, format=format, parameters=parameters, sweep=sweep)
    residual = np.log(seen["seconds"].to_numpy() / physics)
    points = log2_coordinates(*(seen[axis] for axis in AXES))
    nodes = correction_nodes(points, sweep=sweep)
    best, held_out = choose_candidate(points, residual, seen["fold"].to_numpy(), nodes=nodes, sweep=sweep)
    lattice = fit_lattice(
        points,
        residual,
        axes=AXES,
        nodes=nodes,
        prior=best.prior(sweep),
        outlier=best.outlier,
        rounds=best.rounds,
        reach=REACH_OCTAVES,
    )
    draft = KernelFit(
        family="gemm",
        format=format.name,
        model="tiled_gemm",
        parameters=parameters,
        correction=LatticeSpec(file=file, key=f"gemm.{format.name}", axes=AXES, reach=REACH_OCTAVES),
        box={axis: (float(seen[axis].min()), float(seen[axis].max())) for axis in AXES},
        error=NOT_SCORED,
        physics_log_sigma=round(interval_sigma(residual), 5),
        regimes=regime_sigmas(residual - held_out, seen["m"].to_numpy(dtype=float), axis="m", uppers=M_REGIMES),
        note=note,
    )
    return scored(
        draft,
        lattice=lattice,
        measured=rows["measured_s"].to_numpy(),
        predicted=predict(rows, fit=draft, hardware=hardware, format=format, lattice=lattice, sweep=sweep),
        is_score=rows["is_score"].to_numpy(),
    )


def choose_candidate(
    points: Array, residual: Array, fold: NDArray[np.int64], *, nodes: tuple[Array, ...], sweep: Sweep
) -> tuple[Candidate, Array]:
    """The candidate with the smallest held-out error over the folds, and its held-out corrections."""
    trials = []
    for candidate in CANDIDATES:
        held_out = held_out_corrections(
            points,
            residual,
            fold,
            axes=AXES,
            nodes=nodes,
            prior=candidate.prior(sweep),
            outlier=candidate.outlier,
            rounds=candidate.rounds,
        )
        trials.append((float(np.mean(np.abs(np.expm1(held_out - residual)))), candidate, held_out))
    _, best, held_out = min(trials, key=lambda trial: trial[0])
    return best, held_out


def predict(
    rows: pd.DataFrame,
    *,
    fit: KernelFit,
    hardware: AcceleratorSpec,
    format: MatmulFormat,
    lattice: Lattice | None,
    sweep: Sweep = COMMON_GRID,
) -> Predicted:
    """Every row as ``gemm_timing`` prices it."""
    points = log2_coordinates(*(rows[axis] for axis in AXES))
    physics_s = physics_seconds(rows, hardware=hardware, format=format, parameters=fit.parameters, sweep=sweep)
    log_sigma, _ = shape_confidence(fit, points, axes=AXES)
    return Predicted(
        seconds=physics_s * np.exp(log_correction(lattice, points)), log_sigma=log_sigma, physics_s=physics_s
    )


def fit_library(hardware_name: str, *, library: str, root: Path, directory: Path) -> None:
    """Fit every usable format of one table and write the calibration."""
    table = load_table(root, hardware=hardware_name, family="gemm", library=library, table="gemm")
    if table is None:
        return
    hardware = load_hardware(hardware_name)
    fitted: list[Fitted] = []
    for gemm_dtype, format in GEMM_FORMATS.items():
        if (library, gemm_dtype) in TIMED_EAGERLY or gemm_dtype not in set(table.rows["gemm_dtype"]):
            continue
        file = f"{hardware_name}--{library}.gemm.npz"
        rows = gemm_rows(table.rows, gemm_dtype=gemm_dtype, library=library)
        note = NOTES.get((library, gemm_dtype), "")
        if format.math not in hardware.peak_flops_per_s:
            format, note = WIDENED[gemm_dtype], WEIGHTS_ALONE
        fitted.append(fit_format(rows, hardware=hardware, format=format, file=file, note=note))
        report(fitted[-1], hardware=hardware_name, library=library, points=len(rows))
    write_fits(
        fitted,
        hardware=hardware_name,
        library=library,
        version=table.version,
        group="gemm",
        split="gemm table; one (n, k) in five held out",
        directory=directory,
    )


if __name__ == "__main__":
    fit_tables(fit_library, description=__doc__)
