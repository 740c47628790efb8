"""The format a model is served in where nobody says: of the published checkpoint that the accelerator multiplies."""

from __future__ import annotations

from functools import lru_cache

from simulator.assumptions import Assumption, ValueOrigin
from simulator.planner.search.format_quality import answer_quality
from simulator.specs.base import Same
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.measured.checkpoints import CheckpointSpec, published_checkpoints
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import BITS, Dtype, PrecisionSpec
from simulator.specs.question.plan import PlanSpec

QUALITY_FLOOR = 0.01
"""Largest published loss of answers for which a checkpoint of somebody else than the model's maker is a default."""


def default_checkpoint(model: ModelSpec, *, hardware: AcceleratorSpec) -> CheckpointSpec | None:
    """The narrowest published checkpoint that multiplies faster than 16 bit here; None to serve the model's own.

    A maker's own checkpoints are taken at its word, those of others where little is known to be lost.
    """
    return _default_checkpoint(Same(model), Same(hardware))


@lru_cache(maxsize=512)
def _default_checkpoint(model: Same[ModelSpec], hardware: Same[AcceleratorSpec]) -> CheckpointSpec | None:
    peaks, found = hardware.held.peak_flops_per_s, []
    if model.held.quantization is not None:
        return None
    for item in published_checkpoints(model.held.checkpoint or model.held.name):
        faster = peaks.get(item.dtype, 0.0) > peaks.get(Dtype.BF16, peaks.get(Dtype.FP16, 0.0))
        if faster and (item.by_maker or _known_to_lose_little(model.held, item)):
            found.append(item)
    return min(found, key=lambda item: BITS[item.dtype], default=None)


def _known_to_lose_little(model: ModelSpec, item: CheckpointSpec) -> bool:
    return answer_quality(model, PrecisionSpec(scheme=item.scheme)).within(QUALITY_FLOOR)


def format_assumptions(spec: PlanSpec, model: ModelSpec, *, hardware: AcceleratorSpec) -> tuple[Assumption, ...]:
    """Which checkpoint a plan is of, where it was left open and is not the model's own."""
    if not leaves_format_open(spec):
        return ()
    found = default_checkpoint(model, hardware=hardware)
    if found is None:
        return ()
    return (Assumption(key="format", value=found, origin=ValueOrigin.DEFAULT, detail=hardware.name),)


def leaves_format_open(spec: PlanSpec) -> bool:
    """Whether a question says nothing about the formats of weights and products."""
    return not (spec.weights or spec.scheme or spec.activations or spec.any_precision)


def default_precision(model: ModelSpec, *, hardware: AcceleratorSpec) -> PrecisionSpec:
    """Formats of the default checkpoint; those of the model's own weights where there is none."""
    found = default_checkpoint(model, hardware=hardware)
    return PrecisionSpec() if found is None else PrecisionSpec(scheme=found.scheme)
