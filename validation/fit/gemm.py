"""Fit the GEMM model of one accelerator and library: ``python -m validation.fit.gemm --hardware h100-sxm-80gb``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.kernels.correction import Lattice, log2_coordinates, log_correction, shape_confidence
from simulator.kernels.gemm import gemm_machine, gemm_seconds
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit, LatticeSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.precision import Dtype
from simulator.units import BITS_PER_BYTE
from validation.fit.files import fit_tables, lattice_arrays, write_calibration
from validation.fit.lattice import Smoothness, fit_lattice, held_out_corrections
from validation.fit.physics import Bound, fit_parameters, stratified_sample
from validation.fit.residuals import NOT_SCORED, fit_error, interval_sigma, regime_sigmas
from validation.silicon.split import folds, is_score
from validation.silicon.tables import SOURCE, load_table

Array = NDArray[np.float64]

AXES = ("m", "n", "k")
SHAPE = ("n", "k")
M_REGIMES = (8.0, 128.0, 1024.0, 65536.0)
CHUNK = 4096

FORMATS: dict[str, MatmulFormat] = {
    "bfloat16": MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16),
    "fp8": MatmulFormat(name="fp8", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True),
    "fp8_block": MatmulFormat(
        name="fp8_block",
        weight_bits=8 + 32 / 128**2,
        activation_bits=8 + 32 / 128,
        math=Dtype.FP8,
        quantises_activations=True,
    ),
    "nvfp4": MatmulFormat(
        name="nvfp4", weight_bits=4.5, activation_bits=4.5, math=Dtype.FP4, quantises_activations=True
    ),
    "sq": MatmulFormat(name="int8", weight_bits=8, activation_bits=8, math=Dtype.INT8, quantises_activations=True),
    "int8_wo": MatmulFormat(name="w8a16", weight_bits=8, activation_bits=16, math=Dtype.BF16),
    "int4_wo": MatmulFormat(name="w4a16", weight_bits=4, activation_bits=16, math=Dtype.BF16),
}
"""gemm_dtype of the tables -> format of the operators."""

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

CONSTANT = "measured on constant weights: large products may run at a higher clock than on real data"

NOTES = {("vllm", "bfloat16"): UNINITIALISED, ("vllm", "fp8"): CONSTANT}
"""Systematic errors of a table that no fit on it can see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to fit the correction: its prior, and how firmly outliers are set aside."""

    length: float
    noise: float
    outlier: float = 2.0
    rounds: int = 3

    @property
    def prior(self) -> tuple[Smoothness, ...]:
        """Rows of different m are corrected separately: the tile a library picks jumps between neighbouring m, and
        every shape was measured at the same m."""
        return (Smoothness(lengths=(0.003, self.length, self.length), noise=self.noise),)


CANDIDATES = (
    Candidate(length=4.0, noise=0.1),
    Candidate(length=4.0, noise=0.03),
    Candidate(length=8.0, noise=0.1),
    Candidate(length=2.5, noise=0.1),
    Candidate(length=4.0, noise=0.1, outlier=1.0, rounds=5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One KernelFit with its lattice and what the screen shows."""

    fit: KernelFit
    lattice: Lattice
    physics_mape: float


def gemm_rows(table: pd.DataFrame, *, gemm_dtype: str) -> pd.DataFrame:
    """Rows of one format: m, n, k, seconds (median over repeats), and which part each belongs to."""
    rows = table[table["gemm_dtype"] == gemm_dtype]
    rows = rows.groupby(["m", "n", "k"], as_index=False)["seconds"].median()
    rows["is_score"] = is_score(rows, family="gemm", columns=SHAPE)
    rows["fold"] = folds(rows, family="gemm", columns=SHAPE, count=4)
    return rows


def physics_seconds(
    rows: pd.DataFrame, *, hardware: AcceleratorSpec, format: MatmulFormat, parameters: Mapping[str, float]
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
        ).seconds
        for start in range(0, len(rows), CHUNK)
    ]
    return np.concatenate(parts)


