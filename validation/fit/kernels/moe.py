"""Fit the expert model of an accelerator and library: ``python -m validation.fit.kernels.moe --hardware ...``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import interval_sigma
from simulator.kernels.gemm import gemm_machine
from simulator.kernels.moe import BOX_AXES, CORRECTION_AXES, correction_points, moe_seconds
from simulator.kernels.timing import Lattice, log_correction, shape_confidence
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import KernelFit, LatticeSpec, load_calibration
from simulator.units import BITS_PER_BYTE
from validation.fit.corrected import Fitted, Predicted, report, scored, write_fits
from validation.fit.files import fit_tables
from validation.fit.kernels.moe_rows import (
    KernelGroup,
    exchanged_group,
    kernel_groups,
    load_of,
    model_folds,
    moe_rows,
    moe_tables,
    table_of,
)
from validation.fit.lattice import Smoothness, fit_lattice, held_out_corrections
from validation.fit.physics import Bound, fit_parameters, stratified_sample
from validation.fit.residuals import NOT_SCORED, regime_sigmas
from validation.fit.runs.power import RANGES
from validation.silicon.amd_tables import CHIP, CHIPS
from validation.silicon.formats import EXPERT_FORMATS, WIDENED

Array = NDArray[np.float64]

TOKEN_REGIMES = (4.0, 64.0, 512.0, 65536.0)
BOUNDS: dict[str, Bound] = {
    "launch_s": Bound(low=2e-6, high=2e-4, start=2e-5),
    "expert_s": Bound(low=1e-11, high=1e-6, start=1e-9),
    "compute_fraction": Bound(low=0.1, high=1.0, start=0.7),
    "prologue": Bound(low=1.0, high=2000.0, start=100.0),
    "half_tile": Bound(low=0.1, high=300.0, start=15.0),
    "l2_speedup": Bound(low=1.0, high=8.0, start=2.0),
    "memory_fraction": Bound(low=0.2, high=1.0, start=0.8),
    "unit_bandwidth": Bound(low=0.5, high=20.0, start=4.0),
    "overlap": Bound(low=1.2, high=12.0, start=4.0),
    "pass_speedup": Bound(low=0.05, high=3.0, start=0.6),
    "pair_s": Bound(low=1e-13, high=1e-8, start=1e-11),
}

LARGE_L2 = ("ada", "blackwell-rtx")
"""Architectures whose L2 holds a benchmark's layer beside a memory slow enough to tell: on others the factor of the L2
ended at 1, and without it models left out come out alike (12.5 %)."""

PRIOR = (Smoothness(lengths=(2.0, 1.0, 3.0, 4.0), noise=1.0),)
"""Chosen by cross-validation over models on H100 and B200; few models were measured, so the noise is set high."""

OUTLIER, ROUNDS = 1.0, 5
"""How firmly outliers are set aside: some tables hold whole sizes whose kernel was not tuned, up to four times as slow
(cross-validated error of H100 TensorRT-LLM bf16 falls by a quarter, of others by up to 4 %)."""

SOFTNESS = 0.1
"""Residual of a logarithm beyond which a row counts linearly."""

ITERATIONS = 150
"""Steps of the solver in each round; more change no score."""


def physics_seconds(
    rows: pd.DataFrame, *, hardware: AcceleratorSpec, format: MatmulFormat, parameters: Mapping[str, float]
) -> Array:
    """``moe_seconds`` of every row."""
    if CHIP in rows:
        return _on_chips(rows, format=format, parameters=parameters)
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


def _on_chips(rows: pd.DataFrame, *, format: MatmulFormat, parameters: Mapping[str, float]) -> Array:
    """Rows of several chips of one architecture, each on its own facts; a compute unit's bandwidth is the same."""
    seconds = np.zeros(len(rows))
    chips = rows[CHIP].to_numpy()
    for name in sorted(set(chips)):
        chosen, chip = chips == name, CHIPS[name]
        own = {**parameters, "unit_bandwidth": parameters["unit_bandwidth"] * chip.active_share}
        part = rows[chosen].drop(columns=[CHIP])
        seconds[chosen] = physics_seconds(part, hardware=chip.facts(), format=format, parameters=own)
    return seconds


def predict(
    rows: pd.DataFrame, *, fit: KernelFit, hardware: AcceleratorSpec, format: MatmulFormat, lattice: Lattice | None
) -> Predicted:
    """Every row as ``moe_timing`` prices it."""
    points = correction_points(load_of(rows))
    physics_s = physics_seconds(rows, hardware=hardware, format=format, parameters=fit.parameters)
    log_sigma, _ = shape_confidence(fit, points, axes=BOX_AXES)
    corrected = physics_s * np.exp(log_correction(lattice, points[:, : len(CORRECTION_AXES)]))
    return Predicted(seconds=corrected, log_sigma=log_sigma, physics_s=physics_s)


def octave_nodes(values: Array) -> Array:
    """Whole octaves that enclose ``values``."""
    return np.arange(np.floor(values.min()), np.ceil(values.max()) + 1.0)


def correction_key(format: MatmulFormat, variant: str) -> str:
    """Name of a fit's arrays beside its calibration."""
    return ".".join(part for part in ("moe", format.name, variant) if part)


