"""What models hold and how structures compare: ``roofcast model``, ``retrieval`` and ``mixers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.errors import RoofcastError, ignored_option
from simulator.phases.deployment import deploy
from simulator.reports.answers.model import FineTuning, ModelAnswer
from simulator.reports.answers.structures import MixersAnswer, RetrievalAnswer, RetrievalQuestion
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec

if TYPE_CHECKING:
    from simulator.operators.model_counts import ModelCounts
    from simulator.phases.late_interaction import RetrievalCost
    from simulator.techniques.complexity import LengthCost
    from simulator.techniques.fine_tuning import OptimizerState

DEFAULT_LENGTHS = (1024, 16384, 262144)


def count(
    config: str,
    *,
    context_tokens: int | None = None,
    kv_cache: str | None = None,
    fine_tune: Sequence[str] = (),
    optimizer: OptimizerState | None = None,
    train_batch: int | None = None,
    profiles: str | None = None,
) -> ModelAnswer:
    """Parameters, FLOPs and KV bytes of a model; memory to fine-tune it: ``roofcast model``.

    config : a name, a Hugging Face id, a config.json or its folder; fine_tune : methods such as ``full``, ``lora:16``
    context_tokens : by default 4,096, or all that the model takes where that is less
    """
    from simulator.operators.model_counts import model_counts
    from simulator.specs.question.techniques_text import FLAG

    if not fine_tune:
        for name, value in (("--optimizer", optimizer), ("--train-batch", train_batch)):
            if value is not None:
                raise ignored_option(f"has no effect without `{FLAG}`", field=name, hint="")
    precision = validate(PrecisionSpec, {"kv_cache": kv_cache}, where="")
    counts = model_counts(load_model(config, profiles=profiles), precision=precision, context_tokens=context_tokens)
    tuning = _tuning(counts, fine_tune, optimizer=optimizer or "mixed", sequences=train_batch or 1)
    return ModelAnswer(counts, tuning if fine_tune else None)


def _tuning(counts: ModelCounts, methods: Sequence[str], *, optimizer: OptimizerState, sequences: int) -> FineTuning:
    from simulator.specs.question.techniques_text import FLAG, parse_fine_tune
    from simulator.techniques.fine_tuning import fine_tuning_memory

    found = []
    for method in [parse_fine_tune(text) for text in methods]:
        spec = method.adapters
        try:
            memory = fine_tuning_memory(
                counts.model,
                method=method.method,
                rank=spec.rank if spec else None,
                targets=spec.targets if spec else None,
                prompt_tokens=spec.prompt_tokens if spec else None,
                optimizer=optimizer,
                sequences=sequences,
                tokens=counts.context_tokens,
            )
        except RoofcastError as error:
            inside = error.field.rsplit(".", maxsplit=1)[-1]
            message = f"{method.text!r}: {inside}: {error.message}"
            raise RoofcastError(message, field=FLAG, code=error.code, hint=error.hint) from None
        found.append((method.text, memory))
    return FineTuning(methods=found, optimizer=optimizer, sequences=sequences)


def retrieval(
    *, model: str, hardware: str = "a100", question: RetrievalQuestion, profiles: str | None = None
) -> RetrievalAnswer:
    """Late interaction beside one vector a document and a cross encoder: ``roofcast retrieval``."""
    from dataclasses import asdict

    from simulator.phases.late_interaction import INTERACTIONS, retrieval_cost

    replica = deploy(
        model=load_model(model, profiles=profiles),
        hardware=load_hardware(hardware, profiles=profiles),
        profiles=profiles,
    )
    costs: dict[str, RetrievalCost] = {}
    for name in INTERACTIONS:
        costs[name] = retrieval_cost(replica, interaction=name, **asdict(question))
    return RetrievalAnswer(question, replica, costs)


def mixers(*, width: int = 4096, tokens: Sequence[int] = DEFAULT_LENGTHS) -> MixersAnswer:
    """How attention, recurrence, linear attention and FFT convolution grow with the length: ``roofcast mixers``."""
    import numpy as np

    from simulator.techniques.complexity import LAYER_KINDS, length_cost

    lengths = np.array(tokens, dtype=np.float64)
    costs: dict[str, LengthCost] = {}
    for kind in LAYER_KINDS:
        costs[kind] = length_cost(kind, tokens=lengths, width=float(width))
    return MixersAnswer(costs, width, tuple(tokens))
