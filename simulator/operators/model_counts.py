"""Totals of the operator list: parameters of a model, and the FLOPs of its steps."""

from __future__ import annotations

from functools import lru_cache

from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.operators.parallelism import kv_bytes_per_sequence, kv_bytes_per_token, state_bytes_per_sequence
from simulator.operators.transformer import is_encoder_only, operator_list
from simulator.operators.work import Array, StepShape, Work, decode_step, prefill_step
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model import architecture as arch
from simulator.specs.model.precision import Dtype, PrecisionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameters (elements): ``total`` with embeddings (tied ones once) and unused parts; ``active`` leaves out the
    experts that a token does not choose and the unused parts. Published "active" figures differ on embeddings."""

    total: float
    active: float


@lru_cache(maxsize=256)
def parameter_counts(model: arch.ModelSpec) -> ParameterCounts:
    """Parameters of a model, from its operator list on one device."""
    rows = operator_list(
        model, parallelism=ParallelismSpec(), plan=_plain_plan(model), step=prefill_step(sequences=1, tokens=1)
    )
    return ParameterCounts(
        total=sum(row.count * row.parameters for row in rows),
        active=sum(row.count * row.active_parameters for row in rows),
    )


def total_flops(rows: tuple[Work, ...]) -> Array:
    """FLOPs of the rows of one device in one step (array over the step's cases)."""
    return sum((row.count * row.flops for row in rows[1:]), rows[0].count * rows[0].flops)


def model_flops(model: arch.ModelSpec, step: StepShape) -> Array:
    """Useful FLOPs of a step over all devices (products, attention with exact causal counts, state updates). The
    numerator of model FLOPs utilisation. Replicated work of tensor parallelism is counted once."""
    return total_flops(operator_list(model, parallelism=ParallelismSpec(), plan=_plain_plan(model), step=step))


def _plain_plan(model: arch.ModelSpec) -> PrecisionPlan:
    return precision_plan(model, PrecisionSpec(weights=Dtype.BF16))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounts:
    """Counts of one model on one device; FLOPs of a prompt of ``context_tokens`` and of one token after as many.

    decode_flops_per_token : None of an encoder, which generates nothing
    """

    model: arch.ModelSpec
    plan: PrecisionPlan
    context_tokens: int
    parameters: ParameterCounts
    prefill_flops: float
    decode_flops_per_token: float | None
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    kv_bytes_at_context: float


DEFAULT_CONTEXT_TOKENS = 4096


def model_counts(model: arch.ModelSpec, *, precision: PrecisionSpec, context_tokens: int | None = None) -> ModelCounts:
    """Count a model in one number format; without ``context_tokens`` at 4,096 or at all that the model takes."""
    plan = precision_plan(model, precision)
    longest = model.max_position_embeddings or DEFAULT_CONTEXT_TOKENS
    context_tokens = context_tokens or min(DEFAULT_CONTEXT_TOKENS, longest)
    decode = None if is_encoder_only(model) else decode_step(sequences=1, context=context_tokens)
    at_context = kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=context_tokens)
    return ModelCounts(
        model=model,
        plan=plan,
        context_tokens=context_tokens,
        parameters=parameter_counts(model),
        prefill_flops=float(model_flops(model, prefill_step(sequences=1, tokens=context_tokens))[0]),
        decode_flops_per_token=None if decode is None else float(model_flops(model, decode)[0]),
        kv_bytes_per_token=kv_bytes_per_token(model, plan=plan, tp_size=1),
        state_bytes_per_sequence=state_bytes_per_sequence(model, plan=plan, tp_size=1),
        kv_bytes_at_context=float(at_context[0]),
    )
