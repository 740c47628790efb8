"""A capacity plan for programs: the JSON document of the contract, of a refusal too, and its fleets as CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from io import StringIO
from operator import attrgetter
from typing import Any

from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import KEYS, KINDS, CapacityPlan
from simulator.planner.fleet.records import Fleet, Housing
from simulator.planner.gap.records import Gap, GapError, GapLimit, GapOption, GapStep
from simulator.planner.serving.capacity import Latencies, Limit, Replica
from simulator.planner.verification.records import Finalists, FleetVerification, Verification
from simulator.reports.answer import dump, picked
from simulator.reports.sections.answer import sentence
from simulator.reports.sections.performance import finalists_outcome
from simulator.reports.words.derivation import detail_text, explanation
from simulator.reports.words.fields import (
    assumption_texts,
    error_content,
    flag_of,
    flag_texts,
    note_text,
    plan_command,
    rejection_text,
)
from simulator.reports.words.plan_inputs import plan_input, resource_text, warning_texts
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import ObjectiveSpec

SCHEMA_VERSION = "1.1"
_MEANS_AND_PERCENTILES = ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s", "ttft_p95_s", "tpot_p95_s", "e2e_p95_s")
_MEMORY = (
    "weights_bytes",
    "kv_bytes_per_token",
    "kv_capacity_tokens",
    "kv_blocks",
    "activation_bytes",
    "reserve_bytes",
)
_ENGINE = ("name", "version", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
_POWER = ("power_typical_w=typical_w", "power_max_w=maximum_w")
_DEGREES = ("tp_size", "pp_size", "ep_size", "dp_size")


plain = partial(dump, whole=True)
_picked = partial(picked, whole=True)


def _latencies(at: Latencies, objectives: tuple[ObjectiveSpec, ...]) -> dict[str, Any]:
    return {
        **_picked(at, "rate_per_s", "load", "kv_utilization", *_MEANS_AND_PERCENTILES, "mean_batch=mean_sequences"),
        "objectives": [
            {**_picked(item, "metric", "percentile", "bound_s"), "value_s": plain(value)}
            for item, value in zip(objectives, at.objectives_s, strict=True)
        ],
    }


def _replica(replica: Replica) -> dict[str, Any]:
    """What one copy of the model is and carries, of either pool."""
    degrees = replica.deployment.parallelism
    return {
        "devices_per_replica": replica.devices,
        **_picked(degrees, *_DEGREES, *(("cp_size",) if degrees.cp_size > 1 else ())),
        **_picked(replica, *(f"{name}_per_replica_per_s={name}_per_s" for name in ("capacity", "saturation"))),
        "utilization": replica.utilization,
    }


def _prefill(fleet: Fleet, objectives: tuple[ObjectiveSpec, ...]) -> dict[str, Any] | None:
    """The pool that computes the prompts; null where replicas do both."""
    pool, transfer = fleet.prefill, fleet.transfer
    if pool is None or transfer is None:
        return None
    return {
        **_picked(pool, "hardware", "setup=label", "replicas", "spare_replicas=spares"),
        **_replica(pool.replica),
        **_picked(pool.replica.deployment.engine, "max_num_seqs", "max_num_batched_tokens"),
        "load": pool.load,
        **_limit(pool.limit),
        **_picked(transfer, "link", "transfer_s=prompt_s", "link_busy_fraction=busy_fraction"),
        "unloaded": _latencies(pool.replica.unloaded, objectives),
    }


def _limit(limit: Limit) -> dict[str, str]:
    return {"limited_by": resource_text(limit), "limit_detail": detail_text(limit)}


def _housing(item: Housing) -> dict[str, Any]:
    """Accelerators of one kind, with the servers that they fill."""
    return {
        "server": item.server.name if item.server is not None and item.servers is not None else None,
        **_picked(item, "hardware", "servers", "devices", "idle_devices", *_POWER),
    }


def _fleet(fleet: Fleet, plan: CapacityPlan) -> dict[str, Any]:
    replica, objectives = fleet.replica, plan.objectives
    engine = replica.deployment.engine
    return {
        "setup": fleet.label,
        **_picked(fleet, "hardware", "devices", "replicas", "idle_devices", "scheme", "provenance", "cost"),
        "devices_interval": [fleet.devices_low, fleet.devices_high],
        "spare_replicas": fleet.spares,
        **_replica(replica),
        "techniques": replica.deployment.techniques.spec.model_dump(
            mode="json", exclude_none=True, exclude_defaults=True
        ),
        "quality": note_text(fleet.quality or "as published"),
        "engine": _picked(engine, *_ENGINE),
        "server": fleet.server.name if fleet.server else None,
        **_picked(fleet, "servers", "power_of"),
        **({"housing": [_housing(item) for item in fleet.housing]} if fleet.is_unlike else {}),
        **_picked(fleet, *_POWER),
        "energy_per_output_token_j": fleet.energy_per_output_token_j(plan.demand),
        **_limit(fleet.limit),
        "sequences_at_once": replica.slots,
        "memory": _picked(replica.memory, *_MEMORY, "reserve_bytes", "fits"),
        "unloaded": _latencies(replica.unloaded, objectives),
        "at_peak": _latencies(fleet.at_peak, objectives),
        "degraded": _latencies(fleet.degraded, objectives),
        "prefill": _prefill(fleet, objectives),
    }


_LENGTHS = (("tokens", "mean_tokens"), ("cv", "cv"))


def _demand(plan: CapacityPlan) -> dict[str, Any]:
    lengths = (f"{of}_{what}=mix.{of}.{place}" for of in ("isl", "osl") for what, place in _LENGTHS)
    own = ("mean_rate_per_s", "peak_to_mean", "cache_hit=cache_hit_fraction", "headroom=headroom_fraction")
    others = ("answers_per_request", "prefix_hit=mix.prefix_hit_fraction", "arrival_cv=mix.arrival_cv")
    return _picked(plan.demand, *own, "planned_rate_per_s", *lengths, *others)


def _spelled(record: Gap | GapStep | GapLimit | GapOption) -> dict[str, Any]:
    """Part of a gap with flags, commands and sentences for what the record holds typed."""
    found: dict[str, Any] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        match item.name:
            case "given":
                found["flags"] = flag_texts(value)
            case "field":
                found["flag"] = flag_of(value)
            case "spec":
                found["command"] = "" if value is None else plan_command(value)
            case "assumes":
                found["assumes"] = assumption_texts(value)
            case "steps" | "limits" | "options":
                found[item.name] = [_spelled(part) for part in value]
            case _:
                found[item.name] = plain(value)
    return found


def _studies(plan: CapacityPlan) -> dict[str, Any]:
    """Null where a study was not asked for."""
    found: dict[str, Any] = {
        "price_ranking": plain(plan.price_ranking),
        "search": plain(plan.search),
        "families": plain(plan.families),
        "searched": plain(plan.searched),
        "rival": plain(plan.rival),
    }
    found |= dict.fromkeys(KEYS)
    found |= {item.key: _spelled(item) if isinstance(item, Gap) else plain(item) for item in plan.studies}
    if found["stock"]:
        # Each fleet with what was asked of it: nothing of that is asked of a new one.
        for share, part in zip(found["stock"]["shares"], plan.serving, strict=True):
            share |= {kind.key: None for kind in KINDS if kind.of_serving} | {
                item.key: plain(item) for item in part.studies
            }
    # The document's words for fleets by prompt length are older than prefill and decode pools.
    split = found.pop("length_split")
    found["pools"] = split and {"pools" if name == "fleets" else name: value for name, value in split.items()}
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
        "plan": _fleet(plan.best, plan),
        "alternatives": [_fleet(fleet, plan) for fleet in plan.alternatives],
        "rejected": [
            {"setup": item.label, **_picked(item, "hardware", "code"), "message": rejection_text(item)}
            for item in plan.rejections
        ],
        "candidates": plan.candidates,
        "demand": _demand(plan),
        "explanation": list(explanation(plan)),
        "assumptions": [
            {"name": item.name, "value": item.value, "source": item.source}
            for item in map(plan_input, plan.assumptions)
        ],
        "warnings": warning_texts(plan.warnings),
        "inputs": plan.spec.model_dump(mode="json", exclude_unset=True),
        **_studies(plan),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def error_document(error: RoofcastError, *, spec: PlanSpec | None = None) -> str:
    """A refusal as one JSON document, with the question where it could be read."""
    content = error_content(error)
    document = {"schema_version": SCHEMA_VERSION, "error": content}
    if spec is not None:
        document["inputs"] = spec.model_dump(mode="json", exclude_unset=True)
    if isinstance(error, GapError):
        document["gap"] = {**_spelled(error.gap), "closed": error.gap.closed}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def finalists_object(finalists: Finalists) -> dict[str, Any]:
    """The JSON object of the finalists: as planned, and in the size that holds (the same where none does)."""
    members = []
    for item in finalists.members:
        names = ("hardware", "label", "chosen", "planned_replicas", "replicas", "spares", "devices", "cost_per_hour")
        found = _picked(item, *names) | {"verdict": item.verdict.value, "reason": item.found.reason}
        members.append({**found, "planned": _object(item.planned), "found": _object(item.found)})
    return {"outcome": finalists_outcome(finalists), "replayed": finalists.replayed, "members": members}


def _object(verification: Verification) -> dict[str, Any]:
    names = ("rate_per_s", "holds", "saturated", "unanswered_fraction", "seeds", "requests", "chance")
    return {
        **_picked(verification, *names, *_MEANS_AND_PERCENTILES, "mean_sequences", "kv_utilization"),
        "objectives": [
            {
                "objective": entry.name,
                **_picked(entry, "bound_s", "simulated_s", "steady_s", "holds"),
                "interval_s": plain((entry.low_s, entry.high_s)),
            }
            for entry in verification.objectives
        ],
    }


def verification_object(verification: FleetVerification) -> dict[str, Any]:
    """The JSON object of a plan's ``verification``; ``reason`` is empty where it was simulated."""
    runs = {"at_peak": _object(verification.at_peak), "degraded": _object(verification.degraded)}
    return {**_picked(verification, "holds", "reason"), **runs}


