"""What is published about the quality of answers of a candidate, in one clause."""

from __future__ import annotations

from simulator.errors import RoofcastError
from simulator.operators.formats import precision_plan
from simulator.specs.model import ModelSpec
from simulator.specs.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.techniques import TechniquesSpec
from simulator.techniques.quality import compression_of, published_quality

UNCHANGED = "as published"


def quality_note(model: ModelSpec, precision: PrecisionSpec, techniques: TechniquesSpec | None = None) -> str:
    """``as published`` where the checkpoint runs as it is; otherwise the published figure, or that none is known."""
    asked = precision.scheme is not None or precision.weights is not None
    spec = techniques or TechniquesSpec()
    notes = []
    if asked or spec.sparsity is not None:
        try:
            plan = precision_plan(model, precision)
        except RoofcastError:
            return "quality unknown"
        found = published_quality(model.name, compression_of(scheme=precision.scheme, plan=plan, techniques=spec))
        notes.append(UNCHANGED if found.is_lossless else found.sentence)
    if precision.kv_cache is not None and BITS[precision.kv_cache] < BITS[Dtype.BF16]:
        notes.append(f"{precision.kv_cache} KV cache: unknown, nothing published in the table")
    return "; ".join(notes) or UNCHANGED
