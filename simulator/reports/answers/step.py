"""``roofcast step``: one forward pass, operator by operator; ``roofcast crossover``: which format decodes fastest."""

from __future__ import annotations

from math import isinf

import numpy as np

from simulator.engine.uniform.speculation_gain import FormatComparison, FormatRow, SpeedupByBatch
from simulator.kernels.roofline import BOUNDS, bound_indices, floor_seconds
from simulator.kernels.timing import Provenance
from simulator.operators.work import AttentionShape, ElementwiseShape
from simulator.phases.crossover import FormatCrossover
from simulator.phases.one_step import OneStep
from simulator.phases.power import EnergySplit
from simulator.phases.step import StepRow
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Cells, Json, dump, picked
from simulator.reports.charts.chart import Chart, lines_chart
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
from simulator.reports.tables.scenario_figures import least_known
from simulator.reports.words.fields import assumption_texts, note_texts
from simulator.units import GIGA, MEGA, MICRO, MILLI

COLUMNS = ("operator", "count", "GFLOP", "MB", "µs", "roofline µs", "waits for", "known as")


BESIDE = {"draft": "drafter", "host": "host"}
"""Parts of a step that are no operators -> how the table calls them."""


def _row(row: StepRow, step: OneStep) -> Json:
    work, floor_s = row.work, row.floor_s(step.deployment.hardware)
    return {
        "operator": work.name,
        "family": work.family.value,
        "most_keys": work.shape.window if isinstance(work.shape, AttentionShape) else None,
        "stage": row.stage,
        "count": work.count,
        "flops": float(row.flops[0]),
        "bytes": float(row.bytes[0]),
        "seconds": float(row.seconds[0]),
        "roofline_floor_s": None if floor_s is None else float(floor_s[0]),
        "bound": BOUNDS[int(bound_indices([(work, row.timing)], hardware=step.deployment.hardware)[0, 0])],
        "provenance": Provenance(int(row.timing.provenance[0])).label,
    }


_SUMS = ("count", "flops", "bytes", "seconds", "roofline_floor_s")


def _alike(rows: list[Json]) -> list[Json]:
    """One row for what layers of several kinds run alike: it differs in nothing but how many there are."""
    found: dict[tuple[Json, ...], Json] = {}
    for row in rows:
        kind = tuple(row[name] for name in ("operator", "stage", "most_keys", "bound", "provenance"))
        other = found.get(kind)
        sums = {} if other is None else {name: other[name] + row[name] for name in _SUMS if row[name] is not None}
        found[kind] = row | sums
    return list(found.values())


def _operator_cells(row: Json) -> tuple[str, ...]:
    floor = "-" if row["roofline_floor_s"] is None else number_text(row["roofline_floor_s"] / MICRO)
    amounts = (row["flops"] / GIGA, row["bytes"] / MEGA, row["seconds"] / MICRO)
    name = row["operator"] if row["most_keys"] is None else f"{row['operator']} ({row['most_keys']:g} keys)"
    return name, f"{row['count']:g}", *map(number_text, amounts), floor, row["bound"], row["provenance"]


