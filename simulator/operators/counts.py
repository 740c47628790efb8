"""Totals of the operator list that people know: parameters and model FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simulator.operators.formats import PrecisionPlan, precision_plan
from simulator.operators.step_shape import Array, StepShape, prefill_step
from simulator.operators.transformer import operator_list
from simulator.operators.work import Work
from simulator.specs.deployment import ParallelismSpec
from simulator.specs.model import ModelSpec
from simulator.specs.precision import Dtype, PrecisionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameters (elements): ``total`` with embeddings (tied ones once) and unused parts; ``active`` leaves out the
    experts that a token does not choose and the unused parts. Published "active" figures differ on embeddings."""

    total: float
    active: float


@lru_cache(maxsize=256)
def parameter_counts(model: ModelSpec) -> ParameterCounts:
    """Parameters of a model, from its operator list on one device."""
    rows = operator_list(
        model, parallelism=ParallelismSpec(), plan=_plain_plan(model), step=prefill_step(sequences=1, tokens=1)
    )
    return ParameterCounts(
        total=sum(row.count * row.parameters for row in rows),
        active=sum(row.count * row.active_parameters for row in rows),
    )


def stored_bytes(rows: tuple[Work, ...]) -> float:
    """Weights that one device holds [bytes]."""
    return sum(row.count * row.stored_bytes for row in rows)


def total_flops(rows: tuple[Work, ...]) -> Array:
    """FLOPs of the rows of one device in one step (array over the step's cases)."""
    total: Array = sum((row.count * row.flops for row in rows[1:]), rows[0].count * rows[0].flops)
    return total


def model_flops(model: ModelSpec, step: StepShape) -> Array:
    """Useful FLOPs of a step over all devices (products, attention with exact causal counts, state updates).

    The numerator of model FLOPs utilisation. Replicated work of tensor parallelism is counted once.
    """
    return total_flops(operator_list(model, parallelism=ParallelismSpec(), plan=_plain_plan(model), step=step))


def _plain_plan(model: ModelSpec) -> PrecisionPlan:
    return precision_plan(model, PrecisionSpec(weights=Dtype.BF16))
