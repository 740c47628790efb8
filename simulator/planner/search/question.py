"""A plan's question, resolved: model, demand, objectives, prices, assumptions, and the axes that it leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, product
from math import inf
from statistics import NormalDist
from typing import TYPE_CHECKING

from simulator.engine.pools import HAND_OVER_S
from simulator.errors import Option, RoofcastError, no_effect
from simulator.operators.formats.schemes import fp4_scheme
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.parallelism import allowed_tp_sizes, kv_bytes_per_token
from simulator.operators.parallelism import check_parallelism as check_degrees
from simulator.operators.transformer import is_encoder_only
from simulator.planner.demand import HOLDS_ALL, read_demand, read_objectives, step_for_whole
from simulator.planner.fleet.records import DEFAULT_SPARES, Fleet
from simulator.planner.money.market import check_rule, plan_rule
from simulator.planner.records import Demand, Platform, SearchSpace, Variant
from simulator.planner.search.candidates import (
    LARGE_TP_SIZES,
    USUAL_TP_SIZES,
    check_parallelism,
    check_power_cap,
    check_precision,
    dp_sizes,
    engine_on,
    platforms,
    precisions,
    spread,
    technique_choices,
)
from simulator.planner.serving.replica import LoadPolicy, check_context
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, engine_limits, load_engine
from simulator.specs.hardware.accelerator import list_hardware
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.money.prices import PriceProfile, load_prices
from simulator.specs.question.plan import FLEET_LIMITS, PlanSpec, asked_tiers
from simulator.specs.question.plan_values import PLANNED_MODEL, ObjectiveSpec
from simulator.techniques.quality import answer_quality
from simulator.units import MICRO

if TYPE_CHECKING:
    from simulator.specs.money.ownership import OwnershipProfile

# A replica is loaded until an objective would fail. Where none does before, up to the share of its saturation rate to
# which the steady state agrees with the event simulation (see ``steady_state``).
DEFAULT_UTILIZATION = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A plan's inputs, resolved. least_tokens : of steps that hold every request, 0 where the engine splits prompts."""

    spec: PlanSpec
    model: ModelSpec
    demand: Demand
    objectives: tuple[ObjectiveSpec, ...]
    policy: LoadPolicy
    prices: PriceProfile
    assumptions: tuple[Assumption, ...]
    least_tokens: int = 0

    @property
    def ownership(self) -> OwnershipProfile:
        """Figures of owning: those that were asked for, else the price list's, else the default ones."""
        from simulator.specs.money.ownership import load_ownership

        return load_ownership(self.spec.ownership, prices=self.prices.name, profiles=self.spec.profiles)

    @property
    def serving(self) -> tuple[str, ...]:
        """Shapes to compare; aggregated where nothing was asked."""
        return self.spec.serving or ("aggregated",)

    @property
    def has_limits(self) -> bool:
        """Whether the whole fleet has a limit of devices, money, power or racks."""
        spec = self.spec
        return any(getattr(spec, limit) is not None for limit in FLEET_LIMITS)


def _read_prices(spec: PlanSpec) -> PriceProfile:
    """The price list, whose rule is known; figures of owning that only a report uses are read as well."""
    prices = load_prices(spec.prices or "default", profiles=spec.profiles)
    check_rule(prices, rule=plan_rule(spec))
    if spec.ownership is not None:
        from simulator.specs.money.ownership import load_ownership

        load_ownership(spec.ownership, prices=prices.name, profiles=spec.profiles)
    return prices


