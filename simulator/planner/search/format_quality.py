"""What is published about answers under other formats and techniques: one clause, and a loss where known."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.quality import compression_of, published_quality

UNCHANGED = "as published"
_VERIFIED = "as published: the model itself verifies every guess"
_NOTHING = "unknown, nothing published in the table"
_UNPUBLISHED = ("contextual_sparsity", "adapters", "structure", "early_exit")
"""Techniques that change answers; the table holds nothing on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuality:
    """loss : published rise of a metric over the dense model, as a fraction; 0 where answers stay, None if unknown."""

    loss: float | None
    note: str

    def within(self, allowed: float | None) -> bool:
        """Whether the loss is known and allowed; everything is where ``allowed`` is None."""
        return allowed is None or (self.loss is not None and self.loss <= allowed)


def _compressed(model: ModelSpec, precision: PrecisionSpec, techniques: TechniquesSpec) -> AnswerQuality:
    try:
        plan = precision_plan(model, precision)
    except RoofcastError:
        return AnswerQuality(loss=None, note="quality unknown")
    compression = compression_of(scheme=precision.scheme, plan=plan, techniques=techniques)
    found = published_quality(model.profile, compression)
    if found.is_lossless:
        return AnswerQuality(loss=0.0, note=UNCHANGED)
    return AnswerQuality(loss=found.loss, note=found.sentence)


def answer_quality(
    model: ModelSpec, precision: PrecisionSpec, techniques: TechniquesSpec | None = None
) -> AnswerQuality:
    """Of number formats and techniques together: the losses add up, and one that is unknown leaves all unknown.

    A loss is the rise of a published metric, perplexity where there is one, over the model as published.
    """
    spec = techniques or TechniquesSpec()
    names = [field.replace("_", " ") for field in _UNPUBLISHED if getattr(spec, field) is not None]
    names += ["mixed number formats"] if precision.mixed else []
    parts = [AnswerQuality(loss=None, note=f"{name}: {_NOTHING}") for name in names]
    if precision.scheme is not None or precision.weights is not None or spec.sparsity is not None:
        parts.append(_compressed(model, precision, spec))
    if precision.kv_cache is not None and BITS[precision.kv_cache] < BITS[Dtype.BF16]:
        parts.append(AnswerQuality(loss=None, note=f"{precision.kv_cache} KV cache: {_NOTHING}"))
    if spec.kv_policy is not None:
        parts.append(AnswerQuality(loss=None, note=f"{spec.kv_policy.method}: {_NOTHING}"))
    if spec.speculation is not None:
        parts.append(AnswerQuality(loss=0.0, note=_VERIFIED))
    changed = [part for part in parts if part.loss != 0]
    losses = [part.loss for part in changed]
    known = sum(loss for loss in losses if loss is not None)
    notes = [part.note for part in changed] or [part.note for part in parts] or [UNCHANGED]
    return AnswerQuality(loss=None if None in losses else known, note="; ".join(dict.fromkeys(notes)))
