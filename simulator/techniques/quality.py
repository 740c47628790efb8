"""What is published about answers under other formats and techniques; nothing is inferred from other models.

Weights in 16 bit and none removed are the model itself. Everything else is either in the table for this very model
and method, or unknown; published figures of other models are shown beside it as evidence, not as an estimate.
Sources of the rows: sparsity [Sun2023] [Frantar2023], weight-only [Frantar2022], outlier decomposition [Dettmers2022],
benchmarks of today's checkpoints [Kurtic2024] [NVIDIA2025c].
"""

from __future__ import annotations

import re
from functools import lru_cache

from simulator.errors import RoofcastError, plain_word
from simulator.operators.formats.schemes import DEFAULT_GROUP_SIZE
from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.checkpoints import DENSE, QualityRow, QualityTable, load_quality_table
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec

_SCHEME = re.compile(r"(gptq|awq|rtn)(?:-([2348])-?bit)?(?:-g(\d+))?")
DEFAULT_WEIGHT_BITS = 4
"""Of gptq, awq and rtn where the name says no width (operators/schemes.py)."""
UNCHANGED = Note("as_published")
_UNPUBLISHED = ("contextual_sparsity", "adapters", "structure", "early_exit")
"""Techniques that change answers; the table holds nothing on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """What identifies a compressed model in the literature."""

    method: str
    weight_bits: int | None = None
    activation_bits: int | None = None
    group_size: int | None = None
    sparsity: str | None = None

    def matches(self, row: QualityRow) -> bool:
        """Whether a row is about the same method, width and sparsity."""
        same = (row.method, row.weight_bits, row.group_size, row.sparsity)
        return same == (self.method, self.weight_bits, self.group_size, self.sparsity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The published quality of one deployment.

    rows : figures of this model and compression; empty where nobody published any
    evidence : the same compression on other models
    """

    compression: Compression | None
    rows: tuple[QualityRow, ...]
    evidence: tuple[QualityRow, ...]
    table: QualityTable

    @property
    def is_lossless(self) -> bool:
        """Whether the deployment runs the model as published."""
        return self.compression is None

    @property
    def known(self) -> bool:
        """Whether anything is known about the loss."""
        return self.is_lossless or bool(self.rows)

    @property
    def loss(self) -> float | None:
        """Relative rise of the first published perplexity over the dense model, or fall of a benchmark's average. 0 if
        lossless, None if unknown."""
        if self.is_lossless:
            return 0.0
        if not self.rows:
            return None
        row = self.rows[0]
        ratio = row.value / self.table.dense(row).value
        return ratio - 1 if row.metric.endswith("perplexity") else 1 - ratio

    @property
    def note(self) -> Note:
        """What is published, with its source."""
        rows = self.rows or self.evidence
        if not rows:
            return Note("quality_of_model" if self.is_lossless else "quality_unpublished")
        beside = tuple((other.method, other.value) for other in self.table.as_fast(rows[0]))
        figures = {"row": rows[0], "dense": self.table.dense(rows[0]), "beside": beside}
        return Note("quality_row" if self.rows else "quality_of_others", figures)


def compression_of(*, scheme: str | None, plan: PrecisionPlan, techniques: TechniquesSpec) -> Compression | None:
    """The compression that precision or sparsity comes to; None as published; both at once are in no table."""
    sparsity, quantised = techniques.sparsity, BITS[plan.weights] < BITS[Dtype.BF16]
    if sparsity is not None:
        pattern = f"{sparsity.fraction:.0%}" if sparsity.pattern == "unstructured" else sparsity.pattern
        bits = BITS[plan.weights] if quantised else None
        return Compression(method=sparsity.method or "unsaid", sparsity=pattern, weight_bits=bits)
    if not quantised:
        return None
    name = (scheme or "").strip().lower().replace("_", "-")
    grouped = _SCHEME.fullmatch(name)
    if grouped is not None:
        method, bits_text, group = grouped.groups()
        return Compression(
            method=method,
            weight_bits=int(bits_text or DEFAULT_WEIGHT_BITS),
            group_size=int(group) if group else DEFAULT_GROUP_SIZE if method == "awq" else None,
        )
    # A format in floating point is a method of its own; to integers there are many.
    unnamed = plan.weights.value if plan.weights in (Dtype.FP8, Dtype.FP6, Dtype.FP4) else "unsaid"
    method = name.rsplit("-o", 1)[0] if name.startswith("smoothquant") else name or unnamed
    return Compression(method=method, weight_bits=BITS[plan.weights], activation_bits=BITS[plan.activations])


