"""What a configuration holds, counted on its operators: parameters, FLOPs, bytes of the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.operators.formats.plan import PrecisionPlan
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.kv_layout import kv_bytes_per_sequence, kv_bytes_per_token, state_bytes_per_sequence
from simulator.operators.step_shape import decode_step, prefill_step
from simulator.operators.transformer import ParameterCounts, model_flops, parameter_counts
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import PrecisionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounts:
    """Counts of one model on one device; FLOPs of a prompt of ``context_tokens`` and of one token after as many."""

    model: ModelSpec
    plan: PrecisionPlan
    context_tokens: int
    parameters: ParameterCounts
    prefill_flops: float
    decode_flops_per_token: float
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    kv_bytes_at_context: float


def model_counts(model: ModelSpec, *, precision: PrecisionSpec, context_tokens: int) -> ModelCounts:
    """Count a model in one number format."""
    plan = precision_plan(model, precision)
    at_context = kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=context_tokens)
    return ModelCounts(
        model=model,
        plan=plan,
        context_tokens=context_tokens,
        parameters=parameter_counts(model),
        prefill_flops=float(model_flops(model, prefill_step(sequences=1, tokens=context_tokens))[0]),
        decode_flops_per_token=float(model_flops(model, decode_step(sequences=1, context=context_tokens))[0]),
        kv_bytes_per_token=kv_bytes_per_token(model, plan=plan, tp_size=1),
        state_bytes_per_sequence=state_bytes_per_sequence(model, plan=plan, tp_size=1),
        kv_bytes_at_context=float(at_context[0]),
    )
