"""Fit the attention models of one accelerator and library: ``python -m validation.fit.attention``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.attention.cases import AttentionMachine, attention_machine
from simulator.kernels.correction import Lattice, log_correction, shape_confidence
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit, LatticeSpec
from simulator.specs.loading import load_hardware
from validation.fit.attention_folds import (
    EVALUATIONS,
    SAMPLE,
    SOLVER_ITERATIONS,
    CrossValidation,
    choose_traits,
    cross_validate,
    fitted_physics,
    lattice_nodes,
    part_of,
)
from validation.fit.attention_models import MODELS, prepared
from validation.fit.files import fit_tables, lattice_arrays, write_calibration
from validation.fit.lattice import fit_lattice
from validation.fit.residuals import NOT_SCORED, fit_error, interval_sigma, regime_sigmas
from validation.silicon.attention_tables import FORMATS, KernelRows, attention_rows, mla_rows
from validation.silicon.tables import SOURCE

Array = NDArray[np.float64]

WORST_ERROR = 0.25
"""A fit whose cross-validated error is larger is not written: three parameters of the roofline do as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One KernelFit with its lattice, the error that decides whether it is kept, and what the screen shows."""

    fit: KernelFit
    lattice: Lattice
    cross_validated_mape: float
    physics_mape: float


def fit_group(group: KernelRows, *, hardware: AcceleratorSpec, file: str) -> Fitted:
    """Traits, physics and correction on the fit layouts; intervals from their folds; scored on the layouts held out."""
    model = MODELS[group.phase]
    machine = attention_machine(hardware, FORMATS[group.format][0])
    seen = part_of(group, ~group.rows["is_score"].to_numpy())
    traits = choose_traits(seen, machine=machine)
    _, parameters = fitted_physics(seen, machine=machine, traits=traits, count=SAMPLE, evaluations=EVALUATIONS)
    folded = cross_validate(seen, machine=machine, traits=traits)
    body = prepared(seen, machine=machine, traits=parameters)
    residual = np.log(seen.rows["seconds"].to_numpy() / body.seconds_of(parameters))
    nodes = lattice_nodes(body.points, axes=model.axes)
    lattice = fit_lattice(
        body.points, residual, axes=model.axes, nodes=nodes, prior=folded.prior, iterations=SOLVER_ITERATIONS
    )
    values = np.exp2(body.points[:, model.axes.index(model.regime_axis)])
    regimes = regime_sigmas(folded.residual, values, axis=model.regime_axis, uppers=model.regime_uppers)
    draft = KernelFit(
        family=model.family,
        format=group.format,
        variant=group.variant,
        model=model.name,
        parameters=parameters,
        correction=LatticeSpec(file=file, key=f"{group.phase}.{group.format}.{group.variant}", axes=model.axes),
        box=box_of(body.points, axes=model.axes),
        error=NOT_SCORED,
        physics_log_sigma=short(interval_sigma(folded.physics_residual)),
        # The last band holds for everything larger, so that no interval rests on the score.
        regimes=(*regimes[:-1], regimes[-1].model_copy(update={"upper": model.regime_uppers[-1]})),
        note=f"kernel {group.kernel}; cross-validated error {folded.mape:.1%}",
    )
    if group.rows["is_score"].any():
        fitted = scored(draft, group, machine=machine, lattice=rounded(lattice), folded=folded)
    else:
        fitted = unscored(draft, group, machine=machine, lattice=rounded(lattice), folded=folded)
    return replace(fitted, fit=lent(fitted.fit, lender=group.borrowed_from)) if group.borrowed_from else fitted


def short(value: float) -> float:
    """Five significant digits."""
    return float(f"{value:.5g}")


def lent(fit: KernelFit, *, lender: str) -> KernelFit:
    """The fit under another library than the one that measured it: the same kernels, with a wider interval."""
    wider = tuple(
        regime.model_copy(update={"log_sigma": short(float(np.hypot(regime.log_sigma, LIBRARY_LOG_SIGMA)))})
        for regime in fit.regimes
    )
    return fit.model_copy(update={"regimes": wider, "note": f"{fit.note}; measured under {lender}"})


def rounded(lattice: Lattice) -> Lattice:
    """Values to the nearest 1/256, far below the noise of one measurement: the file compresses to half."""
    return replace(lattice, values=np.round(lattice.values * 256.0) / 256.0)


def box_of(points: Array, *, axes: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Range of each coordinate in the fitted rows, in its own unit; six digits keep 131072 whole."""
    low, high = np.exp2(points.min(axis=0)), np.exp2(points.max(axis=0))
    return {axis: (float(f"{low[i]:.6g}"), float(f"{high[i]:.6g}")) for i, axis in enumerate(axes)}


