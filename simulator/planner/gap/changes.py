"""Single changes that may close a gap: what each sets, the fields to give for it, what it does to answers."""

from __future__ import annotations

from dataclasses import fields, replace
from math import log2
from typing import Any

from simulator.operators.formats.schemes import NVFP4
from simulator.planner.records import Candidate, FieldValue
from simulator.planner.search.candidates import USUAL_DP_SIZES, USUAL_SPARSITY, USUAL_SPECULATION, leaves_format_open
from simulator.planner.search.question import WIDE_SCHEMES, Question
from simulator.records import dataclass
from simulator.specs.model.precision import Dtype, NumberFormat, PrecisionSpec
from simulator.specs.question.plan import FLEET_LIMITS, NONE, STUDIES, TEXTS, PlanSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import techniques_spec
from simulator.techniques.quality import AnswerQuality, answer_quality

SMALLER_FORMATS = (NumberFormat.FP8, NumberFormat.INT4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A question that differs in one thing: the field and its value, () where it is left out, None where it is open."""

    name: str
    field: str
    value: object
    spec: PlanSpec

    def given(self, candidate: Candidate) -> FieldValue:
        """What to give for a set-up that it leads to."""
        value = candidate.hardware if self.field == "hardware" else self.value
        return FieldValue(field=self.field, value=value)


def single_changes(question: Question) -> tuple[Change, ...]:
    """One step away from the question: smaller formats, free tensor parallelism, other hardware."""
    spec = question.spec
    found: list[tuple[str, str, object, dict[str, object]]] = [
        (f"{dtype} weights", "weights", dtype, {"weights": (dtype,), "scheme": None})
        for dtype in SMALLER_FORMATS
        if dtype not in spec.weights
    ]
    found += [("other degrees", "tp_size", (), {"tp_size": ()})] if spec.tp_size else []
    found += [("other hardware", "hardware", None, {"hardware": ()})] if spec.hardware else []
    return tuple(
        Change(name=name, field=field, value=value, spec=spec.model_copy(update=update))
        for name, field, value, update in found
    )


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
                return (FieldValue(field="hardware", value=candidate.hardware),)
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


_Way = tuple[bool, str, str, tuple[FieldValue, ...], GapState]
"""Whether the question leaves a change open; its kind, its name, what to give for it, what it sets."""


def _technique_ways(question: Question) -> list[_Way]:
    spec = question.spec
    kept = 2 ** int(log2(max(question.demand.mix.decode_context_tokens * _KEPT_SHARE, 1.0)))
    named: list[tuple[str, str, Any]] = [
        *(("speculation", f"{method} speculation", method) for method in USUAL_SPECULATION),
        *(("sparsity", f"{pattern} sparse weights", pattern) for pattern in USUAL_SPARSITY),
        ("kv_policy", f"KV cache of {kept} tokens", f"h2o:{kept}"),
    ]
    return [
        (not (spec.any_technique or getattr(spec, kind)), kind, name, _value(kind, text), GapState(**{kind: text}))
        for kind, name, text in named
    ]


def _ways(question: Question) -> list[_Way]:
    spec, wide = question.spec, question.spec.search == "wide"
    spread = question.model.has_experts and not spec.ep_size
    limits, degrees = ("max_num_seqs", "max_num_batched_tokens"), ("tp_size", "pp_size")
    fixed, ranks = any(getattr(spec, name) for name in limits), (1, *USUAL_DP_SIZES)
    regular = wide and not any(getattr(spec, name) for name in degrees)
    wider, narrower = _value("search", "wide"), _value("kv_cache", Dtype.FP8)
    schemes = [(name, _value("scheme", name), PrecisionSpec(scheme=name)) for name in (*WIDE_SCHEMES, NVFP4)]
    formats = [*schemes, ("int8", _value("weights", Dtype.INT8), PrecisionSpec(weights=Dtype.INT8))]
    return [
        (not (wide or fixed), "limits", "better engine limits", wider, GapState(any_limits=True)),
        (spread and not wide, "experts", "expert parallelism", _open("ep_size"), GapState(spread_experts=True)),
        (spread and not spec.dp_size, "ranks", "data-parallel attention", _open("dp_size"), GapState(ranks=ranks)),
        *_technique_ways(question),
        (not (spec.kv_cache or spec.any_precision), "kv", "fp8 KV cache", narrower, GapState(kv_cache=Dtype.FP8)),
        *(
            (leaves_format_open(spec), "weights", f"{name} weights", given, GapState(weights=precision))
            for name, given, precision in formats
        ),
        (bool(spec.hardware), "hardware", "other hardware", _open("hardware"), GapState(any_hardware=True)),
        (not regular, "parallelism", "other degrees", _open(*degrees), GapState(any_degrees=True)),
        (fixed, "fixed_limits", "other engine limits", _open(*limits), GapState(any_limits=True)),
    ]


def gap_changes(question: Question) -> list[GapChange]:
    """Every single change that the question leaves open and its quality floor allows."""
    found = [
        GapChange(
            kind=kind,
            name=name,
            given=given,
            state=state,
            quality=answer_quality(question.model, state.precision(_NATIVE), state.techniques(TechniquesSpec())),
        )
        for is_open, kind, name, given, state in _ways(question)
        if is_open
    ]
    return [change for change in found if change.quality.within(question.spec.max_quality_loss)]


# Studies beside the plan and what only they read, and the floor that chose between answers: the fleet is chosen.
_CHOSEN: dict[str, Any] = {
    name: PlanSpec.model_fields[name].default
    for name in (
        *(field for study, options in STUDIES.items() for field in (study, *options)),
        *("horizon", "load_profile", "weekend", "ownership", "verify", "max_quality_loss"),
    )
}
_LIMITS: dict[str, Any] = dict.fromkeys(FLEET_LIMITS)


def _technique_texts(techniques: TechniquesSpec, *, texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The texts that the techniques of a set-up were read from, by option."""
    found: dict[str, tuple[str, ...]] = {}
    for name in TEXTS:
        wanted = getattr(techniques, name)
        found[name] = () if wanted is None else tuple(text for text in texts if _reads_as(name, text, wanted))[:1]
    return found


def _reads_as(name: str, text: str, wanted: object) -> bool:
    from simulator.errors import RoofcastError

    given: dict[str, Any] = {name: text}
    try:
        return bool(getattr(techniques_spec(given), name) == wanted)
    except RoofcastError:
        return False


def pinned_spec(question: Question, candidate: Candidate, *, texts: tuple[str, ...], keeps_limits: bool) -> PlanSpec:
    """The question with every choice of a set-up and ``texts`` of techniques given, without limits that it breaks."""
    spec, parallelism = question.spec, candidate.parallelism
    precision, engine = candidate.precision, candidate.engine
    asked = tuple(text for name in TEXTS for text in getattr(spec, name) if text != NONE)
    pinned: dict[str, Any] = {
        "hardware": (candidate.platform.hardware.name,),
        "prefill_hardware": candidate.prefill_hardware,
        "tp_size": tuple(dict.fromkeys(part.parallelism.tp_size for part in candidate.parts)),
        **{name: (size,) if size > 1 else () for name, size in parallelism if name != "tp_size"},
        "weights": () if precision.weights is None else (precision.weights,),
        "kv_cache": () if precision.kv_cache is None else (precision.kv_cache,),
        "activations": precision.activations,
        "scheme": precision.scheme,
        "max_num_seqs": () if engine.max_num_seqs is None else (engine.max_num_seqs,),
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "search": "usual",
        **dict.fromkeys(("any_precision", "any_technique"), False),
        **_technique_texts(candidate.techniques, texts=(*texts, *asked, *USUAL_SPECULATION, *USUAL_SPARSITY)),
        **_CHOSEN,
        **({} if keeps_limits else _LIMITS),
    }
    return spec.model_copy(update=_changed(spec, pinned))


def _changed(spec: PlanSpec, values: dict[str, Any]) -> dict[str, Any]:
    """Only what differs, so that a field that was never given is not given now."""
    return {name: value for name, value in values.items() if getattr(spec, name) != value}
