"""Every way to run one replica worth pricing: hardware, parallelism, formats, batch, techniques."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import get_args

from simulator.errors import Option, ProfileError, RoofcastError, contradiction, no_effect, plain_word
from simulator.operators.formats.schemes import fp4_scheme
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.parallelism import allowed_tp_sizes
from simulator.operators.parallelism import check_parallelism as check_degrees
from simulator.planner.records import NO_TECHNIQUES, Candidate, Platform
from simulator.specs.base import Assumption, Same, ValueOrigin
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, Feature, load_engine, named_engine, with_feature
from simulator.specs.hardware.accelerator import (
    AcceleratorSpec,
    ServerSpec,
    default_server_for,
    list_offered_hardware,
    load_hardware,
)
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.checkpoints import PublishedCheckpoint, published_checkpoints
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.plan import NONE, PlanSpec, asked_tiers
from simulator.specs.question.techniques import TechniquesSpec
from simulator.techniques.applied import works_on
from simulator.techniques.quality import answer_quality

USUAL_SPECULATION = ("eagle", "ngram")
USUAL_SPARSITY = ("2:4",)
USUAL_DP_SIZES = (2, 4, 8)


def technique_choices(spec: PlanSpec) -> tuple[TechniquesSpec, ...]:
    """Every combination of the techniques to compare; with ``any_technique`` the usual ones beside none at all."""
    asked = spec.speculation or spec.sparsity or spec.kv_policy or spec.weight_offload or spec.two_batch_overlap
    if not (spec.any_technique or asked):
        return (NO_TECHNIQUES,)
    from simulator.specs.question.techniques_text import techniques_spec

    speculation: tuple[str | None, ...] = spec.speculation or (None,)
    sparsity: tuple[str | None, ...] = spec.sparsity or (None,)
    if spec.any_technique:
        speculation, sparsity = (None, *USUAL_SPECULATION), (None, *USUAL_SPARSITY)
    offered = {
        "speculation": speculation,
        "sparsity": sparsity,
        "kv_policy": spec.kv_policy or (None,),
        "weight_offload": spec.weight_offload or (None,),
        "two_batch_overlap": (None, True) if spec.two_batch_overlap else (None,),
    }
    found = (
        techniques_spec({name: None if value == NONE else value for name, value in zip(offered, values, strict=True)})
        for values in product(*offered.values())
    )
    return tuple(dict.fromkeys(found))


def dp_sizes(spec: PlanSpec, *, model: ModelSpec) -> tuple[int, ...]:
    """Ranks of data-parallel attention to compare; one where nobody asks, or no experts would be shared by them."""
    if spec.dp_size:
        return tuple(sorted(set(spec.dp_size)))
    wide = spec.any_technique or spec.two_batch_overlap or spec.search == "wide"
    return (1, *USUAL_DP_SIZES) if wide and model.has_experts else (1,)


# Degrees tried without --tp: one server's worth of fast links is where tensor parallelism pays.
USUAL_TP_SIZES = (1, 2, 4, 8)
LARGE_TP_SIZES = (16, 32, 64)


def _platforms(spec: PlanSpec) -> tuple[dict[str, Platform], list[RoofcastError]]:
    """The accelerators to compare, and why others of those named or on offer are not among them."""
    engine = load_engine(named_engine(spec.engine).name, profiles=spec.profiles)
    found: dict[str, Platform] = {}
    refused: list[RoofcastError] = []
    for name in spec.hardware or list_offered_hardware(profiles=spec.profiles):
        hardware = load_hardware(name, profiles=spec.profiles)
        try:
            engine.check_runs_on(hardware)
            limited = _limited(hardware, spec.power_cap_w)
        except RoofcastError as error:
            refused.append(error)
        else:
            found.setdefault(hardware.name, Platform(hardware=limited, server=_server(hardware, spec)))
    return found, refused


def platforms(spec: PlanSpec) -> tuple[Platform, ...]:
    """Accelerators named or on offer that run the engine within the power cap; RoofcastError: none named does."""
    found, refused = _platforms(spec)
    if spec.hardware and not found:
        raise refused[0]
    return tuple(found.values())


def left_out(spec: PlanSpec) -> tuple[str, ...]:
    """Why accelerators that are named are not compared."""
    return tuple(dict.fromkeys(error.message for error in _platforms(spec)[1])) if spec.hardware else ()


def unlike_pairs(spec: PlanSpec) -> tuple[tuple[Platform, Platform], ...]:
    """Accelerators for prompts and for answers that are not the same.

    Raises
    ------
    RoofcastError
        One is named twice, none differs, or none can send its caches to another.
    """
    if not spec.prefill_hardware:
        return ()
    option, every = Option("prefill_hardware"), platforms(spec)
    try:
        ahead = platforms(spec.model_copy(update={"hardware": spec.prefill_hardware}))
    except ProfileError as error:
        error.field = option
        raise
    names = [load_hardware(name, profiles=spec.profiles).name for name in spec.prefill_hardware]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise contradiction(f"{twice} is given twice", field=option, hint="name each kind once")
    found = [(first, last) for first in ahead for last in every if first.hardware.name != last.hardware.name]
    if not found:
        raise no_effect(
            f"{ahead[0].hardware.name} is also what `hardware` names; pools on one kind need no such option",
            field=option,
            hint="another accelerator for the prompts, or `serving` disaggregated",
        )
    refused = [(pair, _no_way(*pair)) for pair in found]
    reached = tuple(pair for pair, reason in refused if not reason)
    if not reached:
        raise RoofcastError(
            refused[0][1], field=option, code="unsupported_option", hint="a server accelerator of the same vendor"
        )
    return reached


def _no_way(prefill: Platform, decode: Platform) -> str:
    """Why no cache goes from one accelerator to another; empty where it does."""
    from simulator.engine.pools import unlike_vendors

    for platform in (prefill, decode):
        if platform.server is None:
            return f"no server profile for {platform.hardware.name} says over what network it reaches other servers"
    return unlike_vendors(prefill.hardware, decode.hardware)


def _limited(hardware: AcceleratorSpec, power_cap_w: float | None) -> AcceleratorSpec:
    if power_cap_w is None:
        return hardware
    from simulator.phases.power import power_limited

    try:
        return power_limited(hardware, power_cap_w)
    except RoofcastError as error:
        error.field = Option("power_cap_w")
        raise


def check_power_cap(spec: PlanSpec) -> None:
    """Refuse a limit of power that none of the accelerators reaches, or that leaves none to compare."""
    tried = platforms(spec)
    if spec.power_cap_w is None or any(item.hardware.power_cap_w for item in tried):
        return
    most_w = max((item.hardware.tdp_w for item in tried), default=None)
    reached = "no accelerator runs on so little" if most_w is None else f"none of them draws more than {most_w:g} W"
    raise RoofcastError(
        f"{spec.power_cap_w:g} W: {reached}",
        field=Option("power_cap_w"),
        code="out_of_range" if most_w is None else "no_effect",
        hint="leave it out, or take a value that an accelerator reaches",
    )


def _server(hardware: AcceleratorSpec, spec: PlanSpec) -> ServerSpec | None:
    try:
        return default_server_for(hardware.name, profiles=spec.profiles)
    except ProfileError:
        return None


def asked_engine(spec: PlanSpec) -> EngineSpec:
    """The engine of a plan without the limits that a search varies."""
    fields = {
        "max_model_len": spec.max_model_len,
        "gpu_memory_utilization": spec.gpu_memory_utilization,
        "kv_tiers": asked_tiers(spec.kv_tiers),
    }
    return named_engine(spec.engine).model_copy(update=fields)


def engine_on(spec: PlanSpec, platform: Platform) -> EngineSpec:
    """The asked engine in a release that knows all that a plan may compare on a platform, guesses and pools beside
    replicas: none of them is worth what a release is."""
    engine = asked_engine(spec)
    for feature in get_args(Feature):
        engine = with_feature(engine, feature, vendor=platform.hardware.vendor, profiles=spec.profiles)
    return engine


def _engines(spec: PlanSpec, platform: Platform) -> tuple[EngineSpec, ...]:
    asked = engine_on(spec, platform).model_copy(update={"max_num_batched_tokens": spec.max_num_batched_tokens})
    return tuple(
        asked.model_copy(
            update={"max_num_seqs": max_num_seqs, "kv_allocation": None if allocation == "paged" else allocation}
        )
        for max_num_seqs, allocation in product(spec.max_num_seqs or (None,), spec.kv_allocation or (None,))
    )


def tp_sizes(spec: PlanSpec, *, model: ModelSpec, platform: Platform, large: bool = False) -> tuple[int, ...]:
    """Tensor-parallel degrees to try on a platform: those asked for, or powers of two within one link domain."""
    if spec.tp_size:
        return tuple(sorted(set(spec.tp_size)))
    allowed = allowed_tp_sizes(model)
    return tuple(
        size
        for size in (LARGE_TP_SIZES if large else USUAL_TP_SIZES)
        if size in allowed and size <= platform.linked_devices
    )


def check_parallelism(spec: PlanSpec, *, model: ModelSpec) -> None:
    """Refuse a degree that this model never allows, whatever the hardware."""
    allowed = allowed_tp_sizes(model)
    for size in spec.tp_size:
        if size not in allowed:
            known = ", ".join(str(value) for value in allowed)
            raise RoofcastError(
                f"{size} does not divide the heads of {model.name}; allowed: {known}",
                field=Option("tp_size"),
                code="unsupported_parallelism",
            )
    if max(spec.dp_size, default=1) > 1 and not model.has_experts:
        raise no_effect(
            f"{model.name} has no experts for ranks of data-parallel attention to share: more replicas are the same",
            field=Option("dp_size"),
        )
    for field, asked in (("ep_size", max(spec.ep_size, default=1) > 1), ("two_batch_overlap", spec.two_batch_overlap)):
        if asked and not model.has_experts:
            raise no_effect(f"{model.name} has no experts to spread over devices", field=Option(field))
    if spec.two_batch_overlap and 1 in (max(spec.dp_size, default=0), max(spec.ep_size, default=0)):
        raise no_effect("one rank of attention or of experts exchanges no tokens", field=Option("two_batch_overlap"))
    if spec.pp_size:
        try:
            check_degrees(model, ParallelismSpec(pp_size=min(spec.pp_size)))
        except RoofcastError as error:
            raise RoofcastError(error.message, field=Option("pp_size"), code=error.code, hint=error.hint) from None


def candidates(spec: PlanSpec, *, model: ModelSpec, platform: Platform, large: bool = False) -> tuple[Candidate, ...]:
    """Replicas to try on one platform, the smallest first. ``large`` adds what only big link domains can hold."""
    found = (
        Candidate(
            platform=platform,
            parallelism=spread(
                model, tp_size=tp_size, pp_size=pp_size, dp_size=dp_size, ep_size=ep_size, cp_size=cp_size
            ),
            precision=precision,
            engine=engine,
            techniques=techniques,
        )
        for tp_size, pp_size, dp_size, ep_size, cp_size, precision, techniques, engine in product(
            tp_sizes(spec, model=model, platform=platform, large=large),
            sorted(set(spec.pp_size)) or (1,),
            dp_sizes(spec, model=model),
            sorted(set(spec.ep_size)) or (None,),
            sorted(set(spec.cp_size)) or (1,),
            precisions(spec, model=model, hardware=platform.hardware),
            technique_choices(spec),
            _engines(spec, platform),
        )
        if spec.dp_size or dp_size == 1 or tp_size * dp_size <= platform.linked_devices
    )
    return tuple(item for item in found if works_on(item.techniques, item.parallelism))


def pool_candidates(
    spec: PlanSpec, *, model: ModelSpec, platform: Platform, beside: Platform, large: bool = False
) -> list[Candidate]:
    """Replicas to try in a pool of a platform, in its own formats and in those of ``beside``, the other pool's: both
    serve one checkpoint."""
    found = candidates(spec, model=model, platform=platform, large=large)
    if beside.hardware.name != platform.hardware.name:
        own, other = (precisions(spec, model=model, hardware=item.hardware) for item in (platform, beside))
        found += tuple(
            replace(item, precision=precision)
            for item, precision in product(found, other)
            if item.precision == own[0] and precision not in own
        )
    return list(found)


def spread(
    model: ModelSpec, *, tp_size: int, pp_size: int, dp_size: int, ep_size: int | None = None, cp_size: int = 1
) -> ParallelismSpec:
    """Degrees of one replica; without ``ep_size``, ranks of data-parallel attention share the experts."""
    shares = dp_size > 1 and model.has_experts
    if ep_size is None:
        ep_size = tp_size * dp_size if shares else 1
    return ParallelismSpec(tp_size=tp_size, pp_size=pp_size, dp_size=dp_size, ep_size=ep_size, cp_size=cp_size)


def precisions(spec: PlanSpec, *, model: ModelSpec, hardware: AcceleratorSpec) -> tuple[PrecisionSpec, ...]:
    """Formats to compare on an accelerator: those that were given, or of what is published for it."""
    if not leaves_format_open(spec):
        return _given_precisions(spec)
    usual = default_precision(model, hardware=hardware, floor=spec.max_quality_loss)
    return tuple(usual.model_copy(update={"kv_cache": kv_cache}) for kv_cache in spec.kv_cache or (None,))


def _given_precisions(spec: PlanSpec) -> tuple[PrecisionSpec, ...]:
    return tuple(
        PrecisionSpec(weights=weights, activations=spec.activations, kv_cache=kv_cache, scheme=spec.scheme)
        for weights, kv_cache in product(spec.weights or (None,), spec.kv_cache or (None,))
    )


def check_precision(spec: PlanSpec, *, model: ModelSpec) -> None:
    """Refuse formats where no combination of those given means anything for this model, whatever the hardware."""
    refused: RoofcastError | None = None
    for precision in _given_precisions(spec):
        try:
            precision_plan(model, precision)
        except RoofcastError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        option = Option(refused.field.rpartition(".")[2])
        raise RoofcastError(refused.message, field=option, code=refused.code, hint=refused.hint)


SCHEMES = {"fp8": "fp8", "fp8_block": "fp8-block", "nvfp4": "nvfp4", "int8": "w8a8"}
"""Schemes by the method of a checkpoint that multiplies in few bits."""
QUALITY_FLOOR = 0.01
"""Largest published loss of answers for which a checkpoint of somebody else than the model's maker is a default."""


