"""One replica, fully resolved: every default filled in, and said."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from simulator.errors import RoofcastError
from simulator.kernels.library import KernelLibrary
from simulator.kernels.sustained import engine_kernels
from simulator.operators.formats.schemes import multiplied_dtypes, on_chip
from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.operators.parallelism import check_parallelism
from simulator.operators.transformer import is_encoder_only
from simulator.phases.engine_settings import EngineSettings, engine_assumptions, engine_settings, kernel_assumptions
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, Same, ValueOrigin
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineProfile, EngineSpec, load_engine, with_feature, with_model
from simulator.specs.engine.releases import EngineLimits, LimitField, ServedModel
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, default_server_for
from simulator.specs.hardware.calibration import calibrations_changed_ns
from simulator.specs.model.architecture import LayerSpec, MlaSpec, ModelSpec, MoeSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec
from simulator.techniques.applied import AppliedTechniques, check_on_engine, shares_prefixes, with_rule

if TYPE_CHECKING:
    from simulator.phases.speculation import Draft
    from simulator.techniques.speculation.scenario import SpeculationPlan


_NO_TECHNIQUES = TechniquesSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model on devices under an engine: what a step estimate needs, and nothing it has to look up.

    model, plan : after every technique, as ``techniques`` holds them
    """

    model: ModelSpec
    hardware: AcceleratorSpec
    parallelism: ParallelismSpec
    plan: PrecisionPlan
    engine: EngineSettings
    kernels: KernelLibrary
    techniques: AppliedTechniques
    assumptions: tuple[Assumption, ...]
    speculation: Speculation | None = None


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
    notes: tuple[Note, ...]


def _formats(plan: PrecisionPlan, asked: PrecisionSpec, taken: PrecisionSpec) -> tuple[Assumption, ...]:
    own = (
        ()
        if taken.scheme in (None, asked.scheme)
        else (Note("chips_own", {"asked": asked.scheme or asked.weights, "taken": taken.scheme}),)
    )
    return tuple(Assumption(key="precision", origin=ValueOrigin.RULE, detail=note) for note in plan.assumptions + own)


def _check_math(plan: PrecisionPlan, hardware: AcceleratorSpec) -> None:
    needed = {plan.format_for(role).math for role in ("attention", "mlp", "experts")}
    needed |= {product.math for _, product in plan.role_formats}
    for dtype in sorted(needed - set(hardware.peak_flops_per_s)):
        have = ", ".join(sorted(hardware.peak_flops_per_s))
        raise RoofcastError(
            f"{hardware.name} has no {dtype} matrix units; it has {have}",
            field="precision.activations",
            code="unsupported_dtype",
            hint="weight-only formats (int4 or int8 weights with bf16 activations) run everywhere"
            if dtype in (Dtype.FP8, Dtype.FP4)
            else "choose one of those",
        )


# What replicas of one question share is resolved once: formats and engines, as kernels are.
@lru_cache(maxsize=512)
def _plan(
    model: Same[ModelSpec],
    precision: PrecisionSpec,
    multiplied: Collection[Dtype],
    engine: Same[EngineProfile],
    version: str | None,
) -> PrecisionPlan:
    profile = engine.held
    return precision_plan(
        model.held,
        precision,
        multiplied=multiplied,
        checkpoint_cache=profile.follows_checkpoint_cache(version),
        fp8_of_modelopt=profile.fp8_of_modelopt,
        own_kernels=profile.format_kernels,
    )


@lru_cache(maxsize=256)
def _engine_on(
    profile: Same[EngineProfile], version: str | None, hardware: Same[AcceleratorSpec], served: ServedModel
) -> Same[EngineProfile]:
    vendor, host_speed = hardware.held.vendor, hardware.held.host_speed
    return Same(profile.held.at(version).serving(served).on_vendor(vendor, version=version).on_host(host_speed))


def _served(model: ModelSpec, parallelism: ParallelismSpec, *, prefill_pool: bool) -> ServedModel:
    latent = any(isinstance(layer.mixer, MlaSpec) for layer in model.layers)
    return ServedModel(model.model_type, latent, spread=parallelism.ep_size > 1, prefill_pool=prefill_pool)


