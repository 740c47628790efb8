"""Single changes that may close a gap: what each sets, the fields to give for it, and what it does to answers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import log2

from simulator.planner.candidate import Candidate
from simulator.planner.records import FieldValue
from simulator.planner.search.candidates import USUAL_DP_SIZES, USUAL_SPARSITY, USUAL_SPECULATION, has_experts
from simulator.planner.search.question import Question
from simulator.planner.search.search_space import WIDE_SCHEMES
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import techniques_spec
from simulator.techniques.quality import AnswerQuality, answer_quality

_NATIVE = PrecisionSpec()
_KEPT_SHARE = 1 / 2
_TEXTS = ("speculation", "sparsity", "kv_policy")
"""Techniques that a state sets, as text."""
GIVES_UP = ("hardware", "parallelism", "fixed_limits")
"""Kinds that take back what the question fixed: they come after every technique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapState:
    """What differs from the question: accelerators, engine limits, degrees, ranks, formats and techniques."""

    any_hardware: bool = False
    any_limits: bool = False
    any_degrees: bool = False
    spread_experts: bool = False
    ranks: tuple[int, ...] | None = None
    weights: PrecisionSpec | None = None
    kv_cache: Dtype | None = None
    speculation: str | None = None
    sparsity: str | None = None
    kv_policy: str | None = None

    def joined(self, other: GapState) -> GapState:
        """This state with what ``other`` sets."""
        return GapState(**{item.name: getattr(other, item.name) or getattr(self, item.name) for item in fields(self)})

    @property
    def texts(self) -> tuple[str, ...]:
        """Techniques as text."""
        return tuple(text for name in _TEXTS if (text := getattr(self, name)) is not None)

    def precision(self, asked: PrecisionSpec) -> PrecisionSpec:
        """The formats that were asked for, with what this state sets."""
        weights = self.weights
        merged = asked if weights is None else weights.model_copy(update={"kv_cache": asked.kv_cache})
        return merged if self.kv_cache is None else merged.model_copy(update={"kv_cache": self.kv_cache})

    def techniques(self, asked: TechniquesSpec) -> TechniquesSpec:
        """The techniques that were asked for, with what this state sets."""
        text = {"speculation": self.speculation, "sparsity": self.sparsity, "kv_policy": self.kv_policy}
        added = techniques_spec(text)
        return asked.model_copy(update={name: getattr(added, name) for name in _TEXTS if getattr(added, name)})


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChange:
    """One step away from a state. ``kind`` is what only one change can be of."""

    kind: str
    name: str
    given: tuple[FieldValue, ...]
    state: GapState
    quality: AnswerQuality

    def given_with(self, candidate: Candidate) -> tuple[FieldValue, ...]:
        """What to give for it, with the values that the set-up took where the change left them open."""
        engine, parallelism = candidate.engine, candidate.parallelism
        match self.kind:
            case "hardware":
                return (FieldValue(field="hardware", value=candidate.platform.hardware.name),)
            case "limits" | "fixed_limits":
                limits = _open("max_num_seqs", "max_num_batched_tokens")
                return tuple(replace(item, value=value) for item in limits if (value := getattr(engine, item.field)))
            case "parallelism":
                tp = FieldValue(field="tp_size", value=parallelism.tp_size)
                return tp, FieldValue(field="pp_size", value=parallelism.pp_size)
            case "experts":
                return (FieldValue(field="ep_size", value=parallelism.ep_size),)
            case "ranks":
                return (FieldValue(field="dp_size", value=parallelism.dp_size),)
        return self.given

    def is_in(self, candidate: Candidate) -> bool:
        """Whether a set-up makes use of it; what is open may come out as it was."""
        match self.kind:
            case "limits":
                return bool(self.given_with(candidate))
            case "experts":
                return candidate.parallelism.ep_size > 1
            case "ranks":
                return candidate.parallelism.dp_size > 1
        return True


def _open(*fields: str) -> tuple[FieldValue, ...]:
    return tuple(FieldValue(field=field) for field in fields)


def _value(field: str, value: object) -> tuple[FieldValue, ...]:
    return (FieldValue(field=field, value=value),)


