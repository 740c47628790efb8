"""What a real H200 and a real H100 gave against what is predicted: kernels, whole steps and serving loops.

``python -m validation.end_to_end.visits`` prints the tables of the README. Kernels are compared with fits that were
made of other tables; whole steps with those and with fits of the H200's own kernels, which no step entered and no
kernel of the H100; each loop with a simulation whose two host overheads come from that machine's lightest run alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from simulator.engine.runs.answers import run_of
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.engine.uniform.record import Percentiles, UniformRun
from simulator.fitting.engine_overheads import MeasuredRun, OverheadFit, fit_overheads, with_overheads
from simulator.fitting.measured_work import measured_work, whole_errors, whole_rows
from simulator.fitting.replay import run_scenario
from simulator.kernels.fits import MEASURED_LIBRARY
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import MeasuredKernel, load_measurements
from simulator.specs.measured.serving_results import ServedSpec, load_serving_runs
from simulator.specs.model.loading import load_model
from simulator.units import MILLI

MEASURED = Path(__file__).parents[1] / "measured"
FITTED_HARDWARE = "h200"
"""The accelerator whose rows were fitted; others are predicted from it."""
PROFILES = MEASURED / FITTED_HARDWARE / "profiles"
"""Fits of torch's kernels, for ``--profiles``. They are not among the built-in ones: H100, which has the same units,
and llama.cpp, which has other kernels, would be compared with them."""
FITTED = ("prefill_attention", "decode_attention", "gemm/fp8", "gemm/tf32")
"""What was fitted. Under 8- and 4-bit integers engines run other kernels than torch, and have none of their own on this
accelerator that would go before these."""
LIBRARY = "vllm"
"""Whose tables the first comparison takes."""
SAME_KERNEL = {("gemm", "bf16"): "cuBLAS in either", ("gemm", "fp8"): "cuBLAS here, CUTLASS there"}
"""Products, which torch and the tables' library run alike."""
OTHER_KERNEL = {
    ("prefill_attention", "bf16"): "FlashAttention-2 here, 3 there",
    ("decode_attention", "bf16"): "FlashAttention-2 here, 3 there",
}
"""Attention, which torch runs by its own kernel: what fits of one accelerator are worth on another."""
SLOTS = {3000: 32}
"""Requests that a closed loop of such prompts runs at once, where it is not SLOTS_ELSE."""
SLOTS_ELSE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Minutes on one accelerator. lightest : the runs that give the overheads of its open and closed loops"""

    hardware: str
    name: str
    lightest: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Where its tables lie."""
        return MEASURED / self.hardware

    @property
    def is_fitted(self) -> bool:
        """Whether the fits are of its own kernels."""
        return self.hardware == FITTED_HARDWARE

    def rows(self) -> tuple[MeasuredKernel, ...]:
        """Its kernels and steps."""
        return load_measurements(self.folder / "kernels.csv").rows


H200 = Visit(hardware="h200", name="H200", lightest=("served-1024-128-5.json", "closed-1024-128-4.json"))
H100 = Visit(hardware="h100", name="H100", lightest=("closed-1024-128-4.json",))
VISITS = (H200, H100)


@contextmanager
def fitted_profiles(visit: Visit) -> Iterator[str]:
    """A folder of profiles that holds the H200's fits for the visit's accelerator.

    Their parameters are shares of a datasheet's peaks: on a sibling they are taken as they are.
    """
    if visit.is_fitted:
        yield str(PROFILES)
        return
    source, target = (load_hardware(name).name for name in (FITTED_HARDWARE, visit.hardware))
    with TemporaryDirectory() as folder:
        for path in (PROFILES / "calibration").glob(f"{source}--*.yaml"):
            carried = Path(folder) / "calibration" / path.name.replace(source, target)
            carried.parent.mkdir(exist_ok=True)
            carried.write_text(path.read_text("utf-8").replace(f"hardware: {source}", f"hardware: {target}"), "utf-8")
        yield folder


def kernel_errors(rows: Sequence[MeasuredKernel], *, family: str, fmt: str, kernels: KernelLibrary) -> np.ndarray:
    """Predicted over measured minus 1 of every priced row of a family and format."""
    pairs = [
        (row, work)
        for row in rows
        if (row.family, row.format) == (family, fmt) and (work := measured_work(row)) is not None
    ]
    predicted = np.array([float(timing.seconds[0]) for timing in kernels.price_all([work for _, work in pairs])])
    return predicted / np.array([row.seconds for row, _ in pairs]) - 1


