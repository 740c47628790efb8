"""Fit the three-parameter roofline of each accelerator and family: launch, share of peak, share of bandwidth.

``python -m validation.fit.three_parameter --tables DIR`` writes calibration/<hardware>--<library>.roofline.yaml.
The shapes of the score split are not seen by the fit; their error is stored beside the parameters.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import fit_error, interval_sigma
from simulator.fitting.three_parameter import PARAMETERS, ParameterRange, Points, roofline_seconds, search, settled
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit
from simulator.specs.model.precision import Dtype
from validation.silicon.split import SCORE_SHARE, buckets_of
from validation.silicon.tables import SOURCE, SYSTEMS, Table, load_table, tables_root
from validation.writing import write_whole

Array = NDArray[np.float64]
LIBRARY = "vllm"
DATE = "2026-11-21"
# Bounds keep each number meaningful: no faster than the datasheet, a launch between 0.5 and 60 us.
RANGE = ParameterRange(lower=np.log([5e-7, 0.05, 0.05]), upper=np.log([6e-5, 1.0, 1.0]))
TYPICAL = np.log([3e-6, 0.7, 0.8])
"""Stands for a parameter that the rows say nothing about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """FLOPs, bytes and measured seconds of one family in one number format; ``shape_columns`` name its split unit."""

    family: str
    format: str
    math: Dtype
    flops: Array
    bytes: Array
    rows: pd.DataFrame
    shape_columns: tuple[str, ...]


def _gemm(table: Table, fmt: str, math: Dtype, weight_bytes: float) -> Demand:
    rows = table.rows[table.rows["gemm_dtype"] == fmt]
    m, n, k = (rows[column].to_numpy(float) for column in ("m", "n", "k"))
    traffic = weight_bytes * (n * k + m * k) + 2 * m * n
    return Demand(
        family="gemm", format=fmt, math=math, flops=2 * m * n * k, bytes=traffic, rows=rows, shape_columns=("n", "k")
    )


def _heads(rows: pd.DataFrame) -> tuple[Array, Array, Array]:
    heads = rows["num_heads"].to_numpy(float)
    kv_heads = rows["num_key_value_heads"].to_numpy(float)
    return heads, np.where(kv_heads == 0, heads, kv_heads), rows["head_dim"].to_numpy(float)


LAYOUT = ("num_heads", "num_key_value_heads", "head_dim")


def _plain(rows: pd.DataFrame, dtype_column: str) -> pd.DataFrame:
    is_plain = rows["window_size"].fillna(0) <= 0 if "window_size" in rows else True
    return rows[is_plain & rows[dtype_column].isin(["bfloat16", "bf16", "half", "float16"])]


def _prefill(table: Table) -> Demand:
    rows = _plain(table.rows, "attn_dtype")
    heads, kv_heads, dim = _heads(rows)
    batch, isl = rows["batch_size"].to_numpy(float), rows["isl"].to_numpy(float)
    flops = 4 * batch * heads * dim * isl * (isl + 1) / 2
    traffic = 2 * batch * isl * dim * (2 * heads + 2 * kv_heads)
    return Demand(
        family="prefill_attention",
        format="bf16",
        math=Dtype.BF16,
        flops=flops,
        bytes=traffic,
        rows=rows,
        shape_columns=LAYOUT,
    )


def _decode(table: Table, l2_bytes: float) -> Demand:
    rows = _plain(table.rows, "kv_cache_dtype")
    heads, kv_heads, dim = _heads(rows)
    batch = rows["batch_size"].to_numpy(float)
    length = rows["isl"].to_numpy(float) + rows["step"].to_numpy(float)
    traffic = 4 * batch * length * kv_heads * dim
    # Calls whose KV fits in L2 say nothing about memory, which serving always reads from.
    cold = (traffic > 1.5 * l2_bytes) | (traffic < l2_bytes / 50)
    flops = 4 * batch * heads * dim * length
    return Demand(
        family="decode_attention",
        format="bf16",
        math=Dtype.BF16,
        flops=flops[cold],
        bytes=traffic[cold],
        rows=rows[cold],
        shape_columns=LAYOUT,
    )


