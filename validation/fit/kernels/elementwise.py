"""Fit of the memory-pass model: python -m validation.fit.kernels.elementwise [--tables DIR].

Fitted on the static activation quantisation tables (read bf16, write fp8: 3 bytes an element), rows of 1024 to
16384 elements, one row length in five held out. The interval counts a second kernel as well, the residual mixing
of DeepSeek-V4 (``mhc`` post: reads 4 streams and 1, writes 4, in two launches), which the fit never sees: norms and
activations are as far from the fitted kernel as that one is.

A second fit, ``scale``, is of the search for the largest activation that TensorRT-LLM's tables of FP8 products hold
besides (``computescale``: reads 2 bytes an element): checkpoints with scales of their own do not run it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from simulator.fitting.kernel_fits import NORMAL_80
from simulator.kernels.roofline import pass_seconds
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit, RegimeSigma
from simulator.units import MICRO
from validation.fit.files import calibration_directory, write_calibration
from validation.fit.links.collective_laws import Array, rounded
from validation.fit.links.collectives import fit_error, log_sigma_of
from validation.silicon.split import is_score
from validation.silicon.tables import SOURCE, SYSTEMS, load_table, tables_root

LIBRARIES = ("vllm", "trtllm")
"""SGLang's kernel of this table reaches a tenth of the bandwidth and stands for no other pass: use vllm's fit."""

SCALES = ("trtllm",)
"""Libraries whose dynamic scale is a kernel of its own; in the others' tables it is a difference near zero."""

QUANTISE_BYTES = 3.0
SCALE_BYTES = 2.0
ROW_LENGTHS = (1024, 16384)
STREAM_ELEMENTS = 9.0
NAMES = ("launch_s", "memory_fraction", "l2_speedup", "l2_share")
LOWER = (0.2 * MICRO, 0.05, 1.0, 0.1)
UPPER = (100 * MICRO, 1.0, 20.0, 2.0)
SHARPNESS = 6.0
"""How suddenly the L2 overflows; 4 to 8 fit alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Measured passes: bytes, launches and seconds of each."""

    bytes: Array
    launches: float
    seconds: Array


def _pass_rows(root: Path, *, hardware: str, library: str, table: str) -> tuple[str, pd.DataFrame] | None:
    found = load_table(root, hardware=hardware, family="quantize", library=library, table=table)
    if found is None:
        return None
    rows = found.rows[found.rows["k"].between(*ROW_LENGTHS)].reset_index(drop=True)
    return found.version, rows


def _passes(rows: pd.DataFrame, *, element_bytes: float = QUANTISE_BYTES) -> Passes:
    return Passes(
        bytes=(element_bytes * rows["m"] * rows["k"]).to_numpy(float), launches=1.0, seconds=rows["seconds"].to_numpy()
    )


def _second_kernel(root: Path, *, hardware: str, library: str) -> Passes | None:
    table = load_table(root, hardware=hardware, family="mhc", library=library, table="mhc_module")
    if table is None:
        return None
    rows = table.rows[table.rows["op_name"] == "post"]
    sites = rows["num_sites"].to_numpy(float)
    moved = STREAM_ELEMENTS * 2 * rows["num_tokens"].to_numpy(float) * rows["hidden_size"].to_numpy(float) * sites
    return Passes(bytes=moved, launches=float(sites[0]), seconds=rows["seconds"].to_numpy())


def _named(values: Array) -> dict[str, float]:
    fitted = {name: rounded(float(value)) for name, value in zip(NAMES, values, strict=True)}
    return {**fitted, "l2_sharpness": SHARPNESS}


def _log_ratio(passes: Passes, parameters: dict[str, float], hardware: AcceleratorSpec) -> Array:
    predicted = pass_seconds(passes.bytes, launches=passes.launches, parameters=parameters, hardware=hardware)
    return np.log(passes.seconds / predicted)


def fit_passes(passes: Passes, *, hardware: AcceleratorSpec) -> dict[str, float]:
    """Robust least squares on log time within physical bounds, from three starting points."""
    low, high = np.log(LOWER), np.log(UPPER)

    def misfit(theta: Array) -> Array:
        values = {**dict(zip(NAMES, np.exp(theta), strict=True)), "l2_sharpness": SHARPNESS}
        return _log_ratio(passes, values, hardware)

    found = [
        least_squares(
            misfit,
            np.clip(np.log([2 * MICRO, 0.85, 1.5, share]), low + MICRO, high - MICRO),
            bounds=(low, high),
            loss="soft_l1",
            f_scale=0.1,
        )
        for share in (0.3, 0.6, 1.0)
    ]
    return _named(np.exp(min(found, key=lambda result: float(result.cost)).x))