def default_checkpoint(
    model: ModelSpec, *, hardware: AcceleratorSpec, floor: float | None = None
) -> PublishedCheckpoint | None:
    """The narrowest published checkpoint that multiplies faster than 16 bit here; None to serve the model's own.

    A maker's own checkpoints are taken at its word, those of others where little is known to be lost; with a ``floor``
    of the question's own every loss has to be known and within it.
    """
    peaks = hardware.peak_flops_per_s
    plain = peaks.get(Dtype.BF16, peaks.get(Dtype.FP16, 0.0))
    faster = [
        item
        for dtype, item in _trusted(Same(model), floor)
        if peaks.get(dtype, 0.0) > plain and (dtype is not Dtype.FP4 or fp4_scheme(hardware) == item.format.method)
    ]
    return faster[0] if faster else None


@lru_cache(maxsize=64)
def _trusted(model: Same[ModelSpec], floor: float | None) -> tuple[tuple[Dtype, PublishedCheckpoint], ...]:
    """Checkpoints that may stand for a model in 16 bit, the narrowest first, with the format that multiplies them."""
    found, wanted = [], plain_word(model.held.checkpoint or model.held.name)
    for item in published_checkpoints() if model.held.quantization is None else ():
        if plain_word(item.base) != wanted:
            continue
        scheme, dtype = SCHEMES.get(item.format.method), item.format.activations
        if scheme is None or dtype is None:
            continue
        loss = answer_quality(model.held, PrecisionSpec(scheme=scheme))
        own = floor is None and item.id.partition("/")[0].lower() == item.base.partition("/")[0].lower()
        if own or loss.within(QUALITY_FLOOR if floor is None else floor):
            found.append((dtype, item))
    return tuple(sorted(found, key=lambda pair: BITS[pair[0]]))


def format_assumptions(spec: PlanSpec, model: ModelSpec, *, hardware: AcceleratorSpec) -> tuple[Assumption, ...]:
    """Which checkpoint a plan is of, where it was left open and is not the model's own."""
    if not leaves_format_open(spec):
        return ()
    found = default_checkpoint(model, hardware=hardware, floor=spec.max_quality_loss)
    if found is None:
        return ()
    return (Assumption(key="format", value=found, origin=ValueOrigin.DEFAULT, detail=hardware.name),)


def leaves_format_open(spec: PlanSpec) -> bool:
    """Whether a question says nothing about the formats of weights and products."""
    return not (spec.weights or spec.scheme or spec.activations or spec.any_precision)


def default_precision(model: ModelSpec, *, hardware: AcceleratorSpec, floor: float | None = None) -> PrecisionSpec:
    """Formats of the default checkpoint; those of the model's own weights where there is none."""
    found = default_checkpoint(model, hardware=hardware, floor=floor)
    return PrecisionSpec() if found is None else PrecisionSpec(scheme=SCHEMES[found.format.method])
