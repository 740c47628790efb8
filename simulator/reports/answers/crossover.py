"""``roofcast crossover``: number formats over the batch."""

from __future__ import annotations

from simulator.engine.uniform.speculation_gain import FormatComparison, SpeedupByBatch
from simulator.phases.crossover import FormatCrossover
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Cells, Json, dump
from simulator.reports.charts.chart import Axis, Chart, lines_chart
from simulator.reports.content.quantities import number_text
from simulator.reports.formats.text import text_table
from simulator.reports.words.fields import assumption_texts
from simulator.units import MILLI


def _gain_object(gain: SpeedupByBatch) -> Json:
    return {
        "tokens_per_step": gain.tokens_per_step,
        "speedup": [float(value) for value in gain.speedup],
        "best_k": [int(value) for value in gain.best_k],
        "best_speedup": [float(value) for value in gain.best_speedup],
        "break_even_batch": gain.break_even_batch,
    }


def _cell(entry: Json, document: Json, place: int) -> str:
    room = entry["sequences_that_fit"]
    fastest = "*" if document["fastest"][place] == entry["format"] else " "
    short = "-" if room is not None and room < document["batches"][place] else " "
    return f"{number_text(entry['step_s'][place] / MILLI)}{fastest}{short}"


def _sentence(pair: FormatCrossover) -> str:
    if pair.batch is None:
        return f"{pair.earlier} beats {pair.later} at one sequence and at 4,096"
    return f"{pair.earlier} beats {pair.later} up to {pair.last_before} sequences, {pair.later} from {pair.batch} on"


def _speculation_lines(speculation: str, comparison: FormatComparison, document: Json) -> list[str]:
    """Speedups over plain decoding, then up to which batch they are above one."""
    gains = {entry["format"]: entry["speculation"] for entry in document["formats"]}
    rows = [
        (str(batch), *(_gain_cell(gain, place) for gain in gains.values()))
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


def _gain_cell(gain: Json, place: int) -> str:
    return f"{gain['speedup'][place]:.2f} ({gain['best_k'][place]}: {gain['best_speedup'][place]:.2f})"


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
            "model": found.model,
            "hardware": found.hardware,
            "tp_size": found.tp_size,
            "context_tokens": found.context_tokens,
            "batches": list(found.batches),
            "formats": [
                {
                    "format": row.format,
                    "step_s": list(row.step_s),
                    "sequences_that_fit": row.sequences_that_fit,
                    **({} if row.speculation is None else {"speculation": _gain_object(row.speculation)}),
                }
                for row in found.formats
            ],
            "fastest": list(found.fastest),
            "crossovers": dump(found.crossovers),
            "assumptions": assumption_texts(found.assumptions),
            "notes": list(found.notes),
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
        return lines_chart(
            key="crossover",
            title=f"Decode step of {found.model} on {found.hardware}",
            x=Axis(title="Sequences", log=True),
            y=Axis(title="Step", unit="s", log=True),
            at=found.batches,
            lines={row.format: row.step_s for row in found.formats},
        )
