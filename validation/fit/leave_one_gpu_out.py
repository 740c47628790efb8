"""Error on a GPU that the fits never saw: ``python -m validation.fit.leave_one_gpu_out``.

Every calibrated accelerator is treated as if it had no tables: its held-out rows (bf16 products, prefill and decode
attention) are priced with the fits of each other accelerator on its own datasheet, as simulator/kernels does. The
curve of error over distance goes to hardware_profiles/calibration/transfer.yaml, where the intervals of
simulator/kernels/transfer come from; every pair stands in validation/measured/leave_one_gpu_out.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import interval_sigma
from simulator.kernels.attention.cases import attention_machine
from simulator.kernels.fits import lattice_of
from simulator.kernels.timing import log_correction
from simulator.kernels.transfer import calibrated_relative, carried_fit, carries_correction, generation, kernel_distance
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import (
    KernelFit,
    TransferPoint,
    TransferRow,
    TransferTable,
    load_arrays,
    load_calibration,
)
from validation.fit.files import HEADER
from validation.fit.kernels import gemm
from validation.fit.kernels.attention_models import MODELS, prepared
from validation.silicon.attention_tables import KernelRows, attention_rows
from validation.silicon.formats import GEMM_FORMATS
from validation.silicon.tables import SOURCE, SYSTEMS, load_table, tables_root
from validation.writing import write_whole

Array = NDArray[np.float64]

LIBRARY = "vllm"
FORMAT = "bf16"
FAMILIES = ("gemm", "prefill_attention", "decode_attention")
BAR = 0.15
BAND_ENDS = (0.15, 0.7, 1.2, 1.6, 2.0, 2.4)
"""Distances at which the pairs are cut into groups, each of which becomes a point of the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Held-out rows of one accelerator: products, and attention by phase, head width and mask."""

    hardware: AcceleratorSpec
    products: pd.DataFrame
    attention: tuple[KernelRows, ...]


def load_target(root: Path, *, name: str) -> Target:
    """The rows that no fit saw, of the target or of any other accelerator: the split is by shape, not by GPU."""
    table = load_table(root, hardware=name, family="gemm", library=LIBRARY, table="gemm")
    products = pd.DataFrame()
    if table is not None:
        rows = gemm.gemm_rows(table.rows, gemm_dtype="bfloat16", library=LIBRARY)
        products = rows[rows["is_score"]].reset_index(drop=True)
    groups = [
        group
        for phase in MODELS
        for group in attention_rows(root, hardware=name, library=LIBRARY, phase=phase)
        if group.format == FORMAT and group.rows["is_score"].any()
    ]
    return Target(hardware=load_hardware(name), products=products, attention=tuple(groups))


def carried_log_ratios(target: Target, *, relative: str) -> dict[str, Array]:
    """log(measured / predicted) of the target's rows by family, with the fits of ``relative`` and those of its
    corrections that the simulator carries over."""
    found: dict[str, Array] = {}
    borrowed = calibrated_relative(target.hardware, available=(load_hardware(relative),))
    products = load_calibration(relative, library=LIBRARY, group="gemm")
    if products is not None and len(target.products):
        arrays = load_arrays(relative, library=LIBRARY, group="gemm")
        fit = _fit(products.fits, family="gemm")
        if fit is not None:
            predicted = gemm.predict(
                target.products,
                fit=carried_fit(fit, borrowed, library=LIBRARY),
                hardware=target.hardware,
                format=GEMM_FORMATS["bfloat16"],
                lattice=lattice_of(fit.correction, arrays),
            )
            found["gemm"] = np.log(target.products["seconds"].to_numpy() / predicted.seconds)
    attention = load_calibration(relative, library=LIBRARY, group="attention")
    if attention is not None:
        arrays = load_arrays(relative, library=LIBRARY, group="attention")
        for family in FAMILIES[1:]:
            carried = dict(arrays) if carries_correction(family, borrowed) else None
            parts = [
                attention_log_ratios(
                    group, hardware=target.hardware, fit=carried_fit(fit, borrowed, library=LIBRARY), arrays=carried
                )
                for group in target.attention
                if MODELS[group.phase].family == family
                and (fit := _fit(attention.fits, family=family, variant=group.variant)) is not None
            ]
            if parts:
                found[family] = np.concatenate(parts)
    return found


def _fit(fits: Sequence[KernelFit], *, family: str, variant: str = "") -> KernelFit | None:
    wanted = (family, FORMAT, variant)
    return next((fit for fit in fits if (fit.family, fit.format, fit.variant) == wanted), None)


def attention_log_ratios(
    group: KernelRows, *, hardware: AcceleratorSpec, fit: KernelFit, arrays: dict[str, Array] | None
) -> Array:
    """log(measured / predicted) of the held-out rows of a group, all of them where none are; arrays : of the correction
    where it is carried over."""
    lattice = None if arrays is None else lattice_of(fit.correction, arrays)
    body = prepared(group, machine=attention_machine(hardware, group.math), traits=fit.parameters)
    predicted = body.seconds_of(fit.parameters) * np.exp(log_correction(lattice, body.points))
    held = group.rows["is_score"].to_numpy()
    held = held if held.any() else ~held
    ratios: Array = np.log(group.rows["seconds"].to_numpy() / predicted)[held]
    return ratios


def pair_rows(targets: Sequence[Target]) -> list[TransferRow]:
    """Every ordered pair of accelerators and family."""
    own = {target.hardware.name: carried_log_ratios(target, relative=target.hardware.name) for target in targets}
    rows = []
    for target in targets:
        for relative in (other.hardware for other in targets if other is not target):
            for family, ratios in carried_log_ratios(target, relative=relative.name).items():
                error, sigma = np.expm1(-ratios), interval_sigma(ratios)
                excess = sigma**2 - interval_sigma(own[relative.name][family]) ** 2
                rows.append(
                    TransferRow(
                        target=target.hardware.name,
                        relative=relative.name,
                        family=family,
                        distance=round(kernel_distance(target.hardware, relative=relative), 3),
                        mape=round(float(np.mean(np.abs(error))), 4),
                        bias=round(float(np.mean(error)), 4),
                        log_sigma=round(sigma, 4),
                        log_sigma_extra=round(float(np.sqrt(max(excess, 0.0))), 4),
                        points=len(ratios),
                    )
                )
    return rows


def chosen_rows(
    rows: Sequence[TransferRow], *, hardware: Sequence[AcceleratorSpec], across_generations: bool
) -> tuple[TransferRow, ...]:
    """The rows of each target with the relative that the simulator takes among the others."""
    chosen = {}
    for target in hardware:
        others = [
            spec
            for spec in hardware
            if spec is not target and not (across_generations and generation(spec) == generation(target))
        ]
        chosen[target.name] = calibrated_relative(target, available=others).name
    return tuple(row for row in rows if chosen[row.target] == row.relative)


def curve_of(rows: Sequence[TransferRow]) -> tuple[TransferPoint, ...]:
    """Error over distance, never falling: means by band, pooled where a farther band errs less [Barlow1972]."""
    bands = np.searchsorted(BAND_ENDS, [row.distance for row in rows])
    pooled: list[list[TransferRow]] = []
    for band in np.unique(bands):
        pooled.append([row for row, mine in zip(rows, bands, strict=True) if mine == band])
        while len(pooled) > 1 and _falls(_point(pooled[-2]), _point(pooled[-1])):
            last = pooled.pop()
            pooled[-1] = pooled[-1] + last
    return tuple(_point(group) for group in pooled)


def _falls(near: TransferPoint, far: TransferPoint) -> bool:
    return far.log_sigma_extra <= near.log_sigma_extra or far.mape <= near.mape


def _point(rows: Sequence[TransferRow]) -> TransferPoint:
    return TransferPoint(
        distance=round(float(np.mean([row.distance for row in rows])), 3),
        mape=round(float(np.mean([row.mape for row in rows])), 4),
        log_sigma_extra=round(float(np.mean([row.log_sigma_extra for row in rows])), 4),
        pairs=len(rows),
    )


def report(table: TransferTable) -> str:
    """The chosen rows and the curve for the screen."""
    lines = []
    for title, rows in (("nearest", table.nearest), ("other generation", table.other_generation)):
        for row in rows:
            verdict = "meets" if row.mape <= BAR else "MISSES"
            lines.append(
                f"{title:16} {row.target:14} with {row.relative:14} {row.family:18} distance {row.distance:4.2f} "
                f"error {row.mape:6.1%} bias {row.bias:+6.1%} points {row.points:5d} {verdict} {BAR:.0%}"
            )
        for family in FAMILIES:
            mean = np.mean([row.mape for row in rows if row.family == family])
            lines.append(f"{title:16} mean {family:18} {mean:6.1%}")
    lines += [
        f"distance {point.distance:4.2f} error {point.mape:6.1%} log sigma {point.log_sigma_extra:.3f} ({point.pairs})"
        for point in table.curve
    ]
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ ...; default: aiconfigurator_core")
    parser.add_argument("--hardware", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--output", type=Path, default=Path("hardware_profiles/calibration"))
    parser.add_argument("--pairs", type=Path, default=Path("validation/measured/leave_one_gpu_out.csv"))
    arguments = parser.parse_args()
    root = tables_root(arguments.tables)
    targets = [load_target(root, name=name) for name in arguments.hardware]
    hardware = [target.hardware for target in targets]
    rows = pair_rows(targets)
    table = TransferTable(
        library=LIBRARY,
        date=datetime.now(UTC).date().isoformat(),
        source=f"{SOURCE}, gemm and attention tables of {LIBRARY}, {FORMAT}; rows of shapes that every fit held out",
        curve=curve_of(rows),
        nearest=chosen_rows(rows, hardware=hardware, across_generations=False),
        other_generation=chosen_rows(rows, hardware=hardware, across_generations=True),
    )
    print(report(table))
    document = yaml.safe_dump(table.model_dump(mode="json"), sort_keys=False, width=160, default_flow_style=None)
    write_whole(arguments.output / "transfer.yaml", HEADER + document)
    write_whole(arguments.pairs, pd.DataFrame([row.model_dump() for row in rows]).to_csv(index=False))


if __name__ == "__main__":
    main()
