"""Fit AMD's products and experts: ``python -m validation.fit.kernels.amd_kernels --data DIR [--group gemm]``.

CDNA3 and CDNA4 are measured as chips of their own. What was tuned on MI308X (MI300X with fewer active compute units) is
fitted on that chip's facts, alone or beside MI300X's rows, and carried with the bandwidth of one compute unit kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import interval_sigma
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import KernelFit
from validation.fit.corrected import Fitted, Predicted, report, scored, write_fits
from validation.fit.files import calibration_directory
from validation.fit.kernels.gemm import AXES, BOUNDS, Sweep
from validation.fit.kernels.gemm import fit_format as fit_format_gemm
from validation.fit.kernels.gemm import physics_seconds as gemm_physics_seconds
from validation.fit.kernels.moe import SOFTNESS, bounds_on, fit_format, fit_physics, physics_seconds, seen_rows
from validation.fit.kernels.moe_rows import KernelGroup
from validation.fit.physics import Bound, fit_parameters
from validation.fit.residuals import NOT_SCORED
from validation.silicon.amd_tables import CHIP, CHIPS, FORMATS, SOURCE, gemm_rows, moe_rows

Array = NDArray[np.float64]

LIBRARY = "aiter"
VERSION = "commit e4048607"
SWEEP = Sweep(cold=True, octaves=True)
"""Rates above the memory's own are no more than a handful of 40,000: the tuner's loop rotates its operands."""

FEWEST_CORRECTED = 300
BATCHED = {name: f"{name} of batches" for name in ("compute_fraction", "droop")}
"""What the kernel of batches, which tells MI300X's memory, has for itself: it reaches 540 TFLOP/s where other libraries
are published at 620 to 670."""

FED = Bound(low=1.0, high=20.0, start=15.0)
"""Feed of a compute unit where few rows tell it: a search that begins with slow ones ends there, a quarter off."""

FEWEST_SIZES = 2
"""Hidden sizes from which the experts of a format have parameters of their own: one cannot tell a launch from what
an expert or a byte takes."""

OWN = "compute_fraction"
"""The one parameter of experts that every format has for itself."""

SORTED = Bound(low=1e-11, high=1e-8, start=4e-9)
"""What an expert adds to the sorting of tokens where a format's rows hold few counts of experts, which cannot tell it
from a launch: CDNA4's tables, of 16 to 513 experts, say 4.4 ns [s]."""

FEWEST_COUNTS = 4
"""Counts of experts, an octave apart, from which the rows of one chip tell it."""

PRODUCTS: dict[str, dict[str, tuple[str, ...]]] = {
    "mi300x": {"bf16": ("mi300x", "mi308x"), "fp8": ("mi308x",), "fp8_block": ("mi300x",)},
    "mi355x": {name: ("mi355x",) for name in ("bf16", "fp8", "fp8_block", "int8", "mxfp4_w4a4")},
}
"""Profile -> format -> the chips whose rows tell. MI308X's few units hide the memory of MI300X behind their arithmetic,
which its own 21 rows (batches of 16) tell."""

EXPERTS: dict[str, dict[str, tuple[str, ...]]] = {
    "mi300x": {"bf16": ("mi300x", "mi308x"), "fp8": ("mi308x",), "fp8_block": ("mi300x", "mi308x")},
    "mi355x": {
        "bf16": ("mi355x", "mi300x", "mi308x"),
        "fp8": ("mi355x",),
        "fp8_block": ("mi355x",),
        "mxfp4": ("mi355x",),
        "mxfp4_w4a4": ("mi355x",),
    },
}
"""Profile -> format -> the chips whose rows tell."""