def _change(question: Question, *, kind: str, name: str, given: tuple[FieldValue, ...], state: GapState) -> GapChange:
    quality = answer_quality(question.model, state.precision(_NATIVE), state.techniques(TechniquesSpec()))
    return GapChange(kind=kind, name=name, given=given, state=state, quality=quality)


def _weights_changes(question: Question) -> list[GapChange]:
    formats = [PrecisionSpec(scheme=name) for name in WIDE_SCHEMES] + [PrecisionSpec(weights=Dtype.INT8)]
    found = []
    for precision in formats:
        name = str(precision.scheme or precision.weights)
        given = _value("scheme", precision.scheme) if precision.scheme else _value("weights", precision.weights)
        state = GapState(weights=precision)
        found.append(_change(question, kind="weights", name=f"{name} weights", given=given, state=state))
    return found


def _rank_changes(question: Question) -> list[GapChange]:
    """Other ways to spread a model with experts."""
    spec, found = question.spec, list[GapChange]()
    if not has_experts(question.model):
        return found
    if not spec.ep_size and spec.search != "wide":
        state = GapState(spread_experts=True)
        found.append(_change(question, kind="experts", name="expert parallelism", given=_open("ep_size"), state=state))
    if not spec.dp_size and not spec.ep_size:
        state = GapState(ranks=(1, *USUAL_DP_SIZES))
        found.append(
            _change(question, kind="ranks", name="data-parallel attention", given=_open("dp_size"), state=state)
        )
    return found


def _technique_changes(question: Question) -> list[GapChange]:
    spec, found = question.spec, []

    def add(kind: str, name: str, value: str, state: GapState) -> None:
        found.append(_change(question, kind=kind, name=name, given=_value(kind, value), state=state))

    if not spec.speculation:
        for method in USUAL_SPECULATION:
            add("speculation", f"{method} speculation", method, GapState(speculation=method))
    if not spec.sparsity:
        for pattern in USUAL_SPARSITY:
            add("sparsity", f"{pattern} sparse weights", pattern, GapState(sparsity=pattern))
    kept = 2 ** int(log2(max(question.demand.mix.decode_context_tokens * _KEPT_SHARE, 1.0)))
    if not spec.kv_policy:
        policy = f"h2o:{kept}"
        add("kv_policy", f"KV cache of {kept} tokens", policy, GapState(kv_policy=policy))
    return found


def _fixes_limits(spec: PlanSpec) -> bool:
    return bool(spec.max_num_seqs or spec.max_num_batched_tokens)


def _freed_changes(question: Question) -> list[GapChange]:
    """What the question fixed, left open."""
    spec, found = question.spec, []
    if spec.hardware:
        state = GapState(any_hardware=True)
        found.append(_change(question, kind="hardware", name="other hardware", given=_open("hardware"), state=state))
    if spec.search != "wide" or spec.tp_size or spec.pp_size:
        state = GapState(any_degrees=True)
        found.append(
            _change(question, kind="parallelism", name="other degrees", given=_open("tp_size", "pp_size"), state=state)
        )
    if _fixes_limits(spec):
        state, given = GapState(any_limits=True), _open("max_num_seqs", "max_num_batched_tokens")
        found.append(_change(question, kind="fixed_limits", name="other engine limits", given=given, state=state))
    return found


def gap_changes(question: Question) -> list[GapChange]:
    """Every single change that the question leaves open and its quality floor allows."""
    spec, found = question.spec, []
    if spec.search != "wide" and not _fixes_limits(spec):
        state = GapState(any_limits=True)
        found.append(
            _change(question, kind="limits", name="better engine limits", given=_value("search", "wide"), state=state)
        )
    found += _rank_changes(question)
    if not spec.any_technique:
        found += _technique_changes(question)
    if not spec.kv_cache and not spec.any_precision:
        state = GapState(kv_cache=Dtype.FP8)
        found.append(
            _change(question, kind="kv", name="fp8 KV cache", given=_value("kv_cache", Dtype.FP8), state=state)
        )
    if not (spec.weights or spec.scheme or spec.activations or spec.any_precision):
        found += _weights_changes(question)
    found += _freed_changes(question)
    return [change for change in found if change.quality.within(spec.max_quality_loss)]
