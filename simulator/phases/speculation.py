"""Speculation of one replica: its plan, the deployment of its drafter, and what that takes of the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from simulator.errors import RoofcastError
from simulator.kernels.library import kernel_library
from simulator.kernels.sustained import with_sustained_rates
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.kv_layout import kv_bytes_per_token
from simulator.operators.linear import allowed_tp_sizes
from simulator.operators.step_shape import prefill_step
from simulator.operators.transformer import parameter_counts, stored_bytes
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec
from simulator.techniques.applied import AppliedTechniques, device_rows, with_rule
from simulator.techniques.speculation.drafters import (
    SHARED_ROLES,
    XEON_8480C,
    PredictionHeads,
    draft_layer_model,
    join_features,
)
from simulator.techniques.speculation.methods import USUAL_DRAFTS, Drafter
from simulator.techniques.speculation.scenario import FIELD, SpeculationPlan, speculation_plan

if TYPE_CHECKING:
    from simulator.phases.deployment import Deployment, EngineSettings

# Vocabularies of one tokenizer differ by padding rows; by more than this share they are different tokenizers.
PADDING_SHARE = 0.01
# The engines that run a method as its authors published it.
FRAMEWORKS = ("torch", "torch-eager")
RECURRENT = ("mamba", "mamba2", "gated_delta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How a replica speculates.

    draft : the drafter as a deployment of its own, where it has weights outside the target's forward pass
    weights_bytes, kv_bytes_per_token : what the drafter takes of a device of the target
    plain : the replica's techniques without prediction heads, for steps that do not speculate
    """

    spec: SpeculationSpec
    plan: SpeculationPlan
    draft: Deployment | None
    weights_bytes: float
    kv_bytes_per_token: float
    plain: AppliedTechniques
    notes: tuple[str, ...]


def with_speculation(deployment: Deployment, *, profiles: str | None = None) -> Deployment:
    """``deployment`` with the speculation that its techniques ask for, or as it is."""
    spec = deployment.techniques.spec.speculation
    if spec is None:
        return deployment
    plan = speculation_plan(spec, model=deployment.model, framework=deployment.engine.name in FRAMEWORKS)
    draft, notes = _draft(deployment, spec, plan, profiles=profiles)
    techniques = deployment.techniques
    if plan.drafter is Drafter.HEADS:
        heads = PredictionHeads(
            count=plan.k,
            own_vocabulary=plan.method != "blockwise",
            every_token=deployment.engine.name in FRAMEWORKS,
        )
        techniques = with_rule(techniques, heads)
    resident = draft is not None and plan.draft_device == "same"
    speculation = Speculation(
        spec=spec,
        plan=plan,
        draft=draft,
        weights_bytes=_own_weights_bytes(draft, plan) if draft is not None and resident else 0.0,
        kv_bytes_per_token=_kv_bytes(draft) if draft is not None and resident else 0.0,
        plain=deployment.techniques,
        notes=(*notes, *_recurrent_notes(deployment.model)),
    )
    return replace(
        deployment,
        speculation=speculation,
        techniques=techniques,
        assumptions=(*deployment.assumptions, *plan.assumptions),
    )


def _recurrent_notes(model: ModelSpec) -> tuple[str, ...]:
    recurrent = any(layer.mixer is not None and layer.mixer.kind in RECURRENT for layer in model.layers)
    said = "recurrent states have to go back to the last accepted token after each round; that is not priced"
    return (said,) if recurrent else ()


def without_speculation(deployment: Deployment) -> Deployment:
    """The same replica decoding one token at a time, without its drafter."""
    if deployment.speculation is None:
        return deployment
    return replace(deployment, speculation=None, techniques=deployment.speculation.plain)


def _own_weights_bytes(draft: Deployment, plan: SpeculationPlan) -> float:
    return _drafter_bytes(draft.techniques, draft.parallelism, plan.drafter)


@lru_cache(maxsize=64)
def _drafter_bytes(techniques: AppliedTechniques, parallelism: ParallelismSpec, drafter: Drafter) -> float:
    """Whatever the accelerator: searches ask again and again."""
    rows = device_rows(techniques, parallelism=parallelism, step=prefill_step(sequences=1, tokens=1))
    shared = SHARED_ROLES if drafter is Drafter.LAYER else frozenset()
    return stored_bytes(tuple(row for row in rows if row.role not in shared))


