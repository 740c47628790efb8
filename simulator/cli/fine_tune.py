"""``roofcast model --fine-tune``: the memory that training a model takes, method by method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import RoofcastError
from simulator.operators.transformer import parameter_counts
from simulator.reports.content.quantities import bytes_text, parameters_text, percent_text
from simulator.reports.content.text import text_table
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.techniques_text import FLAG, FineTuneText, parse_fine_tune
from simulator.techniques.fine_tuning import FineTuningMemory, OptimizerState, fine_tuning_memory

COLUMNS = ("fine-tuning", "trained", "share", "weights", "adapter", "gradients", "optimizer", "activations", "total")
ASSUMPTION = (
    "fine-tuning: Adam, 16-bit weights and gradients, activations recomputed layer by layer; without runtime, "
    "fragmentation and the logits of the vocabulary; spread over several devices it is the sum"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuneQuestion:
    """What the command line asks for: methods as written, the optimizer's state, sequences of a training step."""

    methods: tuple[str, ...]
    optimizer: OptimizerState
    sequences: int


def fine_tune_question(
    methods: Sequence[str], *, optimizer: OptimizerState | None, sequences: int | None
) -> FineTuneQuestion | None:
    """The question of ``--fine-tune``, or None without it; refuses options that would do nothing."""
    if not methods:
        for name, value in (("--optimizer", optimizer), ("--train-batch", sequences)):
            if value is not None:
                raise RoofcastError(f"has no effect without {FLAG}", field=name, code="ignored_option")
        return None
    return FineTuneQuestion(methods=tuple(methods), optimizer=optimizer or "mixed", sequences=sequences or 1)


def _memory(
    model: ModelSpec, method: FineTuneText, *, question: FineTuneQuestion, context_tokens: int
) -> FineTuningMemory:
    spec = method.adapters
    try:
        return fine_tuning_memory(
            model,
            method=method.method,
            rank=spec.rank if spec else None,
            targets=spec.targets if spec else None,
            prompt_tokens=spec.prompt_tokens if spec else None,
            optimizer=question.optimizer,
            sequences=question.sequences,
            tokens=context_tokens,
        )
    except RoofcastError as error:
        inside = error.field.rsplit(".", maxsplit=1)[-1]
        raise RoofcastError(
            f"{method.text!r}: {inside}: {error.message}", field=FLAG, code=error.code, hint=error.hint
        ) from None


def fine_tune_object(model: ModelSpec, *, question: FineTuneQuestion, context_tokens: int) -> dict[str, Any]:
    """The JSON object of ``--fine-tune``, one entry per method."""
    methods = [parse_fine_tune(text) for text in question.methods]
    total = parameter_counts(model).total
    found = [
        (method.text, _memory(model, method, question=question, context_tokens=context_tokens)) for method in methods
    ]
    return {
        "optimizer": question.optimizer,
        "sequences": question.sequences,
        "tokens_per_sequence": context_tokens,
        "assumptions": [ASSUMPTION],
        "methods": [
            {
                "text": text,
                "method": memory.method,
                "trained_parameters": memory.trained_parameters,
                "trained_share": memory.trained_parameters / total,
                "weights_bytes": memory.weights_bytes,
                "adapter_bytes": memory.adapter_bytes,
                "gradient_bytes": memory.gradient_bytes,
                "optimizer_bytes": memory.optimizer_bytes,
                "activation_bytes": memory.activation_bytes,
                "total_bytes": memory.total_bytes,
            }
            for text, memory in found
        ],
    }


def fine_tune_lines(document: dict[str, Any]) -> list[str]:
    """The same as a table."""
    parts = ("weights", "adapter", "gradient", "optimizer", "activation", "total")
    rows = [
        (
            item["text"],
            parameters_text(item["trained_parameters"]),
            percent_text(item["trained_share"]),
            *(bytes_text(item[f"{part}_bytes"]) if item[f"{part}_bytes"] else "-" for part in parts),
        )
        for item in document["methods"]
    ]
    heading = (
        f"optimizer {document['optimizer']}, {document['sequences']} x {document['tokens_per_sequence']} tokens a step"
    )
    return [
        "",
        heading,
        *text_table(COLUMNS, rows).splitlines(),
        *(f"assumed: {text}" for text in document["assumptions"]),
    ]
