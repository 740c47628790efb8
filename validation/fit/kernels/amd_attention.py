"""Fit prefill attention of AMD's accelerators: ``python -m validation.fit.kernels.amd_attention --data DIR``.

Few rows, so few parameters: one physics an architecture for heads of every width, without a correction. Each layout
(head width, query heads, mask) is scored under numbers that it had no part in; what rows do not tell is `NEUTRAL`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import fit_error, interval_sigma
from simulator.kernels.attention.cases import AttentionCases, attention_machine
from simulator.kernels.attention.decode import SplitRule
from simulator.kernels.attention.prefill import PREFILL_AXES, grid_of, prefill_points, prefill_seconds
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit
from simulator.specs.model.precision import Dtype
from simulator.units import MICRO
from validation.fit.corrected import box_of
from validation.fit.files import calibration_directory, write_calibration
from validation.fit.kernels.attention_models import MODELS, PREFILL_BOUNDS
from validation.fit.physics import fit_parameters
from validation.silicon.amd_tables import read_table

Array = NDArray[np.float64]

TABLE = Path("today") / "microbench.csv"
LIBRARY = "aiter"
"""Under which engines look for AMD's kernels."""
MODEL = MODELS["prefill"]
SHAPE = (
    r"batch (?P<sequences>\d+) (?:q_)?heads (?P<heads>\d+) (?:kv_heads (?P<kv_heads>\d+) )?seq(?:_q)? (?P<query>\d+)"
)
KEYS, WIDTH, UNMASKED = r"seq_kv (\d+)", r"head_dim (\d+)", r"non.causal"

NEUTRAL = {
    "launch_s": 8e-6,
    "tile_cycles": 0.0,
    "overlap": 3.0,
    "lone_factor": 1.0,
    "wave_quantisation": 1.0,
    "memory_fraction": 0.8,
    "l2_speedup": 1.0,
    "token_cycles": 0.0,
    "droop": 0.0,
    "merge_s": 0.0,
    "tile_rows": 128.0,
    "packs_group": 0.0,
    "split_rule": float(SplitRule.OWN),
}
"""Where the searches on NVIDIA's tables start, or nothing."""

WHOLE_RUNS = {"tiles": (8.0, 65536.0), "span": (128.0, 8192.0), "group": (1.0, 16.0)}
"""Prefill in the closed loops that the engines' numbers on these accelerators were fitted with: prompts of up to 8,192
tokens in steps of up to 131,072, what was left of a prompt down to one tile of each of 8 heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows that tell of one accelerator, and the parameters that they identify.

    masked_widths : head widths whose kernel skips what the mask hides. AITER's for heads of 64 takes as long with a
        mask as without up to 4,096 tokens, which no engine runs for the models with such heads
    """

    library: str
    text: str
    parameters: tuple[str, ...]
    masked_widths: tuple[int, ...]


SOURCES = {
    "mi300x": Source(
        library="triton",
        text="nod-ai/rocm-gemm-benchmark@068af6f5, Triton's kernel (the faster of two)",
        parameters=("tensor_fraction", "exponential_rate", "launch_s"),
        masked_widths=(),
    ),
    "mi355x": Source(
        library="AITER (reference)",
        text="HazyResearch/HipKittens@f09e9685 (2025-11), AITER's kernels",
        parameters=("tensor_fraction", "exponential_rate", "tile_cycles"),
        masked_widths=(128,),
    ),
}


def prefill_rows(data: Path, *, hardware: str) -> pd.DataFrame:
    """Attention of one accelerator's source that looks at all its own tokens: sizes, seconds, and whether the fit takes
    the row."""
    source = SOURCES[hardware]
    rows = read_table(data / TABLE)
    own = (rows["hardware"].str.lower() == hardware) & (rows["library"] == source.library)
    rows = rows[own & (rows["kind"] == "attention_prefill_fwd") & (rows["unit"] == "us")].reset_index(drop=True)
    found = rows["shape"].str.extract(SHAPE)
    found["keys"] = rows["shape"].str.extract(KEYS)[0].fillna(found["query"])
    found["kv_heads"] = found["kv_heads"].fillna(found["heads"])
    found["width"] = rows["shape"].str.extract(WIDTH)[0]
    found = found.astype(float)
    found["causal"] = ~rows["shape"].str.contains(UNMASKED)
    found["seconds"] = rows["value"].astype(float) * MICRO
    found["is_fitted"] = ~found["causal"] | found["width"].isin(source.masked_widths)
    return found[found["keys"] >= found["query"]].reset_index(drop=True)