def resolve(spec: PlanSpec) -> Question:
    """Load the model and prices, measure the demand, and list everything that was not given.

    Raises RoofcastError, ProfileError, FileError: a name is unknown, a value out of range, a file unreadable.
    """
    named = _recorded_model(spec)
    asked = (named or PLANNED_MODEL) if spec.model is None else spec.model
    model = load_model(asked, profiles=spec.profiles)
    context = spec.max_model_len or model.max_position_embeddings or inf
    below_tokens = tier_tokens(spec, model=model)
    demand = read_demand(spec, context_tokens=context, encodes=is_encoder_only(model), below_tokens=below_tokens)
    if spec.images_per_request is not None:
        from simulator.operators.vision import with_pictures

        model = with_pictures(
            model,
            images_per_request=spec.images_per_request,
            image_pixels=spec.image_pixels,
            prompt_tokens=demand.mix.isl.mean_tokens,
        )
    objectives, objective_source = read_objectives(spec, mix=demand.mix)
    prices = _read_prices(spec)
    check_parallelism(spec, model=model)
    check_precision(spec, model=model)
    check_power_cap(spec)
    _check_uptime(spec)
    check_context(model, mix=demand.mix, max_model_len=spec.max_model_len)
    utilization = spec.utilization or DEFAULT_UTILIZATION
    least_tokens, budget = step_for_whole(spec, mix=demand.mix, objectives=objectives)
    return Question(
        spec=spec.model_copy(update={"max_num_batched_tokens": budget}) if budget else spec,
        least_tokens=least_tokens,
        model=model,
        demand=demand,
        objectives=objectives,
        policy=LoadPolicy(
            utilization=utilization,
            deviate=NormalDist().inv_cdf(spec.confidence / 100),
            profiles=spec.profiles,
            max_quality_loss=spec.max_quality_loss,
        ),
        prices=prices,
        assumptions=(
            Assumption(key="model", value=model.name, origin=_model_origin(spec, named), detail=model.profile or None),
            *((Assumption(key="checkpoint", detail=model.assumption),) if model.assumption else ()),
            *(() if spec.images_per_request is None else (Assumption(key="pictures", detail=model.notes[-1]),)),
            *demand.assumptions,
            objective_source,
            Assumption(key="utilization", value=utilization, origin=_origin(spec.utilization)),
            Assumption(
                key="confidence", value=spec.confidence, origin=_origin("confidence" in spec.model_fields_set or None)
            ),
            _spares_assumption(spec),
            *_limit_assumptions(spec),
            *((Assumption(key="engine.max_num_batched_tokens", value=budget, detail=HOLDS_ALL),) if budget else ()),
            *_tier_assumption(spec),
            *_hardware_assumption(spec),
            Assumption(key="prices", value=prices, origin=_origin(spec.prices), detail=plan_rule(spec)),
        ),
    )


def _check_uptime(spec: PlanSpec) -> None:
    """Refuse accelerators that hardly ever work: a billion times as many would have to stand by."""
    if spec.availability is None:
        return
    from simulator.planner.fleet.availability import DEFAULT_MTTR_HOURS, DEVICE_MTBF_HOURS

    mtbf_hours, mttr_hours = spec.mtbf_hours or DEVICE_MTBF_HOURS, spec.mttr_hours or DEFAULT_MTTR_HOURS
    up = mtbf_hours / (mtbf_hours + mttr_hours)
    if up < MICRO:
        raise RoofcastError(
            f"with repairs of {mttr_hours:g} h an accelerator that fails every {mtbf_hours:g} h works {up:.1g} of the "
            f"time, too little to plan with",
            field=Option("mtbf_hours"),
            hint=f"at least {mttr_hours * MICRO:.3g}",
        )


def check_decodes(question: Question, option: str) -> None:
    """Refuse pools where nothing is decoded; ``option`` asks for them."""
    if question.demand.mix.decode_steps < 1:
        raise no_effect(
            "answers of one token leave nothing to decode", field=Option(option), hint="`osl_tokens` above 1"
        )


def _recorded_model(spec: PlanSpec) -> str | None:
    """The model that the trace names, where it names one."""
    if spec.trace is None:
        return None
    from simulator.traffic.recorded.traces import read_trace

    return read_trace(spec.trace).model


def _model_origin(spec: PlanSpec, recorded: str | None) -> ValueOrigin:
    return ValueOrigin.TRACE if spec.model is None and recorded else _origin(spec.model)


def _hardware_assumption(spec: PlanSpec) -> tuple[Assumption, ...]:
    """A search over everything says what it leaves out."""
    if spec.hardware:
        return ()
    every, offered = list_hardware(profiles=spec.profiles), [item.hardware.name for item in platforms(spec)]
    left_out = tuple(name for name in every if name not in offered)
    return (Assumption(key="hardware", value=left_out, origin=ValueOrigin.DEFAULT, detail=f"{len(offered)}"),)


def price_assumptions(fleet: Fleet) -> tuple[Assumption, ...]:
    """What an hour of each of its accelerators costs, and by whose offers."""
    cost = fleet.cost
    return tuple(
        Assumption(key="price", value=price, origin=ValueOrigin.RULE, detail=cost.currency) for price in cost.prices
    )


def hand_over_assumption(fleet: Fleet) -> tuple[Assumption, ...]:
    """What a request takes between two pools beside its cache's way."""
    if fleet.prefill is None:
        return ()
    return (Assumption(key="hand_over_s", value=HAND_OVER_S, origin=ValueOrigin.FITTED),)