def _csv_row(rank: int, fleet: Fleet, objectives: Sequence[ObjectiveSpec]) -> dict[str, object]:
    """Numbers in SI units; an unknown price, and what only a pool for prompts has, is empty."""
    fields = ("hardware", "setup=label", "devices", "devices_low", "devices_high", "replicas")
    parts = ("devices_per_replica=replica.devices", "spare_replicas=spares", "idle_devices", "servers")
    amounts = ("output_tokens", "input_tokens", "requests")
    costs = ("price_kind=kind", "currency", *(f"cost_per_million_{each}=per_million_{each}" for each in amounts))
    of_prefill = {"replicas": "replicas", "spare_replicas": "spares", "devices_per_replica": "replica.devices"}
    return {
        "rank": rank,
        **_picked(fleet, *fields, *parts),
        **_picked(fleet.cost, "cost_per_hour=per_hour", *costs),
        **_picked(fleet, *_POWER),
        **_picked(fleet.degraded, "ttft_p95_s", "tpot_p95_s", "e2e_p95_s"),
        **{f"{item.key}_s": value for item, value in zip(objectives, fleet.degraded.objectives_s, strict=True)},
        "capacity_per_replica_per_s": fleet.replica.capacity_per_s,
        "limited_by": resource_text(fleet.limit),
        "provenance": fleet.provenance,
        **{
            f"prefill_{name}": None if fleet.prefill is None else attrgetter(place)(fleet.prefill)
            for name, place in of_prefill.items()
        },
    }


def plan_csv(plan: CapacityPlan) -> str:
    """Every fleet as one row under the names of its numbers."""
    rows = [_csv_row(rank, fleet, plan.objectives) for rank, fleet in enumerate(plan.fleets, start=1)]
    stream = StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
