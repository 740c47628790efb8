"""What a configuration holds, counted on its operators: parameters, FLOPs, bytes of the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.operators.formats.plan import PrecisionPlan
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.kv_layout import kv_bytes_per_sequence, kv_bytes_per_token, state_bytes_per_sequence
from simulator.operators.step_shape import decode_step, prefill_step
from simulator.operators.transformer import ParameterCounts, is_encoder_only, model_flops, parameter_counts
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.precision import PrecisionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounts:
    """Counts of one model on one device; FLOPs of a prompt of ``context_tokens`` and of one token after as many.

    decode_flops_per_token : None of an encoder, which generates nothing
    """

    model: ModelSpec
    plan: PrecisionPlan
    context_tokens: int
    parameters: ParameterCounts
    prefill_flops: float
    decode_flops_per_token: float | None
    kv_bytes_per_token: float
    state_bytes_per_sequence: float
    kv_bytes_at_context: float


DEFAULT_CONTEXT_TOKENS = 4096


def model_counts(model: ModelSpec, *, precision: PrecisionSpec, context_tokens: int | None = None) -> ModelCounts:
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