def tier_tokens(spec: PlanSpec, *, model: ModelSpec) -> float:
    """Tokens whose keys and values the tiers of a replica keep, in the first of the formats to compare that it has."""
    tiers = asked_tiers(spec.kv_tiers) or ()
    if not tiers:
        return 0.0
    for platform in platforms(spec):
        engine = engine_on(spec, platform)
        cache = load_engine(engine.name, profiles=spec.profiles).follows_checkpoint_cache(engine.version)
        multiplied = frozenset(platform.hardware.peak_flops_per_s)
        for precision in precisions(spec, model=model, hardware=platform.hardware):
            with suppress(RoofcastError):
                plan = precision_plan(model, precision, multiplied=multiplied, checkpoint_cache=cache)
                each = kv_bytes_per_token(model, plan=plan, tp_size=1)
                return sum(tier.capacity_bytes for tier in tiers) / each if each else 0.0
    return 0.0


def _tier_assumption(spec: PlanSpec) -> tuple[Assumption, ...]:
    tiers = asked_tiers(spec.kv_tiers)
    return () if tiers is None else (Assumption(key="kv_tiers", value=tiers, origin=ValueOrigin.GIVEN),)


def _limit_assumptions(spec: PlanSpec) -> tuple[Assumption, ...]:
    given = {name: getattr(spec, name) for name in ("max_quality_loss", "power_cap_w")}
    return tuple(
        Assumption(key=name, value=value, origin=ValueOrigin.GIVEN)
        for name, value in given.items()
        if value is not None
    )


def _spares_assumption(spec: PlanSpec) -> Assumption:
    if spec.spares is None and (spec.server_spares is not None or spec.availability is not None):
        asked = {"server_spares": spec.server_spares, "availability": spec.availability}
        wanted = tuple(Note(name, {name: value}) for name, value in asked.items() if value is not None)
        return Assumption(key="spares", value=wanted, origin=ValueOrigin.GIVEN)
    return Assumption(
        key="spares", value=DEFAULT_SPARES if spec.spares is None else spec.spares, origin=_origin(spec.spares)
    )


def _origin(value: object) -> ValueOrigin:
    return ValueOrigin.DEFAULT if value is None else ValueOrigin.GIVEN


# Batch limits and token budgets that engines are commonly started with, an octave or half of one apart.
WIDE_SEQUENCES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024)
WIDE_TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
WIDE_PP_SIZES = (1, 2, 4)
WIDE_SCHEMES = ("fp8", "fp8-block", "gptq-g128", "awq")
NARROW_SCHEMES = ("gptq-3bit", "nf4", "q4-k-m", "aqlm-2x8")
"""Of fewer bits or on slower kernels: what lets a model fit a device that is too small for it otherwise."""


_ONE_DEVICE = ParallelismSpec()


def variants_on(
    space: SearchSpace, platforms: Sequence[Platform], *, spec: PlanSpec, model: ModelSpec
) -> dict[Platform, tuple[Variant, ...]]:
    """Variants of a space to compare on each platform; where those are the same, one tuple of them."""
    offered = variants(spec, model=model, platforms=platforms)
    own = {id(found): frozenset(found) for found in offered.values()}
    kept = {key: tuple(item for item in space.variants if item in found) for key, found in own.items()}
    return {platform: kept[id(found)] for platform, found in offered.items()}


def parallelisms(spec: PlanSpec, *, model: ModelSpec) -> tuple[ParallelismSpec, ...]:
    """Tensor x pipeline degrees; with experts, those spread over the tensor-parallel ranks as well."""
    allowed = allowed_tp_sizes(model)
    tensor = sorted(set(spec.tp_size)) or [size for size in USUAL_TP_SIZES if size in allowed]
    usual_depths = WIDE_PP_SIZES if spec.search == "wide" else (1,)
    depths = [size for size in sorted(set(spec.pp_size)) or usual_depths if size <= model.num_hidden_layers]
    ranks = dp_sizes(spec, model=model)
    # Where stages may be on other servers, so may experts.
    most = LARGE_TP_SIZES[-1] if len(depths) > 1 and not spec.pp_size else USUAL_TP_SIZES[-1]
    found = [
        spread(model, tp_size=tp, pp_size=pp, dp_size=dp, ep_size=ep, cp_size=cp)
        for tp, pp, dp, ep, cp in product(
            tensor, depths, ranks, sorted(set(spec.ep_size)) or (None,), sorted(set(spec.cp_size)) or (1,)
        )
        if dp == 1 or spec.dp_size or tp * dp <= (most if pp == 1 else USUAL_TP_SIZES[-1])
    ]
    if model.has_experts and not spec.ep_size:
        found += [
            ParallelismSpec(tp_size=tp, pp_size=pp, ep_size=tp)
            for tp, pp, dp in product(tensor, depths, ranks)
            if tp > 1 and dp == 1
        ]
    return tuple(item for item in found if _allowed(item, model))


