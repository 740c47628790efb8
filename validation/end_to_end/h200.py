"""What one real H200 gave against what is predicted: kernels, whole steps and a serving loop.

``python -m validation.end_to_end.h200`` prints the tables of the README. Kernels are compared with fits that were made
of other tables; whole steps with those and with the fits of the visit's own kernels, which no step entered; the loop
with a simulation whose two host overheads come from its lightest run alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.fitting.engine_overheads import MeasuredRun, fit_overheads, predicted_means, with_overheads
from simulator.fitting.measured_work import measured_work, whole_errors, whole_rows
from simulator.fitting.replay import run_scenario
from simulator.kernels.fits import MEASURED_LIBRARY
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import MeasuredKernel, load_measurements
from simulator.specs.measured.serving_results import ServedSpec, ServingRun, load_serving_runs
from simulator.specs.model.loading import load_model
from simulator.units import MILLI

HARDWARE = "h200"
FOLDER = Path(__file__).parents[1] / "measured" / "h200"
KERNELS = FOLDER / "kernels.csv"
PROFILES = FOLDER / "profiles"
"""Fits of torch's kernels, for ``--profiles``. They are not among the built-in ones: H100, which has the same units,
and llama.cpp, which has other kernels, would be compared with them."""
FITTED = ("prefill_attention", "decode_attention", "gemm/fp8", "gemm/tf32")
"""What was fitted. Under 8- and 4-bit integers engines run other kernels than torch, and have none of their own on this
accelerator that would go before these."""
LIBRARY = "vllm"
"""Whose tables the first comparison takes."""
SAME_KERNEL = {("gemm", "bf16"): "cuBLAS in either", ("gemm", "fp8"): "cuBLAS here, CUTLASS there"}
LIGHTEST = "served-1024-128-5.json"


def _kernel_lines(rows: Sequence[MeasuredKernel], kernels: KernelLibrary) -> list[str]:
    """Products, which torch and the tables' library run alike."""
    lines = []
    for (family, fmt), what in SAME_KERNEL.items():
        mine = [row for row in rows if (row.family, row.format) == (family, fmt)]
        works = [work for row in mine if (work := measured_work(row)) is not None]
        predicted = np.array([float(timing.seconds[0]) for timing in kernels.price_all(works)])
        error = predicted / np.array([row.seconds for row in mine]) - 1
        lines.append(
            f"| {family} {fmt} ({what}) | {len(mine)} | {100 * np.abs(error).mean():.1f} % "
            f"({100 * error.mean():+.1f} %) | - |"
        )
    return lines


def _step_lines(rows: Sequence[MeasuredKernel]) -> list[str]:
    """Steps priced without and with the fits of torch's own kernels."""
    steps, hardware = whole_rows(rows), load_hardware(HARDWARE)
    libraries = [
        kernel_library(hardware, library=MEASURED_LIBRARY, profiles=profiles) for profiles in (None, str(PROFILES))
    ]
    pairs = zip(*(whole_errors(steps, models=load_model, kernels=kernels) for kernels in libraries), strict=True)
    return [
        f"| {then.family.replace('_', ' ')} {then.model} {then.format}, {then.phase} | {then.steps} | "
        f"{100 * then.mean:.1f} % ({100 * then.bias:+.1f} %) | {100 * now.mean:.1f} % ({100 * now.bias:+.1f} %) |"
        for then, now in pairs
    ]


def kernels_table() -> str:
    """Markdown: errors of kernels and whole steps, as mean absolute error and bias."""
    rows = load_measurements(KERNELS).rows
    heading = [
        "| measured on one H200 (torch 2.11) | points | with other tables' fits | with this visit's kernel fits |",
        "|---|--:|--:|--:|",
    ]
    other = kernel_library(load_hardware(HARDWARE), library=LIBRARY)
    return "\n".join([*heading, *_kernel_lines(rows, other), *_step_lines(rows)])


def _measured_run(path: Path) -> MeasuredRun:
    """The loop's run as a scenario: whole prompts before steps, one at a time, at most 64 requests at once.

    path : served-ISL-OSL-RATE.json, the longest prompt and answer in tokens
    """
    isl_tokens, osl_tokens = (int(part) for part in path.stem.split("-")[1:3])
    engine = {
        "name": "torch",
        "scheduler": "prefill_first",
        "chunked_prefill": False,
        "max_num_seqs": 64,
        "max_num_batched_tokens": isl_tokens + osl_tokens,
    }
    served = validate(ServedSpec, {"model": "llama-3.1-8b", "hardware": HARDWARE, "engine": engine}, where="")
    (run,) = load_serving_runs(str(path))
    return MeasuredRun(run=run, scenario=run_scenario(run, identifier=path.name, served=served, unknown_cv=0.0))


def _loop_line(run: ServingRun, *, ttft_s: float, tpot_s: float, fitted: bool) -> str:
    cells = [
        f"{run.isl_tokens:.0f} / {run.osl_tokens:.0f}",
        f"{run.request_rate_per_s:g}",
        *(
            f"{measured / MILLI:.1f} | {predicted / MILLI:.1f} ({100 * (predicted / measured - 1):+.0f} %)"
            for measured, predicted in ((run.ttft_s, ttft_s), (run.tpot_s, tpot_s))
        ),
        "fitted" if fitted else "",
    ]
    return f"| {' | '.join(cells)} |"


def loop_table() -> str:
    """Markdown: each run of the serving loop, measured and simulated."""
    lightest = _measured_run(FOLDER / LIGHTEST)
    deployed = partial(deployment_of, profiles=str(PROFILES))
    fit = fit_overheads(deployed(lightest.scenario), runs=[lightest])
    lines = [
        "| mean ISL / OSL | requests/s | TTFT, ms | simulated | TPOT, ms | simulated | |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for path in sorted(FOLDER.glob("served-*.json"), key=lambda path: [int(part) for part in path.stem.split("-")[1:]]):
        item = _measured_run(path)
        deployment = with_overheads(deployed(item.scenario), step_s=fit.step_s, request_s=fit.request_s)
        means = predicted_means(deployment, item.scenario)
        lines.append(_loop_line(item.run, ttft_s=means.ttft, tpot_s=means.tpot, fitted=path.name == LIGHTEST))
    return "\n".join(lines)


def h200_tables() -> str:
    """Both tables."""
    return f"{kernels_table()}\n\n{loop_table()}"


if __name__ == "__main__":
    print(h200_tables())
