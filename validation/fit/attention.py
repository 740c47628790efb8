"""Fit the attention models of one accelerator and library: ``python -m validation.fit.attention``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from simulator.kernels.attention_cases import AttentionMachine, SplitRule, attention_machine
from simulator.kernels.correction import Lattice, log_correction, shape_confidence
from simulator.specs.calibration import CalibrationSpec, FitError, KernelFit, LatticeSpec, RegimeSigma
from simulator.specs.hardware import AcceleratorSpec
from simulator.specs.loading import load_hardware
from validation.fit.attention_models import MODELS, SPLIT_BOUNDS, prepared
from validation.fit.files import lattice_arrays, write_calibration
from validation.fit.lattice import Smoothness, fit_lattice, held_out_corrections
from validation.fit.physics import fit_parameters, stratified_sample
from validation.fit.residuals import NORMAL_80, fit_error, interval_sigma, regime_sigmas
from validation.silicon.attention_tables import FOLDS, FORMATS, LAYOUT, KernelRows, attention_rows, mla_rows
from validation.silicon.tables import SOURCE, SYSTEMS, tables_root

Array = NDArray[np.float64]

SAMPLE = 1600
"""Rows of a physics fit; all rows count in the correction and in the score."""

PRIORS: tuple[tuple[float, float], ...] = ((3.0, 0.1), (6.0, 0.1), (6.0, 0.03))
"""(correlation length [octaves] of tiles and tokens, noise) of the correction; the fit part chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One KernelFit with its lattice and what the screen shows."""

    fit: KernelFit
    lattice: Lattice
    physics_mape: float


def part_of(group: KernelRows, keep: NDArray[np.bool_] | NDArray[np.int64]) -> KernelRows:
    """Some rows of a group."""
    rows = group.rows[keep] if keep.dtype == bool else group.rows.iloc[keep]
    return replace(group, rows=rows.reset_index(drop=True))


def choose_physics(group: KernelRows, *, machine: AttentionMachine) -> dict[str, float]:
    """Parameters of the traits with the smallest error, among kernels with equally many parameters."""
    model = MODELS[group.phase]
    strata = np.log2(group.rows["sequences"].to_numpy(dtype=float))
    sample = part_of(group, stratified_sample(strata, count=SAMPLE))
    measured = sample.rows["seconds"].to_numpy()
    trials = []
    for traits in model.traits:
        extra = SPLIT_BOUNDS.get((group.phase, SplitRule(int(traits["split_rule"]))), {})
        fixed = {name: value for name, value in traits.items() if name not in extra}
        body = prepared(sample, machine=machine, traits=fixed)
        parameters = fit_parameters(body.seconds_of, measured, bounds={**model.bounds, **extra}, softness=0.1)
        error = float(np.mean(np.abs(np.log(body.seconds_of(parameters) / measured))))
        trials.append((error, parameters | fixed))
    return min(trials, key=lambda trial: trial[0])[1]


def lattice_nodes(points: Array, *, axes: tuple[str, ...]) -> tuple[Array, ...]:
    """A node per octave; of the number of sequences, which matters least, one in three."""
    nodes = []
    for axis, name in enumerate(axes):
        step = 3.0 if name == "sequences" else 1.0
        low, high = np.floor(points[:, axis].min()), np.ceil(points[:, axis].max())
        nodes.append(np.arange(low, max(high, low + step) + step - 0.01, step))
    return tuple(nodes)


def choose_prior(
    points: Array, residual: Array, fold: NDArray[np.int64], *, axes: tuple[str, ...], nodes: tuple[Array, ...]
) -> tuple[tuple[Smoothness, ...], Array]:
    """The prior with the smallest held-out error over the folds of head layouts, and its held-out corrections."""
    trials = []
    for length, noise in PRIORS:
        lengths = tuple(length if axis in ("tiles", "span", "keys") else 2.0 * length for axis in axes)
        prior = (Smoothness(lengths=lengths, noise=noise),)
        held_out = held_out_corrections(points, residual, fold, axes=axes, nodes=nodes, prior=prior, rounds=1)
        trials.append((float(np.mean(np.abs(np.expm1(held_out - residual)))), prior, held_out))
    _, prior, held_out = min(trials, key=lambda trial: trial[0])
    return prior, held_out


def fit_group(group: KernelRows, *, hardware: AcceleratorSpec, file: str) -> Fitted:
    """Physics and traits, then the correction, both on the fit layouts; scored last on the layouts held out."""
    model = MODELS[group.phase]
    machine = attention_machine(hardware, FORMATS[group.format][0])
    seen = part_of(group, ~group.rows["is_score"].to_numpy())
    parameters = choose_physics(seen, machine=machine)
    body = prepared(seen, machine=machine, traits=parameters)
    residual = np.log(seen.rows["seconds"].to_numpy() / body.seconds_of(parameters))
    nodes = lattice_nodes(body.points, axes=model.axes)
    fold = seen.rows["fold"].to_numpy()
    prior, held_out = choose_prior(body.points, residual, fold, axes=model.axes, nodes=nodes)
    lattice = rounded(fit_lattice(body.points, residual, axes=model.axes, nodes=nodes, prior=prior))
    column = model.axes.index(model.regime_axis)
    key = f"{group.phase}.{group.format}.{group.variant}"
    regimes = regime_sigmas(
        residual - held_out, np.exp2(body.points[:, column]), axis=model.regime_axis, uppers=model.regime_uppers
    )
    draft = KernelFit(
        family=model.family,
        format=group.format,
        variant=group.variant,
        model=model.name,
        parameters=parameters,
        correction=LatticeSpec(file=file, key=key, axes=model.axes),
        box=box_of(body.points, axes=model.axes),
        error=FitError(
            score_mape=0, fit_mape=0, score_bias=0, log_sigma=1, coverage_80=0, score_points=0, fit_points=0
        ),
        physics_log_sigma=round(interval_sigma(residual), 5),
        regimes=widened(regimes, factor=student_factor(layouts_of(seen))),
        note=f"kernel {group.kernel}",
    )
    if group.rows["is_score"].any():
        fitted = scored(draft, group, machine=machine, lattice=lattice)
    else:
        fitted = cross_validated(draft, group, machine=machine, lattice=lattice, held_out=held_out)
    return replace(fitted, fit=lent(fitted.fit, lender=group.borrowed_from)) if group.borrowed_from else fitted


def layouts_of(group: KernelRows) -> int:
    """How many head layouts the rows have."""
    return len(group.rows[list(LAYOUT)].drop_duplicates())


def student_factor(layouts: int) -> float:
    """From the spread over held-out folds to that of one more layout under the final fit [-].

    Student's t over the normal with few layouts, and what a fold's fit misses: it saw one layout in FOLDS less, and
    the variance between layouts goes with their number.
    """
    degrees = max(layouts - 1, 1)
    few = float(student.ppf(0.9, degrees)) / NORMAL_80 * float(np.sqrt(1.0 + 1.0 / layouts))
    return few * float(np.sqrt(1.0 - 1.0 / FOLDS))


def widened(regimes: tuple[RegimeSigma, ...], *, factor: float = 1.0, extra: float = 0.0) -> tuple[RegimeSigma, ...]:
    """Regimes with their spread times ``factor``, and ``extra`` added in quadrature."""
    return tuple(
        regime.model_copy(update={"log_sigma": round(float(np.hypot(regime.log_sigma * factor, extra)), 5)})
        for regime in regimes
    )


def lent(fit: KernelFit, *, lender: str) -> KernelFit:
    """The fit under another library than the one that measured it: the same kernels, with a wider interval."""
    wider = widened(fit.regimes, extra=LIBRARY_LOG_SIGMA)
    return fit.model_copy(update={"regimes": wider, "note": f"{fit.note}; measured under {lender}"})


def rounded(lattice: Lattice) -> Lattice:
    """Values to the nearest 1/256, far below the noise of one measurement: the file compresses to half."""
    return replace(lattice, values=np.round(lattice.values * 256.0) / 256.0)


def box_of(points: Array, *, axes: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Range of each coordinate in the fitted rows, in its own unit."""
    low, high = np.exp2(points.min(axis=0)), np.exp2(points.max(axis=0))
    return {axis: (float(f"{low[i]:.6g}"), float(f"{high[i]:.6g}")) for i, axis in enumerate(axes)}


