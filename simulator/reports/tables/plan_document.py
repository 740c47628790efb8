"""A capacity plan for programs: the JSON document of the contract, of a refusal too, and its fleets as CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import fields, is_dataclass
from io import StringIO
from math import isfinite
from typing import Any

from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan, Finalists, FleetVerification, Verification
from simulator.planner.explain import explanation
from simulator.planner.fleet.records import Fleet, Latencies
from simulator.planner.gap.records import GapError
from simulator.planner.records import Objective
from simulator.reports.contract import finite
from simulator.reports.sections.answer import finalists_outcome, sentence

SCHEMA_VERSION = "1.1"
CSV_COLUMNS = (
    "rank",
    "hardware",
    "setup",
    "devices",
    "devices_low",
    "devices_high",
    "replicas",
    "devices_per_replica",
    "spare_replicas",
    "idle_devices",
    "servers",
    "cost_per_hour",
    "price_kind",
    "currency",
    "cost_per_million_output_tokens",
    "cost_per_million_input_tokens",
    "power_typical_w",
    "power_max_w",
    "ttft_p95_s",
    "tpot_p95_s",
    "e2e_p95_s",
    "capacity_per_replica_per_s",
    "limited_by",
    "provenance",
    "prefill_replicas",
    "prefill_spare_replicas",
    "prefill_devices_per_replica",
)


def _latencies(at: Latencies, objectives: tuple[Objective, ...]) -> dict[str, Any]:
    return {
        "rate_per_s": at.rate_per_s,
        "load": at.load,
        "mean_batch": at.mean_sequences,
        "kv_utilization": at.kv_utilization,
        "ttft_mean_s": at.ttft_mean_s,
        "tpot_mean_s": at.tpot_mean_s,
        "e2e_mean_s": at.e2e_mean_s,
        "ttft_p95_s": at.ttft_p95_s,
        "tpot_p95_s": at.tpot_p95_s,
        "e2e_p95_s": at.e2e_p95_s,
        "objectives": [
            {"metric": item.metric.value, "percentile": item.percentile, "bound_s": item.bound_s, "value_s": value}
            for item, value in zip(objectives, at.objectives_s, strict=True)
        ],
    }


def _memory(fleet: Fleet) -> dict[str, Any]:
    memory = fleet.replica.memory
    return {
        "weights_bytes": memory.weights_bytes,
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "kv_capacity_tokens": memory.kv_capacity_tokens,
        "kv_blocks": memory.kv_blocks,
        "activation_bytes": memory.activation_bytes,
        "reserve_bytes": memory.reserve_bytes,
        "fits": memory.fits,
    }


def _cost(fleet: Fleet) -> dict[str, Any]:
    cost = fleet.cost
    return {
        "currency": cost.currency,
        "kind": cost.kind,
        "offer": cost.offer,
        "per_device_hour": cost.per_device_hour,
        "per_hour": cost.per_hour,
        "per_month": cost.per_month,
        "per_million_input_tokens": cost.per_million_input_tokens,
        "per_million_output_tokens": cost.per_million_output_tokens,
        "per_million_output_tokens_all_in": cost.per_million_output_tokens_all_in,
    }


def _prefill(fleet: Fleet, objectives: tuple[Objective, ...]) -> dict[str, Any] | None:
    """The pool that computes the prompts; null where replicas do both."""
    pool, transfer = fleet.prefill, fleet.transfer
    if pool is None or transfer is None:
        return None
    replica = pool.replica
    parallelism, engine = replica.deployment.parallelism, replica.deployment.engine
    return {
        "setup": pool.label,
        "replicas": pool.replicas,
        "spare_replicas": pool.spares,
        "devices_per_replica": replica.devices,
        "tp_size": parallelism.tp_size,
        "pp_size": parallelism.pp_size,
        "ep_size": parallelism.ep_size,
        "dp_size": parallelism.dp_size,
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "capacity_per_replica_per_s": replica.capacity_per_s,
        "saturation_per_replica_per_s": replica.saturation_per_s,
        "utilization": replica.utilization,
        "load": pool.load,
        "limited_by": pool.limit.resource,
        "limit_detail": pool.limit.detail,
        "link": transfer.link,
        "transfer_s": transfer.prompt_s,
        "link_busy_fraction": transfer.busy_fraction,
        "unloaded": _latencies(replica.unloaded, objectives),
    }


def _fleet(fleet: Fleet, objectives: tuple[Objective, ...]) -> dict[str, Any]:
    replica = fleet.replica
    parallelism, engine = replica.deployment.parallelism, replica.deployment.engine
    return {
        "hardware": fleet.hardware,
        "setup": fleet.label,
        "devices": fleet.devices,
        "devices_interval": [fleet.devices_low, fleet.devices_high],
        "replicas": fleet.replicas,
        "spare_replicas": fleet.spares,
        "idle_devices": fleet.idle_devices,
        "devices_per_replica": replica.devices,
        "tp_size": parallelism.tp_size,
        "pp_size": parallelism.pp_size,
        "ep_size": parallelism.ep_size,
        "dp_size": parallelism.dp_size,
        "techniques": replica.deployment.techniques.spec.model_dump(
            mode="json", exclude_none=True, exclude_defaults=True
        ),
        "scheme": fleet.scheme,
        "quality": fleet.quality or "as published",
        "engine": {
            "name": engine.name,
            "version": engine.version,
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "gpu_memory_utilization": engine.gpu_memory_utilization,
        },
        "server": fleet.server.name if fleet.server else None,
        "servers": fleet.servers,
        "power_typical_w": fleet.typical_w,
        "power_max_w": fleet.maximum_w,
        "power_of": fleet.power_of,
        "cost": _cost(fleet),
        "limited_by": fleet.limit.resource,
        "limit_detail": fleet.limit.detail,
        "capacity_per_replica_per_s": replica.capacity_per_s,
        "saturation_per_replica_per_s": replica.saturation_per_s,
        "utilization": replica.utilization,
        "sequences_at_once": replica.slots,
        "memory": _memory(fleet),
        "unloaded": _latencies(replica.unloaded, objectives),
        "at_peak": _latencies(fleet.at_peak, objectives),
        "degraded": _latencies(fleet.degraded, objectives),
        "provenance": fleet.provenance,
        "prefill": _prefill(fleet, objectives),
    }


def _demand(plan: CapacityPlan) -> dict[str, Any]:
    demand = plan.demand
    return {
        "mean_rate_per_s": demand.mean_rate_per_s,
        "peak_to_mean": demand.peak_to_mean,
        "cache_hit": demand.cache_hit_fraction,
        "headroom": demand.headroom_fraction,
        "planned_rate_per_s": demand.planned_rate_per_s,
        "isl_tokens": demand.mix.isl.mean_tokens,
        "isl_cv": demand.mix.isl.cv,
        "osl_tokens": demand.mix.osl.mean_tokens,
        "osl_cv": demand.mix.osl.cv,
        "prefix_hit": demand.mix.prefix_hit_fraction,
        "arrival_cv": demand.mix.arrival_cv,
    }


def _rejection(hardware: str, setup: str, code: str, message: str) -> dict[str, str]:
    return {"hardware": hardware, "setup": setup, "code": code, "message": message}


def plain(value: object) -> Any:
    """A record as JSON: fields by their names, times without end and unknowns as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def _studies(plan: CapacityPlan) -> dict[str, Any]:
    """Null where a study was not asked for."""
    names = ("search", "pareto", "gap", "stock", "length_split", "resilience", "growth", "rental", "uncertainty")
    found = {"pools" if name == "length_split" else name: plain(getattr(plan, name)) for name in names}
    if plan.length_split is not None:
        # The document's words for fleets by prompt length are older than prefill and decode pools.
        found["pools"] = {"pools" if name == "fleets" else name: value for name, value in found["pools"].items()}
    if plan.verification is None:
        return {**found, "verification": None}
    checked = verification_object(plan.verification)
    checked["finalists"] = None if plan.finalists is None else finalists_object(plan.finalists)
    return {**found, "verification": checked}


