"""Fit the routed-expert model of one accelerator and library: ``python -m validation.fit.moe --hardware ...``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.kernels.correction import Lattice, log_correction, shape_confidence
from simulator.kernels.gemm import gemm_machine
from simulator.kernels.moe import BOX_AXES, CORRECTION_AXES, correction_points, moe_seconds
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit, LatticeSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.precision import Dtype
from simulator.units import BITS_PER_BYTE
from validation.fit.files import fit_tables, lattice_arrays, write_calibration
from validation.fit.gemm import Fitted, scored
from validation.fit.lattice import Smoothness, fit_lattice, held_out_corrections
from validation.fit.moe_rows import (
    SHAPE,
    KernelGroup,
    kernel_groups,
    load_of,
    model_folds,
    moe_rows,
    moe_tables,
    table_of,
)
from validation.fit.physics import Bound, fit_parameters, stratified_sample
from validation.fit.residuals import NOT_SCORED, fit_error, interval_sigma, regime_sigmas
from validation.silicon.tables import SOURCE

Array = NDArray[np.float64]

TOKEN_REGIMES = (4.0, 64.0, 512.0, 65536.0)
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
    "w4a16_mxfp4": MatmulFormat(name="mxfp4", weight_bits=4.25, activation_bits=16, math=Dtype.BF16),
    "int4_wo": MatmulFormat(name="w4a16", weight_bits=4.125, activation_bits=16, math=Dtype.BF16),
}
"""moe_dtype of the tables -> format of the operators."""

BOUNDS: dict[str, Bound] = {
    "launch_s": Bound(low=2e-6, high=2e-4, start=2e-5),
    "expert_s": Bound(low=1e-11, high=1e-6, start=1e-9),
    "compute_fraction": Bound(low=0.1, high=1.0, start=0.7),
    "prologue": Bound(low=1.0, high=2000.0, start=100.0),
    "half_tile": Bound(low=0.1, high=300.0, start=15.0),
    "wave_quantisation": Bound(low=0.01, high=1.0, start=0.5),
    "l2_share": Bound(low=0.1, high=3.0, start=0.7),
    "l2_speedup": Bound(low=1.0, high=8.0, start=2.0),
    "memory_fraction": Bound(low=0.2, high=1.0, start=0.8),
    "unit_bandwidth": Bound(low=0.5, high=20.0, start=4.0),
    "overlap": Bound(low=1.2, high=12.0, start=4.0),
    "pass_fraction": Bound(low=0.05, high=3.0, start=0.6),
    "pair_s": Bound(low=1e-13, high=1e-8, start=1e-11),
}

PRIOR = (Smoothness(lengths=(2.0, 1.0, 3.0, 4.0), noise=1.0),)
"""Chosen by cross-validation over models on H100 and B200; few models were measured, so the noise is set high."""

OUTLIER, ROUNDS = 1.0, 5
"""How firmly outliers are set aside: some tables hold whole sizes whose kernel was not tuned, up to four times as slow
(cross-validated error of H100 TensorRT-LLM bf16 falls by a quarter, of others by up to 4 %)."""

ITERATIONS = 150
"""Steps of the solver in each round; more change no score."""


def physics_seconds(
    rows: pd.DataFrame, *, hardware: AcceleratorSpec, format: MatmulFormat, parameters: Mapping[str, float]
) -> Array:
    """``moe_seconds`` of every row."""
    seconds = np.zeros(len(rows))
    gated = rows["is_gated"].to_numpy(dtype=bool)
    for is_gated in (True, False):
        chosen = gated == is_gated
        if chosen.any():
            seconds[chosen] = moe_seconds(
                load_of(rows[chosen]),
                machine=gemm_machine(hardware, format),
                parameters=parameters,
                weight_bytes=format.weight_bits / BITS_PER_BYTE,
                activation_bytes=format.activation_bits / BITS_PER_BYTE,
                gated=is_gated,
            ).seconds
    return seconds


def predict(
    rows: pd.DataFrame, *, fit: KernelFit, hardware: AcceleratorSpec, format: MatmulFormat, lattice: Lattice | None
) -> tuple[Array, Array]:
    """(seconds, log_sigma) of every row, as ``moe_timing`` gives them."""
    points = correction_points(load_of(rows))
    physics = physics_seconds(rows, hardware=hardware, format=format, parameters=fit.parameters)
    log_sigma, _ = shape_confidence(fit, points, axes=BOX_AXES)
    return physics * np.exp(log_correction(lattice, points[:, : len(CORRECTION_AXES)])), log_sigma


def octave_nodes(values: Array) -> Array:
    """Whole octaves that enclose ``values``."""
    return np.arange(np.floor(values.min()), np.ceil(values.max()) + 1.0)


def correction_key(format: MatmulFormat, variant: str) -> str:
    """Name of a fit's arrays beside its calibration."""
    return ".".join(part for part in ("moe", format.name, variant) if part)