def scored(draft: KernelFit, group: KernelRows, *, machine: AttentionMachine, lattice: Lattice) -> Fitted:
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
        physics_mape=float(np.mean(np.abs(physics[held] / measured[held] - 1.0))),
    )


def cross_validated(
    draft: KernelFit, group: KernelRows, *, machine: AttentionMachine, lattice: Lattice, held_out: Array
) -> Fitted:
    """``draft`` scored over its own folds, where the hash held no layout out; the physics saw every layout."""
    body = prepared(group, machine=machine, traits=draft.parameters)
    physics = body.seconds_of(draft.parameters)
    fitted = physics * np.exp(log_correction(lattice, body.points))
    log_sigma, _ = shape_confidence(draft, body.points, axes=MODELS[group.phase].axes)
    measured = group.rows["seconds"].to_numpy()
    error = fit_error(
        np.tile(measured, 2),
        np.concatenate([physics * np.exp(held_out), fitted]),
        log_sigma=np.tile(log_sigma, 2),
        is_score=np.repeat([True, False], len(measured)),
    )
    note = f"{draft.note}; no layout held out, scored by cross-validation of the correction"
    return Fitted(
        fit=draft.model_copy(update={"error": error, "note": note}),
        lattice=lattice,
        physics_mape=float(np.mean(np.abs(physics / measured - 1.0))),
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

WORST_SCORE = 0.25
"""A fit worse than this on unseen layouts is not written: three parameters of the roofline do as well."""

UNUSABLE = {("a100-sxm-80gb", "trtllm", "decode")}
"""Tables in which 7 % of the rows beat the bandwidth of the memory."""


def fit_library(hardware_name: str, *, library: str, root: Path, directory: Path) -> None:
    """Fit every group of one accelerator and library and write the calibration."""
    hardware = load_hardware(hardware_name)
    groups = groups_of(root, hardware=hardware_name, library=library)
    if not groups:
        return
    fits: list[KernelFit] = []
    arrays: dict[str, NDArray[np.generic]] = {}
    for group in groups:
        fitted = fit_group(group, hardware=hardware, file=f"{hardware_name}--{library}.attention.npz")
        if fitted.fit.error.score_mape > WORST_SCORE:
            print(
                f"{hardware_name:15} {library:7} {group.phase:8} {group.format:11} {group.variant:12} not fitted: "
                f"{fitted.fit.error.score_mape:.0%} on unseen layouts",
                flush=True,
            )
            continue
        correction = fitted.fit.correction
        assert correction is not None, "every attention fit has a correction"
        fits.append(fitted.fit)
        arrays |= lattice_arrays(fitted.lattice, key=correction.key)
        error = fitted.fit.error
        print(
            f"{hardware_name:15} {library:7} {group.phase:8} {group.format:11} {group.variant:12} {len(group.rows):5d} "
            f"physics {fitted.physics_mape:6.2%} score {error.score_mape:6.2%} fit {error.fit_mape:6.2%} "
            f"bias {error.score_bias:+.2%} coverage {error.coverage_80:.1%}",
            flush=True,
        )
    calibration = CalibrationSpec(
        hardware=hardware_name,
        library=library,
        library_version=groups[0].version,
        date=datetime.now(UTC).date().isoformat(),
        source=f"{SOURCE}, attention and mla tables; one head layout in five held out",
        fits=tuple(fits),
    )
    write_calibration(calibration, group="attention", arrays=arrays, directory=directory)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ ...; default: aiconfigurator_core")
    parser.add_argument("--hardware", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--library", nargs="*", default=["vllm", "sglang", "trtllm"])
    parser.add_argument("--output", type=Path, default=Path("hardware_profiles/calibration"))
    arguments = parser.parse_args()
    root = tables_root(arguments.tables)
    for library in arguments.library:
        for hardware in arguments.hardware:
            fit_library(hardware, library=library, root=root, directory=arguments.output)


if __name__ == "__main__":
    main()