def plan_document(plan: CapacityPlan) -> str:
    """The plan as one JSON document, SI units."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "answer": sentence(plan),
        "plan": _fleet(plan.best, plan.objectives),
        "alternatives": [_fleet(fleet, plan.objectives) for fleet in plan.alternatives],
        "rejected": [_rejection(item.hardware, item.label, item.code, item.message) for item in plan.rejections],
        "candidates": plan.candidates,
        "demand": _demand(plan),
        "explanation": list(explanation(plan)),
        "assumptions": [{"name": item.name, "value": item.value, "source": item.source} for item in plan.assumptions],
        "warnings": list(plan.warnings),
        "inputs": plan.spec.model_dump(mode="json", exclude_unset=True),
        **_studies(plan),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def error_document(error: RoofcastError) -> str:
    """A refusal as one JSON document."""
    content = {"code": error.code, "field": error.field, "message": error.message, "hint": error.hint}
    document = {"schema_version": SCHEMA_VERSION, "error": content}
    if isinstance(error, GapError):
        document["gap"] = {**plain(error.gap), "closed": error.gap.closed}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def finalists_object(finalists: Finalists) -> dict[str, Any]:
    """The JSON object of the finalists: as planned, and in the size that holds (the same where none does)."""
    members = []
    for item in finalists.members:
        names = ("hardware", "label", "chosen", "planned_replicas", "replicas", "spares", "devices", "cost_per_hour")
        found: dict[str, Any] = {name: getattr(item, name) for name in names}
        found |= {"verdict": item.verdict.value, "reason": item.found.reason}
        members.append({**found, "planned": _object(item.planned), "found": _object(item.found)})
    return {"outcome": finalists_outcome(finalists), "replayed": finalists.replayed, "members": members}


def _object(verification: Verification) -> dict[str, Any]:
    names = ("rate_per_s", "holds", "saturated", "unanswered_fraction", "seeds", "requests")
    item: dict[str, Any] = {name: getattr(verification, name) for name in names}
    item["chance"] = verification.chance
    for name in (
        "ttft_mean_s",
        "tpot_mean_s",
        "e2e_mean_s",
        "ttft_p95_s",
        "tpot_p95_s",
        "e2e_p95_s",
        "mean_sequences",
        "kv_utilization",
    ):
        item[name] = finite(getattr(verification, name))
    item["objectives"] = [
        {
            "objective": entry.name,
            "bound_s": entry.bound_s,
            "simulated_s": finite(entry.simulated_s),
            "interval_s": [finite(entry.low_s), finite(entry.high_s)],
            "steady_s": finite(entry.steady_s),
            "holds": entry.holds,
        }
        for entry in verification.objectives
    ]
    return item


def verification_object(verification: FleetVerification) -> dict[str, Any]:
    """The JSON object of a plan's ``verification``; ``reason`` is empty where it was simulated."""
    return {
        "holds": verification.holds,
        "reason": verification.reason,
        **{
            name: _object(item)
            for name, item in (("at_peak", verification.at_peak), ("degraded", verification.degraded))
        },
    }


