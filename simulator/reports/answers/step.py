"""``roofcast step``: one forward pass, operator by operator."""

from __future__ import annotations

import numpy as np

from simulator.kernels.roofline import BOUNDS, bound_indices, floor_seconds
from simulator.kernels.timing import Provenance
from simulator.operators.work import ElementwiseShape
from simulator.phases.one_step import OneStep
from simulator.phases.power import EnergySplit
from simulator.phases.step import StepRow
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Cells, Json, dump
from simulator.reports.charts.chart import Chart
from simulator.reports.charts.roofline import roofline_chart
from simulator.reports.content.quantities import (
    bytes_text,
    joules_text,
    number_text,
    percent_text,
    range_text,
    seconds_text,
)
from simulator.reports.formats.text import text_table
from simulator.reports.words.fields import assumption_texts
from simulator.units import GIGA, MEGA, MICRO

COLUMNS = ("operator", "count", "GFLOP", "MB", "µs", "roofline µs", "waits for", "known as")


BESIDE = {"draft": "drafter", "host": "host"}
"""Parts of a step that are no operators -> how the table calls them."""


def _row(row: StepRow, step: OneStep) -> Json:
    work, floor_s = row.work, row.floor_s(step.deployment.hardware)
    return {
        "operator": work.name,
        "family": work.family.value,
        "stage": row.stage,
        "count": work.count,
        "flops": float(row.flops[0]),
        "bytes": float(row.bytes[0]),
        "seconds": float(row.seconds[0]),
        "roofline_floor_s": None if floor_s is None else float(floor_s[0]),
        "bound": BOUNDS[int(bound_indices([(work, row.timing)], hardware=step.deployment.hardware)[0, 0])],
        "provenance": Provenance(int(row.timing.provenance[0])).label,
    }


def _too_large(document: Json, *, tp_size: int) -> str:
    short = document["shortfall_bytes"]
    why = f"a device is {bytes_text(short)} short" if short else "nothing is left for the KV cache"
    where = f"{document['hardware']} at tp {tp_size}"
    return f"{document['model']} does not fit {where}: {why}; the times below are as if it did"


def _cache_notes(step: OneStep) -> tuple[str, ...]:
    """Why some operators are faster than the roofline beside them."""
    resident = {
        row.work.name
        for row in step.estimate.rows
        if isinstance(row.work.shape, ElementwiseShape)
        and float(row.timing.seconds[0]) < float(floor_seconds(row.work, hardware=step.deployment.hardware)[0])
    }
    if not resident:
        return ()
    verb = "is" if len(resident) == 1 else "are"
    return (
        f"{', '.join(sorted(resident))} {verb} faster than the roofline, which is that of device memory: what the "
        "kernel before has just written is still in the L2 cache",
    )


def _speculation_notes(step: OneStep) -> tuple[str, ...]:
    """What a step that verifies guesses yields."""
    speculation = step.deployment.speculation
    if speculation is None:
        return ()
    tokens = speculation.plan.mean_tokens
    return (f"speculation: the step yields {tokens:.3g} tokens per sequence on average", *speculation.notes)


def _crossover(step: OneStep) -> Json:
    """Only a decode step has one; its ends are null beyond 4,096."""
    found = step.crossover
    if found is None:
        return {}
    ends = [found.low, found.high]
    return {"crossover": {"batch": found.batch, "interval": ends, "provenance": found.provenance.label}}


def _energy_line(energy: EnergySplit) -> str:
    shares = {name: f"{100 * share:.0f} %" for name, share in energy.shares.items()}
    return (
        f"{joules_text(energy.total_j)} in all devices: memory traffic {shares['memory']}, arithmetic "
        f"{shares['compute']}, being busy {shares['busy']}, idle {shares['idle']}"
    )


