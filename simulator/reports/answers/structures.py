"""``roofcast retrieval`` and ``roofcast mixers``: other structures than a decoder's, as JSON documents and as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from simulator.phases.deployment import Deployment
from simulator.phases.late_interaction import RetrievalCost
from simulator.reports.content.quantities import bytes_text, seconds_text
from simulator.reports.contract import SCHEMA_VERSION, Json
from simulator.reports.formats.text import text_table
from simulator.reports.words.assumptions import assumption_texts
from simulator.techniques.complexity import LengthCost
from simulator.units import GIGA

RETRIEVAL_COLUMNS = ("interaction", "index", "indexing a document", "encoding a query", "scoring", "query")
MIXER_COLUMNS = ("layer", "tokens", "prefill GFLOP", "next token GFLOP", "steps in a row", "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalQuestion:
    """An index of ``documents``, of which a query scores ``candidates``."""

    documents: float
    candidates: float
    document_tokens: int
    query_tokens: int
    vector_size: int


def retrieval_document(question: RetrievalQuestion, deployment: Deployment, costs: Mapping[str, RetrievalCost]) -> Json:
    """The JSON document of ``roofcast retrieval``: one entry per way to compare."""
    return {
        "schema_version": SCHEMA_VERSION,
        **asdict(question),
        "model": deployment.model.name,
        "hardware": deployment.hardware.name,
        "interactions": [
            {"interaction": name, **asdict(cost), "total_query_s": cost.total_query_s} for name, cost in costs.items()
        ],
        "assumptions": assumption_texts(deployment.assumptions),
    }


def retrieval_text(document: Json) -> str:
    """The document as a table."""
    rows = [
        (
            entry["interaction"],
            bytes_text(entry["index_bytes"]),
            *(seconds_text(entry[field]) for field in ("document_s", "query_s", "scoring_s", "total_query_s")),
        )
        for entry in document["interactions"]
    ]
    return (
        f"{document['model']} on {document['hardware']}: {document['documents']:,.0f} documents of "
        f"{document['document_tokens']} tokens, {document['candidates']:,.0f} scored a query of "
        f"{document['query_tokens']}\n\n{text_table(RETRIEVAL_COLUMNS, rows)}\n"
    )


def mixers_document(costs: Mapping[str, LengthCost], *, width: int, tokens: Sequence[int]) -> Json:
    """The JSON document of ``roofcast mixers``: one entry per kind of layer and length."""
    entries = []
    for kind, cost in costs.items():
        for place, length in enumerate(tokens):
            figures = {name: float(values[place]) for name, values in asdict(cost).items()}
            entries.append({"kind": kind, "tokens": length, **figures})
    return {"schema_version": SCHEMA_VERSION, "width": width, "layers": entries}


def mixers_text(document: Json) -> str:
    """The document as a table."""
    rows = [
        (
            entry["kind"],
            f"{entry['tokens']:,}",
            f"{entry['prefill_flops'] / GIGA:.4g}",
            f"{entry['decode_flops'] / GIGA:.4g}",
            f"{entry['sequential_steps']:,.0f}",
            bytes_text(entry["state_bytes"]),
        )
        for entry in document["layers"]
    ]
    heading = f"one sequence in one layer of {document['width']:,} channels with its projections"
    return f"{heading}\n\n{text_table(MIXER_COLUMNS, rows)}\n"