def _as_engine_routes(
    applied: AppliedTechniques, profile: EngineProfile, *, hardware: AcceleratorSpec, ep_size: int
) -> AppliedTechniques:
    """``applied``, its experts placed evenly where the engine's recipes do that for so many ranks, and chosen as the
    engine's own answers were found to choose them; both are said, the second where the question leaves it open."""
    if not applied.model.has_experts:
        return applied
    # Models without experts leave the tables of routing and guesses unread.
    from simulator.specs.model.fitted import load_routing_fit, routing_skew

    even = profile.recipe.even_ranks.get(hardware.architecture, {})
    said, update = applied.assumptions, dict[str, object]()
    open_ = all(block.placed_evenly is None for block in _experts(applied.model))
    if open_ and ep_size >= even.get(applied.plan.format_for("experts").name, inf):
        said = (*said, Assumption(key="engine.expert_placement", value="even", origin=ValueOrigin.RULE))
        update["placed_evenly"] = True
    skew = load_routing_fit().engines.get(profile.name, {}).get(applied.model.model_type)
    if skew is not None:
        update["fitted_skew"] = skew
    model = _with_experts(Same(applied.model), tuple(update.items())).held if update else applied.model
    key = "techniques.structure.routing_skew"
    chosen = {routing_skew(one) for one in _experts(model) if one.routing_skew is None}
    said += tuple(Assumption(key=key, value=one, origin=ValueOrigin.FITTED) for one in sorted(chosen))
    return replace(applied, model=model, assumptions=said)


def _experts(model: ModelSpec) -> list[MoeSpec]:
    return [block for layer in model.layers for block in layer.feed_forward if isinstance(block, MoeSpec)]


@lru_cache(maxsize=64)
def _with_experts(model: Same[ModelSpec], update: tuple[tuple[str, object], ...]) -> Same[ModelSpec]:
    def changed(layer: LayerSpec) -> LayerSpec:
        blocks = layer.feed_forward
        other = (one.model_copy(update=dict(update)) if isinstance(one, MoeSpec) else one for one in blocks)
        return layer.model_copy(update={"feed_forward": tuple(other)})

    return Same(model.held.model_copy(update={"layers": tuple(map(changed, model.held.layers))}))


@lru_cache(maxsize=512)
def _limits(
    profile: Same[EngineProfile], spec: EngineSpec, hardware: Same[AcceleratorSpec], parallelism: ParallelismSpec
) -> EngineLimits:
    return profile.held.limits(spec, hardware=hardware.held, parallelism=parallelism)


def _applied(
    spec: TechniquesSpec, *, model: ModelSpec, plan: PrecisionPlan, hardware: AcceleratorSpec
) -> AppliedTechniques:
    if spec == _NO_TECHNIQUES:
        return AppliedTechniques(spec=spec, model=model, plan=plan)
    from simulator.techniques.registry import apply_techniques

    return apply_techniques(spec, model=model, plan=plan, hardware=hardware)


