"""Scorecard of the shipped GEMM and MoE calibrations on the shapes that their fits never saw.

``python -m validation.bench_kernels [--tables DIR] [--hardware ...] [--library ...]`` predicts every held-out row with
the calibration in hardware_profiles/ and prints mean absolute percentage errors: of the plain roofline at datasheet
rates, of the physics alone, and of the product (physics and correction), the latter also by number of rows m.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import NORMAL_80
from simulator.kernels.fits import lattice_of
from simulator.kernels.gemm import gemm_machine
from simulator.kernels.timing import Lattice
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import KernelFit, load_arrays, load_calibration
from simulator.units import BITS_PER_BYTE
from validation.fit.corrected import Predicted
from validation.fit.kernels import gemm, moe, moe_rows
from validation.silicon.formats import EXPERT_FORMATS, GEMM_FORMATS
from validation.silicon.tables import SYSTEMS, Table, load_table, tables_root

Array = NDArray[np.float64]
REGIMES = ((1, 8), (9, 128), (129, 1024), (1025, 65536))


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors on held-out rows (fractions) of one fit; ``by_rows`` follows REGIMES."""

    roofline: float
    physics: float
    corrected: float
    median: float
    bias: float
    coverage_80: float
    by_rows: tuple[float, ...]
    points: int


def _mape(predicted: Array, measured: Array) -> float:
    return float(np.mean(np.abs(predicted / measured - 1.0))) if len(measured) else float("nan")


def _score(measured: Array, size: Array, *, roofline: Array, predicted: Predicted) -> Score:
    seconds = predicted.seconds
    relative = seconds / measured - 1.0
    bands = tuple(
        _mape(seconds[inside], measured[inside]) for low, high in REGIMES for inside in [(size >= low) & (size <= high)]
    )
    return Score(
        roofline=_mape(roofline, measured),
        physics=_mape(predicted.physics_s, measured),
        corrected=_mape(seconds, measured),
        median=float(np.median(np.abs(relative))),
        bias=float(np.mean(relative)),
        coverage_80=float(np.mean(np.abs(np.log(seconds / measured)) <= NORMAL_80 * predicted.log_sigma)),
        by_rows=bands,
        points=len(measured),
    )


def gemm_score(
    table: Table, *, gemm_dtype: str, fit: KernelFit, hardware: AcceleratorSpec, lattice: Lattice | None
) -> Score:
    """Score of one GEMM fit."""
    format = GEMM_FORMATS[gemm_dtype]
    rows = gemm.gemm_rows(table.rows, gemm_dtype=gemm_dtype, library=table.library)
    rows = rows[rows["is_score"]]
    m, n, k = (rows[axis].to_numpy(dtype=float) for axis in gemm.AXES)
    moved = n * k * format.weight_bits / BITS_PER_BYTE + m * k * format.activation_bits / BITS_PER_BYTE + 2.0 * m * n
    roofline = _roofline(2.0 * m * n * k, moved, hardware=hardware, format=format)
    predicted = gemm.predict(rows, fit=fit, hardware=hardware, format=format, lattice=lattice)
    measured = rows["measured_s"].to_numpy()
    return _score(measured, m, roofline=roofline, predicted=predicted)


def moe_score(
    rows: pd.DataFrame, *, moe_dtype: str, fit: KernelFit, hardware: AcceleratorSpec, lattice: Lattice | None
) -> Score | None:
    """Score of one MoE fit on the rows of its kernel; None where too few models were measured to hold any out."""
    format = EXPERT_FORMATS[moe_dtype]
    if rows["is_score"].all():
        return None
    rows = rows[rows["is_score"]]
    if rows.empty:
        return None
    load = moe_rows.load_of(rows)
    matrices = np.where(rows["is_gated"], 3.0, 2.0)
    one_expert = matrices * load.hidden_size * load.intermediate_size
    flops = 2.0 * one_expert * load.local_assignments
    moved = load.reached * one_expert * format.weight_bits / BITS_PER_BYTE
    roofline = _roofline(flops, moved, hardware=hardware, format=format)
    predicted = moe.predict(rows, fit=fit, hardware=hardware, format=format, lattice=lattice)
    measured = rows["seconds"].to_numpy()
    return _score(measured, load.tokens, roofline=roofline, predicted=predicted)


def _roofline(flops: Array, moved: Array, *, hardware: AcceleratorSpec, format: MatmulFormat) -> Array:
    machine = gemm_machine(hardware, format)
    return np.maximum(flops / machine.peak_flops_per_s, moved / machine.memory_bytes_per_s)


def _line(family: str, hardware: str, library: str, name: str, score: Score) -> str:
    bands = " ".join(f"{band:6.1%}" for band in score.by_rows)
    return (
        f"{family:5} {hardware:15} {library:7} {name:10} {score.points:6d} {score.roofline:7.1%} {score.physics:7.2%} "
        f"{score.corrected:7.2%} {score.median:7.2%} {score.bias:+7.2%} {score.coverage_80:8.1%}  {bands}"
    )


def _print_products(hardware_name: str, library: str, root: Path) -> None:
    calibration = load_calibration(hardware_name, library=library, group="gemm")
    table = load_table(root, hardware=hardware_name, family="gemm", library=library, table="gemm")
    if calibration is None or table is None:
        return
    hardware = load_hardware(hardware_name)
    arrays = load_arrays(hardware_name, library=library, group="gemm")
    for fit in calibration.fits:
        dtype = next((key for key, format in GEMM_FORMATS.items() if format.name == fit.format), None)
        if dtype is not None:
            lattice = lattice_of(fit.correction, arrays)
            score = gemm_score(table, gemm_dtype=dtype, fit=fit, hardware=hardware, lattice=lattice)
            print(_line("gemm", hardware_name, library, fit.format, score), flush=True)


def _print_experts(hardware_name: str, library: str, root: Path) -> None:
    calibration = load_calibration(hardware_name, library=library, group="moe")
    tables = moe_rows.moe_tables(root, hardware=hardware_name, library=library)
    if calibration is None:
        return
    hardware = load_hardware(hardware_name)
    arrays = load_arrays(hardware_name, library=library, group="moe")
    for dtype, format in EXPERT_FORMATS.items():
        table = moe_rows.table_of(tables, moe_dtype=dtype)
        if table is None:
            continue
        for group in moe_rows.kernel_groups(moe_rows.moe_rows(table.rows, moe_dtype=dtype)):
            wanted = (format.name, group.variant)
            fit = next((fit for fit in calibration.fits if (fit.format, fit.variant) == wanted), None)
            if fit is None:
                continue
            lattice = lattice_of(fit.correction, arrays)
            score = moe_score(group.rows, moe_dtype=dtype, fit=fit, hardware=hardware, lattice=lattice)
            if score is not None:
                print(_line("moe", hardware_name, library, " ".join(wanted), score), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ ...; default: aiconfigurator_core")
    parser.add_argument("--hardware", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--library", nargs="*", default=["vllm", "sglang", "trtllm"])
    parser.add_argument("--family", nargs="*", choices=["gemm", "moe"], default=["gemm", "moe"])
    arguments = parser.parse_args()
    root = tables_root(arguments.tables)
    bands = " ".join(f"m<={high}".rjust(6) for _, high in REGIMES)
    print(
        f"{'family':5} {'hardware':14} {'library':7} {'format':10} "
        f"points roofl. physics product  median    bias coverage  {bands}"
    )
    for family in arguments.family:
        for library in arguments.library:
            for hardware in arguments.hardware:
                print_group = _print_products if family == "gemm" else _print_experts
                print_group(hardware, library, root)


if __name__ == "__main__":
    main()
