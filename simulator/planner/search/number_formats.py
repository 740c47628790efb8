"""In which number formats a question is tried: those that were asked for, or a published checkpoint's."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from simulator.errors import Option, RoofcastError, plain_word
from simulator.operators.formats.tensor_formats import fp4_scheme, precision_plan
from simulator.specs.base import Assumption, Same, ValueOrigin
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.checkpoints import PublishedCheckpoint, published_checkpoints
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.plan import PlanSpec
from simulator.techniques.quality import answer_quality


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
        hint = refused.hint.replace(refused.field, f"`{option}`")
        raise RoofcastError(refused.message, field=option, code=refused.code, hint=hint)


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
        own = floor is None and _by_maker(item)
        if own or loss.within(QUALITY_FLOOR if floor is None else floor):
            found.append((dtype, item))
    return tuple(sorted(found, key=lambda pair: BITS[pair[0]]))


def _by_maker(item: PublishedCheckpoint) -> bool:
    return item.id.partition("/")[0].lower() == item.base.partition("/")[0].lower()


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
