"""What stands beside replicas, refused before anything is searched: tiers below caches, encoders of pictures."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.engine.pools import unlike_vendors
from simulator.errors import Option, ProfileError, RoofcastError
from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.operators.kv_layout import kv_bytes_per_token
from simulator.phases.kv_tiers import kv_tiers
from simulator.planner.search.candidates import asked_engine, candidates, check_precision, platforms, precisions
from simulator.planner.search.question import parallelisms
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.plan import PlanSpec, asked_tiers


def _compared(spec: PlanSpec, model: ModelSpec) -> Iterator[tuple[AcceleratorSpec, ParallelismSpec]]:
    """Accelerators and degrees that a search may try, large ones included."""
    wide = parallelisms(spec, model=model) if spec.search == "wide" else ()
    for platform in platforms(spec):
        sizes = (candidates(spec, model=model, platform=platform, large=large) for large in (False, True))
        found = dict.fromkeys([*wide, *(item.parallelism for size in sizes for item in size)])
        yield from ((platform.hardware, item) for item in found)


def _host_bytes_per_s(hardware: AcceleratorSpec, parallelism: ParallelismSpec) -> float:
    return hardware.host_link.bytes_per_s_per_direction * parallelism.devices


def check_tiers(spec: PlanSpec, *, model: ModelSpec) -> None:
    """Refuse tiers that are faster than the host links of every replica to compare."""
    engine, refused = asked_engine(spec), None
    widest = sorted(_compared(spec, model), key=lambda pair: -_host_bytes_per_s(*pair))
    for hardware, parallelism in widest:
        try:
            kv_tiers(engine, True, hardware=hardware, parallelism=parallelism, profiles=spec.profiles)
        except RoofcastError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise RoofcastError(refused.message, field=Option("kv_tiers"), code=refused.code, hint=refused.hint)


def _plan(model: ModelSpec, precision: PrecisionSpec, hardware: AcceleratorSpec) -> PrecisionPlan:
    return precision_plan(model, precision, multiplied=frozenset(hardware.peak_flops_per_s))


def tier_tokens(spec: PlanSpec, *, model: ModelSpec) -> float:
    """Tokens whose keys and values the tiers of a replica keep, in the first format that is compared."""
    check_precision(spec, model=model)
    cached_bytes = (
        kv_bytes_per_token(model, plan=_plan(model, precision, platform.hardware), tp_size=1)
        for platform in platforms(spec)
        for precision in precisions(spec, model=model, hardware=platform.hardware)
    )
    each, tiers = next(cached_bytes, 0.0), asked_tiers(spec.kv_tiers) or ()
    return sum(tier.capacity_bytes for tier in tiers) / each if each else 0.0


def check_encoders(spec: PlanSpec) -> None:
    """Refuse encoders that nobody knows, and those whose embeddings reach no accelerator to compare."""
    option, behind = Option("encoder_hardware"), platforms(spec)
    try:
        encoders = platforms(spec.model_copy(update={"hardware": spec.encoder_hardware}))
    except ProfileError as error:
        error.field = option
        raise
    for encoder in encoders:
        reasons = [unlike_vendors(encoder.hardware, item.hardware, sent="embeddings") for item in behind]
        if all(reasons):
            hint = "a server accelerator of the same vendor"
            raise RoofcastError(reasons[0], field=option, code="unsupported_option", hint=hint)