def demands(hardware: AcceleratorSpec, root: Path) -> Iterator[tuple[str, Demand]]:
    """Every family that the tables of an accelerator cover, with the library's version."""
    gemm = load_table(root, hardware=hardware.name, family="gemm", library=LIBRARY, table="gemm")
    if gemm is not None:
        for fmt, math, weight_bytes in (("bfloat16", Dtype.BF16, 2), ("fp8", Dtype.FP8, 1), ("nvfp4", Dtype.FP4, 0.5)):
            if math in hardware.peak_flops_per_s and (gemm.rows["gemm_dtype"] == fmt).any():
                yield gemm.version, _gemm(gemm, fmt, math, weight_bytes)
    for name, build in (
        ("context_attention", _prefill),
        ("generation_attention", lambda table: _decode(table, hardware.l2_bytes)),
    ):
        table = load_table(root, hardware=hardware.name, family="attention", library=LIBRARY, table=name)
        if table is not None:
            yield table.version, build(table)


def fit_demand(demand: Demand, hardware: AcceleratorSpec) -> KernelFit:
    """Robust fit on the log of time; errors on the shapes held out."""
    buckets = buckets_of(
        demand.rows, family=demand.family, columns=demand.shape_columns, buckets=SCORE_SHARE, salt="score"
    )
    seen = buckets != 0
    peak_s = demand.flops / hardware.peak_flops_per_s[demand.math]
    bandwidth_s = demand.bytes / hardware.memory_bytes_per_s
    seconds = demand.rows["seconds"].to_numpy(float)
    points = Points(peak_s=peak_s[seen], bandwidth_s=bandwidth_s[seen], seconds=seconds[seen])
    logs = settled(search(points, within=RANGE), points, within=RANGE, otherwise=TYPICAL)
    predicted = roofline_seconds(logs, peak_s=peak_s, bandwidth_s=bandwidth_s)[0]
    spread = interval_sigma(np.log(predicted / seconds)[seen])
    error = fit_error(seconds, predicted, log_sigma=np.full(len(seconds), spread), is_score=~seen)
    return KernelFit(
        family=demand.family,
        format={"bfloat16": "bf16"}.get(demand.format, demand.format),
        model="three_parameter",
        parameters={name: float(f"{value:.5g}") for name, value in zip(PARAMETERS, np.exp(logs), strict=True)},
        box={"flops": (float(demand.flops.min()), float(demand.flops.max()))},
        error=error.model_copy(update={"log_sigma": round(spread, 5)}),
    )


def main() -> None:
    """Fit every accelerator with tables and write one file each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, default=None, help="folder that holds h100_sxm/ and the like")
    parser.add_argument("--output", type=Path, default=Path("hardware_profiles/calibration"))
    arguments = parser.parse_args()
    root = tables_root(arguments.tables)
    for name in SYSTEMS:
        hardware = load_hardware(name)
        versions_and_fits = [(version, fit_demand(demand, hardware)) for version, demand in demands(hardware, root)]
        if not versions_and_fits:
            continue
        spec = CalibrationSpec(
            hardware=name,
            library=LIBRARY,
            library_version=versions_and_fits[0][0],
            date=DATE,
            source=SOURCE,
            fits=tuple(fit for _, fit in versions_and_fits),
        )
        path = arguments.output / f"{name}--{LIBRARY}.roofline.yaml"
        write_whole(path, yaml.safe_dump(spec.model_dump(exclude_defaults=True, mode="json"), sort_keys=False))
        for fit in spec.fits:
            print(
                f"{name:16s} {fit.family:18s} {fit.format:6s} "
                f"score {100 * fit.error.score_mape:5.1f} %  {fit.parameters}"
            )


if __name__ == "__main__":
    main()