def fit_gemm(fmt: str, names: Sequence[str], *, data: Path, hardware: AcceleratorSpec, file: str) -> tuple[Fitted, int]:
    """Products of one format: with a correction where the rows of one chip suffice for it, else physics alone."""
    rows = pd.concat([gemm_rows(data, name=name, fmt=fmt) for name in names], ignore_index=True)
    if len(rows) < FEWEST_CORRECTED:
        return _physics_alone(rows, fmt=fmt), len(rows)
    (name,) = names
    rows = rows[rows["b"] == 1]
    chip = CHIPS[name]
    fitted = fit_format_gemm(rows, hardware=chip.facts(), format=FORMATS[fmt], file=file, sweep=SWEEP)
    parameters = dict(fitted.fit.parameters)
    carried = parameters["unit_bandwidth"] * hardware.compute_units / chip.compute_units
    # At the bound of the search no compute unit waits for its own feed.
    parameters["unit_bandwidth"] = min(carried, BOUNDS["unit_bandwidth"].high)
    return replace(fitted, fit=fitted.fit.model_copy(update={"parameters": parameters})), len(rows)


def product_seconds(rows: pd.DataFrame, *, fmt: str, parameters: Mapping[str, float]) -> Array:
    """Products of several chips of one die, each on its own facts; what feeds a compute unit is the same on all."""
    seconds = np.empty(len(rows))
    for (name, batch), places in rows.groupby([CHIP, "b"]).indices.items():
        chip = CHIPS[name]
        own = {name: parameters[of_batches] for name, of_batches in BATCHED.items()} if batch > 1 else {}
        seconds[places] = gemm_physics_seconds(
            rows.iloc[places],
            hardware=chip.facts(),
            format=FORMATS[fmt],
            parameters={**parameters, **own, "unit_bandwidth": parameters["unit_bandwidth"] * chip.active_share},
            sweep=SWEEP,
            batch=batch,
        )
    return seconds


def _physics_alone(rows: pd.DataFrame, *, fmt: str) -> Fitted:
    """One law for all chips: a correction between few rows would follow their noise from one m to the next."""
    seen = rows[~rows["is_score"]]
    parameters = fit_parameters(
        lambda trial: product_seconds(seen, fmt=fmt, parameters=trial),
        seen["seconds"].to_numpy(),
        bounds=BOUNDS | {of_batches: BOUNDS[name] for name, of_batches in BATCHED.items()} | {"unit_bandwidth": FED},
    )
    predicted = product_seconds(rows, fmt=fmt, parameters=parameters)
    is_score, measured = rows["is_score"].to_numpy(), rows["seconds"].to_numpy()
    sigma = interval_sigma(np.log(measured / predicted)[~is_score])
    draft = KernelFit(
        family="gemm",
        format=fmt,
        model="tiled_gemm",
        parameters={name: parameters[name] for name in BOUNDS},
        box={axis: (float(seen[axis].min()), float(seen[axis].max())) for axis in AXES},
        error=NOT_SCORED,
    )
    return scored(
        draft,
        lattice=None,
        measured=measured,
        predicted=Predicted(seconds=predicted, log_sigma=np.full(len(rows), sigma), physics_s=predicted),
        is_score=is_score,
    )


def expert_rows(fmt: str, *chips: str, data: Path) -> pd.DataFrame:
    """Fused expert layers of one format, of all its chips."""
    return pd.concat([moe_rows(data, name=name, fmt=fmt) for name in chips], ignore_index=True)


def shared_parameters(rows: Mapping[str, pd.DataFrame], *, hardware: AcceleratorSpec) -> dict[str, dict[str, float]]:
    """Parameters of each format of one architecture, ``rows`` by format: all but ``OWN`` are the same.

    The kernels of an architecture share their launch, memory path and passes. Sharing among all formats of CDNA3 brings
    kernels of an unseen hidden size closer (mean error of the logarithm 0.28 to 0.23), whole runs of MiniMax on MI300X
    further away (mean error of TPOT 16 to 20 %): formats that can stand alone do.
    """
    seen = {fmt: seen_rows(part) for fmt, part in rows.items()}
    every = bounds_on(hardware)
    bounds = {name: bound for name, bound in every.items() if name != OWN} | {
        f"{OWN}.{fmt}": every[OWN] for fmt in seen
    }

    def of(fmt: str, trial: Mapping[str, float]) -> dict[str, float]:
        return {name: trial[f"{OWN}.{fmt}" if name == OWN else name] for name in every}

    def seconds(trial: Mapping[str, float]) -> Array:
        return np.concatenate(
            [
                physics_seconds(
                    part, hardware=CHIPS[part[CHIP].iloc[0]].facts(), format=FORMATS[fmt], parameters=of(fmt, trial)
                )
                for fmt, part in seen.items()
            ]
        )

    measured = np.concatenate([part["seconds"].to_numpy() for part in seen.values()])
    found = fit_parameters(seconds, measured, bounds=bounds, softness=SOFTNESS)
    return {fmt: of(fmt, found) for fmt in seen}