def cases_of(rows: pd.DataFrame) -> AttentionCases:
    """Rows with one mask as the cases of one call."""
    column = {name: rows[name].to_numpy(dtype=np.float64) for name in rows.columns}
    return AttentionCases(
        sequences=column["sequences"],
        query_tokens=column["query"],
        context_tokens=column["keys"] - column["query"],
        num_kv_heads=column["kv_heads"],
        group=column["heads"] / column["kv_heads"],
        head_dim=column["width"],
        v_head_dim=column["width"],
        window=np.full(len(rows), np.inf),
        kv_element_bytes=np.full(len(rows), 2.0),
        causal=bool(rows["causal"].iloc[0]),
    )


def seconds_of(rows: pd.DataFrame, parameters: Mapping[str, float], *, hardware: str) -> Array:
    """Predicted time of every row."""
    machine = attention_machine(load_hardware(hardware), Dtype.BF16)
    values = NEUTRAL | dict(parameters)
    seconds = np.empty(len(rows))
    for mask in (True, False):
        chosen = rows["causal"].to_numpy() == mask
        if chosen.any():
            cases = cases_of(rows[chosen])
            grid = grid_of(cases, machine=machine, parameters=values)
            seconds[chosen] = prefill_seconds(cases, grid=grid, machine=machine, parameters=values).seconds
    return seconds


def fitted_on(rows: pd.DataFrame, *, hardware: str) -> dict[str, float]:
    """The parameters that the accelerator's rows identify."""
    return fit_parameters(
        lambda trial: seconds_of(rows, trial, hardware=hardware),
        rows["seconds"].to_numpy(),
        bounds={name: PREFILL_BOUNDS[name] for name in SOURCES[hardware].parameters},
    )


def left_out_seconds(rows: pd.DataFrame, *, hardware: str) -> Array:
    """Every row under numbers that its layout had no part in."""
    predicted = np.empty(len(rows))
    for _, layout in rows.groupby(["width", "heads", "causal"]):
        without = fitted_on(rows.drop(layout.index), hardware=hardware)
        predicted[layout.index] = seconds_of(layout, without, hardware=hardware)
    return predicted


def known_box(points: Array) -> dict[str, tuple[float, float]]:
    """Sizes of the rows and of whole runs."""
    rows = box_of(points, axes=PREFILL_AXES)
    return {axis: (min(low, WHOLE_RUNS[axis][0]), max(high, WHOLE_RUNS[axis][1])) for axis, (low, high) in rows.items()}


def fits_of(data: Path, *, hardware: str) -> list[KernelFit]:
    """A fit for each width that was measured, all with the numbers of the architecture."""
    every = prefill_rows(data, hardware=hardware)
    rows = every[every["is_fitted"]].reset_index(drop=True)
    parameters = fitted_on(rows, hardware=hardware)
    held_out, seen = left_out_seconds(rows, hardware=hardware), seconds_of(rows, parameters, hardware=hardware)
    measured = rows["seconds"].to_numpy()
    sigma = interval_sigma(np.log(measured / held_out))
    error = fit_error(
        np.tile(measured, 2),
        np.concatenate([held_out, seen]),
        log_sigma=np.full(2 * len(rows), sigma),
        is_score=np.repeat([True, False], len(rows)),
    )
    print(f"{hardware}: {parameters}, {len(rows)} rows, {error}", flush=True)
    left = every[~every["is_fitted"]]
    if len(left):
        ratio = seconds_of(left, parameters, hardware=hardware) / left["seconds"].to_numpy()
        print(f"  rows left out: predicted / measured {np.round(ratio, 2)}", flush=True)
    machine = attention_machine(load_hardware(hardware), Dtype.BF16)
    fits = []
    for width, same in rows.groupby("width"):
        cases = cases_of(same)
        grid = grid_of(cases, machine=machine, parameters=NEUTRAL)
        fits.append(
            KernelFit(
                family=MODEL.family,
                format="bf16",
                variant=f"d{width:.0f}",
                model=MODEL.name,
                parameters=NEUTRAL | parameters,
                box=known_box(prefill_points(cases, grid)),
                error=error,
                note="one physics for all widths; scored with each layout left out",
            )
        )
    return fits


def main() -> None:
    """Fit every accelerator and write its calibration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/microbench.csv")
    parser.add_argument("--output", type=Path, default=calibration_directory())
    arguments = parser.parse_args()
    for hardware, source in SOURCES.items():
        calibration = CalibrationSpec(
            hardware=hardware,
            library=LIBRARY,
            library_version=source.library,
            date=pd.Timestamp.now(tz="UTC").date().isoformat(),
            source=source.text,
            fits=tuple(fits_of(arguments.data, hardware=hardware)),
        )
        write_calibration(calibration, group="attention", directory=arguments.output)


if __name__ == "__main__":
    main()
