"""Benchmark results as scenarios, beside what is predicted of the same load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.engine.runs.answers import answer, run_intervals
from simulator.engine.runs.metrics import StageResult
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.record import LatencySpread, UniformRun
from simulator.errors import Option, RoofcastError, ignored_option, missing_field
from simulator.kernels.intervals import Range
from simulator.records import dataclass
from simulator.specs.base import validate
from simulator.specs.measured.serving_results import ServedSpec, ServingRun, load_serving_runs
from simulator.specs.question.scenario import ScenarioSpec

UNKNOWN_CV = 0.064
"""Spread of lengths of which a file has means alone: that of a uniform draw between 0.8 and 1.0 of the nominal ones."""
REQUESTS = 2000
"""Of open arrivals that are simulated where the file does not hold them: enough for means under long answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedValue:
    """One measured mean or percentile in SI units and its prediction; interval : 80 %, None where there is none."""

    metric: str
    measured: float
    predicted: float
    interval: Range | None

    @property
    def error(self) -> float:
        """Predicted over measured minus 1."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """A run of a result file, the scenario that it is, and its values."""

    run: ServingRun
    scenario: ScenarioSpec
    values: tuple[ReplayedValue, ...]


def _open_load(run: ServingRun, *, served: ServedSpec, rate_per_s: float, spread: dict[str, float]) -> dict[str, Any]:
    """Arrivals that wait for no answer: the file's own requests where it holds them, else as many drawn like them."""
    shared = {"system_prompt_tokens": served.system_prompt_tokens, "timeout_s": None}
    if run.has_requests:
        return {"kind": "serve", "workload": {"arrival": "trace", "trace": run.path, **shared}}
    stage = {"rate_per_s": rate_per_s, "duration_s": min(run.requests, REQUESTS) / rate_per_s}
    gaps: dict[str, Any] = {"arrival": "gamma", "burstiness": run.gap_cv}
    if run.gap_cv in (0, 1):
        gaps = {"arrival": "poisson"} if run.gap_cv else {"arrival": "constant", "spacing": "even"}
    lengths = {"isl_tokens": max(1, round(run.isl_tokens)), "osl_tokens": max(2, round(run.osl_tokens)), **spread}
    return {"kind": "serve", "workload": {"stages": [stage], **gaps, **lengths, **shared}}


def _load(run: ServingRun, *, served: ServedSpec, unknown_cv: float) -> dict[str, Any]:
    """The scenario's fields that say what clients sent."""
    spread = {
        "isl_cv": unknown_cv if run.isl_cv is None else run.isl_cv,
        "osl_cv": unknown_cv if run.osl_cv is None else run.osl_cv,
    }
    if run.request_rate_per_s is not None:
        return _open_load(run, served=served, rate_per_s=run.request_rate_per_s, spread=spread)
    if served.system_prompt_tokens:
        raise ignored_option(
            f"{served.system_prompt_tokens} has no effect on a closed loop, whose prompts are all new",
            field="system_prompt_tokens",
            hint="leave it out, or run the benchmark at a request rate",
        )
    loop = {"kind": "closed_loop", "concurrency": max(1, round(run.concurrency)), "num_requests": run.requests}
    if run.has_requests:
        return {**loop, "lengths_trace": run.path}
    drawn = {"range_ratio": run.range_ratio} if run.range_ratio is not None else spread
    return {**loop, "isl_tokens": max(1, round(run.isl_tokens)), "osl_tokens": max(2, round(run.osl_tokens)), **drawn}