def scored(
    draft: KernelFit, group: KernelRows, *, machine: AttentionMachine, lattice: Lattice, folded: CrossValidation
) -> Fitted:
    """``draft`` with its errors on the layouts it saw and on those it did not see."""
    body = prepared(group, machine=machine, traits=draft.parameters)
    physics = body.seconds_of(draft.parameters)
    predicted = physics * np.exp(log_correction(lattice, body.points))
    log_sigma, _ = shape_confidence(draft, body.points, axes=MODELS[group.phase].axes)
    measured = group.rows["seconds"].to_numpy()
    held = group.rows["is_score"].to_numpy()
    return Fitted(
        fit=draft.model_copy(update={"error": fit_error(measured, predicted, log_sigma=log_sigma, is_score=held)}),
        lattice=lattice,
        cross_validated_mape=folded.mape,
        physics_mape=float(np.mean(np.abs(physics[held] / measured[held] - 1.0))),
    )


def unscored(
    draft: KernelFit, group: KernelRows, *, machine: AttentionMachine, lattice: Lattice, folded: CrossValidation
) -> Fitted:
    """``draft`` with the errors of its folds, where no layout was held out beside them."""
    body = prepared(group, machine=machine, traits=draft.parameters)
    physics = body.seconds_of(draft.parameters)
    log_sigma, _ = shape_confidence(draft, body.points, axes=MODELS[group.phase].axes)
    measured = group.rows["seconds"].to_numpy()
    error = fit_error(
        np.tile(measured, 2),
        np.concatenate([measured * np.exp(-folded.residual), physics * np.exp(log_correction(lattice, body.points))]),
        log_sigma=np.tile(log_sigma, 2),
        is_score=np.repeat([True, False], len(measured)),
    )
    return Fitted(
        fit=draft.model_copy(update={"error": error, "note": f"{draft.note}; {NONE_HELD_OUT}"}),
        lattice=lattice,
        cross_validated_mape=folded.mape,
        physics_mape=float(np.mean(np.abs(np.expm1(-folded.physics_residual)))),
    )


def groups_of(root: Path, *, hardware: str, library: str) -> tuple[KernelRows, ...]:
    """Every group of rows of one accelerator and library."""
    phases = ("prefill", "decode")
    usable = [phase for phase in phases if (hardware, library, phase) not in UNUSABLE]
    found: list[KernelRows] = []
    for phase in usable:
        found += attention_rows(root, hardware=hardware, library=library, phase=phase)
        measured = MLA_LIBRARY.get(library, library)
        lender = measured if measured != library else ""
        latent = mla_rows(root, hardware=hardware, library=measured, phase=phase)
        found += [replace(group, borrowed_from=lender) for group in latent]
    return tuple(found)


MLA_LIBRARY = {"vllm": "sglang"}
"""vLLM's latent attention was only timed with its projections; SGLang calls the same kernels."""

LIBRARY_LOG_SIGMA = 0.15
"""What the same flash-attention 3 kernels differ by between two libraries' tables (H100, d128)."""

NONE_HELD_OUT = "no layout held out, scored by cross-validation"
"""Note of a fit whose score is that of its folds."""

UNUSABLE = {("a100-sxm-80gb", "trtllm", "decode")}
"""Tables in which 7 % of the rows beat the bandwidth of the memory."""


def fit_library(hardware_name: str, *, library: str, root: Path, directory: Path) -> None:
    """Fit every group of one accelerator and library and write the calibration."""
    hardware = load_hardware(hardware_name)
    groups = groups_of(root, hardware=hardware_name, library=library)
    if not groups:
        return
    fits: list[KernelFit] = []
    removed: list[str] = []
    arrays: dict[str, NDArray[np.generic]] = {}
    for group in groups:
        fitted = fit_group(group, hardware=hardware, file=f"{hardware_name}--{library}.attention.npz")
        correction, error = fitted.fit.correction, fitted.fit.error
        assert correction is not None, "every attention fit has a correction"
        print(
            f"{hardware_name:15} {library:7} {correction.key:32} {len(group.rows):5d} "
            f"cross-validated {fitted.cross_validated_mape:6.2%} fit {error.fit_mape:6.2%}",
            flush=True,
        )
        if fitted.cross_validated_mape > WORST_ERROR:
            removed.append(f"{correction.key} {fitted.cross_validated_mape:.1%}")
            continue
        fits.append(fitted.fit)
        arrays |= lattice_arrays(fitted.lattice, key=correction.key)
    if not fits:
        return
    if removed:
        note = f"{fits[0].note}; not written for a cross-validated error above {WORST_ERROR:.0%}: {', '.join(removed)}"
        fits[0] = fits[0].model_copy(update={"note": note})
    calibration = CalibrationSpec(
        hardware=hardware_name,
        library=library,
        library_version=groups[0].version,
        date=datetime.now(UTC).date().isoformat(),
        source=f"{SOURCE}, attention and mla tables; one head layout in five held out",
        fits=tuple(fits),
    )
    write_calibration(calibration, group="attention", arrays=arrays, directory=directory)


if __name__ == "__main__":
    fit_tables(fit_library, description=__doc__)