def other_model_note(model: str, *, base: str) -> Note:
    """What one source prints of both models as published, so of a student beside its teacher."""
    table = load_quality_table()
    dense = {(row.source, row.metric, row.model): row for row in table.rows if row.method == DENSE}
    for (source, metric, name), row in dense.items():
        first = dense.get((source, metric, plain_word(base)))
        if name == plain_word(model) and first is not None:
            return Note("other_model", {"row": row, "first": first, "recalled": first.recalled or row.recalled})
    return Note("other_model_unknown")


def joined(*notes: Note) -> Note:
    """Several notes as one, each said once."""
    once = tuple(dict.fromkeys(notes))
    return once[0] if len(once) == 1 else Note("several", {"notes": once})


def published_quality(model: str, compression: Compression | None) -> Quality:
    """Look up ``model`` (a profile name) under ``compression``."""
    table = load_quality_table()
    if compression is None:
        return Quality(compression=None, rows=(), evidence=(), table=table)
    name = plain_word(model)
    matching = tuple(row for row in table.rows if row.method != DENSE and compression.matches(row))
    return Quality(
        compression=compression,
        rows=tuple(row for row in matching if row.model == name),
        evidence=tuple(row for row in matching if row.model != name),
        table=table,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuality:
    """loss : published rise of a metric over the dense model, as a fraction; 0 where answers stay, None if unknown."""

    loss: float | None
    note: Note

    def within(self, allowed: float | None) -> bool:
        """Whether the loss is known and allowed; everything is where ``allowed`` is None."""
        return allowed is None or (self.loss is not None and self.loss <= allowed)


def _compressed(model: ModelSpec, precision: PrecisionSpec, techniques: TechniquesSpec) -> AnswerQuality:
    try:
        plan = precision_plan(model, precision)
    except RoofcastError:
        return AnswerQuality(loss=None, note=Note("quality_unknown"))
    return _published_answer(model.profile, compression_of(scheme=precision.scheme, plan=plan, techniques=techniques))


@lru_cache(maxsize=512)
def _published_answer(name: str, compression: Compression | None) -> AnswerQuality:
    """A search asks for the same few compressions of a model again and again."""
    found = published_quality(name, compression)
    if found.is_lossless:
        return AnswerQuality(loss=0.0, note=UNCHANGED)
    return AnswerQuality(loss=found.loss, note=found.note)


def answer_quality(
    model: ModelSpec, precision: PrecisionSpec, techniques: TechniquesSpec | None = None
) -> AnswerQuality:
    """What number formats and techniques cost together: losses add up, and one that is unknown leaves all unknown. A
    loss is the rise of a published metric, perplexity where there is one, over the model as published."""
    spec = techniques or TechniquesSpec()
    notes = [Note("unpublished", {"what": field}) for field in _UNPUBLISHED if getattr(spec, field) is not None]
    notes += [Note("unpublished", {"what": "mixed_number_formats"})] if precision.mixed else []
    parts = [AnswerQuality(loss=None, note=note) for note in notes]
    if precision.scheme is not None or precision.weights is not None or spec.sparsity is not None:
        parts.append(_compressed(model, precision, spec))
    if precision.kv_cache is not None and BITS[precision.kv_cache] < BITS[Dtype.BF16]:
        parts.append(AnswerQuality(loss=None, note=Note("unpublished", {"what": f"{precision.kv_cache}_KV_cache"})))
    if spec.kv_policy is not None:
        parts.append(AnswerQuality(loss=None, note=Note("unpublished", {"what": spec.kv_policy.method})))
    if spec.speculation is not None:
        parts.append(AnswerQuality(loss=0.0, note=Note("as_published_verified")))
    changed = [part for part in parts if part.loss != 0]
    losses = [part.loss for part in changed]
    known = sum(loss for loss in losses if loss is not None)
    found = joined(*(part.note for part in changed or parts)) if parts else UNCHANGED
    return AnswerQuality(loss=None if None in losses else known, note=found)
