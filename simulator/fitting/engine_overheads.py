"""Two host overheads of an engine from measured serving runs: time per step and time per request.

Time per output token says what a step takes beyond its kernels, time to first token what a request takes beyond its
steps. Everything else of the engine, and all kernels, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.runs.serving import serve_workload
from simulator.engine.uniform.demand import LoopLengths
from simulator.engine.uniform.loops import closed_loop
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.specs.measured.serving_results import ServingRun
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.units import MILLI

REQUESTS = 400
"""Of an open-loop run that are simulated: enough for means, quick enough for a search."""
OVERLOAD = 0.9
"""A run that answers less than this share of what is sent builds a queue, and its TTFT says how long it lasted."""
ROUNDS = 6
PRECISION = 1e-3
STEP_S_AT_MOST = 0.2
"""A host that takes longer per step is not what is being fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunErrors:
    """Predicted over measured minus 1, of one run, before and after the fit."""

    run: ServingRun
    ttft_before: float
    tpot_before: float
    ttft_after: float
    tpot_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadFit:
    """The two overheads [s] and the errors of every run."""

    step_s: float
    request_s: float
    errors: tuple[RunErrors, ...]


def _with(deployment: Deployment, *, step_s: float, request_s: float) -> Deployment:
    overheads = deployment.engine.overheads.model_copy(update={"step_s": step_s, "request_s": request_s})
    return replace(deployment, engine=replace(deployment.engine, overheads=overheads))


def _predicted(deployment: Deployment, run: ServingRun) -> tuple[float, float]:
    """Mean TTFT and TPOT over as many requests as the run answered, of open arrivals at most ``REQUESTS`` [s].

    Requests of a closed loop count as equal, as vllm bench sends them by default: requests that drift apart come at the
    ends of steps, where a time per request shorter than a step does not show.
    """
    isl, osl = max(1, round(run.isl_tokens)), max(2, round(run.osl_tokens))
    if run.request_rate_per_s is None:
        uniform = closed_loop(
            deployment,
            concurrency=max(1, round(run.concurrency)),
            lengths=LoopLengths(isl_tokens=isl, osl_tokens=osl),
            num_requests=run.requests,
        )
        return uniform.ttft_s, uniform.tpot_s
    rate = run.request_rate_per_s
    workload = WorkloadSpec(
        arrival="poisson",
        stages=(StageSpec(rate_per_s=rate, duration_s=min(run.requests, REQUESTS) / rate),),
        question_tokens=isl,
        osl_tokens=osl,
        timeout_s=None,
    )
    overall = serve_workload(deployment, workload=workload).overall
    return overall.ttft.mean_s, overall.tpot.mean_s


def _check(run: ServingRun, *, floor: tuple[float, float]) -> None:
    rate = run.request_rate_per_s
    if rate is not None and run.answered_per_s < OVERLOAD * rate:
        raise RoofcastError(
            f"{run.path}: {rate:g} requests/s sent, {run.answered_per_s:.3g} answered: an overload tells no overhead",
            field="request_rate",
            code="not_identifiable",
            hint="run at a lower rate",
        )
    for field, measured_s, least_s in (("ttft", run.ttft_s, floor[0]), ("tpot", run.tpot_s, floor[1])):
        if measured_s < least_s:
            raise RoofcastError(
                f"{run.path}: measured {measured_s / MILLI:.3g} ms, but the kernels alone take "
                f"{least_s / MILLI:.3g} ms: an overhead below 0 cannot be fitted",
                field=field,
                code="not_identifiable",
                hint="check the model, the accelerators and the weight format; prompts that hit a prefix cache lower "
                "TTFT too",
            )


def _step_s(deployment: Deployment, run: ServingRun, *, floor_tpot_s: float) -> float:
    """Host time per step with which TPOT is the measured one [s]: secant steps, TPOT rises with it."""
    low_s, low_tpot_s = 0.0, floor_tpot_s
    step_s = run.tpot_s - floor_tpot_s
    for _ in range(ROUNDS):
        _, tpot_s = _predicted(_with(deployment, step_s=step_s, request_s=0.0), run)
        if abs(tpot_s / run.tpot_s - 1) < PRECISION or step_s == low_s:
            break
        slope = (tpot_s - low_tpot_s) / (step_s - low_s)
        low_s, low_tpot_s = step_s, tpot_s
        step_s = float(np.clip(step_s + (run.tpot_s - tpot_s) / max(slope, PRECISION), 0.0, STEP_S_AT_MOST))
    return step_s


def fit_overheads(deployment: Deployment, *, runs: Sequence[ServingRun]) -> OverheadFit:
    """Fit ``step_s`` and ``request_s`` to the runs, each one's solution counting once (median over the runs).

    Raises
    ------
    RoofcastError
        A run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
    """
    steps, bare = [], _with(deployment, step_s=0.0, request_s=0.0)
    for run in runs:
        floor = _predicted(bare, run)
        _check(run, floor=floor)
        steps.append(_step_s(bare, run, floor_tpot_s=floor[1]))
    step_s = float(np.median(steps))
    stepped = _with(deployment, step_s=step_s, request_s=0.0)
    waits = [run.ttft_s - _predicted(stepped, run)[0] for run in runs]
    request_s = float(np.median(waits))
    if request_s < 0:
        raise RoofcastError(
            f"{runs[0].path}: TTFT is {-request_s / MILLI:.3g} ms less than its steps take with the step time that "
            "TPOT shows: no time per request can be fitted",
            field="ttft",
            code="not_identifiable",
            hint="prompts that hit a prefix cache lower TTFT; run with prompts that do not repeat",
        )
    fitted = _with(deployment, step_s=step_s, request_s=request_s)
    return OverheadFit(
        step_s=step_s, request_s=request_s, errors=tuple(_errors(run, before=deployment, after=fitted) for run in runs)
    )


def _errors(run: ServingRun, *, before: Deployment, after: Deployment) -> RunErrors:
    ttft_before_s, tpot_before_s = _predicted(before, run)
    ttft_after_s, tpot_after_s = _predicted(after, run)
    return RunErrors(
        run=run,
        ttft_before=ttft_before_s / run.ttft_s - 1,
        tpot_before=tpot_before_s / run.tpot_s - 1,
        ttft_after=ttft_after_s / run.ttft_s - 1,
        tpot_after=tpot_after_s / run.tpot_s - 1,
    )