def run_scenario(
    run: ServingRun, *, identifier: str, served: ServedSpec, unknown_cv: float = UNKNOWN_CV
) -> ScenarioSpec:
    """The scenario of a measured run on the replica that served it.

    unknown_cv : spread of lengths of which the file has means alone

    Raises RoofcastError: neither the file nor ``served`` names the model, or how the replica guessed, or a field of the
        replica is refused.
    """
    model = served.model or run.model
    if model is None:
        raise missing_field(f"is missing: {run.path} does not name it", field="model", hint="what was served")
    if run.guesses and served.techniques.speculation is None:
        guessed = f"is missing: the replica of {run.path} guessed tokens"
        raise missing_field(guessed, field=Option("speculation"), hint="mtp, eagle3:task=code or another method")
    told = {name: getattr(run, name) for name in ("tp_size", "ep_size", "dp_size", "disaggregation")}
    asked = served.model_dump(exclude_unset=True, exclude={"system_prompt_tokens"})
    engine = ({} if run.engine is None else {"name": run.engine}) | asked.pop("engine", {})
    fields = {
        "id": identifier,
        **{name: value for name, value in told.items() if value is not None},
        **asked,
        "engine": engine,
        "model": model,
        **_load(run, served=served, unknown_cv=unknown_cv),
    }
    return validate(ScenarioSpec, fields, where=run.path)


def _tells_nothing(name: str, field: str, why: str) -> RoofcastError:
    hint = "run one plain replica, and limit the clients or their rate"
    return RoofcastError(f"{name}: {why}", field=field, code="not_identifiable", hint=hint)


def runs_that_tell(files: Sequence[str]) -> list[tuple[ServingRun, str]]:
    """The runs of files that tell an engine's overheads, each with its file. Of a sweep the benchmark that sends all
    requests at once, which finds the limit, is left out.

    Raises RoofcastError: no run of theirs can tell, or one is of another replica than a plain one.
    """
    found = [(run, name) for name in files for run in load_serving_runs(name)]
    kept = [(run, name) for run, name in found if not run.at_once] or found
    for run, name in kept:
        if run.at_once:
            raise _tells_nothing(name, "request_rate", "all requests came at once, so that TTFT is waiting")
        if run.guesses:
            raise _tells_nothing(name, "speculation", "guessed tokens hide the step")
        if run.disaggregation is not None:
            raise _tells_nothing(name, "disaggregation", "overheads are fitted to one replica")
    return kept


def replay_results(files: Sequence[str], *, served: ServedSpec, profiles: str | None = None) -> tuple[ReplayedRun, ...]:
    """Every run of benchmark result files (InferenceX, vLLM bench, GuideLLM, AIPerf) beside its prediction.

    Raises RoofcastError: a file is of no known kind, lacks lengths or a load, or the deployment is refused.
    """
    found = []
    for name in files:
        for place, run in enumerate(load_serving_runs(name)):
            scenario = run_scenario(run, identifier=f"{name}#{place}", served=served)
            found.append(ReplayedRun(run=run, scenario=scenario, values=_values(run, scenario, profiles=profiles)))
    return tuple(found)


def spread_of(run: UniformRun | ServedRun) -> LatencySpread | StageResult | None:
    """Percentiles over the requests of a run, where it has requests of their own."""
    return run.spread if isinstance(run, UniformRun) else run.result.overall


def _values(run: ServingRun, scenario: ScenarioSpec, *, profiles: str | None) -> tuple[ReplayedValue, ...]:
    result = answer(scenario, profiles=profiles)
    spread = spread_of(result.run)
    median_s, last_s = (spread.ttft.p50_s, spread.ttft.p99_s) if spread is not None else (None, None)
    intervals = run_intervals(scenario, result.deployment, result.run)
    output_s = run.answered_per_s * run.osl_tokens
    pairs = (
        ("ttft_s", run.ttft_s, result.ttft_s),
        ("ttft_p50_s", run.ttft_p50_s, median_s),
        ("ttft_p99_s", run.ttft_p99_s, last_s),
        ("tpot_s", run.tpot_s, result.tpot_s),
        ("output_tokens_per_s", output_s, result.output_tokens_per_s),
    )
    return tuple(
        ReplayedValue(metric=metric, measured=measured, predicted=predicted, interval=intervals.get(metric))
        for metric, measured, predicted in pairs
        if measured is not None and predicted is not None
    )