def fit_format(
    group: KernelGroup, *, hardware: AcceleratorSpec, format: MatmulFormat, file: str, version: str
) -> Fitted:
    """Physics and correction on the fit part, intervals from its folds (whole models), scored last."""
    rows = group.rows
    if not rows["is_score"].any() or rows["is_score"].all():
        rows = rows.assign(is_score=False)
    seen = rows[~rows["is_score"]].reset_index(drop=True)
    sample = seen.iloc[stratified_sample(np.log2(seen["num_tokens"].to_numpy(dtype=float)), count=1500)]
    parameters = fit_parameters(
        lambda trial: physics_seconds(sample, hardware=hardware, format=format, parameters=trial),
        sample["seconds"].to_numpy(),
        bounds=BOUNDS,
        softness=0.1,
    )
    physics = physics_seconds(seen, hardware=hardware, format=format, parameters=parameters)
    residual = np.log(seen["seconds"].to_numpy() / physics)
    everywhere = correction_points(load_of(seen))
    points = everywhere[:, : len(CORRECTION_AXES)]
    held_out, lattice = _corrections(points, residual, model_folds(seen))
    low, high = np.exp2(everywhere.min(axis=0)), np.exp2(everywhere.max(axis=0))
    tokens = seen["num_tokens"].to_numpy(dtype=float)
    draft = KernelFit(
        family="moe",
        format=format.name,
        variant=group.variant,
        model="grouped_gemm",
        parameters=parameters,
        correction=LatticeSpec(file=file, key=correction_key(format, group.variant), axes=CORRECTION_AXES),
        box={axis: (round(float(a), 4), round(float(b), 4)) for axis, a, b in zip(BOX_AXES, low, high, strict=True)},
        error=NOT_SCORED,
        physics_log_sigma=round(interval_sigma(residual), 5),
        regimes=regime_sigmas(residual - held_out, tokens, axis="tokens", uppers=TOKEN_REGIMES),
        note=_note(rows, version=version),
    )
    if not rows["is_score"].any():
        sigma, _ = shape_confidence(draft, everywhere, axes=BOX_AXES)
        measured = seen["seconds"].to_numpy()
        error = fit_error(
            measured, physics * np.exp(held_out), log_sigma=sigma, is_score=np.ones(len(seen), dtype=bool)
        )
        mape = float(np.mean(np.abs(physics / measured - 1.0)))
        return Fitted(fit=draft.model_copy(update={"error": error}), lattice=lattice, physics_mape=mape)
    predicted = predict(rows, fit=draft, hardware=hardware, format=format, lattice=lattice)
    physics_s, _ = predict(rows, fit=draft, hardware=hardware, format=format, lattice=None)
    return scored(draft, rows, lattice=lattice, predicted=predicted, physics=physics_s)


def _corrections(points: Array, residual: Array, fold: NDArray[np.int64]) -> tuple[Array, Lattice]:
    """Correction of each point by a lattice that did not see its fold, and the lattice of all points."""
    nodes = tuple(octave_nodes(points[:, axis]) for axis in range(len(CORRECTION_AXES)))
    held_out = held_out_corrections(
        points,
        residual,
        fold,
        axes=CORRECTION_AXES,
        nodes=nodes,
        prior=PRIOR,
        outlier=OUTLIER,
        rounds=ROUNDS,
        iterations=ITERATIONS,
    )
    lattice = fit_lattice(
        points,
        residual,
        axes=CORRECTION_AXES,
        nodes=nodes,
        prior=PRIOR,
        outlier=OUTLIER,
        rounds=ROUNDS,
        iterations=ITERATIONS,
    )
    return held_out, lattice


def _note(rows: pd.DataFrame, *, version: str) -> str:
    kernel = f"kernel {rows['kernel_source'].iloc[0]} of {version}" if "kernel_source" in rows else version
    if rows["is_score"].any():
        return kernel
    return f"{kernel}; too few models to hold any out: the score is of cross-validation"


def fit_library(hardware_name: str, *, library: str, root: Path, directory: Path) -> None:
    """Fit every kernel of every usable format and write the calibration."""
    tables = moe_tables(root, hardware=hardware_name, library=library)
    hardware = load_hardware(hardware_name)
    fits: list[KernelFit] = []
    arrays: dict[str, NDArray[np.generic]] = {}
    for moe_dtype, format in FORMATS.items():
        table = table_of(tables, moe_dtype=moe_dtype)
        if table is None or format.math not in hardware.peak_flops_per_s:
            continue
        for group in kernel_groups(moe_rows(table.rows, moe_dtype=moe_dtype)):
            file = f"{hardware_name}--{library}.moe.npz"
            fitted = fit_format(group, hardware=hardware, format=format, file=file, version=table.version)
            fits.append(fitted.fit)
            arrays |= lattice_arrays(fitted.lattice, key=correction_key(format, group.variant))
            _print_fit(fitted, hardware=hardware_name, library=library, rows=group.rows)
    if not fits:
        return
    calibration = CalibrationSpec(
        hardware=hardware_name,
        library=library,
        library_version=tables[-1].version,
        date=datetime.now(UTC).date().isoformat(),
        source=f"{SOURCE}, moe table; one (hidden, inter, topk, experts) in five held out",
        fits=tuple(fits),
    )
    write_calibration(calibration, group="moe", arrays=arrays, directory=directory)


def _print_fit(fitted: Fitted, *, hardware: str, library: str, rows: pd.DataFrame) -> None:
    error, fit = fitted.fit.error, fitted.fit
    models = len(rows[list(SHAPE)].drop_duplicates())
    print(
        f"{hardware:15} {library:7} {fit.format:10} {fit.variant:15} models {models:3} "
        f"physics {fitted.physics_mape:6.2%} score {error.score_mape:6.2%} fit {error.fit_mape:6.2%} "
        f"bias {error.score_bias:+.2%} coverage {error.coverage_80:.1%}",
        flush=True,
    )


if __name__ == "__main__":
    fit_tables(fit_library, description=__doc__)
