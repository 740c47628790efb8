"""What ``roofcast retrieval`` and ``roofcast mixers`` print."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.phases.deployment import deploy
from simulator.phases.late_interaction import INTERACTIONS, retrieval_cost
from simulator.reports.content.quantities import bytes_text, seconds_text
from simulator.reports.content.text import text_table
from simulator.reports.contract import SCHEMA_VERSION
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model
from simulator.techniques.complexity import LAYER_KINDS, length_cost
from simulator.units import GIGA


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalQuestion:
    """What the command line asks for."""

    model: str
    hardware: str
    documents: float
    candidates: float
    document_tokens: int
    query_tokens: int
    vector_size: int


def retrieval_object(question: RetrievalQuestion, *, profiles: str | None) -> dict[str, Any]:
    """The JSON document of ``roofcast retrieval``: one entry per way to compare."""
    replica = deploy(
        model=load_model(question.model, profiles=profiles),
        hardware=load_hardware(question.hardware, profiles=profiles),
        profiles=profiles,
    )
    entries = []
    for interaction in INTERACTIONS:
        cost = retrieval_cost(
            replica,
            interaction=interaction,
            documents=question.documents,
            candidates=question.candidates,
            document_tokens=question.document_tokens,
            query_tokens=question.query_tokens,
            vector_size=question.vector_size,
        )
        entries.append({"interaction": interaction, **asdict(cost), "total_query_s": cost.total_query_s})
    return {
        "schema_version": SCHEMA_VERSION,
        **asdict(question),
        "model": replica.model.name,
        "hardware": replica.hardware.name,
        "interactions": entries,
        "assumptions": list(replica.assumptions),
    }


def print_retrieval(question: RetrievalQuestion, *, as_json: bool, profiles: str | None) -> None:
    """Print the comparison as JSON or as a table."""
    document = retrieval_object(question, profiles=profiles)
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    columns = ("interaction", "index", "indexing a document", "encoding a query", "scoring", "query")
    rows = [
        (
            entry["interaction"],
            bytes_text(entry["index_bytes"]),
            *(seconds_text(entry[field]) for field in ("document_s", "query_s", "scoring_s", "total_query_s")),
        )
        for entry in document["interactions"]
    ]
    sys.stdout.write(
        f"{document['model']} on {document['hardware']}: {question.documents:,.0f} documents of "
        f"{question.document_tokens} tokens, {question.candidates:,.0f} scored a query of {question.query_tokens}\n\n"
        f"{text_table(columns, rows)}\n"
    )


def mixers_object(*, width: int, tokens: tuple[int, ...]) -> dict[str, Any]:
    """The JSON document of ``roofcast mixers``: one entry per kind of layer and length."""
    lengths = np.array(tokens, dtype=np.float64)
    entries = []
    for kind in LAYER_KINDS:
        cost = length_cost(kind, tokens=lengths, width=float(width))
        for place, length in enumerate(tokens):
            figures = {name: float(values[place]) for name, values in asdict(cost).items()}
            entries.append({"kind": kind, "tokens": length, **figures})
    return {"schema_version": SCHEMA_VERSION, "width": width, "layers": entries}


def print_mixers(*, width: int, tokens: tuple[int, ...], as_json: bool) -> None:
    """Print the growth as JSON or as a table."""
    document = mixers_object(width=width, tokens=tokens)
    if as_json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
        return
    columns = ("layer", "tokens", "prefill GFLOP", "next token GFLOP", "steps in a row", "state")
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
    heading = f"one sequence in one layer of {width:,} channels, projections left out"
    sys.stdout.write(f"{heading}\n\n{text_table(columns, rows)}\n")
