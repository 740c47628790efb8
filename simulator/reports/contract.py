"""Scenario results as the JSON objects of the contract (DESIGN section 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any

import numpy as np

from simulator.engine.answers import ScenarioResult
from simulator.engine.metrics import StageResult
from simulator.engine.served_run import ServedRun
from simulator.engine.static_batch import PhaseEstimate
from simulator.engine.uniform_runs import UniformRun
from simulator.errors import RoofcastError
from simulator.kernels.timing import Provenance

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


def _phase(phase: PhaseEstimate) -> Json:
    estimate = phase.estimate
    seconds = phase.weights * estimate.step_s
    longest = int(np.argmax(seconds))
    return {
        "step_s": phase.total_s / phase.steps,
        "steps": phase.steps,
        "total_s": phase.total_s,
        "mfu": phase.mean(estimate.mfu),
        "mbu": phase.mean(estimate.mbu),
        "bound": estimate.bound[longest],
        "breakdown_s": {
            family: float(phase.weights @ values) / phase.steps for family, values in estimate.breakdown_s.items()
        },
    }


def _phase_provenance(phases: Iterable[PhaseEstimate]) -> str:
    worst = max(float(phase.estimate.provenance.max()) for phase in phases)
    return Provenance(int(worst)).label


def _stage(stage: StageResult) -> Json:
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
    return item


def _memory(run: UniformRun | ServedRun) -> Json:
    memory = run.memory
    return {
        "weights_bytes": memory.weights_bytes,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "state_bytes_per_sequence": memory.state_bytes_per_sequence,
        "kv_capacity_tokens": memory.kv_capacity_tokens,
        "kv_blocks": memory.kv_blocks,
        "activation_bytes": memory.activation_bytes,
        "reserve_bytes": memory.reserve_bytes,
        "fits": memory.fits,
    }


def _phase_sigma(phase: PhaseEstimate) -> float:
    return phase.mean(phase.estimate.log_sigma)


def _interval(result: ScenarioResult) -> Json:
    """Kernel errors of each phase and the engine's own, in quadrature; the two phases' errors as independent."""
    run, spread = result.run, result.deployment.engine.spread
    copies = result.scenario.replicas * result.copies_per_replica
    prefill_sigma = _phase_sigma(run.prefill)
    decode_sigma = _phase_sigma(run.decode) if run.decode else prefill_sigma
    decode_share = 1 - run.ttft_s / run.e2e_s
    kernels = math.hypot((1 - decode_share) * prefill_sigma, decode_share * decode_sigma)
    both = math.hypot(kernels, spread.e2e)
    return {
        "ttft_s": interval(run.ttft_s, log_sigma=math.hypot(prefill_sigma, spread.ttft)),
        "tpot_s": interval(run.tpot_s, log_sigma=math.hypot(decode_sigma, spread.tpot)),
        "e2e_s": interval(run.e2e_s, log_sigma=both),
        "output_tokens_per_s": interval(run.output_tokens_per_s * copies, log_sigma=both),
    }


def result_object(result: ScenarioResult) -> Json:
    """The contract's result of one scenario; throughput and power are those of all replicas together."""
    run, replicas = result.run, result.scenario.replicas
    copies = replicas * result.copies_per_replica
    served = {}
    if isinstance(run, ServedRun):
        served = {"stages": [_stage(stage) for stage in run.result.stages], "overall": _stage(run.result.overall)}
    phases = [phase for phase in (run.prefill, run.decode) if phase is not None]
    return {
        "id": result.scenario.id,
        "schema_version": SCHEMA_VERSION,
        "kind": result.scenario.kind,
        "ttft_s": run.ttft_s,
        "tpot_s": _known(run.tpot_s),
        "e2e_s": run.e2e_s,
        "output_tokens_per_s": run.output_tokens_per_s * copies,
        "total_tokens_per_s": run.total_tokens_per_s * copies,
        "requests_per_s": run.requests_per_s * copies,
        "prefill": _phase(run.prefill),
        "decode": _phase(run.decode) if run.decode else None,
        **served,
        "memory": _memory(run),
        "power_w": result.power_w * replicas,
        "energy_per_output_token_j": result.energy_per_output_token_j,
        "interval": _interval(result),
        "provenance": _phase_provenance(phases),
        "assumptions": list(result.assumptions),
        "notes": list(result.notes),
    }


def error_object(identifier: str | int | None, error: RoofcastError) -> Json:
    """The contract's refusal of one scenario."""
    return {
        "id": identifier,
        "error": {"code": error.code, "field": error.field, "message": error.message, "hint": error.hint},
    }
