"""The axes of a wide search: what each of them holds for a model, and how many set-ups that makes."""

from __future__ import annotations

from itertools import chain, product

from simulator.errors import RoofcastError
from simulator.operators.linear import allowed_tp_sizes, check_parallelism
from simulator.planner.candidate import Platform, SearchSpace, Variant
from simulator.planner.records import SearchSummary
from simulator.planner.search.candidates import (
    USUAL_TP_SIZES,
    asked_engine,
    dp_sizes,
    has_experts,
    precisions,
    spread,
    technique_choices,
)
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, engine_limits
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan import PlanSpec
from simulator.techniques.quality import answer_quality

# Batch limits and token budgets that engines are commonly started with, an octave or half of one apart.
WIDE_SEQUENCES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024)
WIDE_TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
WIDE_PP_SIZES = (1, 2, 4)
WIDE_SCHEMES = ("fp8", "fp8-block", "gptq-g128", "awq", "nvfp4")
NARROW_SCHEMES = ("gptq-3bit", "nf4", "q4-k-m", "aqlm-2x8")
"""Of fewer bits or on slower kernels: what lets a model fit a device that is too small for it otherwise."""
_ONE_DEVICE = ParallelismSpec()


def variants_on(space: SearchSpace, platform: Platform, *, spec: PlanSpec, model: ModelSpec) -> tuple[Variant, ...]:
    """Of the variants of a space, those to compare on a platform."""
    own = set(variants(spec, model=model, platform=platform))
    return tuple(item for item in space.variants if item in own)


def search_summary(space: SearchSpace, *, feasible: int, finalists: int, serving: tuple[str, ...]) -> SearchSummary:
    """How wide the search was; of two pools, every set-up of either counts, not their pairs."""
    ways = set(serving)
    prefill = len(space.platforms) * len(space.parallelisms) * len(space.variants) * len(space.tokens)
    candidates = space.candidates * len(ways) + (prefill if "disaggregated" in ways else 0)
    formats = len({variant.precision for variant in space.variants})
    techniques = len({variant.techniques for variant in space.variants})
    axes = (
        *(("aggregated and two pools",) if len(ways) > 1 else ("two pools",) if "disaggregated" in ways else ()),
        f"{len(space.platforms)} accelerators",
        f"{len(space.parallelisms)} parallelisms",
        f"{formats} number formats",
        *((f"{techniques} techniques",) if techniques > 1 else ()),
        f"{len(space.sequences)} batch limits",
        f"{len(space.tokens)} token budgets",
    )
    return SearchSummary(candidates=candidates, feasible=feasible, finalists=finalists, axes=axes)


def parallelisms(spec: PlanSpec, *, model: ModelSpec) -> tuple[ParallelismSpec, ...]:
    """Tensor x pipeline degrees; with experts, those spread over the tensor-parallel ranks as well."""
    allowed = allowed_tp_sizes(model)
    tensor = sorted(set(spec.tp_size)) or [size for size in USUAL_TP_SIZES if size in allowed]
    usual_depths = WIDE_PP_SIZES if spec.search == "wide" else (1,)
    depths = [size for size in sorted(set(spec.pp_size)) or usual_depths if size <= model.num_hidden_layers]
    ranks = dp_sizes(spec, model=model)
    found = [
        spread(model, tp_size=tp, pp_size=pp, dp_size=dp, ep_size=ep, cp_size=cp)
        for tp, pp, dp, ep, cp in product(
            tensor, depths, ranks, sorted(set(spec.ep_size)) or (None,), sorted(set(spec.cp_size)) or (1,)
        )
        if dp == 1 or spec.dp_size or tp * dp <= max(USUAL_TP_SIZES)
    ]
    if has_experts(model) and not spec.ep_size:
        found += [
            ParallelismSpec(tp_size=tp, pp_size=pp, ep_size=tp)
            for tp, pp, dp in product(tensor, depths, ranks)
            if tp > 1 and dp == 1
        ]
    return tuple(item for item in found if _allowed(item, model))


def _allowed(parallelism: ParallelismSpec, model: ModelSpec) -> bool:
    try:
        check_parallelism(model, parallelism)
    except RoofcastError:
        return False
    return True


def variants(spec: PlanSpec, *, model: ModelSpec, platform: Platform) -> tuple[Variant, ...]:
    """The formats to compare on a platform, each with every technique to compare.

    With ``any_precision`` the model's own format, those of WIDE_SCHEMES and NARROW_SCHEMES, INT8, and FP8 caches.
    """
    formats = _any_precisions(spec) if spec.any_precision else precisions(spec, model=model, hardware=platform.hardware)
    return tuple(
        Variant(precision=precision, techniques=item) for precision, item in product(formats, technique_choices(spec))
    )


def _any_precisions(spec: PlanSpec) -> tuple[PrecisionSpec, ...]:
    caches = spec.kv_cache or (None, Dtype.FP8)
    weights = (
        PrecisionSpec(),
        *(PrecisionSpec(scheme=name) for name in (*WIDE_SCHEMES, *NARROW_SCHEMES)),
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


def search_space(spec: PlanSpec, *, model: ModelSpec, platforms: tuple[Platform, ...]) -> SearchSpace:
    """Axes of a search, each narrowed to what was given; a usual search keeps the engine's own limits."""
    sequences, budgets = WIDE_SEQUENCES, WIDE_TOKENS
    if spec.search != "wide":
        own = [own_limits(asked_engine(spec), platform, profiles=spec.profiles) for platform in platforms]
        sequences, budgets = (tuple(sorted(set(values))) for values in zip(*own, strict=True))
    offered = [variants(spec, model=model, platform=platform) for platform in platforms]
    return SearchSpace(
        platforms=platforms,
        parallelisms=parallelisms(spec, model=model),
        variants=_within_floor(tuple(dict.fromkeys(chain(*offered))), spec=spec, model=model),
        sequences=tuple(sorted(set(spec.max_num_seqs))) or sequences,
        tokens=(spec.max_num_batched_tokens,) if spec.max_num_batched_tokens else budgets,
    )