def fit_products(name: str, *, data: Path) -> Iterator[tuple[Fitted, int]]:
    """Products of a profile, format by format, with the number of rows."""
    hardware = load_hardware(name)
    for fmt, chips in PRODUCTS[name].items():
        item, points = fit_gemm(fmt, chips, data=data, hardware=hardware, file=f"{name}--{LIBRARY}.gemm.npz")
        yield _told(item, chips, name=name), points


def fit_experts(name: str, *, data: Path) -> Iterator[tuple[Fitted, int]]:
    """Fused expert layers of a profile: physics of its own where a format's rows tell, else the architecture's."""
    hardware = load_hardware(name)
    rows = {fmt: expert_rows(fmt, *chips, data=data) for fmt, chips in EXPERTS[name].items()}
    alone = {fmt: part["hidden_size"].nunique() >= FEWEST_SIZES for fmt, part in rows.items()}
    shared = {} if all(alone.values()) else shared_parameters(rows, hardware=hardware)
    for fmt, part in rows.items():
        item = fit_format(
            KernelGroup(variant="", rows=part),
            hardware=hardware,
            format=FORMATS[fmt],
            file=f"{name}--{LIBRARY}.moe.npz",
            version=VERSION,
            parameters=_own_parameters(part, hardware=hardware, fmt=fmt) if alone[fmt] else shared[fmt],
        )
        yield _told(item, EXPERTS[name][fmt], name=name), len(part)


def _own_parameters(rows: pd.DataFrame, *, hardware: AcceleratorSpec, fmt: str) -> dict[str, float]:
    """Parameters of one format from its own rows."""
    seen = seen_rows(rows)
    octaves = np.round(np.log2(seen["num_experts"]))
    told = octaves.groupby(seen[CHIP]).nunique().max() >= FEWEST_COUNTS
    bounds = bounds_on(hardware) | ({} if told else {"expert_s": SORTED})
    return fit_physics(seen, hardware=hardware, format=FORMATS[fmt], bounds=bounds)


def _told(fitted: Fitted, chips: Sequence[str], *, name: str) -> Fitted:
    """What a fit does not hold, and which other chips it rests on."""
    others = [chip for chip in chips if chip != name]
    note = fitted.fit.note
    if others:
        note = f"rows of {', '.join(chips)}" + (f"; {note}" if note else "")
    return replace(fitted, fit=fitted.fit.model_copy(update={"includes_quantisation": False, "note": note}))


GROUPS: Mapping[str, Callable[..., Iterator[tuple[Fitted, int]]]] = {"gemm": fit_products, "moe": fit_experts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/amd_gemm.csv")
    parser.add_argument("--group", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--hardware", nargs="*", default=["mi300x", "mi355x"])
    parser.add_argument("--output", type=Path, default=calibration_directory())
    arguments = parser.parse_args()
    for group in arguments.group:
        for name in arguments.hardware:
            fitted = []
            for item, points in GROUPS[group](name, data=arguments.data):
                report(item, hardware=name, library=LIBRARY, points=points)
                print(item.fit.parameters, flush=True)
                fitted.append(item)
            write_fits(
                fitted,
                hardware=name,
                library=LIBRARY,
                version=VERSION,
                group=group,
                source=SOURCE,
                split="one shape in five held out",
                directory=arguments.output,
            )


if __name__ == "__main__":
    main()