def fit_format(
    rows: pd.DataFrame, *, hardware: AcceleratorSpec, format: MatmulFormat, file: str, note: str = ""
) -> Fitted:
    """Physics, then the prior chosen by cross-validation inside the fit part, then the correction; scored last."""
    seen = rows[~rows["is_score"]].reset_index(drop=True)
    sample = seen.iloc[stratified_sample(np.log2(seen["m"].to_numpy(dtype=float)), count=5000)]
    bounds = BOUNDS | (QUANTISE_BOUNDS if format.quantises_activations else {})
    parameters = fit_parameters(
        lambda trial: physics_seconds(sample, hardware=hardware, format=format, parameters=trial),
        sample["seconds"].to_numpy(),
        bounds=bounds,
    )
    physics = physics_seconds(seen, hardware=hardware, format=format, parameters=parameters)
    residual = np.log(seen["seconds"].to_numpy() / physics)
    points = log2_coordinates(*(seen[axis] for axis in AXES))
    nodes = tuple(np.unique(points[:, axis]) for axis in range(len(AXES)))
    best, held_out = choose_candidate(points, residual, seen["fold"].to_numpy(), nodes=nodes)
    lattice = fit_lattice(
        points,
        residual,
        axes=AXES,
        nodes=nodes,
        prior=best.prior,
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
    predicted = predict(rows, fit=draft, hardware=hardware, format=format, lattice=lattice)
    physics_s, _ = predict(rows, fit=draft, hardware=hardware, format=format, lattice=None)
    return scored(draft, rows, lattice=lattice, predicted=predicted, physics=physics_s)


def choose_candidate(
    points: Array, residual: Array, fold: NDArray[np.int64], *, nodes: tuple[Array, ...]
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
            prior=candidate.prior,
            outlier=candidate.outlier,
            rounds=candidate.rounds,
        )
        trials.append((float(np.mean(np.abs(np.expm1(held_out - residual)))), candidate, held_out))
    _, best, held_out = min(trials, key=lambda trial: trial[0])
    return best, held_out


def predict(
    rows: pd.DataFrame, *, fit: KernelFit, hardware: AcceleratorSpec, format: MatmulFormat, lattice: Lattice | None
) -> tuple[Array, Array]:
    """(seconds, log_sigma) of every row, as ``gemm_timing`` gives them."""
    points = log2_coordinates(*(rows[axis] for axis in AXES))
    physics = physics_seconds(rows, hardware=hardware, format=format, parameters=fit.parameters)
    log_sigma, _ = shape_confidence(fit, points, axes=AXES)
    return physics * np.exp(log_correction(lattice, points)), log_sigma


def scored(
    draft: KernelFit, rows: pd.DataFrame, *, lattice: Lattice, predicted: tuple[Array, Array], physics: Array
) -> Fitted:
    """``draft`` with its errors on both parts.

    predicted : (seconds, log_sigma) of every row; physics : its seconds without the lattice
    """
    measured, held = rows["seconds"].to_numpy(), rows["is_score"].to_numpy()
    seconds, log_sigma = predicted
    return Fitted(
        fit=draft.model_copy(update={"error": fit_error(measured, seconds, log_sigma=log_sigma, is_score=held)}),
        lattice=lattice,
        physics_mape=float(np.mean(np.abs(physics[held] / measured[held] - 1.0))),
    )


def fit_library(hardware_name: str, *, library: str, root: Path, directory: Path) -> None:
    """Fit every usable format of one table and write the calibration."""
    table = load_table(root, hardware=hardware_name, family="gemm", library=library, table="gemm")
    if table is None:
        return
    hardware = load_hardware(hardware_name)
    fits: list[KernelFit] = []
    arrays: dict[str, NDArray[np.generic]] = {}
    for gemm_dtype, format in FORMATS.items():
        if (library, gemm_dtype) in TIMED_EAGERLY or gemm_dtype not in set(table.rows["gemm_dtype"]):
            continue
        file = f"{hardware_name}--{library}.gemm.npz"
        rows = gemm_rows(table.rows, gemm_dtype=gemm_dtype)
        note = NOTES.get((library, gemm_dtype), "")
        fitted = fit_format(rows, hardware=hardware, format=format, file=file, note=note)
        fits.append(fitted.fit)
        arrays |= lattice_arrays(fitted.lattice, key=f"gemm.{format.name}")
        error = fitted.fit.error
        print(
            f"{hardware_name:15} {library:7} {format.name:10} physics {fitted.physics_mape:6.2%} "
            f"score {error.score_mape:6.2%} fit {error.fit_mape:6.2%} bias {error.score_bias:+.2%} "
            f"coverage {error.coverage_80:.1%}",
            flush=True,
        )
    calibration = CalibrationSpec(
        hardware=hardware_name,
        library=library,
        library_version=table.version,
        date=datetime.now(UTC).date().isoformat(),
        source=f"{SOURCE}, gemm table; one (n, k) in five held out",
        fits=tuple(fits),
    )
    write_calibration(calibration, group="gemm", arrays=arrays, directory=directory)


if __name__ == "__main__":
    fit_tables(fit_library, description=__doc__)