def deploy(
    *,
    model: ModelSpec,
    hardware: AcceleratorSpec,
    parallelism: ParallelismSpec | None = None,
    precision: PrecisionSpec | None = None,
    engine: EngineSpec | None = None,
    techniques: TechniquesSpec | None = None,
    profiles: str | None = None,
    prefill_pool: bool = False,
) -> Deployment:
    """Resolve a replica (``prefill_pool``: of prompts alone), or refuse a dtype or a TP degree that is not possible."""
    parallelism, spec, asked = parallelism or ParallelismSpec(), engine or EngineSpec(), precision or PrecisionSpec()
    taken = on_chip(asked, model=model, hardware=hardware)
    named = load_engine(spec.name, profiles=profiles)
    plan = _plan(Same(model), taken, multiplied_dtypes(model, hardware), Same(named), spec.version)
    applied = _applied(techniques or _NO_TECHNIQUES, model=model, plan=plan, hardware=hardware)
    model, plan = applied.model, applied.plan
    check_parallelism(model, parallelism)
    _check_math(plan, hardware)
    spec = with_model(spec, model.model_type, profiles=profiles)
    if applied.spec.speculation is not None:
        spec = with_feature(spec, "speculation", vendor=hardware.vendor, profiles=profiles)
    facts, served = Same(hardware), _served(model, parallelism, prefill_pool=prefill_pool)
    profile = _engine_on(Same(load_engine(spec.name, profiles=profiles)), spec.version, facts, served)
    applied = _as_engine_routes(applied, profile.held, hardware=hardware, ep_size=parallelism.ep_size)
    model = applied.model
    limits = _limits(profile, spec, facts, parallelism)
    settings = engine_settings(spec, profile=profile.held, limits=limits, model=model)
    check_on_engine(
        applied.spec,
        engine=settings.name,
        fused=not settings.eager,
        max_model_len=settings.max_model_len,
        ep_size=parallelism.ep_size,
    )
    # Where tokens see those behind them, a prompt that begins alike has nothing in common with another.
    if not shares_prefixes(applied.spec) or model.encoder is not None or is_encoder_only(model):
        settings = replace(settings, prefix_caching=False)
    said = engine_assumptions(spec, settings, limits, profile=profile.held, vendor=hardware.vendor)
    if spec.kv_tiers or spec.cpu_kv_offload or spec.cpu_kv_offload_bytes is not None:
        from simulator.phases.kv_tiers import kv_tiers, tier_assumptions

        tiers = kv_tiers(spec, settings.prefix_caching, hardware=hardware, parallelism=parallelism, profiles=profiles)
        settings = replace(settings, kv_tiers=tiers)
        said += tier_assumptions(spec, tiers)
    server = _server_of_replica(hardware, parallelism, profiles=profiles)
    kernels = engine_kernels(profile, facts, Same(server), profiles, calibrations_changed_ns(profiles))
    said += kernel_assumptions(kernels.traits, model=model, parallelism=parallelism, plan=plan)
    replica = Deployment(
        model=model,
        hardware=hardware,
        parallelism=parallelism,
        plan=plan,
        engine=settings,
        kernels=kernels,
        techniques=applied,
        assumptions=(*_formats(plan, asked, taken), *applied.assumptions, *said, *_joining(hardware, server)),
    )
    return _within_budget(with_speculation(replica, profiles=profiles), spec)


def _server_of_replica(
    hardware: AcceleratorSpec, parallelism: ParallelismSpec, *, profiles: str | None
) -> ServerSpec | None:
    """The server whose network a replica needs; None where one scale-up link joins all of it."""
    linked = parallelism.devices <= hardware.scale_up.domain_size
    return None if linked else default_server_for(hardware.name, profiles=profiles)


def _joining(hardware: AcceleratorSpec, server: ServerSpec | None) -> tuple[Assumption, ...]:
    """That server, and what its links join; nothing without one."""
    if server is None:
        return ()
    joined = tuple((link.kind, link.domain_size) for link in (hardware.scale_up, server.peer_link) if link)
    links = Note("server_links", {"joined": joined, "network": server.network})
    return (Assumption(key="server", value=server.name, origin=ValueOrigin.RULE, detail=links),)


def assumed_of_pools(prefill: Deployment, decode: Deployment) -> tuple[Assumption, ...]:
    """What was filled in of both pools, what they share once."""
    ahead, after = prefill.assumptions, decode.assumptions
    return (
        *(item for item in after if item in ahead),
        *(replace(item, pool="prefill") for item in ahead if item not in after),
        *(replace(item, pool="decode") for item in after if item not in ahead),
    )


