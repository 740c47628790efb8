"""The drafter of a speculating replica: which model it is, where it runs, and what it takes of the memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from simulator.errors import RoofcastError, contradiction, missing_field
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.sustained import with_sustained_rates
from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.operators.model_counts import parameter_counts
from simulator.operators.parallelism import allowed_tp_sizes, kv_bytes_per_token
from simulator.operators.transformer import stored_bytes
from simulator.operators.work import prefill_step
from simulator.records import dataclass
from simulator.specs.base import Note, Same
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.model.architecture import RECURRENT_KINDS, ModelSpec
from simulator.specs.model.fitted import Drafter, speculation_table
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec
from simulator.techniques.applied import AppliedTechniques, RowRule, device_rows, with_rule
from simulator.techniques.speculation import drafters
from simulator.techniques.speculation.scenario import FIELD, SpeculationPlan

# Vocabularies of one tokenizer differ by padding rows; by more than this share they are different tokenizers.
PADDING_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a drafter with weights of its own differs in from the replica that it drafts for."""

    model: ModelSpec
    hardware: AcceleratorSpec
    parallelism: ParallelismSpec
    plan: PrecisionPlan
    kernels: KernelLibrary
    techniques: AppliedTechniques
    notes: tuple[Note, ...]

    def weights_bytes(self, plan: SpeculationPlan) -> float:
        """Weights of a device that the target does not hold already [bytes]."""
        return _drafter_bytes(self.techniques, self.parallelism, is_layer=plan.drafter is not Drafter.MODEL)

    def kv_bytes_per_token(self) -> float:
        """Cache of a device [bytes/token]."""
        degrees = self.parallelism
        return kv_bytes_per_token(self.model, plan=self.plan, tp_size=degrees.tp_size, cp_size=degrees.cp_size)


def prediction_heads(plan: SpeculationPlan, *, runs_published_code: bool) -> RowRule | None:
    """The rule that adds the target's own prediction heads, where the method has some."""
    if plan.drafter is Drafter.SEQUENTIAL:
        return drafters.SequentialHeads(widths=plan.head_widths)
    if plan.drafter is not Drafter.HEADS:
        return None
    return drafters.PredictionHeads(
        count=plan.k, own_vocabulary=plan.method != "blockwise", every_token=runs_published_code
    )


def speculation_notes(model: ModelSpec) -> tuple[Note, ...]:
    """What a reader should know about speculation of ``model``."""
    recurrent = any(layer.mixer is not None and layer.mixer.kind in RECURRENT_KINDS for layer in model.layers)
    return (Note("states_go_back"),) if recurrent else ()


@lru_cache(maxsize=64)
def _drafter_bytes(techniques: AppliedTechniques, parallelism: ParallelismSpec, *, is_layer: bool) -> float:
    """Whatever the accelerator: searches ask again and again."""
    rows = device_rows(techniques, parallelism=parallelism, step=prefill_step(sequences=1, tokens=1))
    shared = drafters.SHARED_ROLES if is_layer else frozenset()
    return stored_bytes(tuple(row for row in rows if row.role not in shared))


def draft_of(
    spec: SpeculationSpec,
    plan: SpeculationPlan,
    *,
    model: ModelSpec,
    formats: PrecisionPlan,
    hardware: AcceleratorSpec,
    kernels: KernelLibrary,
    parallelism: ParallelismSpec,
    profiles: str | None,
) -> Draft | None:
    """The drafter of the target ``model`` spread by ``parallelism``, where it has weights outside the forward pass."""
    if plan.drafter is Drafter.PREDICTION:
        return _prediction_layer(model, formats=formats, hardware=hardware, kernels=kernels, parallelism=parallelism)
    if plan.drafter not in (Drafter.MODEL, Drafter.LAYER):
        return None
    is_layer = plan.drafter is Drafter.LAYER and spec.draft_model is None
    tp_size = parallelism.tp_size
    target = formats.activation_dtype
    math = target if target in (Dtype.BF16, Dtype.FP16) else Dtype.BF16
    draft = _layer_of(Same(model)) if is_layer else _draft_model(model, spec, profiles=profiles)
    notes = [] if is_layer else _check_pair(model, draft)
    applied = _in_one_format(Same(draft), math)
    together = plan.draft_device == "same" and tp_size in allowed_tp_sizes(draft)
    if spec.draft_hardware is not None:
        hardware = load_hardware(spec.draft_hardware, profiles=profiles)
        kernels = with_sustained_rates(kernel_library(hardware, library=kernels.library, profiles=profiles))
    if plan.draft_device == "cpu":
        notes.append(Note("draft_on_host", {"host": drafters.XEON_8480C.name}))
    return Draft(
        model=draft,
        hardware=hardware,
        parallelism=ParallelismSpec(tp_size=tp_size if together else 1),
        plan=applied.plan,
        kernels=kernels,
        techniques=with_rule(applied, drafters.join_features) if is_layer else applied,
        notes=tuple(notes),
    )


