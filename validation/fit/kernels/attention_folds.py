"""Choices of an attention fit and its expected error, all made inside the fit part: folds of whole head layouts.

Each fold's physics and correction are fitted without its layouts, so that the residuals of the folds are those of
layouts a fit has not seen. Traits and priors are chosen among few, which leaves the error slightly flattered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.attention.cases import AttentionMachine
from simulator.kernels.attention.decode import SplitRule
from simulator.kernels.timing import log_correction
from validation.fit.corrected import lattice_nodes
from validation.fit.kernels.attention_models import SPLIT_BOUNDS, Model, model_of, prepared
from validation.fit.lattice import Smoothness, fit_lattice
from validation.fit.physics import Bound, fit_parameters, stratified_sample
from validation.silicon.attention_tables import KernelRows

Array = NDArray[np.float64]

SAMPLE, EVALUATIONS = 1600, 40
"""Rows and steps of a physics fit; all rows count in the correction and in the score."""

TRIAL_SAMPLE, TRIAL_EVALUATIONS = 500, 15
"""Rows and steps of the short fits that choose the traits."""

FOLD_SAMPLE, FOLD_EVALUATIONS = 800, 25
"""Rows and steps of the physics fit of one fold."""

SOLVER_ITERATIONS = 200
"""Steps of each lattice solve: within 0.002 of the converged correction, at a third of the time."""

PRIORS: tuple[tuple[float, float], ...] = ((3.0, 0.1), (6.0, 0.1), (6.0, 0.03))
"""(correlation length [octaves] of tiles and tokens, noise) of the correction; the fit part chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossValidation:
    """Residuals log(measured / predicted) of every row of the fit part, predicted without its head layout's fold.

    physics_residual : without the correction; mape : mean |predicted / measured - 1|
    """

    prior: tuple[Smoothness, ...]
    residual: Array
    physics_residual: Array
    mape: float


def part_of(group: KernelRows, keep: NDArray[np.bool_] | NDArray[np.int64]) -> KernelRows:
    """Some rows of a group."""
    rows = group.rows[keep] if keep.dtype == bool else group.rows.iloc[keep]
    return replace(group, rows=rows.reset_index(drop=True))


def split_bounds(group: KernelRows, *, traits: Mapping[str, float]) -> Mapping[str, Bound]:
    """Parameters that only kernels of this split rule have."""
    if group.is_absorbed:
        return {}
    return SPLIT_BOUNDS.get((group.phase, SplitRule(int(traits["split_rule"]))), {})


def fixed_traits(group: KernelRows, *, traits: Mapping[str, float]) -> dict[str, float]:
    """Traits that are not fitted as parameters."""
    fitted = split_bounds(group, traits=traits)
    return {name: value for name, value in traits.items() if name not in fitted}


def fitted_physics(
    group: KernelRows, *, machine: AttentionMachine, traits: Mapping[str, float], count: int, evaluations: int
) -> tuple[float, dict[str, float]]:
    """Mean |log error| on a stratified sample of ``count`` rows, and parameters and traits fitted to it."""
    model = model_of(group)
    sample = part_of(group, stratified_sample(np.log2(group.rows["sequences"].to_numpy(dtype=float)), count=count))
    measured = sample.rows["seconds"].to_numpy()
    extra = split_bounds(group, traits=traits)
    fixed = fixed_traits(group, traits=traits)
    body = prepared(sample, machine=machine, traits=fixed)
    parameters = fit_parameters(
        body.seconds_of, measured, bounds={**model.bounds, **extra}, softness=0.1, evaluations=evaluations
    )
    error = float(np.mean(np.abs(np.log(body.seconds_of(parameters) / measured))))
    return error, parameters | fixed


def choose_traits(group: KernelRows, *, machine: AttentionMachine) -> dict[str, float]:
    """Traits with the smallest error after a short fit, among kernels with about equally many parameters."""
    trials = [
        fitted_physics(group, machine=machine, traits=traits, count=TRIAL_SAMPLE, evaluations=TRIAL_EVALUATIONS)[0]
        for traits in model_of(group).traits
    ]
    return model_of(group).traits[int(np.argmin(trials))]


def priors_of(model: Model) -> list[tuple[Smoothness, ...]]:
    """The priors to choose from: groups and sequences vary more slowly than tiles and tokens."""
    return [
        (
            Smoothness(
                lengths=tuple(length if axis in ("tiles", "span", "keys") else 2.0 * length for axis in model.axes),
                noise=noise,
            ),
        )
        for length, noise in PRIORS
    ]


def cross_validate(seen: KernelRows, *, machine: AttentionMachine, traits: Mapping[str, float]) -> CrossValidation:
    """Physics and correction refitted without each fold of head layouts; the prior with the smallest error."""
    model = model_of(seen)
    body = prepared(seen, machine=machine, traits=fixed_traits(seen, traits=traits))
    nodes = lattice_nodes(body.points, axes=model.axes)
    fold, measured = seen.rows["fold"].to_numpy(), seen.rows["seconds"].to_numpy()
    priors = priors_of(model)
    physics_residual = np.zeros(len(measured))
    residuals = np.zeros((len(priors), len(measured)))
    for index in np.unique(fold):
        known, unseen = fold != index, fold == index
        _, parameters = fitted_physics(
            part_of(seen, known), machine=machine, traits=traits, count=FOLD_SAMPLE, evaluations=FOLD_EVALUATIONS
        )
        residual = np.log(measured / body.seconds_of(parameters))
        physics_residual[unseen] = residual[unseen]
        for row, prior in enumerate(priors):
            lattice = fit_lattice(
                body.points[known],
                residual[known],
                axes=model.axes,
                nodes=nodes,
                prior=prior,
                rounds=1,
                iterations=SOLVER_ITERATIONS,
            )
            residuals[row, unseen] = residual[unseen] - log_correction(lattice, body.points[unseen])
    errors = np.mean(np.abs(np.expm1(-residuals)), axis=1)
    best = int(np.argmin(errors))
    return CrossValidation(
        prior=priors[best], residual=residuals[best], physics_residual=physics_residual, mape=float(errors[best])
    )
