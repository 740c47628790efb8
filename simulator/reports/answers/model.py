"""``roofcast model``: what a configuration holds and what fine-tuning it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.operators.model_counts import ModelCounts
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, picked
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.content.quantities import bytes_text, parameters_text, percent_text
from simulator.reports.formats.text import text_table
from simulator.reports.words.fields import note_texts
from simulator.techniques.fine_tuning import FineTuningMemory, OptimizerState
from simulator.units import GIGA, TERA, format_si

FINE_TUNING_COLUMNS = (
    *("fine-tuning", "trained", "share", "weights", "adapter", "gradients", "optimizer", "activations", "total"),
)
_PARTS = ("weights", "adapter", "gradient", "optimizer", "activation", "total")
ASSUMPTION = (
    "fine-tuning: Adam, 16-bit weights and gradients, activations recomputed layer by layer; without runtime, "
    "fragmentation and the logits of the vocabulary; spread over several devices it is the sum"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """Memory of each method, under the text that asked for it, for steps of ``sequences`` of the context's length."""

    methods: Sequence[tuple[str, FineTuningMemory]]
    optimizer: OptimizerState
    sequences: int


def _fine_tuning(tuning: FineTuning, counts: ModelCounts) -> Json:
    return {
        **picked(tuning, "optimizer", "sequences"),
        "tokens_per_sequence": counts.context_tokens,
        "assumptions": [ASSUMPTION],
        "methods": [
            {
                "text": text,
                **picked(memory, "method", "trained_parameters", "trained_share"),
                **{f"{part}_bytes": getattr(memory, f"{part}_bytes") for part in _PARTS},
            }
            for text, memory in tuning.methods
        ],
    }


def _generation_lines(document: Json) -> tuple[str, ...]:
    """What a generated token takes and leaves behind; an encoder generates none."""
    tokens = document["context_tokens"]
    if document["decode_flops_per_token"] is None:
        return ("decode              none: an encoder answers with its one pass and keeps no KV cache",)
    return (
        f"decode              {document['decode_flops_per_token'] / GIGA:.4g} GFLOP per token at {tokens} tokens",
        f"KV cache            {format_si(document['kv_bytes_per_token'], 'B')} per token "
        f"({document['kv_cache_dtype']}), {format_si(document['kv_bytes_at_context'], 'B')} at {tokens} tokens",
    )


def _fine_tuning_lines(document: Json) -> list[str]:
    rows = [
        (
            item["text"],
            parameters_text(item["trained_parameters"]),
            percent_text(item["trained_share"]),
            *(bytes_text(item[f"{part}_bytes"]) if item[f"{part}_bytes"] else "-" for part in _PARTS),
        )
        for item in document["methods"]
    ]
    heading = (
        f"optimizer {document['optimizer']}, {document['sequences']} x {document['tokens_per_sequence']} tokens a step"
    )
    return ["", heading, text_table(FINE_TUNING_COLUMNS, rows), *(f"assumed: {one}" for one in document["assumptions"])]


def _beyond(counts: ModelCounts) -> Iterator[str]:
    """That the context is longer than the model was made for, which the counts do not mind."""
    longest = counts.model.max_position_embeddings
    if longest is not None and counts.context_tokens > longest:
        yield f"counted for {counts.context_tokens:,} tokens, the model takes {longest:,}"


@dataclass(frozen=True, slots=True)
class ModelAnswer(Answer):
    """Counts of a model, and what memory it takes to fine-tune it."""

    counts: ModelCounts
    tuning: FineTuning | None

    def to_dict(self) -> Json:
        """The document of ``roofcast model --json``; with ``tuning`` also the memory of training."""
        counts, model = self.counts, self.counts.model
        return {
            "schema_version": SCHEMA_VERSION,
            **picked(model, "name", "model_type", "num_hidden_layers", "hidden_size"),
            **picked(counts, "parameters=parameters.total", "active_parameters=parameters.active"),
            **picked(counts, "context_tokens", "prefill_flops", "decode_flops_per_token", "kv_bytes_per_token"),
            "kv_cache_dtype": counts.plan.kv_dtype.value,
            **picked(counts, "state_bytes_per_sequence", "kv_bytes_at_context"),
            "assumptions": note_texts(counts.plan.assumptions),
            "notes": [*note_texts(model.notes), *_beyond(counts)],
            **({"fine_tuning": _fine_tuning(self.tuning, counts)} if self.tuning else {}),
        }

    def to_text(self) -> str:
        """What ``roofcast model`` prints: lines."""
        document = self.to_dict()
        tokens = document["context_tokens"]
        lines = (
            f"{document['name']} ({document['model_type']}): {document['num_hidden_layers']} layers, "
            f"hidden_size {document['hidden_size']}",
            f"parameters          {document['parameters'] / GIGA:.3f} billion, "
            f"{document['active_parameters'] / GIGA:.3f} billion active per token",
            f"prefill             {document['prefill_flops'] / TERA:.4g} TFLOP for {tokens} tokens",
            *_generation_lines(document),
            *(f"note: {text}" for text in document["notes"]),
            *(f"assumed: {text}" for text in document["assumptions"]),
            *(_fine_tuning_lines(document["fine_tuning"]) if "fine_tuning" in document else ()),
        )
        return "\n".join(lines) + "\n"

    def chart(self) -> Chart:
        """FLOPs of a prompt and of a token after it."""
        counts = self.counts
        title = f"{counts.model.name} at {counts.context_tokens} tokens"
        flops = [counts.prefill_flops, *filter(None, [counts.decode_flops_per_token])]
        names = ("prompt", "next token")[: len(flops)]
        return bars_chart("model", title, y="log FLOPs", names=names, of={"FLOPs": flops})
