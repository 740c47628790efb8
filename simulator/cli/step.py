"""``roofcast step``: one forward pass, operator by operator."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.errors import RoofcastError
from simulator.kernels.roofline import floor_seconds
from simulator.kernels.timing import Provenance
from simulator.operators.step_shape import prefill_step
from simulator.operators.work import CollectiveShape, ElementwiseShape, HostTransferShape
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.draft_cost import decode_round
from simulator.phases.memory import memory_plan
from simulator.phases.power import energy_split
from simulator.phases.step import StepEstimate, StepRow, estimate_step
from simulator.reports.content.quantities import joules_text, number_text, percent_text, range_text, seconds_text
from simulator.reports.content.text import text_table
from simulator.reports.contract import SCHEMA_VERSION, crossover_object, interval
from simulator.specs.documents import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.units import GIGA, MEGA, MICRO

PHASES = ("prefill", "decode")
COLUMNS = ("operator", "count", "GFLOP", "MB", "µs", "roofline µs", "known as")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuestion:
    """What the command line asks for."""

    model: str
    hardware: str
    phase: str
    batch: int
    context: int
    tp_size: int
    pp_size: int
    engine: str
    weights: str | None = None
    activations: str | None = None
    kv_cache: str | None = None
    scheme: str | None = None
    kernel: str | None = None
    mixed: tuple[tuple[str, str], ...] | None = None
    techniques: TechniquesSpec | None = None


def _deployment(question: StepQuestion, *, profiles: str | None) -> Deployment:
    names = ("weights", "activations", "kv_cache", "scheme", "kernel", "mixed")
    precision = {name: getattr(question, name) for name in names}
    return deploy(
        model=load_model(question.model, profiles=profiles),
        hardware=load_hardware(question.hardware, profiles=profiles),
        parallelism=ParallelismSpec(tp_size=question.tp_size, pp_size=question.pp_size),
        precision=validate(PrecisionSpec, precision, where=""),
        engine=validate(EngineSpec, {"name": question.engine}, where=""),
        techniques=question.techniques,
        profiles=profiles,
    )


def estimate(question: StepQuestion, *, profiles: str | None) -> tuple[Deployment, StepEstimate]:
    """The deployment and its step estimate (one case)."""
    if question.phase not in PHASES:
        raise RoofcastError(f"{question.phase!r} is not a phase; allowed: {', '.join(PHASES)}", field="--phase")
    deployment = _deployment(question, profiles=profiles)
    if question.phase == "prefill":
        return deployment, estimate_step(deployment, prefill_step(sequences=question.batch, tokens=question.context))
    return deployment, decode_round(deployment, sequences=question.batch, context=question.context)


def _row(row: StepRow, deployment: Deployment) -> dict[str, Any]:
    work = row.work
    is_collective = isinstance(work.shape, CollectiveShape | HostTransferShape)
    floor_s = None if is_collective else work.count * float(floor_seconds(work, hardware=deployment.hardware)[0])
    return {
        "operator": work.name,
        "family": work.family.value,
        "stage": row.stage,
        "count": work.count,
        "flops": work.count * float(work.flops[0]),
        "bytes": work.count * float(work.bytes[0]),
        "seconds": float(row.seconds[0]),
        "roofline_floor_s": floor_s,
        "provenance": Provenance(int(row.timing.provenance[0])).label,
    }


def _memory_notes(deployment: Deployment) -> tuple[str, ...]:
    memory = memory_plan(deployment)
    if memory.fits:
        return ()
    return (f"does not fit: a device is {memory.shortfall_bytes / GIGA:.1f} GB short; the times are as if it did",)


def _cache_notes(deployment: Deployment, result: StepEstimate) -> tuple[str, ...]:
    """Why some operators are faster than the roofline beside them."""
    resident = {
        row.work.name
        for row in result.rows
        if isinstance(row.work.shape, ElementwiseShape)
        and float(row.timing.seconds[0]) < float(floor_seconds(row.work, hardware=deployment.hardware)[0])
    }
    if not resident:
        return ()
    verb = "is" if len(resident) == 1 else "are"
    return (
        f"{', '.join(sorted(resident))} {verb} faster than the roofline, which is that of device memory: what the "
        "kernel before has just written is still in the L2 cache",
    )


def _energy(deployment: Deployment, result: StepEstimate) -> dict[str, float]:
    """Energy of the step over all devices of the replica, and its parts [J]."""
    split = energy_split(deployment, estimate=result, weights=np.ones(1))
    return {
        "total": split.total_j,
        "idle": split.idle_j,
        "busy": split.busy_j,
        "compute": split.compute_j,
        "memory": split.memory_j,
    }


def _speculation_notes(deployment: Deployment, question: StepQuestion) -> tuple[str, ...]:
    """What a step that verifies guesses yields."""
    if deployment.speculation is None:
        return ()
    if question.phase == "prefill":
        raise RoofcastError(
            "speculation changes nothing in a prompt pass",
            field="--speculation",
            code="no_effect",
            hint="--phase decode",
        )
    tokens = deployment.speculation.plan.mean_tokens
    return (f"speculation: the step yields {tokens:.3g} tokens per sequence on average", *deployment.speculation.notes)


def _crossover(deployment: Deployment, question: StepQuestion) -> dict[str, Any]:
    """Only a decode step has one."""
    if question.phase == "prefill":
        return {}
    return {"crossover": crossover_object(deployment, context_tokens=question.context)}


def step_object(question: StepQuestion, *, profiles: str | None) -> dict[str, Any]:
    """The JSON document of ``roofcast step``."""
    deployment, result = estimate(question, profiles=profiles)
    step_s = float(result.step_s[0])
    return {
        "schema_version": SCHEMA_VERSION,
        "model": deployment.model.name,
        "hardware": deployment.hardware.name,
        "phase": question.phase,
        "batch": question.batch,
        "context_tokens": question.context,
        "step_s": step_s,
        "interval": {"step_s": interval(step_s, log_sigma=float(result.log_sigma[0]))},
        "mfu": float(result.mfu[0]),
        "mbu": float(result.mbu[0]),
        "bound": result.bound[0],
        "provenance": Provenance(int(result.provenance[0])).label,
        "breakdown_s": {family: float(values[0]) for family, values in result.breakdown_s.items()},
        "energy_j": _energy(deployment, result),
        **_crossover(deployment, question),
        "operators": [_row(row, deployment) for row in result.rows],
        "assumptions": list(deployment.assumptions),
        "techniques": deployment.techniques.spec.model_dump(mode="json", exclude_none=True),
        "notes": [
            *deployment.model.notes,
            *deployment.techniques.notes,
            *_speculation_notes(deployment, question),
            *_memory_notes(deployment),
            *_cache_notes(deployment, result),
        ],
    }


def print_step(question: StepQuestion, *, as_json: bool, profiles: str | None) -> None:
    """Print the step as JSON or as a sentence with a table."""
    document = step_object(question, profiles=profiles)
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    sys.stdout.write("\n".join(_lines(document, question)) + "\n")


def _lines(document: dict[str, Any], question: StepQuestion) -> list[str]:
    between = range_text(document["interval"]["step_s"], seconds_text)
    return [
        f"{document['phase']} step of {document['model']} on {document['hardware']} "
        f"(tp {question.tp_size}, batch {question.batch}, {question.context} tokens): "
        f"{seconds_text(document['step_s'])} (80 % interval {between}), "
        f"{document['bound']} bound, MFU {percent_text(document['mfu'])}, MBU {percent_text(document['mbu'])}, "
        f"{document['provenance']}",
        _energy_line(document["energy_j"]),
        "",
        *_table(document["operators"]),
        "",
        *(f"note: {text}" for text in document["notes"]),
        *(f"assumed: {text}" for text in document["assumptions"]),
    ]


def _energy_line(energy_j: dict[str, float]) -> str:
    shares = {name: 100 * energy_j[name] / energy_j["total"] for name in ("memory", "compute", "busy", "idle")}
    return (
        f"{joules_text(energy_j['total'])} in all devices: memory traffic {shares['memory']:.0f} %, arithmetic "
        f"{shares['compute']:.0f} %, being busy {shares['busy']:.0f} %, idle {shares['idle']:.0f} %"
    )


def _table(operators: list[dict[str, Any]]) -> list[str]:
    """Operators by falling time; collectives have no roofline."""
    rows = [
        (
            row["operator"],
            f"{row['count']:g}",
            number_text(row["flops"] / GIGA),
            number_text(row["bytes"] / MEGA),
            number_text(row["seconds"] / MICRO),
            "-" if row["roofline_floor_s"] is None else number_text(row["roofline_floor_s"] / MICRO),
            row["provenance"],
        )
        for row in sorted(operators, key=lambda item: -item["seconds"])
    ]
    return text_table(COLUMNS, rows).splitlines()