def with_speculation(deployment: Deployment, *, profiles: str | None = None) -> Deployment:
    """``deployment`` with the speculation that its techniques ask for, or as it is."""
    techniques, engine = deployment.techniques, deployment.engine
    spec = techniques.spec.speculation
    if spec is None:
        return deployment
    # Most deployments do not speculate, and its methods take their time to import.
    from simulator.phases.speculation import draft_of, prediction_heads, speculation_notes
    from simulator.techniques.speculation.scenario import speculation_plan

    plan = speculation_plan(spec, model=deployment.model, framework=engine.runs_published_code)
    draft = draft_of(
        spec,
        plan,
        model=deployment.model,
        formats=deployment.plan,
        hardware=deployment.hardware,
        kernels=deployment.kernels,
        parallelism=deployment.parallelism,
        profiles=profiles,
    )
    heads = prediction_heads(plan, runs_published_code=engine.runs_published_code)
    resident = draft is not None and plan.draft_device == "same"
    speculation = Speculation(
        spec=spec,
        plan=plan,
        draft=None if draft is None else _drafting(deployment, draft),
        weights_bytes=draft.weights_bytes(plan) if draft is not None and resident else 0.0,
        kv_bytes_per_token=draft.kv_bytes_per_token() if draft is not None and resident else 0.0,
        plain=techniques,
        notes=(*(() if draft is None else draft.notes), *speculation_notes(deployment.model)),
    )
    return replace(
        deployment,
        speculation=speculation,
        techniques=techniques if heads is None else with_rule(techniques, heads),
        assumptions=(*deployment.assumptions, *plan.assumptions),
    )


def _drafting(deployment: Deployment, draft: Draft) -> Deployment:
    """The drafter as a deployment: it drafts inside the engine's step, whose scheduling is paid once."""
    engine = replace(deployment.engine, sampled_logits=0)
    if not engine.eager:
        paid_once = dict.fromkeys(("step_s", "step_per_sequence_s", "step_per_prompt_s"), 0.0)
        overheads = engine.overheads.model_copy(update=paid_once)
        engine = replace(engine, overheads=overheads)
    return replace(
        deployment,
        model=draft.model,
        hardware=draft.hardware,
        parallelism=draft.parallelism,
        plan=draft.plan,
        engine=engine,
        kernels=draft.kernels,
        techniques=draft.techniques,
        assumptions=(),
        speculation=None,
    )


def without_speculation(deployment: Deployment) -> Deployment:
    """A replica that decodes one token at a time, without its drafter."""
    if deployment.speculation is None:
        return deployment
    return replace(deployment, speculation=None, techniques=deployment.speculation.plain)


def _within_budget(replica: Deployment, spec: EngineSpec) -> Deployment:
    """Default limits that go together, as engines derive them: every running sequence takes its tokens of each step,
    and no step takes more than all sequences at their longest. What the user gave stays; where both were given and
    contradict each other, the scheduler refuses them."""
    engine = replica.engine
    verify = 1 if replica.speculation is None else replica.speculation.plan.verify_tokens
    needed, most = engine.max_num_seqs * verify, engine.max_num_seqs * engine.max_model_len
    if spec.max_num_batched_tokens is None and engine.max_num_batched_tokens > most >= needed:
        capped = replace(engine, max_num_batched_tokens=most)
        return _derived(replica, "max_num_batched_tokens", engine=capped, detail=Note("all_at_longest"))
    if engine.max_num_batched_tokens >= needed:
        return replica
    if spec.max_num_seqs is None and engine.max_num_batched_tokens >= verify:
        fitting = replace(engine, max_num_seqs=engine.max_num_batched_tokens // verify)
        return _derived(replica, "max_num_seqs", engine=fitting, detail=verify)
    if spec.max_num_batched_tokens is None:
        enough = replace(engine, max_num_batched_tokens=needed)
        return _derived(replica, "max_num_batched_tokens", engine=enough, detail=verify)
    return replica


def _derived(replica: Deployment, field: LimitField, *, engine: EngineSettings, detail: object) -> Deployment:
    """The replica with a limit that follows from the others."""
    derived = Assumption(key=f"engine.{field}", value=getattr(engine, field), origin=ValueOrigin.RULE, detail=detail)
    kept = (item for item in replica.assumptions if item.key != derived.key)
    return replace(replica, engine=engine, assumptions=(*kept, derived))
