"""Dense parts of a transformer: feed-forward blocks, of a layer's own or shared by all tokens beside its experts, and
what stands before the first layer and after the last: embeddings, final norm, LM head, sampling, pooler."""

from __future__ import annotations

import numpy as np

from simulator.operators.elementwise import (
    ACTIVATION,
    GATED_ACTIVATION,
    GATHER,
    NORM,
    SAMPLE,
    elementwise,
    held_only,
    hyper_expand,
    hyper_head,
)
from simulator.operators.linear import DeviceShare, all_reduce_after, collective, linear
from simulator.operators.work import Array, Collective, Family, Work
from simulator.specs.model.architecture import MlpSpec


def mlp_rows(spec: MlpSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Dense block of ``count`` equal layers: columns split, then rows, then a sum over the ranks."""
    rows = dense_block(
        "", share=share, role="mlp", intermediate=spec.intermediate_size, gated=spec.gated, bias=spec.bias, count=count
    )
    return (*rows, *all_reduce_after("mlp", share=share, count=count))


def dense_block(
    prefix: str, *, share: DeviceShare, role: str, intermediate: float, gated: bool, bias: bool, count: float
) -> tuple[Work, Work, Work]:
    """Up (and gate) product, activation, down product."""
    width = intermediate / share.tp_size
    up_width = width * (2 if gated else 1)
    up = linear(
        f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj",
        share=share,
        role=role,
        m=share.tokens,
        n=up_width,
        k=share.hidden_size,
        bias=up_width if bias else 0.0,
        count=count,
    )
    activation = elementwise(
        f"{prefix}activation",
        share=share,
        cost=GATED_ACTIVATION if gated else ACTIVATION,
        rows=share.tokens,
        width=width,
        count=count,
        role=role,
    )
    down = linear(
        f"{prefix}down_proj",
        share=share,
        role=role,
        m=share.tokens,
        n=share.hidden_size,
        k=width,
        bias=share.hidden_size if bias else 0.0,
        count=count,
    )
    return (up, activation, down)


def embedding_rows(share: DeviceShare, *, tokens: Array) -> tuple[Work, ...]:
    """Rows of the vocabulary for ``tokens`` (split and summed over ranks), positions, token types, embedding norm."""
    model = share.model
    width = model.embedding_size or model.hidden_size
    # Models that normalise their embeddings (BERT and kin) keep positions at the embeddings' width.
    learned_width = width if model.embedding_norm else model.hidden_size
    learned = (model.position_embeddings + model.token_types) * learned_width
    rows = [
        elementwise(
            "embedding",
            share=share,
            cost=GATHER,
            rows=tokens,
            width=width,
            count=1.0,
            role="embedding",
            parameters=model.vocab_size * width / share.tp_size + learned,
            family=Family.EMBEDDING,
        ),
        *all_reduce_after("embedding", share=share, count=1.0, tokens=tokens),
    ]
    if model.embedding_norm:
        rows.append(_norm("embedding_norm", share=share, rows=tokens, width=width))
    if model.embedding_size not in (None, model.hidden_size):
        rows.append(
            linear(
                "embedding_in_proj",
                share=share,
                role="embedding",
                m=tokens,
                n=model.hidden_size,
                k=width,
                bias=model.hidden_size if model.embedding_norm else 0.0,
                count=1.0,
            )
        )
    if model.hyper_connections is not None:
        rows.append(hyper_expand(model.hyper_connections, share=share))
    return (*rows, *_per_layer_embedding(share))


def _per_layer_embedding(share: DeviceShare) -> tuple[Work, ...]:
    """Gemma's per-layer inputs: a second table of one narrow vector per layer, and a projection of the first."""
    model = share.model
    width = model.per_layer_embedding_size * model.num_hidden_layers
    if not width:
        return ()
    table = elementwise(
        "per_layer_embedding",
        share=share,
        cost=GATHER,
        rows=share.tokens,
        width=width,
        count=1.0,
        role="embedding",
        parameters=model.vocab_size * width / share.tp_size,
        family=Family.EMBEDDING,
    )
    projection = linear(
        "per_layer_model_proj", share=share, role="embedding", m=share.tokens, n=width, k=model.hidden_size, count=1.0
    )
    norm = elementwise(
        "per_layer_norm",
        share=share,
        cost=NORM,
        rows=share.tokens,
        width=width,
        count=1.0,
        role="norm",
        parameters=share.norm_parameters(model.per_layer_embedding_size),
    )
    return (table, projection, norm)


def _norm(name: str, *, share: DeviceShare, rows: Array, width: float) -> Work:
    return elementwise(
        name,
        share=share,
        cost=NORM,
        rows=rows,
        width=width,
        count=1.0,
        role="norm",
        parameters=share.norm_parameters(width),
    )


def head_rows(share: DeviceShare, *, holds_embedding: bool) -> tuple[Work, ...]:
    """Final norm over every token, then the LM head and greedy sampling over the rows that need logits.
    ``holds_embedding``: a tied head reuses the embedding of the same device and takes no memory of its own."""
    model = share.model
    rows: list[Work] = []
    if model.hyper_connections is not None:
        rows += hyper_head(model.hyper_connections, share=share)
    if model.final_norm:
        rows.append(_norm("final_norm", share=share, rows=share.tokens, width=model.hidden_size))
    if model.pooler:
        rows.append(
            linear(
                "pooler",
                share=share,
                role="embedding",
                m=share.step.prefill_sequences,
                n=model.hidden_size,
                k=model.hidden_size,
                bias=model.hidden_size,
                count=1.0,
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
            linear(
                "head_transform",
                share=share,
                role="lm_head",
                m=logits,
                n=width,
                k=model.hidden_size,
                bias=model.head_hidden_parameters - width * model.hidden_size,
                count=1.0,
            )
        )
    elif width != model.hidden_size:
        rows.append(
            linear(
                "embedding_out_proj", share=share, role="embedding", m=logits, n=width, k=model.hidden_size, count=1.0
            )
        )
    vocab = model.vocab_size / share.tp_size
    rows += _vocabulary_product(share, logits=logits, vocab=vocab, width=width, tied=holds_embedding)
    if share.tp_size > 1:
        rows.append(
            collective(
                "logits_all_gather",
                share=share,
                operation=Collective.ALL_GATHER,
                message_bytes=logits * model.vocab_size * share.element_bytes,
                participants=share.tp_size,
                count=1.0,
                role="lm_head",
            )
        )
    rows.append(
        elementwise(
            "sampling", share=share, cost=SAMPLE, rows=logits, width=model.vocab_size, count=1.0, role="lm_head"
        )
    )
    return rows


def _vocabulary_product(share: DeviceShare, *, logits: Array, vocab: float, width: float, tied: bool) -> list[Work]:
    shared = tied and share.model.tie_word_embeddings
    bias = vocab if share.model.lm_head_bias else 0.0
    head = linear(
        "lm_head",
        share=share,
        role="lm_head",
        m=logits,
        n=vocab,
        k=width,
        bias=0.0 if shared else bias,
        held=not shared,
        count=1.0,
        family=Family.LM_HEAD,
    )
    if shared and bias:
        return [head, held_only("lm_head_bias", share=share, role="lm_head", parameters=bias, active=True)]
    return [head]


def stage_send(share: DeviceShare) -> Work:
    """Send of the residual stream to the next pipeline stage: one tensor, split over the tensor-parallel ranks."""
    hyper = share.model.hyper_connections
    width = share.hidden_size * (1 if hyper is None else hyper.streams)
    return collective(
        "stage_send",
        share=share,
        operation=Collective.P2P,
        message_bytes=np.asarray(share.tokens * width * share.element_bytes / share.tp_size),
        participants=2,
        count=1.0,
        role="pipeline",
    )