@lru_cache(maxsize=64)
def _layer_of(target: Same[ModelSpec]) -> ModelSpec:
    return drafters.draft_layer_model(target.held)


@lru_cache(maxsize=64)
def _in_one_format(draft: Same[ModelSpec], math: Dtype) -> AppliedTechniques:
    formats = precision_plan(draft.held, PrecisionSpec(weights=math, activations=math))
    return AppliedTechniques(spec=TechniquesSpec(), model=draft.held, plan=formats)


# Checkpoints in these formats keep their prediction layers in 16 bit: engines load them so (SGLang's
# models/deepseek_nextn.py drops the quantization of modelopt_fp4 there; from memory, verify).
_PLAIN_PREDICTION = frozenset({"nvfp4"})


def _prediction_layer(
    model: ModelSpec,
    *,
    formats: PrecisionPlan,
    hardware: AcceleratorSpec,
    kernels: KernelLibrary,
    parallelism: ParallelismSpec,
) -> Draft:
    """The checkpoint's prediction layer: a decoder layer in the target's formats, spread as the target's layers are."""
    if formats.linear.name in _PLAIN_PREDICTION:
        formats = replace(
            formats,
            weights=formats.activation_dtype,
            activations=formats.activation_dtype,
            linear=formats.plain,
            quantised_roles=frozenset(),
            role_formats=(),
        )
    layer = _layer_of(Same(model))
    applied = AppliedTechniques(spec=TechniquesSpec(), model=layer, plan=formats)
    return Draft(
        model=layer,
        hardware=hardware,
        parallelism=parallelism.model_copy(update={"pp_size": 1}),
        plan=formats,
        kernels=kernels,
        techniques=with_rule(applied, drafters.join_features),
        notes=(),
    )


def _draft_model(target: ModelSpec, spec: SpeculationSpec, *, profiles: str | None) -> ModelSpec:
    if spec.draft_model is not None:
        try:
            return load_model(spec.draft_model, profiles=profiles)
        except RoofcastError as error:
            error.field = f"{FIELD}.draft_model"
            raise
    usual = next(
        (draft for start, draft in speculation_table().usual_drafts.items() if target.profile.startswith(start)), None
    )
    if usual is None or usual == target.profile:
        raise missing_field(
            f"{target.name} has no usual draft model; method {spec.method} needs one",
            field=f"{FIELD}.draft_model",
            hint="name a small model with the same vocabulary, or take method ngram",
        )
    return load_model(usual, profiles=profiles)


def _check_pair(target: ModelSpec, draft: ModelSpec) -> list[Note]:
    """Refuse a draft with another vocabulary; note one that is no smaller."""
    difference = abs(draft.vocab_size - target.vocab_size)
    if difference > PADDING_SHARE * target.vocab_size:
        raise contradiction(
            f"{draft.name} has {draft.vocab_size} tokens and {target.name} {target.vocab_size}: guesses must be tokens "
            "of the target",
            field=f"{FIELD}.draft_model",
            hint="choose a draft model with the target's tokenizer",
        )
    notes = []
    if difference:
        notes.append(Note("vocabularies_padded", {"draft": draft.name, "target": target.name}))
    if parameter_counts(draft).total >= parameter_counts(target).total:
        notes.append(Note("draft_no_smaller", {"draft": draft.name, "target": target.name}))
    return notes
