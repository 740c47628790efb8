"""``roofcast retrieval`` and ``roofcast mixers``: other structures than a decoder's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from simulator.phases.deployment import Deployment
from simulator.phases.late_interaction import RetrievalCost
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, picked
from simulator.reports.charts.chart import Chart, bars_chart, lines_chart
from simulator.reports.content.quantities import bytes_text, seconds_text
from simulator.reports.formats.text import text_table
from simulator.reports.words.fields import assumption_texts
from simulator.techniques.complexity import LengthCost
from simulator.units import GIGA

RETRIEVAL_COLUMNS = ("interaction", "vector", "index", "indexing a document", "encoding a query", "scoring", "query")
MIXER_COLUMNS = ("layer", "tokens", "prefill GFLOP", "next token GFLOP", "steps in a row", "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalQuestion:
    """An index of ``documents``, of which a query scores ``candidates``."""

    documents: float
    candidates: float
    document_tokens: int
    query_tokens: int
    vector_size: int | None = None


@dataclass(frozen=True, slots=True)
class RetrievalAnswer(Answer):
    """Ways to compare a query with documents, each with its index and its time."""

    LISTED = "interactions"
    question: RetrievalQuestion
    deployment: Deployment
    costs: Mapping[str, RetrievalCost]

    def to_dict(self) -> Json:
        """The document of ``roofcast retrieval --json``: one entry per way to compare."""
        return {
            "schema_version": SCHEMA_VERSION,
            **asdict(self.question),
            **picked(self.deployment, "model=model.name", "hardware=hardware.name"),
            "interactions": [
                {"interaction": name, **asdict(cost), "total_query_s": cost.total_query_s}
                for name, cost in self.costs.items()
            ],
            "assumptions": assumption_texts(self.deployment.assumptions),
        }

    def to_text(self) -> str:
        """What ``roofcast retrieval`` prints: a table."""
        asked = self.question
        rows = [
            (
                entry["interaction"],
                str(entry["vector_size"] or "-"),
                bytes_text(entry["index_bytes"]),
                *(seconds_text(entry[field]) for field in ("document_s", "query_s", "scoring_s", "total_query_s")),
            )
            for entry in self.rows()
        ]
        return (
            f"{self.deployment.model.name} on {self.deployment.hardware.name}: {asked.documents:,.0f} documents of "
            f"{asked.document_tokens} tokens, {asked.candidates:,.0f} scored a query of "
            f"{asked.query_tokens}\n\n{text_table(RETRIEVAL_COLUMNS, rows)}\n"
        )

    def chart(self) -> Chart:
        """Time of a query."""
        times = {"query": [cost.total_query_s for cost in self.costs.values()]}
        return bars_chart("retrieval", "Time of a query", y="log Query [s]", names=tuple(self.costs), of=times)


@dataclass(frozen=True, slots=True)
class MixersAnswer(Answer):
    """Growth of kinds of layers with the length."""

    LISTED = "layers"
    costs: Mapping[str, LengthCost]
    width: int
    tokens: tuple[int, ...]

    def to_dict(self) -> Json:
        """The document of ``roofcast mixers --json``: one entry per kind of layer and length."""
        entries = []
        for kind, cost in self.costs.items():
            for place, length in enumerate(self.tokens):
                figures = {name: float(values[place]) for name, values in asdict(cost).items()}
                entries.append({"kind": kind, "tokens": length, **figures})
        return {"schema_version": SCHEMA_VERSION, "width": self.width, "layers": entries}

    def chart(self) -> Chart:
        """FLOPs of the prompt over its length."""
        flops = {kind: [float(value) for value in cost.prefill_flops] for kind, cost in self.costs.items()}
        title = "FLOPs of a prompt by kind of layer"
        return lines_chart("mixers", title, x="log Tokens", y="log FLOPs", at=self.tokens, of=flops)

    def to_text(self) -> str:
        """What ``roofcast mixers`` prints: a table."""
        rows = [
            (
                entry["kind"],
                f"{entry['tokens']:,}",
                f"{entry['prefill_flops'] / GIGA:.4g}",
                f"{entry['decode_flops'] / GIGA:.4g}",
                f"{entry['sequential_steps']:,.0f}",
                bytes_text(entry["state_bytes"]),
            )
            for entry in self.rows()
        ]
        heading = f"one sequence in one layer of {self.width:,} channels with its projections"
        return f"{heading}\n\n{text_table(MIXER_COLUMNS, rows)}\n"
