"""Fit products and experts of AMD's accelerators: ``python -m validation.fit.amd_kernels --data DIR [--group gemm]``.

CDNA3 and CDNA4 are measured as chips of their own. What was tuned on MI308X alone (MI300X with fewer active compute
units) is fitted on that chip's facts and carried to MI300X with the bandwidth of one compute unit kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.fitting.residuals import fit_error, interval_sigma
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.loading import load_hardware
from validation.fit.corrected import Fitted, report, write_fits
from validation.fit.files import calibration_directory
from validation.fit.gemm import BOUNDS, Sweep, predict
from validation.fit.gemm import fit_format as fit_products
from validation.fit.moe import fit_format as fit_experts
from validation.fit.moe_rows import KernelGroup
from validation.silicon.amd_tables import CHIPS, FORMATS, SOURCE, gemm_rows, moe_rows

LIBRARY = "aiter"
VERSION = "commit e4048607"
SWEEP = Sweep(cold=True, octaves=True)
"""Rates above the memory's own are no more than a handful of 40,000: the tuner's loop rotates its operands."""

FEWEST_CORRECTED = 300

MEASURED: dict[str, dict[str, tuple[tuple[str, ...], ...]]] = {
    "gemm": {
        "mi300x": (("bf16", "mi308x"), ("fp8", "mi308x"), ("fp8_block", "mi300x")),
        "mi355x": (
            ("bf16", "mi355x"),
            ("fp8", "mi355x"),
            ("fp8_block", "mi355x"),
            ("int8", "mi355x"),
            ("mxfp4_w4a4", "mi355x"),
        ),
    },
    "moe": {
        "mi300x": (("bf16", "mi300x", "mi308x"), ("fp8", "mi308x"), ("fp8_block", "mi300x", "mi308x")),
        "mi355x": (
            ("bf16", "mi355x", "mi300x", "mi308x"),
            ("fp8", "mi355x"),
            ("fp8_block", "mi355x"),
            ("mxfp4", "mi355x"),
            ("mxfp4_w4a4", "mi355x"),
        ),
    },
}
"""Group -> profile -> formats with the chips whose rows tell."""


def fit_gemm(fmt: str, *chips: str, data: Path, hardware: AcceleratorSpec, file: str) -> tuple[Fitted, int]:
    """Products of one format, of one chip."""
    (name,) = chips
    chip = CHIPS[name]
    rows = gemm_rows(data, chip=chip, fmt=fmt)
    fitted = fit_products(rows, hardware=chip.facts(), format=FORMATS[fmt], file=file, sweep=SWEEP)
    if len(rows) < FEWEST_CORRECTED:
        fitted = _uncorrected(fitted, rows, hardware=chip.facts(), format=FORMATS[fmt])
    parameters = dict(fitted.fit.parameters)
    carried = parameters["unit_bandwidth"] * hardware.compute_units / chip.compute_units
    # At the bound of the search no compute unit waits for its own feed.
    parameters["unit_bandwidth"] = min(carried, BOUNDS["unit_bandwidth"].high)
    return replace(fitted, fit=fitted.fit.model_copy(update={"parameters": parameters})), len(rows)


def _uncorrected(fitted: Fitted, rows: pd.DataFrame, *, hardware: AcceleratorSpec, format: MatmulFormat) -> Fitted:
    """The physics alone: a correction between few rows would follow their noise from one m to the next."""
    plain = fitted.fit.model_copy(update={"correction": None, "regimes": ()})
    predicted = predict(rows, fit=plain, hardware=hardware, format=format, lattice=None, sweep=SWEEP)
    seen = ~rows["is_score"].to_numpy()
    residual = np.log(rows["seconds"].to_numpy() / predicted.seconds)
    sigma = interval_sigma(residual[seen])
    error = fit_error(
        rows["seconds"].to_numpy(),
        predicted.seconds,
        log_sigma=np.full(len(rows), sigma),
        is_score=rows["is_score"].to_numpy(),
    )
    return replace(fitted, fit=plain.model_copy(update={"error": error, "physics_log_sigma": None}))


def fit_moe(fmt: str, *chips: str, data: Path, hardware: AcceleratorSpec, file: str) -> tuple[Fitted, int]:
    """Fused expert layers of one format, of all its chips together."""
    rows = pd.concat([moe_rows(data, name=name, fmt=fmt) for name in chips], ignore_index=True)
    group = KernelGroup(variant="", rows=rows)
    fitted = fit_experts(group, hardware=hardware, format=FORMATS[fmt], file=file, version=VERSION)
    return fitted, len(rows)


def _told(fitted: Fitted, chips: Sequence[str], *, name: str) -> Fitted:
    """What a fit does not hold, and which other chips it rests on."""
    others = [chip for chip in chips if chip != name]
    note = fitted.fit.note
    if others:
        note = f"rows of {', '.join(chips)}" + (f"; {note}" if note else "")
    return replace(fitted, fit=fitted.fit.model_copy(update={"includes_quantisation": False, "note": note}))


GROUPS = {"gemm": fit_gemm, "moe": fit_moe}


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
            for fmt, *chips in MEASURED[group][name]:
                file = f"{name}--{LIBRARY}.{group}.npz"
                item, points = GROUPS[group](fmt, *chips, data=arguments.data, hardware=load_hardware(name), file=file)
                item = _told(item, chips, name=name)
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
