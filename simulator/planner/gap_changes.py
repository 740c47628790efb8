"""Single changes that may close a gap: what each sets, the flags for it, and what it does to answers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import log2

from simulator.planner.format_quality import AnswerQuality, answer_quality
from simulator.planner.search import Question
from simulator.planner.search_space import WIDE_SCHEMES
from simulator.planner.technique_axes import USUAL_DP_SIZES, USUAL_SPARSITY, USUAL_SPECULATION, has_experts
from simulator.specs.precision import Dtype, PrecisionSpec
from simulator.specs.techniques import TechniquesSpec
from simulator.specs.techniques_text import TechniquesText, techniques_spec

_NATIVE = PrecisionSpec()
_KEPT_SHARE = 1 / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GapState:
    """What differs from the question: any accelerator, engine limits, ranks of attention, formats, techniques."""

    any_hardware: bool = False
    any_limits: bool = False
    ranks: tuple[int, ...] | None = None
    weights: PrecisionSpec | None = None
    kv_cache: Dtype | None = None
    speculation: str | None = None
    sparsity: str | None = None
    kv_policy: str | None = None

    def joined(self, other: GapState) -> GapState:
        """This state with what ``other`` sets."""
        return GapState(**{item.name: getattr(other, item.name) or getattr(self, item.name) for item in fields(self)})

    def precision(self, asked: PrecisionSpec) -> PrecisionSpec:
        """The formats that were asked for, with what this state sets."""
        weights = self.weights
        merged = asked if weights is None else weights.model_copy(update={"kv_cache": asked.kv_cache})
        return merged if self.kv_cache is None else merged.model_copy(update={"kv_cache": self.kv_cache})

    def techniques(self, asked: TechniquesSpec) -> TechniquesSpec:
        """The techniques that were asked for, with what this state sets."""
        text = TechniquesText(speculation=self.speculation, sparsity=self.sparsity, kv_policy=self.kv_policy)
        added = techniques_spec(text)
        names = ("speculation", "sparsity", "kv_policy")
        return asked.model_copy(update={name: getattr(added, name) for name in names if getattr(added, name)})


@dataclass(frozen=True, slots=True, kw_only=True)
class GapChange:
    """One step away from a state. ``kind`` is what only one change can be of."""

    kind: str
    name: str
    flags: str
    state: GapState
    quality: AnswerQuality


def _change(question: Question, *, kind: str, name: str, flags: str, state: GapState) -> GapChange:
    quality = answer_quality(question.model, state.precision(_NATIVE), state.techniques(TechniquesSpec()))
    return GapChange(kind=kind, name=name, flags=flags, state=state, quality=quality)


def _weights_changes(question: Question) -> list[GapChange]:
    formats = [PrecisionSpec(scheme=name) for name in WIDE_SCHEMES] + [PrecisionSpec(weights=Dtype.INT8)]
    found = []
    for precision in formats:
        name = str(precision.scheme or precision.weights)
        flags = f"--scheme {precision.scheme}" if precision.scheme else f"--weights {precision.weights}"
        state = GapState(weights=precision)
        found.append(_change(question, kind="weights", name=f"{name} weights", flags=flags, state=state))
    return found


def _technique_changes(question: Question) -> list[GapChange]:
    spec, found = question.spec, []

    def add(kind: str, name: str, flags: str, state: GapState) -> None:
        found.append(_change(question, kind=kind, name=name, flags=flags, state=state))

    if not spec.speculation and question.demand.mix.decode_steps > 0:
        for method in USUAL_SPECULATION:
            add("speculation", f"{method} speculation", f"--speculation {method}", GapState(speculation=method))
    if not spec.dp and has_experts(question.model):
        flags = " ".join(f"--dp {size}" for size in (1, *USUAL_DP_SIZES))
        add("ranks", "data-parallel attention", flags, GapState(ranks=(1, *USUAL_DP_SIZES)))
    if not spec.sparsity:
        for pattern in USUAL_SPARSITY:
            add("sparsity", f"{pattern} sparse weights", f"--sparsity {pattern}", GapState(sparsity=pattern))
    kept = 2 ** int(log2(max(question.demand.mix.decode_context_tokens * _KEPT_SHARE, 1.0)))
    if not spec.kv_policy and question.demand.mix.decode_steps > 0:
        policy = f"h2o:{kept}"
        add("kv_policy", f"KV cache of {kept} tokens", f"--kv-policy {policy}", GapState(kv_policy=policy))
    return found


def gap_changes(question: Question) -> list[GapChange]:
    """Every single change that the question leaves open and its quality floor allows."""
    spec, found = question.spec, []
    found.append(
        _change(
            question,
            kind="limits",
            name="better engine limits",
            flags="--search wide",
            state=GapState(any_limits=True),
        )
    )
    if spec.hardware:
        state = GapState(any_hardware=True)
        found.append(_change(question, kind="hardware", name="other hardware", flags="no --hardware", state=state))
    found += _technique_changes(question)
    if not spec.kv_cache:
        state = GapState(kv_cache=Dtype.FP8)
        found.append(_change(question, kind="kv", name="fp8 KV cache", flags="--kv-cache fp8", state=state))
    if not (spec.weights or spec.scheme or spec.activations):
        found += _weights_changes(question)
    return [change for change in found if change.quality.within(spec.max_quality_loss)]
