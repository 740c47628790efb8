"""The operator list: everything that one device of one pipeline stage does in one step.

Its layers, the dense feed-forward blocks, and what stands before the first layer and after the last: embeddings, final
norm, LM head, sampling, pooler.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.attention import attention_rows, cross_attention_rows
from simulator.operators.device_share import (
    GATHER,
    NORM,
    RESIDUAL_NORM,
    SAMPLE,
    DeviceShare,
    PassCost,
    dense_block,
    has_decode,
)
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.parallelism import check_parallelism, stage_layers
from simulator.operators.work import Array, Collective, CollectiveShape, Family, StepShape, Work, mixed_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model import architecture as arch
from simulator.specs.model.architecture import MlpSpec

MadeRows = dict[tuple[int, int], list[Work]]
"""Rows of so many layers of each kind, by the kind's place and their number."""


def operator_list(
    model: arch.ModelSpec,
    *,
    parallelism: ParallelismSpec,
    plan: PrecisionPlan,
    step: StepShape,
    stage: int = 0,
    fused: bool = True,
    made: MadeRows | None = None,
) -> tuple[Work, ...]:
    """Rows of one device of pipeline stage ``stage`` for one step; equal layers are one row with a count.

    model, parallelism, plan : what runs and how it is spread; a degree that does not fit is refused
    step : tokens of one attention-data-parallel rank; phases that no case has give no attention rows
    fused : elementwise passes fused as compiled engines do; False prices each eager operator's round trip
    made : layers of other stages of the same step, whose rows are shared

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
    rows += _stack_rows(model.layers, order=map(model.layer_order.__getitem__, depths), share=share, made=made)
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


def _stack_rows(
    layers: tuple[arch.LayerSpec, ...], *, order: Iterable[int], share: DeviceShare, made: MadeRows | None = None
) -> list[Work]:
    depths, made = list(order), {} if made is None else made
    rows: list[Work] = []
    for index, layer in enumerate(layers):
        count = depths.count(index)
        if count and (index, count) not in made:
            made[index, count] = layer_rows(layer, share=share, count=count)
        rows += made.get((index, count), ())
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
        from simulator.operators.hyper_connections import hyper_rows

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


def stored_bytes(rows: tuple[Work, ...]) -> float:
    """Weights that one device holds [bytes]."""
    return sum(row.count * row.stored_bytes for row in rows)


def mlp_rows(spec: MlpSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Dense block of ``count`` equal layers: columns split, then rows, then a sum over the ranks."""
    rows = dense_block(
        "", share=share, role="mlp", intermediate=spec.intermediate_size, gated=spec.gated, bias=spec.bias, count=count
    )
    return (*rows, *share.all_reduce_after("mlp", count=count))


def embedding_rows(share: DeviceShare, *, tokens: Array) -> tuple[Work, ...]:
    """Rows of the vocabulary for ``tokens`` (split and summed over ranks), positions, token types, embedding norm."""
    model = share.model
    width = model.embedding_size or model.hidden_size
    # Models that normalise their embeddings (BERT and kin) keep positions at the embeddings' width.
    learned_width = width if model.embedding_norm else model.hidden_size
    learned = (model.position_embeddings + model.token_types) * learned_width
    rows = [
        share.elementwise(
            "embedding",
            cost=GATHER,
            rows=tokens,
            width=width,
            role="embedding",
            parameters=model.vocab_size * width / share.tp_size + learned,
            family=Family.EMBEDDING,
        ),
        *share.all_reduce_after("embedding", count=1.0, tokens=tokens),
    ]
    if model.embedding_norm:
        rows.append(_norm("embedding_norm", share=share, rows=tokens, width=width))
    if model.embedding_size not in (None, model.hidden_size):
        rows.append(
            share.linear(
                "embedding_in_proj",
                role="embedding",
                m=tokens,
                n=model.hidden_size,
                k=width,
                bias=model.hidden_size if model.embedding_norm else 0.0,
            )
        )
    if model.hyper_connections is not None:
        from simulator.operators.hyper_connections import hyper_expand

        rows.append(hyper_expand(model.hyper_connections, share=share))
    return (*rows, *_per_layer_embedding(share))


