"""Fit the attention models of one accelerator and library: ``python -m validation.fit.kernels.attention``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import interval_sigma
from simulator.kernels.attention.cases import MULTIPLIES_FP8, AttentionMachine, attention_machine
from simulator.kernels.timing import Lattice, log_correction, shape_confidence
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import KernelFit, LatticeSpec
from validation.fit.corrected import (
    Fitted,
    Predicted,
    box_of,
    kept_fits,
    lattice_nodes,
    report,
    rounded,
    scored,
    write_fits,
)
from validation.fit.files import fit_each, table_parser
from validation.fit.kernels.attention_folds import (
    EVALUATIONS,
    SAMPLE,
    SOLVER_ITERATIONS,
    CrossValidation,
    choose_traits,
    cross_validate,
    fitted_physics,
    part_of,
)
from validation.fit.kernels.attention_models import model_of, prepared
from validation.fit.lattice import fit_lattice
from validation.fit.residuals import NOT_SCORED, regime_sigmas
from validation.silicon.attention_tables import KernelRows, Phase, attention_rows, by_mask, encoder_rows, mla_rows

Array = NDArray[np.float64]

WORST_ERROR = 0.25
"""A fit whose cross-validated error is larger is not written: three parameters of the roofline do as well."""


ONE_KERNEL = 1.1
"""A kernel that runs with windows and without has one fit where its cross-validated error is at most this many times
that of two: some kernels run a window through other tiles, or pass the keys that it hides."""


def fit_group(group: KernelRows, *, hardware: AcceleratorSpec, file: str) -> tuple[Fitted, float]:
    """Traits, physics and correction on the fit layouts; intervals from their folds; scored on the layouts held out.

    Beside it the cross-validated error, which decides whether the fit is kept.
    """
    model = model_of(group)
    machine = attention_machine(hardware, group.math)
    seen = part_of(group, ~group.rows["is_score"].to_numpy())
    traits = choose_traits(seen, machine=machine)
    _, parameters = fitted_physics(seen, machine=machine, traits=traits, count=SAMPLE, evaluations=EVALUATIONS)
    if group.narrows_queries:
        parameters[MULTIPLIES_FP8] = 1.0
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
        correction=LatticeSpec(file=file, key=key_of(group), axes=model.axes),
        box=box_of(body.points, axes=model.axes),
        error=NOT_SCORED,
        physics_log_sigma=short(interval_sigma(folded.physics_residual)),
        # The last band holds for everything larger, so that no interval rests on the score.
        regimes=(*regimes[:-1], regimes[-1].model_copy(update={"upper": model.regime_uppers[-1]})),
        note=f"kernel {group.kernel}; cross-validated error {folded.mape:.1%}",
    )
    judged = held_out_scored if group.rows["is_score"].any() else cross_scored
    fitted = judged(draft, group, machine=machine, lattice=rounded(lattice), folded=folded)
    if group.borrowed_from:
        fitted = replace(fitted, fit=lent(fitted.fit, lender=group.borrowed_from))
    return fitted, folded.mape


def fit_masks(group: KernelRows, *, hardware: AcceleratorSpec, file: str) -> list[tuple[Fitted, float]]:
    """One fit for calls with windows and without where the folds do not object, otherwise one for each."""
    together = fit_group(group, hardware=hardware, file=file)
    apart = [fit_group(part, hardware=hardware, file=file) for part in by_mask(group)]
    if not apart:
        return [together]
    expected = np.average([error for _, error in apart], weights=[made.fit.error.fit_points for made, _ in apart])
    return [together] if together[1] <= ONE_KERNEL * expected else apart


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


def predict(draft: KernelFit, group: KernelRows, *, machine: AttentionMachine, lattice: Lattice) -> Predicted:
    """Every row as the simulator prices it, with its grid as measured."""
    body = prepared(group, machine=machine, traits=draft.parameters)
    physics_s = body.seconds_of(draft.parameters)
    log_sigma, _ = shape_confidence(draft, body.points, axes=model_of(group).axes)
    return Predicted(
        seconds=physics_s * np.exp(log_correction(lattice, body.points)), log_sigma=log_sigma, physics_s=physics_s
    )


def held_out_scored(
    draft: KernelFit, group: KernelRows, *, machine: AttentionMachine, lattice: Lattice, folded: CrossValidation
) -> Fitted:
    """``draft`` with its errors on the layouts it saw and on those it did not see."""
    return scored(
        draft,
        lattice=lattice,
        measured=group.rows["seconds"].to_numpy(),
        predicted=predict(draft, group, machine=machine, lattice=lattice),
        is_score=group.rows["is_score"].to_numpy(),
    )


def cross_scored(
    draft: KernelFit, group: KernelRows, *, machine: AttentionMachine, lattice: Lattice, folded: CrossValidation
) -> Fitted:
    """``draft`` with the errors of its folds, where no layout was held out beside them."""
    seen = predict(draft, group, machine=machine, lattice=lattice)
    measured = group.rows["seconds"].to_numpy()
    folds_s, folds_physics_s = (measured * np.exp(-residual) for residual in (folded.residual, folded.physics_residual))
    return scored(
        draft.model_copy(update={"note": f"{draft.note}; {NONE_HELD_OUT}"}),
        lattice=lattice,
        measured=np.tile(measured, 2),
        predicted=Predicted(
            seconds=np.concatenate([folds_s, seen.seconds]),
            log_sigma=np.tile(seen.log_sigma, 2),
            physics_s=np.concatenate([folds_physics_s, seen.physics_s]),
        ),
        is_score=np.repeat([True, False], len(measured)),
    )


def groups_of(root: Path, *, hardware: str, library: str) -> tuple[KernelRows, ...]:
    """Every group of rows of one accelerator and library."""
    found: list[KernelRows] = []
    for phase in PHASES:
        if (hardware, library, phase) not in UNUSABLE:
            found += attention_rows(root, hardware=hardware, library=library, phase=phase)
            found += latent_groups(root, hardware=hardware, library=library, phase=phase)
    found += encoder_rows(root, hardware=hardware, library=library)
    return tuple(found)


def latent_groups(root: Path, *, hardware: str, library: str, phase: Phase) -> list[KernelRows]:
    """Latent attention of a library as it timed it, and by the kernels that it shares with others."""
    own = mla_rows(root, hardware=hardware, library=library, phase=phase)
    found, known = list(own), {(group.format, group.variant) for group in own}
    for lender in MLA_LENDERS.get(library, ()):
        if (hardware, lender, phase) in UNUSABLE:
            continue
        for group in mla_rows(root, hardware=hardware, library=lender, phase=phase):
            if (group.format, group.variant) in known or not _is_shared(group, library=library, lender=lender):
                continue
            known.add((group.format, group.variant))
            found.append(replace(group, borrowed_from=lender))
    return found


def _is_shared(group: KernelRows, *, library: str, lender: str) -> bool:
    """Whether the borrower runs the lender's kernel.

    TensorRT-LLM lends the 8-bit decode kernel of Hopper only, which FlashMLA's is (vLLM's own MLA modules with an 8-bit
    cache on Hopper grow with the context as TensorRT-LLM's do to within 2 %). vLLM prefills latent attention in
    16 bit whatever the cache (its modules' kernel is FLASH_ATTN for both).
    """
    if lender == "trtllm":
        on_hopper = load_hardware(group.hardware).architecture.lower() == "hopper"
        return on_hopper and group.phase == "decode" and group.format == "fp8"
    return not (library == "vllm" and group.phase == "prefill" and group.format == "fp8")


PHASES: tuple[Phase, ...] = ("prefill", "decode")

MLA_LENDERS = {"vllm": ("sglang", "trtllm"), "sglang": ("trtllm",)}
"""vLLM's latent attention was only timed with its projections; SGLang calls the same kernels. SGLang's table of an
8-bit cache on Hopper timed a conversion (CONVERTED_CACHE)."""

LIBRARY_LOG_SIGMA = 0.15
"""What the same flash-attention 3 kernels differ by between two libraries' tables (H100, d128)."""

NONE_HELD_OUT = "no layout held out, scored by cross-validation"
"""Note of a fit whose score is that of its folds."""

UNUSABLE = {("a100-sxm-80gb", "trtllm", "decode")}
"""Tables in which 7 % of the rows beat the bandwidth of the memory."""


def fit_library(hardware_name: str, *, library: str, root: Path, directory: Path, only: Sequence[str] = ("*",)) -> None:
    """Fit the groups of one accelerator and library whose key matches one of ``only`` and write the calibration."""
    hardware = load_hardware(hardware_name)
    name = f"{hardware_name}--{library}.attention"
    groups = groups_of(root, hardware=hardware_name, library=library)
    chosen = [group for group in groups if _matches(key_of(group), only)]
    if not groups or (not chosen and "*" not in only):
        return
    fitted: list[Fitted] = []
    removed: list[str] = []
    for made, error in (pair for group in chosen for pair in fit_masks(group, hardware=hardware, file=f"{name}.npz")):
        points = made.fit.error.fit_points + made.fit.error.score_points
        report(made, hardware=hardware_name, library=library, points=points)
        if error > WORST_ERROR:
            removed.append(f"{made.key} {error:.1%}")
        else:
            fitted.append(made)
    if fitted and removed:
        first = fitted[0].fit
        note = f"{first.note}; not written for a cross-validated error above {WORST_ERROR:.0%}: {', '.join(removed)}"
        fitted[0] = replace(fitted[0], fit=first.model_copy(update={"note": note}))
    write_fits(
        fitted,
        hardware=hardware_name,
        library=library,
        version=groups[0].version,
        group="attention",
        split="attention and mla tables; one head layout in five held out",
        directory=directory,
        kept=kept_fits(directory / f"{name}.yaml", made_again=partial(_made_again, only=only)),
    )


def key_of(group: KernelRows) -> str:
    """Name of a group's lattice: phase, format and variant."""
    return f"{group.phase}.{group.format}.{group.variant}"


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _made_again(fit: KernelFit, *, only: Sequence[str]) -> bool:
    return fit.correction is not None and _matches(fit.correction.key, only)


def main() -> None:
    """Fit every table, or the groups that ``--only`` names; the other fits of a file stay as they are."""
    parser = table_parser(__doc__)
    parser.add_argument(
        "--only", nargs="*", default=["*"], help="keys such as decode.bf16.d128 or '*.mla*': fit these alone"
    )
    arguments = parser.parse_args()
    fit_each(partial(fit_library, only=tuple(arguments.only)), arguments)


if __name__ == "__main__":
    main()
