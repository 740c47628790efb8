"""The format a model is served in where nobody says: of the published checkpoint that the accelerator multiplies."""

from __future__ import annotations

from functools import lru_cache

from simulator.specs.base import Assumption, Same, ValueOrigin
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.checkpoints import PublishedCheckpoint, published_checkpoints
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.plan import PlanSpec
from simulator.specs.spellings import plain_word
from simulator.techniques.quality import answer_quality

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
    faster = [item for dtype, item in _trusted(Same(model), floor) if peaks.get(dtype, 0.0) > plain]
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