def _prefill_numbers(fleet: Fleet) -> tuple[int | None, int | None, int | None]:
    """Of the pool that computes the prompts; empty where replicas do both."""
    pool = fleet.prefill
    return (None, None, None) if pool is None else (pool.replicas, pool.spares, pool.replica.devices)


def plan_csv(plan: CapacityPlan) -> str:
    """Every fleet as one row of numbers in SI units; an unknown price is empty."""
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for rank, fleet in enumerate(plan.fleets, start=1):
        writer.writerow(
            (
                rank,
                fleet.hardware,
                fleet.label,
                fleet.devices,
                fleet.devices_low,
                fleet.devices_high,
                fleet.replicas,
                fleet.replica.devices,
                fleet.spares,
                fleet.idle_devices,
                fleet.servers,
                fleet.cost.per_hour,
                fleet.cost.kind,
                fleet.cost.currency,
                fleet.cost.per_million_output_tokens,
                fleet.cost.per_million_input_tokens,
                fleet.typical_w,
                fleet.maximum_w,
                fleet.degraded.ttft_p95_s,
                fleet.degraded.tpot_p95_s,
                fleet.degraded.e2e_p95_s,
                fleet.replica.capacity_per_s,
                fleet.limit.resource,
                fleet.provenance,
                *_prefill_numbers(fleet),
            )
        )
    return stream.getvalue()