def _per_layer_embedding(share: DeviceShare) -> tuple[Work, ...]:
    """Gemma's per-layer inputs: a second table of one narrow vector per layer, and a projection of the first."""
    model = share.model
    width = model.per_layer_embedding_size * model.num_hidden_layers
    if not width:
        return ()
    table = share.elementwise(
        "per_layer_embedding",
        cost=GATHER,
        width=width,
        role="embedding",
        parameters=model.vocab_size * width / share.tp_size,
        family=Family.EMBEDDING,
    )
    projection = share.linear("per_layer_model_proj", role="embedding", n=width, k=model.hidden_size)
    norm = share.elementwise(
        "per_layer_norm",
        cost=NORM,
        width=width,
        role="norm",
        parameters=share.norm_parameters(model.per_layer_embedding_size),
    )
    return (table, projection, norm)


def _norm(name: str, *, share: DeviceShare, rows: Array, width: float) -> Work:
    return share.elementwise(
        name, cost=NORM, rows=rows, width=width, role="norm", parameters=share.norm_parameters(width)
    )


def head_rows(share: DeviceShare, *, holds_embedding: bool) -> tuple[Work, ...]:
    """Final norm over every token, then the LM head and greedy sampling over the rows that need logits.
    ``holds_embedding``: a tied head reuses the embedding of the same device and takes no memory of its own."""
    model = share.model
    rows: list[Work] = []
    if model.hyper_connections is not None:
        from simulator.operators.hyper_connections import hyper_head

        rows += hyper_head(model.hyper_connections, share=share)
    if model.final_norm:
        rows.append(_norm("final_norm", share=share, rows=share.tokens, width=model.hidden_size))
    if model.pooler:
        rows.append(
            share.linear(
                "pooler",
                role="embedding",
                m=share.step.prefill_sequences,
                n=model.hidden_size,
                k=model.hidden_size,
                bias=model.hidden_size,
            )
        )
    if model.has_lm_head:
        rows += _lm_head(share, holds_embedding=holds_embedding)
    return tuple(rows)


def _lm_head(share: DeviceShare, *, holds_embedding: bool) -> list[Work]:
    model = share.model
    logits = share.step.logits_tokens
    width = model.embedding_size or model.hidden_size
    rows = []
    if model.head_hidden_parameters:
        rows.append(
            share.linear(
                "head_transform",
                role="lm_head",
                m=logits,
                n=width,
                k=model.hidden_size,
                bias=model.head_hidden_parameters - width * model.hidden_size,
            )
        )
    elif width != model.hidden_size:
        rows.append(share.linear("embedding_out_proj", role="embedding", m=logits, n=width, k=model.hidden_size))
    vocab = model.vocab_size / share.tp_size
    rows += _vocabulary_product(share, logits=logits, vocab=vocab, width=width, tied=holds_embedding)
    if share.tp_size > 1:
        rows.append(
            share.collective(
                "logits_all_gather",
                operation=Collective.ALL_GATHER,
                message_bytes=logits * model.vocab_size * share.element_bytes,
                participants=share.tp_size,
                count=1.0,
                role="lm_head",
            )
        )
    rows.append(share.elementwise("sampling", cost=SAMPLE, rows=logits, width=model.vocab_size, role="lm_head"))
    return rows


def _vocabulary_product(share: DeviceShare, *, logits: Array, vocab: float, width: float, tied: bool) -> list[Work]:
    shared = tied and share.model.tie_word_embeddings
    bias = vocab if share.model.lm_head_bias else 0.0
    head = share.linear(
        "lm_head",
        role="lm_head",
        m=logits,
        n=vocab,
        k=width,
        bias=0.0 if shared else bias,
        held=not shared,
        family=Family.LM_HEAD,
    )
    if shared and bias:
        return [head, share.held_only("lm_head_bias", role="lm_head", parameters=bias, active=True)]
    return [head]


def stage_send(share: DeviceShare) -> Work:
    """Send of the residual stream to the next pipeline stage: one tensor, split over the tensor-parallel ranks."""
    hyper = share.model.hyper_connections
    width = share.hidden_size * (1 if hyper is None else hyper.streams)
    return share.collective(
        "stage_send",
        operation=Collective.P2P,
        message_bytes=np.asarray(share.tokens * width * share.element_bytes / share.tp_size),
        participants=2,
        count=1.0,
        role="pipeline",
    )