def seen_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows to fit: those not held out, or all where nothing or everything would be."""
    if not rows["is_score"].any() or rows["is_score"].all():
        rows = rows.assign(is_score=False)
    return rows[~rows["is_score"]].reset_index(drop=True)


def fit_physics(
    seen: pd.DataFrame, *, hardware: AcceleratorSpec, format: MatmulFormat, bounds: Mapping[str, Bound] | None = None
) -> dict[str, float]:
    """Parameters of one format from its own rows."""
    sample = seen.iloc[stratified_sample(np.log2(seen["num_tokens"].to_numpy(dtype=float)), count=1500)]
    return fit_parameters(
        lambda trial: physics_seconds(sample, hardware=hardware, format=format, parameters=trial),
        sample["seconds"].to_numpy(),
        bounds=bounds_on(hardware) if bounds is None else bounds,
        softness=SOFTNESS,
    )


def bounds_on(hardware: AcceleratorSpec) -> dict[str, Bound]:
    """Of what its tables can tell."""
    return {name: bound for name, bound in BOUNDS.items() if name != "l2_speedup" or hardware.architecture in LARGE_L2}


def search_bounds(
    group: KernelGroup, *, hardware: AcceleratorSpec, library: str, format: MatmulFormat
) -> Mapping[str, Bound]:
    """``bounds_on`` it, from where the last search for the same kernel ended on the chip that its watts are taken from.

    Times tell a kernel's share of the peak and its half tile only together, and the tile that it takes, whose padding
    draws power, follows from both: chips that run one kernel alike would draw unlike watts for it, and a chip other
    watts than before.
    """
    name, bounds = RANGES.get(hardware.architecture, hardware.name), bounds_on(hardware)
    calibration = load_calibration(name, library=library, group="moe")
    for fit in calibration.fits if calibration else ():
        if (fit.format, fit.variant) == (format.name, group.variant):
            return {key: replace(bound, start=fit.parameters.get(key, bound.start)) for key, bound in bounds.items()}
    return bounds


def fit_format(
    group: KernelGroup,
    *,
    hardware: AcceleratorSpec,
    format: MatmulFormat,
    file: str,
    version: str,
    parameters: Mapping[str, float] | None = None,
) -> Fitted:
    """Physics and correction on the fit part, intervals from its folds (whole models), scored last.

    parameters : of the physics where they were fitted with those of other formats
    """
    rows = group.rows
    if not rows["is_score"].any() or rows["is_score"].all():
        rows = rows.assign(is_score=False)
    seen = seen_rows(rows)
    if parameters is None:
        parameters = fit_physics(seen, hardware=hardware, format=format)
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
        parameters=dict(parameters),
        correction=LatticeSpec(file=file, key=correction_key(format, group.variant), axes=CORRECTION_AXES),
        box={axis: (round(float(a), 4), round(float(b), 4)) for axis, a, b in zip(BOX_AXES, low, high, strict=True)},
        error=NOT_SCORED,
        physics_log_sigma=round(interval_sigma(residual), 5),
        regimes=regime_sigmas(residual - held_out, tokens, axis="tokens", uppers=TOKEN_REGIMES),
        note=_note(rows, version=version),
    )
    if not rows["is_score"].any():
        sigma, _ = shape_confidence(draft, everywhere, axes=BOX_AXES)
        crossed = Predicted(seconds=physics * np.exp(held_out), log_sigma=sigma, physics_s=physics)
        every = np.ones(len(seen), dtype=bool)
        return scored(draft, lattice=lattice, measured=seen["seconds"].to_numpy(), predicted=crossed, is_score=every)
    return scored(
        draft,
        lattice=lattice,
        measured=rows["seconds"].to_numpy(),
        predicted=predict(rows, fit=draft, hardware=hardware, format=format, lattice=lattice),
        is_score=rows["is_score"].to_numpy(),
    )


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
    fitted: list[Fitted] = []

    def add(group: KernelGroup, *, format: MatmulFormat, version: str) -> None:
        bounds = search_bounds(group, hardware=hardware, library=library, format=format)
        parameters = fit_physics(seen_rows(group.rows), hardware=hardware, format=format, bounds=bounds)
        file = f"{hardware_name}--{library}.moe.npz"
        fitted.append(
            fit_format(group, hardware=hardware, format=format, file=file, version=version, parameters=parameters)
        )
        report(fitted[-1], hardware=hardware_name, library=library, points=len(group.rows))

    for moe_dtype, format in EXPERT_FORMATS.items():
        table = table_of(tables, moe_dtype=moe_dtype)
        if format.math not in hardware.peak_flops_per_s:
            format = WIDENED.get(moe_dtype, format)
        if table is None or format.math not in hardware.peak_flops_per_s:
            continue
        for group in kernel_groups(moe_rows(table.rows, moe_dtype=moe_dtype)):
            add(group, format=format, version=table.version)
        exchanged = exchanged_group(root, hardware=hardware_name, library=library, moe_dtype=moe_dtype)
        if exchanged is not None:
            version, group = exchanged
            add(group, format=format, version=version)
    write_fits(
        fitted,
        hardware=hardware_name,
        library=library,
        version=tables[-1].version if tables else "",
        group="moe",
        split="moe table; one (hidden, inter, topk, experts) in five held out",
        directory=directory,
    )


if __name__ == "__main__":
    fit_tables(fit_library, description=__doc__)