def _too_large(document: Json, step: OneStep) -> str:
    short, where = document["shortfall_bytes"], f"{document['hardware']} at tp {step.deployment.parallelism.tp_size}"
    why = f"a device is {bytes_text(short)} short" if short else "nothing is left for the KV cache"
    if document["fits"]:
        what = f"{step.batch_size:,} sequences of {step.context_tokens:,} tokens do"
        return (
            f"{what} not fit {where}: the KV cache holds {step.most_sequences:,.0f}; the times below are as if it did"
        )
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
    return (f"speculation: the step yields {tokens:.3g} tokens per sequence on average", *note_texts(speculation.notes))


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

    LISTED = "operators"
    step: OneStep

    def to_dict(self) -> Json:
        """The document of ``roofcast step --json``."""
        step = self.step
        deployment, result = step.deployment, step.estimate
        return {
            "schema_version": SCHEMA_VERSION,
            **picked(deployment, "model=model.name", "hardware=hardware.name"),
            **picked(step, "phase", "batch=batch_size", "context_tokens"),
            "step_s": float(result.step_s[0]),
            "interval": {"step_s": dump(step.interval)},
            "mfu": float(result.mfu[0]),
            "mbu": float(result.mbu[0]),
            "bound": result.bound[0],
            **picked(step.memory, "fits", "shortfall_bytes"),
            "most_sequences": None if isinf(step.most_sequences) else int(step.most_sequences),
            "provenance": Provenance(int(result.provenance[0])).label,
            "breakdown_s": {family: float(values[0]) for family, values in result.breakdown_s.items()},
            "energy_j": picked(step.energy, *(f"{of}={of}_j" for of in ("total", "idle", "busy", "compute", "memory"))),
            **_crossover(step),
            "operators": [_row(row, step) for row in result.rows],
            "assumptions": assumption_texts(deployment.assumptions),
            "techniques": deployment.techniques.spec.model_dump(mode="json", exclude_none=True),
            "notes": [
                *note_texts((*deployment.model.notes, *deployment.techniques.notes_at(step.batch_size))),
                *_speculation_notes(step),
                *_cache_notes(step),
            ],
        }

    @property
    def _is_too_large(self) -> bool:
        return not self.step.memory.fits or self.step.batch_size > self.step.most_sequences

    def to_text(self) -> str:
        """What ``roofcast step`` prints: a sentence with a table."""
        document, shape = self.to_dict(), self.step.deployment.parallelism.sizes
        between = range_text(document["interval"]["step_s"], seconds_text)
        lines = [
            *([_too_large(document, self.step)] if self._is_too_large else []),
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

    def cells(self) -> Cells:
        """Operators by falling time, of which collectives have no roofline, with what a step takes beside them.
        Operators without work, as an encoder's in a decode step, are left out."""
        operators = sorted(_alike([row for row in self.rows() if row["seconds"]]), key=lambda item: -item["seconds"])
        beside = {part: float(self.step.estimate.breakdown_s.get(part, np.zeros(1))[0]) for part in BESIDE}
        apart = [
            (part, "-", "-", "-", number_text(part_s / MICRO), "-", BESIDE[part], "-")
            for part, part_s in beside.items()
            if part_s
        ]
        return COLUMNS, [*apart, *map(_operator_cells, operators)]

    def chart(self) -> Chart:
        """Operators under the roofline of one device."""
        return roofline_chart([(self.step.phase, self.step.estimate)], deployment=self.step.deployment)


_GAIN = ("tokens_per_step", "speedup", "best_k", "best_speedup", "break_even_batch")


def _cell(entry: Json, document: Json, place: int) -> str:
    room = entry["sequences_that_fit"]
    fastest = "*" if document["fastest"][place] == entry["format"] else " "
    short = "-" if room is not None and room < document["batches"][place] else " "
    return f"{number_text(entry['step_s'][place] / MILLI)}{fastest}{short}"


def _known(row: FormatRow) -> str:
    """``fp8: calibrated, 80 % of measured steps within 6 % of these``: of the batch that is known least."""
    within = "" if row.reach is None else f", 80 % of measured steps within {percent_text(row.reach)} of these"
    return f"{row.format}: {least_known(row.provenance)}{within}"


def _sentence(pair: FormatCrossover) -> str:
    if pair.batch is None:
        return f"{pair.earlier} beats {pair.later} at one sequence and at 4,096"
    return f"{pair.earlier} beats {pair.later} up to {pair.last_before} sequences, {pair.later} from {pair.batch} on"


def _speculation_lines(speculation: str, comparison: FormatComparison, document: Json) -> list[str]:
    """Speedups over plain decoding, then up to which batch they are above one."""
    gains = {entry["format"]: entry["speculation"] for entry in document["formats"]}
    speedups = [(gain["speedup"], gain["best_k"], gain["best_speedup"]) for gain in gains.values()]
    rows = [
        (str(batch), *(f"{plain[place]:.2f} ({k[place]}: {best[place]:.2f})" for plain, k, best in speedups))
        for place, batch in enumerate(document["batches"])
    ]
    tokens = next(iter(gains.values()))["tokens_per_step"]
    return [
        "",
        f"speedup of decoding by {speculation}, {number_text(tokens)} tokens a step of each sequence; in brackets the "
        "best number of guesses and what it brings",
        "",
        *text_table(("batch", *gains), rows).splitlines(),
        "",
        *(_pays(row.format, row.speculation) for row in comparison.formats if row.speculation is not None),
    ]


def _pays(name: str, gain: SpeedupByBatch) -> str:
    if gain.pays_up_to is None:
        return f"speculation pays with {name} at every batch shown"
    if gain.pays_up_to == 0:
        return f"speculation does not pay with {name} even for one sequence"
    return f"speculation pays with {name} up to {gain.pays_up_to} sequences"


@dataclass(frozen=True, slots=True)
class CrossoverAnswer(Answer):
    """Step times of number formats over the batch; ``speculation`` is the text that was compared, or None."""

    comparison: FormatComparison
    speculation: str | None

    def to_dict(self) -> Json:
        """The document of ``roofcast crossover --json``."""
        found = self.comparison
        return {
            "schema_version": SCHEMA_VERSION,
            **picked(found, "model", "hardware", "tp_size", "context_tokens"),
            "batches": list(found.batches),
            "formats": [
                {
                    "format": row.format,
                    "step_s": list(row.step_s),
                    "interval_s": dump(row.interval_s),
                    "provenance": list(row.provenance),
                    "sequences_that_fit": row.sequences_that_fit,
                    **({} if row.speculation is None else {"speculation": picked(row.speculation, *_GAIN)}),
                }
                for row in found.formats
            ],
            "fastest": list(found.fastest),
            "crossovers": dump(found.crossovers),
            "assumptions": assumption_texts(found.assumptions),
            "notes": note_texts(found.notes),
        }

    def cells(self) -> Cells:
        """Columns and rows of the step times [ms]."""
        document = self.to_dict()
        rows = [
            (str(batch), *(_cell(entry, document, place) for entry in document["formats"]))
            for place, batch in enumerate(document["batches"])
        ]
        return ("batch", *(entry["format"] for entry in document["formats"])), rows

    def to_text(self) -> str:
        """What ``roofcast crossover`` prints: a table and sentences."""
        document = self.to_dict()
        lines = [
            f"decode step of {document['model']} on {document['hardware']} (tp {document['tp_size']}, "
            f"{document['context_tokens']} tokens each), ms; * fastest, - does not fit",
            "",
            text_table(*self.cells()),
            "",
            *map(_known, self.comparison.formats),
            *map(_sentence, self.comparison.crossovers),
            *(_speculation_lines(self.speculation, self.comparison, document) if self.speculation else ()),
            *(f"assumed: {text}" for text in document["assumptions"]),
            *(f"note: {text}" for text in document["notes"]),
        ]
        return "\n".join(lines) + "\n"

    def rows(self) -> list[Json]:
        """One row a batch, one column a format [s]."""
        found = self.comparison
        return [
            {"batch": batch, **{row.format: row.step_s[place] for row in found.formats}}
            for place, batch in enumerate(found.batches)
        ]

    def chart(self) -> Chart:
        """Step time over the batch, one line a format."""
        found = self.comparison
        title = f"Decode step of {found.model} on {found.hardware}"
        of = {row.format: row.step_s for row in found.formats}
        return lines_chart("crossover", title, x="log Sequences", y="log Step [s]", at=found.batches, of=of)
