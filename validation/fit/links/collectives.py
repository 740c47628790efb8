"""Fit every collective of every measured accelerator: python -m validation.fit.links.collectives [--tables DIR].

Writes hardware_profiles/calibration/<hardware>--<library>.collective.yaml. One point in five, chosen by a hash of
(operation, participants, message bytes), is never fitted and gives the recorded error; the interval comes from
cross-validation inside the other four fifths.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.fitting.kernel_fits import NORMAL_80, interval_sigma
from simulator.kernels.collectives.network import EAGER_SUFFIX, LIBRARY_WIDE
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec, FitError, KernelFit
from validation.fit.files import calibration_directory, write_calibration
from validation.fit.links.collective_laws import Array, fit_variants, predict, rounded, variant_of
from validation.fit.links.engine_choice import ENGINE_CHOICES, NCCL, Choice
from validation.silicon.collective_tables import CollectiveTable, engine_tables, nccl_tables
from validation.silicon.split import folds, is_score
from validation.silicon.tables import SOURCE, SYSTEMS, tables_root

COLUMNS = ("participants", "message_bytes")
FOLDS = 4
SIGMA_FLOOR = 0.01


# The L40S tables come from a host without fast peer-to-peer: 19 GB/s between two cards and 2 GB/s between eight, where
# published runs of eight cards need ten times that. Its collectives are borrowed from the other PCIe card's.
ODD_HOSTS = ("l40s",)


def _out_of_fold(rows: pd.DataFrame, *, table: CollectiveTable, choice: Choice, bytes_per_s: float) -> Array:
    """Predictions of each fit row from the other folds."""
    parts = folds(rows, family=table.operation.value, columns=COLUMNS, count=FOLDS)
    predicted = np.full(len(rows), np.nan)
    for fold in range(FOLDS):
        inside, outside = rows[parts != fold], rows[parts == fold]
        variants = fit_variants(inside, choice=choice, operation=table.operation, bytes_per_s=bytes_per_s)
        predicted[parts == fold] = predict(
            outside, variants, choice=choice, operation=table.operation, bytes_per_s=bytes_per_s
        )
    return predicted


def log_sigma_of(log_ratio: Array) -> float:
    """Sigma whose normal 80 % interval holds 80 % of the given errors."""
    return interval_sigma(log_ratio[np.isfinite(log_ratio)], smallest=SIGMA_FLOOR)


def fit_error(*, score: Array, fit: Array, log_sigma: float) -> FitError:
    """Record of log(measured / predicted) on held-out and fitted points."""
    relative = [np.exp(-ratio) - 1 for ratio in (score, fit)]
    return FitError(
        score_mape=rounded(float(np.abs(relative[0]).mean())),
        fit_mape=rounded(float(np.abs(relative[1]).mean())),
        score_bias=rounded(float(relative[0].mean())),
        log_sigma=rounded(log_sigma),
        coverage_80=rounded(float((np.abs(score) <= NORMAL_80 * log_sigma).mean())),
        score_points=len(score),
        fit_points=len(fit),
    )


def _best_choice(
    rows: pd.DataFrame, *, table: CollectiveTable, choices: Sequence[Choice], bytes_per_s: float
) -> Choice:
    """The engine rule with the least cross-validated error, each point capped so that outliers do not decide."""
    usable = [choice for choice in choices if not choice.starts or set(rows["participants"]) <= set(choice.starts)]
    if len(usable) == 1:
        return usable[0]
    errors = []
    for choice in usable:
        predicted = _out_of_fold(rows, table=table, choice=choice, bytes_per_s=bytes_per_s)
        ratio = np.log(rows["seconds"].to_numpy() / predicted)
        errors.append(float(np.minimum(np.abs(np.nan_to_num(ratio, nan=1.0)), 0.5).mean()))
    return usable[int(np.argmin(errors))]


def fit_table(table: CollectiveTable, *, choices: Sequence[Choice], bytes_per_s: float) -> tuple[KernelFit, ...]:
    """All variants of one operation in one launch mode; they share one error, that of the switching model."""
    held_out = is_score(table.rows, family=table.operation.value, columns=COLUMNS)
    rows, score = table.rows[~held_out], table.rows[held_out]
    choice = _best_choice(rows, table=table, choices=choices, bytes_per_s=bytes_per_s)
    crossed = _out_of_fold(rows, table=table, choice=choice, bytes_per_s=bytes_per_s)
    variants = fit_variants(rows, choice=choice, operation=table.operation, bytes_per_s=bytes_per_s)
    ratios = [
        np.log(
            part["seconds"].to_numpy()
            / predict(part, variants, choice=choice, operation=table.operation, bytes_per_s=bytes_per_s)
        )
        for part in (score, rows)
    ]
    sigma = log_sigma_of(np.log(rows["seconds"].to_numpy() / crossed))
    error = fit_error(score=ratios[0][np.isfinite(ratios[0])], fit=ratios[1], log_sigma=sigma)
    chosen = variant_of(rows, choice)
    return tuple(
        _kernel_fit(name, parameters, rows=rows[chosen == name], table=table, choice=choice, error=error)
        for name, parameters in variants.items()
    )


def _kernel_fit(
    name: str,
    parameters: Mapping[str, float],
    *,
    rows: pd.DataFrame,
    table: CollectiveTable,
    choice: Choice,
    error: FitError,
) -> KernelFit:
    starts = {
        f"from_bytes.p{devices}": rule[name]
        for devices, rule in choice.starts.items()
        if name in rule and devices in set(rows["participants"])
    }
    box = {column: (float(rows[column].min()), float(rows[column].max())) for column in COLUMNS}
    return KernelFit(
        family=table.operation.value,
        format="bf16",
        variant=name if table.graph else name + EAGER_SUFFIX,
        model="alpha_beta",
        parameters={**parameters, **starts},
        box=box,
        error=error,
        note=f"{choice.name}; measured with {table.version}; the error is that of the whole operation",
    )


def calibrate(root: Path, *, hardware: str) -> tuple[CalibrationSpec, ...]:
    """Calibrations of one accelerator: NCCL's operations, and each engine's own all-reduce beside them."""
    bytes_per_s = load_hardware(hardware).scale_up.bytes_per_s_per_direction
    general = nccl_tables(root, hardware=hardware)
    wide = tuple(fit for table in general for fit in fit_table(table, choices=(NCCL,), bytes_per_s=bytes_per_s))
    assert all(fit.variant == LIBRARY_WIDE for fit in wide)
    specs = [_spec(hardware, library="nccl", version=general[0].version, fits=wide)]
    for library, choices in ENGINE_CHOICES.items():
        tables = engine_tables(root, hardware=hardware, library=library)
        own = tuple(fit for table in tables for fit in fit_table(table, choices=choices, bytes_per_s=bytes_per_s))
        if own:
            specs.append(_spec(hardware, library=library, version=tables[0].version, fits=own))
    return tuple(specs)


def _spec(hardware: str, *, library: str, version: str, fits: tuple[KernelFit, ...]) -> CalibrationSpec:
    return CalibrationSpec(
        hardware=hardware,
        library=library,
        library_version=version,
        date=date.today().isoformat(),
        source=f"{SOURCE}, comm tables; one point in five held out",
        fits=fits,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, write and report one line per operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ (default: the installed package)")
    parser.add_argument("--hardware", nargs="*", default=[name for name in SYSTEMS if name not in ODD_HOSTS])
    options = parser.parse_args(arguments)
    root = tables_root(options.tables)
    directory = calibration_directory()
    for hardware in options.hardware:
        for spec in calibrate(root, hardware=hardware):
            write_calibration(spec, group="collective", directory=directory)
            for fit in spec.fits:
                error = fit.error
                print(
                    f"{hardware} {spec.library} {spec.library_version} {fit.family} {fit.variant}: "
                    f"score {error.score_mape:.1%} fit {error.fit_mape:.1%} sigma {error.log_sigma:.3f} "
                    f"coverage {error.coverage_80:.0%} ({error.score_points} points; {fit.note.split(';')[0]})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