def _kv_bytes(draft: Deployment) -> float:
    return kv_bytes_per_token(draft.model, plan=draft.plan, tp_size=draft.parallelism.tp_size)


def _draft(
    deployment: Deployment, spec: SpeculationSpec, plan: SpeculationPlan, *, profiles: str | None
) -> tuple[Deployment | None, tuple[str, ...]]:
    if plan.drafter not in (Drafter.MODEL, Drafter.LAYER):
        return None, ()
    is_layer = plan.drafter is Drafter.LAYER and spec.draft_model is None
    target = deployment.plan.activation_dtype
    math = target if target in (Dtype.BF16, Dtype.FP16) else Dtype.BF16
    model = draft_layer_model(deployment.model) if is_layer else _draft_model(deployment.model, spec, profiles=profiles)
    notes = [] if is_layer else _check_pair(deployment.model, model)
    number_formats = precision_plan(model, PrecisionSpec(weights=math, activations=math))
    applied = AppliedTechniques(spec=TechniquesSpec(), model=model, plan=number_formats)
    degree = deployment.parallelism.tp_size
    if plan.draft_device != "same" or degree not in allowed_tp_sizes(model):
        degree = 1
    hardware, kernels = deployment.hardware, deployment.kernels
    if spec.draft_hardware is not None:
        hardware = load_hardware(spec.draft_hardware, profiles=profiles)
        kernels = with_sustained_rates(kernel_library(hardware, library=kernels.library, profiles=profiles))
    if plan.draft_device == "cpu":
        notes.append(f"the draft runs on one {XEON_8480C.name} (assumed host), priced by its roofline")
    draft = replace(
        deployment,
        model=model,
        hardware=hardware,
        parallelism=ParallelismSpec(tp_size=degree),
        plan=number_formats,
        engine=_inside_a_step(deployment.engine),
        kernels=kernels,
        techniques=with_rule(applied, join_features) if is_layer else applied,
        assumptions=(),
        speculation=None,
    )
    return draft, tuple(notes)


def _inside_a_step(engine: EngineSettings) -> EngineSettings:
    """A serving engine drafts inside its step: scheduling is paid once, with the verify step."""
    if engine.eager:
        return engine
    overheads = engine.overheads.model_copy(update={"step_s": 0.0, "step_per_sequence_s": 0.0})
    return replace(engine, overheads=overheads)


def _draft_model(target: ModelSpec, spec: SpeculationSpec, *, profiles: str | None) -> ModelSpec:
    if spec.draft_model is not None:
        try:
            return load_model(spec.draft_model, profiles=profiles)
        except RoofcastError as error:
            error.field = f"{FIELD}.draft_model"
            raise
    usual = next((draft for start, draft in USUAL_DRAFTS if target.name.startswith(start)), None)
    if usual is None or usual == target.name:
        raise RoofcastError(
            f"{target.name} has no usual draft model; method {spec.method} needs one",
            field=f"{FIELD}.draft_model",
            code="missing_field",
            hint="name a small model with the same vocabulary, or take method ngram",
        )
    return load_model(usual, profiles=profiles)


def _check_pair(target: ModelSpec, draft: ModelSpec) -> list[str]:
    """Refuse a draft with another vocabulary; note one that is no smaller."""
    difference = abs(draft.vocab_size - target.vocab_size)
    if difference > PADDING_SHARE * target.vocab_size:
        raise RoofcastError(
            f"{draft.name} has {draft.vocab_size} tokens and {target.name} {target.vocab_size}: guesses must be tokens "
            "of the target",
            field=f"{FIELD}.draft_model",
            code="contradiction",
            hint="choose a draft model with the target's tokenizer",
        )
    notes = []
    if difference:
        notes.append(f"{draft.name} and {target.name} pad their vocabularies differently; taken as one tokenizer")
    if parameter_counts(draft).total >= parameter_counts(target).total:
        notes.append(f"the draft {draft.name} is no smaller than {target.name}: it cannot pay")
    return notes