def _allowed(parallelism: ParallelismSpec, model: ModelSpec) -> bool:
    try:
        check_degrees(model, parallelism)
    except RoofcastError:
        return False
    return True


def variants(spec: PlanSpec, *, model: ModelSpec, platforms: Sequence[Platform]) -> dict[Platform, tuple[Variant, ...]]:
    """The formats to compare on each platform, each with every technique to compare; equal ones are one tuple.

    With ``any_precision`` the model's own format, those of WIDE_SCHEMES and NARROW_SCHEMES, INT8, the four-bit floats
    that the platform multiplies, and FP8 caches.
    """
    found: dict[Platform, tuple[Variant, ...]] = {}
    made: dict[tuple[PrecisionSpec, ...], tuple[Variant, ...]] = {}
    techniques = technique_choices(spec)
    for platform in platforms:
        named = precisions(spec, model=model, hardware=platform.hardware)
        fp4 = fp4_scheme(platform.hardware)
        formats = _any_precisions(spec.kv_cache or (None, Dtype.FP8), fp4) if spec.any_precision else named
        if formats not in made:
            made[formats] = tuple(
                Variant(precision=precision, techniques=item) for precision, item in product(formats, techniques)
            )
        found[platform] = made[formats]
    return found


def each_variant(offered: Mapping[Platform, tuple[Variant, ...]]) -> tuple[Variant, ...]:
    """Every variant that some platform is offered, once."""
    apart = {id(found): found for found in offered.values()}
    return tuple(dict.fromkeys(chain(*apart.values())))


@cache
def _any_precisions(caches: tuple[Dtype | None, ...], fp4: str | None) -> tuple[PrecisionSpec, ...]:
    """Formats to compare, the same objects on every platform that has ``fp4``."""
    weights = (
        PrecisionSpec(),
        *(PrecisionSpec(scheme=name) for name in (*WIDE_SCHEMES, *((fp4,) if fp4 else ()), *NARROW_SCHEMES)),
        PrecisionSpec(weights=Dtype.INT8),
    )
    return tuple(item.model_copy(update={"kv_cache": cache}) for item, cache in product(weights, caches))


def _within_floor(found: tuple[Variant, ...], *, spec: PlanSpec, model: ModelSpec) -> tuple[Variant, ...]:
    """Those whose answers are known to lose no more than is allowed; all where that leaves none, to be refused."""
    allowed = spec.max_quality_loss
    kept = tuple(item for item in found if answer_quality(model, item.precision, item.techniques).within(allowed))
    return kept or found


def own_limits(
    engine: EngineSpec, platform: Platform, parallelism: ParallelismSpec = _ONE_DEVICE, *, profiles: str | None
) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) that an engine takes by itself on a platform."""
    limits = engine_limits(engine, hardware=platform.hardware, parallelism=parallelism, profiles=profiles)
    return limits.max_num_seqs, limits.max_num_batched_tokens


def search_space(
    spec: PlanSpec, *, model: ModelSpec, platforms: tuple[Platform, ...], least_tokens: int = 0
) -> SearchSpace:
    """Axes of a search, each narrowed to what was given, steps to ``least_tokens`` and more; a usual search keeps the
    engine's own limits."""
    sequences, budgets = WIDE_SEQUENCES, tuple(tokens for tokens in WIDE_TOKENS if tokens >= least_tokens)
    if spec.search != "wide":
        own = [own_limits(engine_on(spec, platform), platform, profiles=spec.profiles) for platform in platforms]
        sequences, budgets = (tuple(sorted(set(values))) for values in zip(*own, strict=True))
    offered = each_variant(variants(spec, model=model, platforms=platforms))
    return SearchSpace(
        platforms=platforms,
        parallelisms=parallelisms(spec, model=model),
        variants=_within_floor(offered, spec=spec, model=model),
        sequences=tuple(sorted(set(spec.max_num_seqs))) or sequences,
        tokens=(spec.max_num_batched_tokens,) if spec.max_num_batched_tokens else budgets,
    )
