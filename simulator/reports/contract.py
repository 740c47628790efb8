"""Scenario results as the JSON objects of the contract (DESIGN section 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any

import numpy as np

from simulator.engine.events.simulation import TimeSeries
from simulator.engine.runs.answers import ScenarioResult
from simulator.engine.runs.intervals import METRICS, ServeInterval, StageInterval
from simulator.engine.runs.load_sweep import has_load_ranges, load_ranges
from simulator.engine.runs.metrics import ObjectiveCheck, StageResult, objective_name
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.runs import UniformRun
from simulator.engine.uniform.static_batch import PhaseEstimate
from simulator.errors import RoofcastError
from simulator.kernels.timing import Provenance
from simulator.phases.crossover import crossover_range
from simulator.phases.deployment import Deployment
from simulator.phases.memory import cache_room, cache_use, memory_provenance
from simulator.planner.serving.pace_spread import pace_sigma

SCHEMA_VERSION = "1.0"
INTERVAL_LEVEL = 0.8
_Z = NormalDist().inv_cdf((1 + INTERVAL_LEVEL) / 2)

Json = dict[str, Any]


def _known(value: float) -> float | None:
    """``value``, or null where there is nothing to measure (TPOT of answers of one token)."""
    return None if math.isnan(value) else value


def interval(value: float, *, log_sigma: float) -> list[float] | None:
    """The 80 % interval around a positive prediction with log-normal error; null where there is no prediction."""
    if math.isnan(value):
        return None
    spread = math.exp(_Z * log_sigma)
    return [value / spread, value * spread]


def crossover_object(deployment: Deployment, *, context_tokens: int) -> Json:
    """The batch at which decoding turns compute bound, its 80 % interval and its provenance; null beyond 4,096."""
    found = crossover_range(deployment, context_tokens=context_tokens, z=_Z)
    return {"batch": found.batch, "interval": [found.low, found.high], "provenance": found.provenance.label}


def _phase(phase: PhaseEstimate) -> Json:
    estimate = phase.estimate
    seconds = phase.weights * estimate.step_s
    longest = int(np.argmax(seconds))
    step_s = phase.total_s / phase.steps
    return {
        "step_s": step_s,
        "interval": {"step_s": interval(step_s, log_sigma=_phase_sigma(phase))},
        "steps": phase.steps,
        "total_s": phase.total_s,
        "mfu": phase.mean(estimate.mfu),
        "mbu": phase.mean(estimate.mbu),
        "bound": estimate.bound[longest],
        "breakdown_s": {
            family: float(phase.weights @ values) / phase.steps for family, values in estimate.breakdown_s.items()
        },
    }


def _provenance(phases: Iterable[PhaseEstimate], *, pace: float) -> str:
    """The worst of the phases; an acceptance of guesses that nobody gave (``pace`` above 0) is assumed."""
    worst = max(int(phase.estimate.provenance.max()) for phase in phases)
    return Provenance(max(worst, Provenance.ASSUMED) if pace else worst).label


def finite(value: float) -> float | None:
    """``value``, or null where it is not a number that JSON can hold."""
    return value if math.isfinite(value) else None


def _check(check: ObjectiveCheck) -> Json:
    """``value_s`` is null where so many requests got no answer that the percentile has no end."""
    objective = check.objective
    return {
        "objective": objective_name(objective),
        "bound_s": objective.bound_s,
        "value_s": finite(check.value_s),
        "holds": check.holds,
    }


def _bounds(interval: StageInterval) -> Json:
    """[low, high] of each metric; null where the stage has none."""
    pairs = zip(METRICS, interval.low, interval.high, strict=True)
    return {name: None if math.isnan(low) else [low, high] for name, low, high in pairs}


def _stage(stage: StageResult, interval: StageInterval | None) -> Json:
    item: Json = {}
    for name, summary in (("ttft", stage.ttft), ("tpot", stage.tpot), ("e2e", stage.e2e)):
        for statistic in ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s"):
            item[f"{name}_{statistic}"] = _known(getattr(summary, statistic))
    for name in (
        "requests",
        "finished",
        "timed_out",
        "rejected",
        "requests_per_s",
        "output_tokens_per_s",
        "mean_batch",
        "kv_utilization",
        "busy_fraction",
        "prefix_hit_fraction",
        "preemptions",
        "saturated",
    ):
        item[name] = getattr(stage, name)
    item["start_s"], item["end_s"] = stage.start_s, stage.end_s
    item["offered_per_s"] = stage.offered_per_s
    if stage.objectives:
        item["objectives"] = [_check(check) for check in stage.objectives]
        item["meets_slo"] = stage.meets_slo
        item["goodput_per_s"] = stage.goodput_per_s
    if interval is not None:
        item["interval"] = _bounds(interval)
    return item


def _memory(result: ScenarioResult) -> Json:
    """The memory plan; ``kv_utilization`` is that of equal requests that end together, at most 1."""
    run, deployment = result.run, result.deployment
    memory = run.memory
    room = cache_room(memory, block_size_tokens=deployment.engine.block_size_tokens)
    item: Json = {
        "weights_bytes": memory.weights_bytes,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "state_bytes_per_sequence": memory.state_bytes_per_sequence,
        "kv_capacity_tokens": memory.kv_capacity_tokens,
        "kv_blocks": memory.kv_blocks,
        "activation_bytes": memory.activation_bytes,
        "reserve_bytes": memory.reserve_bytes,
        "fits": memory.fits,
        "interval": {"kv_capacity_tokens": [room.low_tokens, room.high_tokens]},
        "provenance": memory_provenance(deployment).label,
    }
    if isinstance(run, UniformRun):
        tokens, running = run.isl_tokens + run.osl_tokens, min(run.sequences, deployment.engine.max_num_seqs)
        item["kv_utilization"] = cache_use(deployment, memory, sequences=running, tokens=tokens)
    return item


def _phase_sigma(phase: PhaseEstimate) -> float:
    return phase.mean(phase.estimate.log_sigma)


def intervals(result: ScenarioResult) -> Json:
    """80 % interval of each metric: errors of the kernels of each phase and of the engine, in quadrature.

    The two phases' errors count as independent. Guesses of speculation whose acceptance nobody gave spread as they do
    between tasks.
    """
    run, spread = result.run, result.deployment.engine.spread
    if isinstance(run, ServedRun) and run.interval is not None:
        return _served_interval(run.interval)
    copies = result.scenario.replicas * result.copies_per_replica
    prefill_sigma = _phase_sigma(run.prefill)
    pace = pace_sigma(result.scenario.techniques.speculation)
    decode_sigma = math.hypot(_phase_sigma(run.decode), pace) if run.decode else prefill_sigma
    decode_share = 1 - run.ttft_s / run.e2e_s
    kernels = math.hypot((1 - decode_share) * prefill_sigma, decode_share * decode_sigma)
    both = math.hypot(kernels, spread.e2e)
    return {
        "ttft_s": interval(run.ttft_s, log_sigma=math.hypot(prefill_sigma, spread.ttft)),
        "tpot_s": interval(run.tpot_s, log_sigma=math.hypot(decode_sigma, spread.tpot)) if run.decode else None,
        "e2e_s": interval(run.e2e_s, log_sigma=both),
        "output_tokens_per_s": interval(run.output_tokens_per_s * copies, log_sigma=both),
    }


def _served_interval(interval: ServeInterval) -> Json:
    """Those of the whole run; means under the names that uniform runs use."""
    bounds = _bounds(interval.overall)
    named = {f"{name}_s": bounds.pop(f"{name}_mean_s") for name in ("ttft", "tpot", "e2e")}
    return named | {"output_tokens_per_s": bounds.pop("output_tokens_per_s")} | bounds


def _load(result: ScenarioResult, run: ServedRun) -> Json:
    """The rate that saturates the deployment, with 80 % intervals of it, of the batch and of the cache in use."""
    workload = result.scenario.workload
    if run.interval is None or run.pools is not None or workload is None or not has_load_ranges(workload):
        return {}
    found = load_ranges(
        result.deployment,
        workload=workload,
        replicas=run.replicas,
        interval=run.interval,
        served=run.result.overall,
    )
    ends = {name: list(getattr(found, name)) for name in ("saturation_per_s", "mean_batch", "kv_utilization")}
    return {"load": {"saturation_per_s": found.limit_per_s, "interval": ends}}


def _served(answer: ScenarioResult, run: ServedRun) -> Json:
    """What only a served workload has."""
    result, interval = run.result, run.interval
    bounds = (None,) * len(result.stages) if interval is None else interval.stages
    served: Json = {
        "stages": [_stage(*pair) for pair in zip(result.stages, bounds, strict=True)],
        "overall": _stage(result.overall, None if interval is None else interval.overall),
    }
    if interval is not None:
        served["interval_method"] = {
            "steps": interval.method.value,
            "step_log_sigma": interval.step_log_sigma,
            "further_seeds": interval.seeds,
        }
    return served | _load(answer, run)


def _speculation(result: ScenarioResult) -> Json:
    """What a round of speculation is; ``active`` is false where adaptive speculation is off."""
    speculation, decode = result.deployment.speculation, result.run.decode
    if speculation is None or decode is None:
        return {}
    plan, drafting = speculation.plan, decode.estimate.draft_s
    said: Json = {"method": plan.method, "active": drafting is not None}
    if drafting is not None:
        said["verify_tokens"] = int(decode.estimate.step.decode_tokens.max())
        said["tokens_per_step"] = (
            (result.run.osl_tokens - 1) / decode.steps if isinstance(result.run, UniformRun) else plan.mean_tokens
        )
        said["draft_share"] = float(decode.weights @ drafting) / decode.total_s
        said["draft_weights_bytes"] = result.run.memory.draft_weights_bytes
        said["draft_kv_bytes_per_token"] = result.run.memory.draft_kv_bytes_per_token
    return {"speculation": said}


def series_object(series: TimeSeries) -> Json:
    """Load over time, all replicas together; arrays have one entry per bucket of ``width_s``."""
    names = ("start_s", "batch", "waiting", "kv_utilization", "busy", "tokens_per_s")
    return {"width_s": series.width_s, **{name: getattr(series, name).tolist() for name in names}}


def result_object(result: ScenarioResult) -> Json:
    """The contract's result of one scenario; throughput and power are those of all replicas together."""
    run, replicas = result.run, result.scenario.replicas
    copies = replicas * result.copies_per_replica
    served = _served(result, run) if isinstance(run, ServedRun) else {}
    phases = [phase for phase in (run.prefill, run.decode) if phase is not None]
    return {
        "id": result.scenario.id,
        "schema_version": SCHEMA_VERSION,
        "kind": result.scenario.kind,
        "ttft_s": run.ttft_s,
        "tpot_s": _known(run.tpot_s) if run.decode else None,
        "e2e_s": run.e2e_s,
        "output_tokens_per_s": run.output_tokens_per_s * copies,
        "total_tokens_per_s": run.total_tokens_per_s * copies,
        "requests_per_s": run.requests_per_s * copies,
        "prefill": _phase(run.prefill),
        "decode": _phase(run.decode) if run.decode else None,
        **served,
        "memory": _memory(result),
        "power_w": result.power_w * replicas,
        "energy_per_output_token_j": result.energy_per_output_token_j,
        "interval": intervals(result),
        "provenance": _provenance(phases, pace=pace_sigma(result.scenario.techniques.speculation)),
        "assumptions": list(result.assumptions),
        "notes": list(result.notes),
        **_speculation(result),
    }


def error_object(identifier: str | int | None, error: RoofcastError) -> Json:
    """The contract's refusal of one scenario."""
    return {
        "id": identifier,
        "error": {"code": error.code, "field": error.field, "message": error.message, "hint": error.hint},
    }
