"""The operator list: everything that one device of one pipeline stage does in one step, and its totals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.attention import attention_rows, cross_attention_rows
from simulator.operators.dense import embedding_rows, head_rows, hyper_rows, mlp_rows, stage_send
from simulator.operators.device_share import NORM, RESIDUAL_NORM, DeviceShare, PassCost, has_decode
from simulator.operators.formats.tensor_formats import PrecisionPlan, precision_plan
from simulator.operators.parallelism import (
    check_parallelism,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    stage_layers,
    state_bytes_per_sequence,
)
from simulator.operators.work import Array, CollectiveShape, StepShape, Work, decode_step, mixed_step, prefill_step
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model import architecture as arch
from simulator.specs.model.precision import Dtype, PrecisionSpec


def operator_list(
    model: arch.ModelSpec,
    *,
    parallelism: ParallelismSpec,
    plan: PrecisionPlan,
    step: StepShape,
    stage: int = 0,
    fused: bool = True,
) -> tuple[Work, ...]:
    """Rows of one device of pipeline stage ``stage`` for one step; equal layers are one row with a count.

    model, parallelism, plan : what runs and how it is spread; a degree that does not fit is refused
    step : tokens of one attention-data-parallel rank; phases that no case has give no attention rows
    fused : elementwise passes fused as compiled engines do; False prices each eager operator's round trip

    Layers are split evenly over stages (the first take the remainder); embeddings stand on the first stage, final norm
    and LM head on the last. Summed over rows, ``count * parameters`` and ``count * stored_bytes`` are exactly what the
    device holds, whatever the step. Left out: FLOPs of softmax, norms and activations.
    """
    check_parallelism(model, parallelism)
    if not 0 <= stage < parallelism.pp_size:
        raise RoofcastError(f"{stage} is not a stage; allowed: 0 to {parallelism.pp_size - 1}", field="stage")
    share = DeviceShare.of(
        model, plan=plan, parallelism=parallelism, step=_decoder_step(model, step), source=step, fused=fused
    )
    first, last = stage == 0, stage == parallelism.pp_size - 1
    depths = stage_layers(model, pp_size=parallelism.pp_size, stage=stage)
    rows: list[Work] = []
    if first:
        source_tokens = 0.0 if model.encoder is None else step.prefill_sequences * step.prefill_tokens
        rows += embedding_rows(share, tokens=share.tokens + source_tokens)
        rows += _encoder_rows(share)
    rows += _stack_rows(model.layers, order=map(model.layer_order.__getitem__, depths), share=share)
    if last:
        rows += head_rows(share, holds_embedding=first)
    else:
        rows.append(stage_send(share))
    if first and model.extra_parameters:
        rows.append(share.held_only("unused", role="unused", parameters=model.extra_parameters))
    if first and model.vision is not None:
        from simulator.operators.vision import vision_rows

        rows += vision_rows(share, layer_rows=layer_rows)
    return tuple(rows)


def is_encoder_only(model: arch.ModelSpec) -> bool:
    """Whether every layer attends in both directions, so that nothing is generated or cached."""
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, arch.AttentionSpec)]
    return bool(mixers) and len(mixers) == len(model.layers) and not any(mixer.causal for mixer in mixers)


def _decoder_step(model: arch.ModelSpec, step: StepShape) -> StepShape:
    """What passes the (decoder) stack: with an encoder, prompts are its input and decoding starts from one token."""
    if is_encoder_only(model) and has_decode(step):
        raise RoofcastError(
            f"{model.name} is an encoder: it has no decode phase",
            field="model",
            code="no_decode",
            hint="ask for prefill only, osl_tokens 1",
        )
    if model.encoder is None:
        return step
    return mixed_step(
        prefill_sequences=step.prefill_sequences,
        prefill_tokens=np.minimum(step.prefill_tokens, 1.0),
        decode_sequences=step.decode_sequences,
        decode_context=np.maximum(step.decode_context - step.decode_source_tokens, 0.0),
        decode_tokens=step.decode_tokens,
        prefill_logits=step.prefill_logits,
    )


def _encoder_rows(share: DeviceShare) -> tuple[Work, ...]:
    """The encoder's layers over the prompt; its passes take no logits."""
    encoder = share.model.encoder
    if encoder is None:
        return ()
    source = share.source
    step = mixed_step(
        prefill_sequences=source.prefill_sequences, prefill_tokens=source.prefill_tokens, prefill_logits=0.0
    )
    inside = replace(share, step=step)
    rows = list(_stack_rows(encoder.layers, order=encoder.layer_order, share=inside))
    if encoder.final_norm:
        rows.append(_norm_row("encoder_final_norm", layers=1, norms=1, extra=0, share=inside, cost=NORM))
    return tuple(rows)