def _cell(mean: float, bias: float) -> str:
    return f"{100 * mean:.1f} % ({100 * bias:+.1f} %)"


def _error_cell(error: np.ndarray) -> str:
    return _cell(float(np.abs(error).mean()), float(error.mean()))


def _kernel_lines(visit: Visit, rows: Sequence[MeasuredKernel], *, profiles: str) -> list[str]:
    """Products by the tables' fits; attention by both where the visit's own rows were not fitted."""
    hardware = load_hardware(visit.hardware)
    tables, carried = (
        kernel_library(hardware, library=LIBRARY),
        kernel_library(hardware, library=MEASURED_LIBRARY, profiles=profiles),
    )
    lines = []
    for (family, fmt), what in {**SAME_KERNEL, **({} if visit.is_fitted else OTHER_KERNEL)}.items():
        errors = [kernel_errors(rows, family=family, fmt=fmt, kernels=kernels) for kernels in (tables, carried)]
        seen = (family, fmt) == ("gemm", "bf16") or visit.is_fitted
        lines.append(
            f"| {family.replace('_', ' ')} {fmt} ({what}) | {len(errors[0])} | {_error_cell(errors[0])} | "
            f"{'-' if seen else _error_cell(errors[1])} |"
        )
    return lines


def _step_lines(visit: Visit, rows: Sequence[MeasuredKernel], *, profiles: str) -> list[str]:
    """Steps priced without and with the fits of torch's own kernels."""
    steps, hardware = whole_rows(rows), load_hardware(visit.hardware)
    libraries = [kernel_library(hardware, library=MEASURED_LIBRARY, profiles=folder) for folder in (None, profiles)]
    pairs = zip(*(whole_errors(steps, models=load_model, kernels=kernels) for kernels in libraries), strict=True)
    return [
        f"| {then.family.replace('_', ' ')} {then.model} {then.format}, {then.phase} | {then.steps} | "
        f"{_cell(then.mean, then.bias)} | {_cell(now.mean, now.bias)} |"
        for then, now in pairs
    ]


def kernels_table(visit: Visit) -> str:
    """Markdown: errors of kernels and whole steps, as mean absolute error and bias."""
    rows = visit.rows()
    whose = "this visit's" if visit.is_fitted else "the H200 visit's"
    heading = [
        f"| measured on one {visit.name} (torch 2.11) | points | with other tables' fits | with {whose} kernel fits |",
        "|---|--:|--:|--:|",
    ]
    with fitted_profiles(visit) as profiles:
        lines = [*_kernel_lines(visit, rows, profiles=profiles), *_step_lines(visit, rows, profiles=profiles)]
    return "\n".join([*heading, *lines])


