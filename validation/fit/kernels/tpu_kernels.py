"""Fit products and attention of the TPU v6e: ``python -m validation.fit.kernels.tpu_kernels --data DIR``.

One model's layers and attention on one chip (Llama-3.1-8B, 16 bit) tell few numbers of an architecture: what its matrix
units and memory reach, what a launch takes, and how its attention walks the cache. There is no correction table. Rows
faster than their weights can come from memory are left out: the benchmark keeps small ones on the chip, which a step
that streams a model cannot.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import fit_error, interval_sigma
from simulator.kernels.attention.cases import AttentionCases, attention_machine
from simulator.kernels.attention.decode import decode_grid_of, decode_points, decode_seconds
from simulator.kernels.attention.prefill import grid_of, prefill_points, prefill_seconds
from simulator.kernels.timing import log2_coordinates
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationGroup, CalibrationSpec, FitError, KernelFit
from simulator.specs.model.precision import Dtype
from simulator.units import MICRO
from validation.fit.corrected import box_of
from validation.fit.files import calibration_directory, write_calibration
from validation.fit.kernels.attention_models import DECODE_BOUNDS, DECODE_TRAITS, MODELS, PREFILL_BOUNDS, PREFILL_TRAITS
from validation.fit.kernels.gemm import AXES, BOUNDS, Sweep, physics_seconds
from validation.fit.physics import Bound, fit_parameters
from validation.silicon.formats import GEMM_FORMATS
from validation.silicon.split import is_score

Array = NDArray[np.float64]

HARDWARE, LIBRARY = "tpu-v6e", "xla"
TABLE = "today/tpu_v6e_kernels.csv"
SOURCE = "layers.csv and attention.csv of profiler/v0/perf_models/TPU-v6e-1, meta-llama/Llama-3.1-8B at tp1"

HIDDEN, INTERMEDIATE, VOCABULARY = 4096, 14336, 128256
COLUMNS = {
    "q_proj": (HIDDEN, HIDDEN),
    "o_proj": (HIDDEN, HIDDEN),
    "gate_proj": (INTERMEDIATE, HIDDEN),
    "up_proj": (INTERMEDIATE, HIDDEN),
    "down_proj": (HIDDEN, INTERMEDIATE),
    "lm_head": (VOCABULARY, HIDDEN),
}
"""Columns and depth of each product of the model."""
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128

TOKENS = np.unique(np.round(2 ** np.arange(1, 11.01, 0.25)))
"""Rows of the products, four an octave of every number up to 2,048. One row is left out: its times are of another form
of the weights (the LM head at 1.9 times the memory's rate)."""

PRODUCT_FREE = ("launch_s", "compute_fraction", "half_tile", "memory_fraction", "unit_bandwidth", "overlap")
PRODUCT_FIXED = {
    "prologue": 1.0,
    "wave_quantisation": 0.01,
    "droop": 0.001,
    "droop_s": 0.1,
    "l2_share": 1.0,
    "l2_speedup": 1.0,
    "l2_sharpness": 3.0,
    "split_s": 3e-5,
}
"""What a systolic array under a compiler lacks: waves of blocks, a cache, split-K; each at the end of its range that
changes nothing."""

PREFILL_FREE = ("launch_s", "tensor_fraction", "exponential_rate", "tile_cycles", "memory_fraction", "token_cycles")
PREFILL_FIXED = {"overlap": 3.0, "lone_factor": 1.0, "wave_quantisation": 0.7, "l2_speedup": 1.0, "droop": 0.001}
DECODE_FREE = ("launch_s", "tensor_fraction", "part_cycles", "memory_fraction", "merge_s")
DECODE_FIXED = {"l2_speedup": 1.0}


def read_rows(data: Path) -> pd.DataFrame:
    """The table with seconds."""
    rows = pd.read_csv(data / TABLE)
    return rows.assign(seconds=rows["us"] * MICRO)


def product_rows(table: pd.DataFrame) -> pd.DataFrame:
    """m, n, k, seconds and op of the products whose weights came from memory."""
    rows = table[table["op"].isin(COLUMNS) & table["tokens"].isin(TOKENS)].copy()
    rows["m"] = rows["tokens"].astype(float)
    rows["n"], rows["k"] = (rows["op"].map(lambda op, at=at: float(COLUMNS[op][at])) for at in (0, 1))
    from_memory = 2.0 * rows["n"] * rows["k"] <= rows["seconds"] * load_hardware(HARDWARE).memory_bytes_per_s
    return rows[from_memory].reset_index(drop=True)


def _products(rows: pd.DataFrame, parameters: Mapping[str, float]) -> Array:
    return physics_seconds(
        rows,
        hardware=load_hardware(HARDWARE),
        format=GEMM_FORMATS["bfloat16"],
        parameters=PRODUCT_FIXED | dict(parameters),
        sweep=Sweep(cold=True),
    )


def _fitted(
    price: Callable[[Mapping[str, float]], Array],
    measured: Array,
    *,
    bounds: Mapping[str, Bound],
    free: tuple[str, ...],
) -> dict[str, float]:
    return fit_parameters(price, measured, bounds={name: bounds[name] for name in free})


def product_fit(rows: pd.DataFrame) -> KernelFit:
    """All products together; scored with each product's rows left out in turn."""
    measured = rows["seconds"].to_numpy()

    def fitted(part: pd.DataFrame) -> dict[str, float]:
        return _fitted(
            lambda trial: _products(part, trial), part["seconds"].to_numpy(), bounds=BOUNDS, free=PRODUCT_FREE
        )

    held_out = np.empty(len(rows))
    for op in rows["op"].unique():
        mine = (rows["op"] == op).to_numpy()
        held_out[mine] = _products(rows[mine], fitted(rows[~mine]))
    parameters = fitted(rows)
    points = log2_coordinates(*(rows[axis] for axis in AXES))
    return KernelFit(
        family="gemm",
        format="bf16",
        model="tiled_gemm",
        parameters=PRODUCT_FIXED | parameters,
        box=box_of(points, axes=AXES),
        error=_error(measured, held_out, _products(rows, parameters), np.ones(len(rows), dtype=bool)),
        note="physics alone; scored with each product left out",
    )


def attention_fit(table: pd.DataFrame, *, phase: str) -> KernelFit:
    """Prefill by (chunk, cached tokens) or decode by (sequences, cached tokens): one in five chunks or numbers of
    sequences is held out."""
    rows = table[table["op"] == f"attention_{phase}"]
    first = "prefill_chunk" if phase == "prefill" else "batch_or_n_decode"
    rows = rows[(rows[first] > 1) | (phase == "decode")].reset_index(drop=True)
    size, cached = rows[first].to_numpy(float), rows[f"kv_{phase}"].to_numpy(float)
    one = np.ones(len(rows))
    cases = AttentionCases(
        sequences=one if phase == "prefill" else size,
        query_tokens=size if phase == "prefill" else one,
        context_tokens=cached if phase == "prefill" else cached - 1,
        num_kv_heads=KV_HEADS * one,
        group=HEADS / KV_HEADS * one,
        head_dim=HEAD_DIM * one,
        v_head_dim=HEAD_DIM * one,
        window=np.inf * one,
        kv_element_bytes=2.0 * one,
    )
    price, points, traits = _attention(cases, phase=phase)
    fixed = PREFILL_FIXED if phase == "prefill" else DECODE_FIXED
    bounds, free = (PREFILL_BOUNDS, PREFILL_FREE) if phase == "prefill" else (DECODE_BOUNDS, DECODE_FREE)
    measured = rows["seconds"].to_numpy()
    held = is_score(rows, family=f"tpu {phase}", columns=(first,))

    def on(part: NDArray[np.bool_]) -> Callable[[Mapping[str, float]], Array]:
        return lambda trial: price(fixed | dict(trial))[part]

    parameters = fixed | _fitted(on(~held), measured[~held], bounds=bounds, free=free)
    predicted = price(parameters)
    model = MODELS[phase]
    return KernelFit(
        family=model.family,
        format="bf16",
        variant=f"d{HEAD_DIM}",
        model=model.name,
        parameters=parameters | traits,
        box=box_of(points, axes=model.axes),
        error=_error(measured, predicted, predicted, held),
        note=f"physics alone; one in five of {first} held out",
    )


def _attention(
    cases: AttentionCases, *, phase: str
) -> tuple[Callable[[Mapping[str, float]], Array], Array, dict[str, float]]:
    """The physics of the cases as a function of its parameters, their coordinates, and the traits of the kernel: tiles
    of 64 rows that hold the heads of a group, as rows of one tile in decode."""
    machine = attention_machine(load_hardware(HARDWARE), Dtype.BF16)
    if phase == "prefill":
        traits = next(one for one in PREFILL_TRAITS if (one["tile_rows"], one["packs_group"]) == (64.0, 1.0))
        tiles = grid_of(cases, machine=machine, parameters=traits)
        return (
            lambda p: (
                prefill_seconds(cases, grid=tiles, machine=machine, parameters={**p, **traits}, cold=True).seconds
            ),
            prefill_points(cases, tiles),
            traits,
        )
    traits = next(one for one in DECODE_TRAITS if one["tile_rows"] == 64.0)
    parts = decode_grid_of(cases, machine=machine, parameters=traits)
    return (
        lambda p: decode_seconds(cases, grid=parts, machine=machine, parameters={**p, **traits}, cold=True).seconds,
        decode_points(cases, parts),
        traits,
    )


def _error(measured: Array, held_out: Array, seen: Array, held: NDArray[np.bool_]) -> FitError:
    """Of the rows held out, predicted without them, beside those that the fit saw."""
    sigma = interval_sigma(np.log(measured[held] / held_out[held]))
    together = np.concatenate([measured[held], measured])
    return fit_error(
        together,
        np.concatenate([held_out[held], seen]),
        log_sigma=np.full(len(together), sigma),
        is_score=np.arange(len(together)) < int(held.sum()),
    )


def main() -> None:
    """Fit and write the calibrations."""
    parser = argparse.ArgumentParser(prog="python -m validation.fit.kernels.tpu_kernels", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/tpu_v6e_kernels.csv")
    parser.add_argument("--output", type=Path, default=calibration_directory())
    arguments = parser.parse_args()
    table = read_rows(arguments.data)
    groups: dict[CalibrationGroup, tuple[KernelFit, ...]] = {
        "gemm": (product_fit(product_rows(table)),),
        "attention": tuple(attention_fit(table, phase=phase) for phase in MODELS),
    }
    for group, fits in groups.items():
        for fit in fits:
            print(fit.family, {name: float(f"{value:.4g}") for name, value in fit.parameters.items()}, fit.error)
        calibration = CalibrationSpec(
            hardware=HARDWARE,
            library=LIBRARY,
            library_version="2026",
            date=pd.Timestamp.now(tz="UTC").date().isoformat(),
            source=SOURCE,
            fits=fits,
        )
        write_calibration(calibration, group=group, directory=arguments.output)


if __name__ == "__main__":
    main()
