"""Error on a GPU that the fits never saw: ``python -m validation.fit.leave_one_gpu_out``.

Every calibrated accelerator is treated as if it had no tables: its held-out rows (bf16 products, prefill and decode
attention) are priced with the fits of each other accelerator on its own datasheet, as simulator/kernels does. The
rows and the curve of error over distance go to hardware_profiles/calibration/transfer.yaml, where the intervals of
simulator/kernels/transfer come from.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.kernels.attention_cases import attention_machine
from simulator.kernels.correction import lattice_of, log_correction
from simulator.kernels.transfer import calibrated_relative, kernel_distance
from simulator.specs.calibration import KernelFit
from simulator.specs.calibrations import load_arrays, load_calibration
from simulator.specs.hardware import AcceleratorSpec
from simulator.specs.loading import load_hardware
from simulator.specs.precision import Dtype
from simulator.specs.transfer import TransferPoint, TransferRow, TransferTable
from validation.fit import gemm
from validation.fit.attention_models import MODELS, prepared
from validation.fit.files import write_document
from validation.fit.residuals import interval_sigma
from validation.silicon.attention_tables import KernelRows, attention_rows
from validation.silicon.tables import SOURCE, SYSTEMS, load_table, tables_root

Array = NDArray[np.float64]

LIBRARY = "vllm"
FORMAT = "bf16"
FAMILIES = ("gemm", "prefill_attention", "decode_attention")
BAR = 0.15
CURVE_BINS = 5
"""Pairs of accelerators are sorted by distance and cut into this many groups of equal size, which become the curve."""


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
        rows = gemm.gemm_rows(table.rows, gemm_dtype="bfloat16")
        products = rows[rows["is_score"]].reset_index(drop=True)
    groups = [
        group
        for phase in MODELS
        for group in attention_rows(root, hardware=name, library=LIBRARY, phase=phase)
        if group.format == FORMAT and group.rows["is_score"].any()
    ]
    return Target(hardware=load_hardware(name), products=products, attention=tuple(groups))


def carried_log_ratios(target: Target, *, relative: str) -> dict[str, Array]:
    """log(measured / predicted) of the target's rows by family, with the fits of ``relative``."""
    found: dict[str, Array] = {}
    products = load_calibration(relative, library=LIBRARY, group="gemm")
    if products is not None and len(target.products):
        arrays = load_arrays(relative, library=LIBRARY, group="gemm")
        fit = _fit(products.fits, family="gemm")
        if fit is not None:
            seconds, _ = gemm.predict(
                target.products,
                fit=fit,
                hardware=target.hardware,
                format=gemm.FORMATS["bfloat16"],
                lattice=lattice_of(fit.correction, arrays),
            )
            found["gemm"] = np.log(target.products["seconds"].to_numpy() / seconds)
    attention = load_calibration(relative, library=LIBRARY, group="attention")
    if attention is not None:
        arrays = load_arrays(relative, library=LIBRARY, group="attention")
        for family in FAMILIES[1:]:
            parts = [
                _attention_ratios(group, hardware=target.hardware, fit=fit, arrays=dict(arrays))
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


def _attention_ratios(
    group: KernelRows, *, hardware: AcceleratorSpec, fit: KernelFit, arrays: dict[str, Array]
) -> Array:
    body = prepared(group, machine=attention_machine(hardware, Dtype.BF16), traits=fit.parameters)
    predicted = body.seconds_of(fit.parameters) * np.exp(
        log_correction(lattice_of(fit.correction, arrays), body.points)
    )
    held = group.rows["is_score"].to_numpy()
    ratios: Array = np.log(group.rows["seconds"].to_numpy() / predicted)[held]
    return ratios


def transfer_rows(targets: Sequence[Target]) -> list[TransferRow]:
    """Every pair of accelerators and family; ``nearest`` marks the relative that the simulator would take."""
    rows = []
    for target in targets:
        others = [other.hardware for other in targets if other is not target]
        chosen = calibrated_relative(target.hardware, available=others).name
        for other in others:
            for family, ratios in carried_log_ratios(target, relative=other.name).items():
                relative_error = np.expm1(-ratios)
                rows.append(
                    TransferRow(
                        target=target.hardware.name,
                        relative=other.name,
                        family=family,
                        distance=round(kernel_distance(target.hardware, relative=other), 3),
                        mape=round(float(np.mean(np.abs(relative_error))), 4),
                        bias=round(float(np.mean(relative_error)), 4),
                        log_sigma=round(interval_sigma(ratios), 4),
                        points=len(ratios),
                        nearest=other.name == chosen,
                    )
                )
    return rows


def curve_of(rows: Sequence[TransferRow], *, bins: int = CURVE_BINS) -> tuple[TransferPoint, ...]:
    """Error over distance, never falling: means of equally many pairs, pooled where a farther group errs less.

    The families count alike. Pool-adjacent-violators on the group means [Barlow1972].
    """
    ordered = sorted(rows, key=lambda row: (row.distance, row.target, row.relative, row.family))
    groups = [list(part) for part in np.array_split(np.arange(len(ordered)), min(bins, len(ordered))) if len(part)]
    pooled: list[list[int]] = []
    for group in groups:
        pooled.append(group)
        while len(pooled) > 1 and _mean(ordered, pooled[-1], "mape") <= _mean(ordered, pooled[-2], "mape"):
            last = pooled.pop()
            pooled[-1] = pooled[-1] + last
    return tuple(
        TransferPoint(
            distance=round(_mean(ordered, group, "distance"), 3),
            mape=round(_mean(ordered, group, "mape"), 4),
            log_sigma=round(_mean(ordered, group, "log_sigma"), 4),
        )
        for group in pooled
    )


def _mean(rows: Sequence[TransferRow], indices: Sequence[int], column: str) -> float:
    return float(np.mean([getattr(rows[index], column) for index in indices]))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ ...; default: aiconfigurator_core")
    parser.add_argument("--hardware", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--output", type=Path, default=Path("hardware_profiles/calibration"))
    arguments = parser.parse_args()
    root = tables_root(arguments.tables)
    rows = transfer_rows([load_target(root, name=name) for name in arguments.hardware])
    for row in rows:
        print(
            f"{'*' if row.nearest else ' '} {row.target:15} with {row.relative:15} {row.family:18} distance "
            f"{row.distance:4.2f} error {row.mape:6.1%} bias {row.bias:+6.1%} points {row.points}",
            flush=True,
        )
    table = TransferTable(
        library=LIBRARY,
        date=datetime.now(UTC).date().isoformat(),
        source=f"{SOURCE}, gemm and attention tables of {LIBRARY}, {FORMAT}; shapes held out by every fit",
        curve=curve_of(rows),
        rows=tuple(rows),
    )
    for point in table.curve:
        print(f"distance {point.distance:4.2f} error {point.mape:6.1%} log sigma {point.log_sigma:.3f}")
    write_document(table, arguments.output / "transfer.yaml")


if __name__ == "__main__":
    main()