def scale_fit(root: Path, *, hardware: str, library: str) -> KernelFit | None:
    """The search for the largest activation; None where no table holds it as a kernel."""
    measured = _pass_rows(root, hardware=hardware, library=library, table="computescale")
    if measured is None or library not in SCALES:
        return None
    _, rows = measured
    spec = load_hardware(hardware)
    held_out = is_score(rows, family="elementwise", columns=("k",))
    seen, unseen = (_passes(rows[part], element_bytes=SCALE_BYTES) for part in (~held_out, held_out))
    parameters = fit_passes(seen, hardware=spec)
    ratios = _log_ratio(unseen, parameters, spec)
    sigma = log_sigma_of(ratios)
    error = fit_error(score=ratios, fit=_log_ratio(seen, parameters, spec), log_sigma=sigma)
    covered = float(np.mean(np.abs(ratios) <= NORMAL_80 * sigma))
    return KernelFit(
        family="elementwise",
        format="bf16",
        variant="scale",
        model="launch_plus_bytes",
        parameters=parameters,
        box={"bytes": (float(seen.bytes.min()), float(seen.bytes.max()))},
        error=error.model_copy(update={"coverage_80": rounded(covered)}),
        note="largest activation of a matrix, rows of 1024-16384",
    )


def calibrate(root: Path, *, hardware: str, library: str) -> CalibrationSpec | None:
    """The elementwise calibration of one accelerator and library, None where nothing was measured."""
    measured = _pass_rows(root, hardware=hardware, library=library, table="scale_matrix")
    if measured is None:
        return None
    version, rows = measured
    spec = load_hardware(hardware)
    held_out = is_score(rows, family="elementwise", columns=("k",))
    seen, unseen = _passes(rows[~held_out]), _passes(rows[held_out])
    parameters = fit_passes(seen, hardware=spec)
    other = _second_kernel(root, hardware=hardware, library=library)
    checks = [unseen] if other is None else [unseen, other]
    ratios = np.concatenate([_log_ratio(check, parameters, spec) for check in checks])
    fill = np.concatenate([check.bytes / check.launches for check in checks]) / spec.l2_bytes
    resident = fill <= parameters["l2_share"]
    resident_sigma = rounded(log_sigma_of(ratios[resident]))
    unseen_ratios = _log_ratio(unseen, parameters, spec)
    error = fit_error(
        score=unseen_ratios,
        fit=_log_ratio(seen, parameters, spec),
        log_sigma=log_sigma_of(ratios[~resident] if (~resident).any() else ratios),
    )
    stated = np.where(resident[: len(unseen_ratios)], resident_sigma, error.log_sigma)
    covered = float(np.mean(np.abs(unseen_ratios) <= NORMAL_80 * stated))
    fit = KernelFit(
        family="elementwise",
        format="bf16",
        variant="pass",
        model="launch_plus_bytes",
        parameters=parameters,
        box={"bytes": (float(seen.bytes.min()), float(seen.bytes.max()))},
        error=error.model_copy(update={"coverage_80": rounded(covered)}),
        regimes=(RegimeSigma(axis="l2_fill", upper=parameters["l2_share"], log_sigma=resident_sigma),),
        note="static fp8 quantisation, rows of 1024-16384; sigma also over the mhc post kernel, never fitted",
    )
    scale = scale_fit(root, hardware=hardware, library=library)
    return CalibrationSpec(
        hardware=hardware,
        library=library,
        library_version=version,
        date=date.today().isoformat(),
        source=f"{SOURCE}, quantize/scale_matrix (fit, score) and mhc (interval)"
        + ("" if scale is None else ", computescale"),
        fits=(fit,) if scale is None else (fit, scale),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, write and report one line per accelerator and library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ (default: the installed package)")
    options = parser.parse_args(arguments)
    root = tables_root(options.tables)
    directory = calibration_directory()
    for hardware in SYSTEMS:
        for library in LIBRARIES:
            spec = calibrate(root, hardware=hardware, library=library)
            if spec is None:
                continue
            write_calibration(spec, group="elementwise", directory=directory)
            for fit in spec.fits:
                print(
                    f"{hardware} {library} {spec.library_version} {fit.variant}: score {fit.error.score_mape:.1%} fit "
                    f"{fit.error.fit_mape:.1%} sigma {fit.error.log_sigma:.3f} {fit.parameters}"
                )


if __name__ == "__main__":
    main()