@dataclass(frozen=True, slots=True)
class StepAnswer(Answer):
    """One pass; ``step`` is the record with the estimate of every operator."""

    step: OneStep

    def to_dict(self) -> Json:
        """The document of ``roofcast step --json``."""
        step = self.step
        deployment, result, split = step.deployment, step.estimate, step.energy
        step_s = float(result.step_s[0])
        return {
            "schema_version": SCHEMA_VERSION,
            "model": deployment.model.name,
            "hardware": deployment.hardware.name,
            "phase": step.phase,
            "batch": step.batch_size,
            "context_tokens": step.context_tokens,
            "step_s": step_s,
            "interval": {"step_s": dump(step.interval)},
            "mfu": float(result.mfu[0]),
            "mbu": float(result.mbu[0]),
            "bound": result.bound[0],
            "fits": step.memory.fits,
            "shortfall_bytes": step.memory.shortfall_bytes,
            "provenance": Provenance(int(result.provenance[0])).label,
            "breakdown_s": {family: float(values[0]) for family, values in result.breakdown_s.items()},
            "energy_j": {
                "total": split.total_j,
                "idle": split.idle_j,
                "busy": split.busy_j,
                "compute": split.compute_j,
                "memory": split.memory_j,
            },
            **_crossover(step),
            "operators": [_row(row, step) for row in result.rows],
            "assumptions": assumption_texts(deployment.assumptions),
            "techniques": deployment.techniques.spec.model_dump(mode="json", exclude_none=True),
            "notes": [
                *deployment.model.notes,
                *deployment.techniques.notes_at(step.batch_size),
                *_speculation_notes(step),
                *_cache_notes(step),
            ],
        }

    def to_text(self) -> str:
        """What ``roofcast step`` prints: a sentence with a table."""
        document, degrees = self.to_dict(), self.step.deployment.parallelism
        others = {"pp": degrees.pp_size, "dp": degrees.dp_size, "ep": degrees.ep_size, "cp": degrees.cp_size}
        shape = [f"tp {degrees.tp_size}", *(f"{name} {size}" for name, size in others.items() if size > 1)]
        between = range_text(document["interval"]["step_s"], seconds_text)
        lines = [
            *([] if document["fits"] else [_too_large(document, tp_size=degrees.tp_size)]),
            f"{document['phase']} step of {document['model']} on {document['hardware']} "
            f"({', '.join(shape)}, batch {document['batch']}, {document['context_tokens']} tokens): "
            f"{seconds_text(document['step_s'])} (80 % interval {between}), "
            f"{document['bound']} bound, MFU {percent_text(document['mfu'])}, MBU {percent_text(document['mbu'])}, "
            f"{document['provenance']}",
            _energy_line(self.step.energy),
            "",
            text_table(*self.cells()),
            "",
            *(f"note: {text}" for text in document["notes"]),
            *(f"assumed: {text}" for text in document["assumptions"]),
        ]
        return "\n".join(lines) + "\n"

    def rows(self) -> list[Json]:
        """One row an operator."""
        return list(self.to_dict()["operators"])

    def cells(self) -> Cells:
        """Operators by falling time, of which collectives have no roofline, with what a step takes beside them.
        Operators without work, as an encoder's in a decode step, are left out."""
        operators = sorted((row for row in self.rows() if row["seconds"]), key=lambda item: -item["seconds"])
        beside = {part: float(self.step.estimate.breakdown_s.get(part, np.zeros(1))[0]) for part in BESIDE}
        return COLUMNS, [
            *(
                (part, "-", "-", "-", number_text(part_s / MICRO), "-", BESIDE[part], "-")
                for part, part_s in beside.items()
                if part_s
            ),
            *(
                (
                    row["operator"],
                    f"{row['count']:g}",
                    number_text(row["flops"] / GIGA),
                    number_text(row["bytes"] / MEGA),
                    number_text(row["seconds"] / MICRO),
                    "-" if row["roofline_floor_s"] is None else number_text(row["roofline_floor_s"] / MICRO),
                    row["bound"],
                    row["provenance"],
                )
                for row in operators
            ),
        ]

    def chart(self) -> Chart:
        """Operators under the roofline of one device."""
        return roofline_chart([(self.step.phase, self.step.estimate)], deployment=self.step.deployment)