def measured_run(visit: Visit, path: Path) -> MeasuredRun:
    """The loop's run as a scenario: whole prompts before steps, one at a time.

    path : served-ISL-OSL-RATE.json or closed-ISL-OSL-CLIENTS.json, the longest prompt and answer in tokens
    """
    isl_tokens, osl_tokens = (int(part) for part in path.stem.split("-")[1:3])
    engine = {
        "name": "torch",
        "scheduler": "prefill_first",
        "chunked_prefill": False,
        "max_num_seqs": SLOTS.get(isl_tokens, SLOTS_ELSE) if path.stem.startswith("closed") else SLOTS_ELSE,
        "max_num_batched_tokens": isl_tokens + osl_tokens,
    }
    served = validate(ServedSpec, {"model": "llama-3.1-8b", "hardware": visit.hardware, "engine": engine}, where="")
    (run,) = load_serving_runs(str(path))
    return MeasuredRun(run=run, scenario=run_scenario(run, identifier=path.name, served=served, unknown_cv=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTimes:
    """What the requests of a loop saw [s]; ``ttft`` : percentiles, None where they are not compared."""

    ttft_s: float
    tpot_s: float
    ttft: Percentiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRun:
    """A run of a loop, measured and simulated; load : requests/s, or clients of a closed loop."""

    path: Path
    measured: LoopTimes
    simulated: LoopTimes
    isl_tokens: float
    osl_tokens: float
    load: float
    is_fitted: bool


def _overheads(visit: Visit, name: str, *, profiles: str) -> OverheadFit:
    item = measured_run(visit, visit.folder / name)
    return fit_overheads(deployment_of(item.scenario, profiles=profiles), runs=[item])


def loop_runs(visit: Visit, *, kind: str) -> list[LoopRun]:
    """Every run of the visit's ``served`` (at random) or ``closed`` loops, by lengths and load."""
    lightest = next((name for name in visit.lightest if name.startswith(kind)), None)
    if lightest is None:
        return []
    paths = sorted(
        visit.folder.glob(f"{kind}-*.json"), key=lambda path: [int(part) for part in path.stem.split("-")[1:]]
    )
    with fitted_profiles(visit) as profiles:
        fit = _overheads(visit, lightest, profiles=profiles)
        deployed = partial(deployment_of, profiles=profiles)
        return [_loop_run(visit, path, fit=fit, deployed=deployed, is_fitted=path.name == lightest) for path in paths]


def _loop_run(visit: Visit, path: Path, *, fit: OverheadFit, deployed: partial, is_fitted: bool) -> LoopRun:
    item = measured_run(visit, path)
    replica = with_overheads(deployed(item.scenario), step_s=fit.step_s, request_s=fit.request_s, prompt_s=fit.prompt_s)
    run = run_of(item.scenario, replica, options=ServeOptions(intervals=False))
    waits = np.array(json.loads(path.read_text("utf-8"))["ttfts"])
    spread = run.spread.ttft if isinstance(run, UniformRun) and run.spread else None
    return LoopRun(
        path=path,
        measured=LoopTimes(ttft_s=item.run.ttft_s, tpot_s=item.run.tpot_s, ttft=Percentiles.of(waits)),
        simulated=LoopTimes(ttft_s=run.ttft_s, tpot_s=run.tpot_s, ttft=spread),
        isl_tokens=item.run.isl_tokens,
        osl_tokens=item.run.osl_tokens,
        load=item.run.request_rate_per_s or item.run.concurrency,
        is_fitted=is_fitted,
    )


def pair(measured_s: float, simulated_s: float) -> str:
    return f"{measured_s / MILLI:.1f} | {simulated_s / MILLI:.1f} ({100 * (simulated_s / measured_s - 1):+.0f} %)"


def _loop_line(run: LoopRun) -> str:
    """TTFT, its percentiles where the simulation has them, TPOT."""
    there, here = run.measured, run.simulated
    waits = [pair(there.ttft_s, here.ttft_s)]
    if there.ttft and here.ttft:
        waits += [pair(there.ttft.p50_s, here.ttft.p50_s), pair(there.ttft.p95_s, here.ttft.p95_s)]
    cells = [
        f"{run.isl_tokens:.0f} / {run.osl_tokens:.0f}",
        f"{run.load:g}",
        *waits,
        pair(there.tpot_s, here.tpot_s),
        "fitted" if run.is_fitted else "",
    ]
    return f"| {' | '.join(cells)} |"


def loop_table(visit: Visit, *, kind: str) -> str:
    """Markdown: each run of a serving loop, measured and simulated; empty where the visit has none."""
    runs = loop_runs(visit, kind=kind)
    if not runs:
        return ""
    load = "requests/s" if kind == "served" else f"in flight on one {visit.name}"
    percentiles = ["TTFT p50", "simulated", "p95", "simulated"] if kind == "closed" else []
    names = ["mean ISL / OSL", load, "TTFT, ms", "simulated", *percentiles, "TPOT, ms", "simulated", ""]
    lines = [f"| {' | '.join(names)} |".replace("|  |", "| |"), f"|---|{'--:|' * (len(names) - 2)}---|"]
    return "\n".join([*lines, *(_loop_line(run) for run in runs)])


def visits_tables() -> str:
    """Of each visit the kernels and steps, then its loops."""
    tables = [
        table
        for visit in VISITS
        for table in (kernels_table(visit), loop_table(visit, kind="served"), loop_table(visit, kind="closed"))
    ]
    return "\n\n".join(table for table in tables if table)


if __name__ == "__main__":
    print(visits_tables())