def _stack_rows(layers: tuple[arch.LayerSpec, ...], *, order: Iterable[int], share: DeviceShare) -> list[Work]:
    depths = list(order)
    rows: list[Work] = []
    for index, layer in enumerate(layers):
        count = depths.count(index)
        if count:
            rows += layer_rows(layer, share=share, count=count)
    return rows


def layer_rows(layer: arch.LayerSpec, *, share: DeviceShare, count: int) -> list[Work]:
    """Rows of ``count`` equal layers: norms with residuals, mixer, cross attention, feed-forward blocks."""
    rows = [*_mixer_rows(layer.mixer, share=share, count=count)]
    if layer.summed_once:
        rows = [row for row in rows if not (isinstance(row.shape, CollectiveShape) and row.shape.block_token_bytes)]
    if layer.cross_attention is not None:
        rows += cross_attention_rows(layer.cross_attention, share=share, count=count)
    for block in layer.feed_forward:
        rows += _feed_forward_rows(block, share=share, count=count)
    rows += _per_layer_input(share, count=count)
    sublayers = (layer.mixer is not None) + (layer.cross_attention is not None) + len(layer.feed_forward)
    hyper = share.model.hyper_connections
    if hyper is not None:
        rows += hyper_rows(hyper, share=share, sites=count * sublayers)
    rows.append(
        _norm_row(
            "residual_norm",
            layers=count * max(1, min(sublayers, layer.norms)),
            norms=layer.norms * count,
            extra=layer.extra_parameters * count,
            share=share,
            cost=RESIDUAL_NORM if hyper is None else NORM,
        )
    )
    return rows


def _mixer_rows(mixer: arch.Mixer | None, *, share: DeviceShare, count: int) -> tuple[Work, ...]:
    match mixer:
        case None:
            return ()
        case arch.AttentionSpec():
            return attention_rows(mixer, share=share, count=count)
        case arch.MlaSpec():
            from simulator.operators.mla import mla_rows

            return mla_rows(mixer, share=share, count=count)
        case arch.CompressedAttentionSpec():
            from simulator.operators.compressed import compressed_attention_rows

            return compressed_attention_rows(mixer, share=share, count=count)
        case _:
            from simulator.operators.recurrent import recurrent_rows

            return recurrent_rows(mixer, share=share, count=count)


def _feed_forward_rows(block: arch.MlpSpec | arch.MoeSpec, *, share: DeviceShare, count: int) -> tuple[Work, ...]:
    if isinstance(block, arch.MlpSpec):
        return mlp_rows(block, share=share, count=count)
    from simulator.operators.moe import moe_rows

    return moe_rows(block, share=share, count=count)


def _norm_row(name: str, *, layers: int, norms: int, extra: int, share: DeviceShare, cost: PassCost) -> Work:
    """``layers`` fused residual-and-norm passes that together hold ``norms`` norms and ``extra`` small parameters."""
    held = norms * share.norm_parameters(share.hidden_size) + extra
    return share.elementwise(
        name, cost=cost, width=share.hidden_size, count=layers, role="norm", parameters=held / layers
    )


def _per_layer_input(share: DeviceShare, *, count: int) -> tuple[Work, ...]:
    """Gemma's gate into the narrow per-layer input and the projection back."""
    width = share.model.per_layer_embedding_size
    if not width:
        return ()
    hidden = share.hidden_size
    return tuple(
        share.linear(name, role="embedding", n=n, k=k, count=count)
        for name, n, k in (("per_layer_gate", width, hidden), ("per_layer_proj", hidden, width))
    )


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


def stored_bytes(rows: tuple[Work, ...]) -> float:
    """Weights that one device holds [bytes]."""
    return sum(row.count * row.stored_bytes for row in rows)


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
