"""Dense parts of a transformer: feed-forward blocks, of a layer's own or shared by all tokens beside its experts, and
what stands before the first layer and after the last: embeddings, final norm, LM head, sampling, pooler.

Hyper-connections: the residual as parallel streams that every sublayer reads and writes through small mixes. One
product per sublayer turns a token's streams into the weights that gather the sublayer's input, spread its output and
mix the streams; the mix is made doubly stochastic by a few Sinkhorn steps [Zhu2024] [Xie2025].
"""

from __future__ import annotations

import numpy as np

from simulator.operators.device_share import ACTIVATION, GATED_ACTIVATION, GATHER, NORM, SAMPLE, DeviceShare, PassCost
from simulator.operators.work import Array, Collective, Family, Work
from simulator.specs.model.architecture import HyperConnectionSpec, MlpSpec


def mlp_rows(spec: MlpSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Dense block of ``count`` equal layers: columns split, then rows, then a sum over the ranks."""
    rows = dense_block(
        "", share=share, role="mlp", intermediate=spec.intermediate_size, gated=spec.gated, bias=spec.bias, count=count
    )
    return (*rows, *share.all_reduce_after("mlp", count=count))


def dense_block(
    prefix: str, *, share: DeviceShare, role: str, intermediate: float, gated: bool, bias: bool, count: float
) -> tuple[Work, Work, Work]:
    """Up (and gate) product, activation, down product."""
    width = intermediate / share.tp_size
    up_width = width * (2 if gated else 1)
    up = share.linear(
        f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj",
        role=role,
        n=up_width,
        k=share.hidden_size,
        bias=up_width if bias else 0.0,
        count=count,
    )
    activation = share.elementwise(
        f"{prefix}activation", cost=GATED_ACTIVATION if gated else ACTIVATION, width=width, count=count, role=role
    )
    down = share.linear(
        f"{prefix}down_proj",
        role=role,
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


SCALES = 2  # one learned scale each for gathering and spreading; mixing has a third
SINKHORN_LAUNCHES = 4  # two sums and two divisions an iteration, where nothing is fused


def mixing_numbers(spec: HyperConnectionSpec) -> int:
    """Weights that one site gives a token: one per stream to gather, one to spread, a square matrix where they mix."""
    return (2 + (spec.streams if spec.mix else 0)) * spec.streams


def hyper_rows(spec: HyperConnectionSpec, *, share: DeviceShare, sites: float) -> tuple[Work, Work, Work]:
    """Rows of ``sites`` sublayers: the weights' product, gathering with Sinkhorn, spreading.

    The product is over the normed streams together; the streams are read by it, again by gathering, and read and
    written by spreading, as the fused kernels of serving engines do.
    """
    streams, numbers = spec.streams, mixing_numbers(spec)
    sinkhorn = float(SINKHORN_LAUNCHES * spec.sinkhorn_iterations)
    # Unfused, in 32 bit: widen (3), square (4) and mean (2) of the streams; weigh (4) and sum (2); narrow the result.
    gather = PassCost(
        fused_passes=streams + 1, fused_launches=2, unfused_passes=15 * streams + 5, unfused_launches=12 + sinkhorn
    )
    # Unfused: the outer product, streams x streams weighed copies written, read and summed, the sum of both.
    spread = PassCost(
        fused_passes=2 * streams + 1,
        fused_launches=1,
        unfused_passes=(4 * streams**2 if spec.mix else 0) + 12 * streams + 1,
        unfused_launches=6,
    )
    width = share.hidden_size
    return (
        share.linear("hyper_weights", role="router", n=numbers, k=streams * width, count=sites,
                     bias=numbers + SCALES + spec.mix),
        share.elementwise("hyper_gather", cost=gather, width=width, count=sites, role="norm"),
        share.elementwise("hyper_spread", cost=spread, width=width, count=sites, role="norm"),
    )  # fmt: skip


def hyper_expand(spec: HyperConnectionSpec, *, share: DeviceShare) -> Work:
    """The embedding copied into every stream."""
    copies = PassCost(
        fused_passes=spec.streams + 1, fused_launches=1, unfused_passes=spec.streams + 1, unfused_launches=1
    )
    return share.elementwise("hyper_expand", cost=copies, width=share.hidden_size, role="norm")


def hyper_head(spec: HyperConnectionSpec, *, share: DeviceShare) -> tuple[Work, Work]:
    """The streams gathered into one before the last norm."""
    streams = spec.streams
    gather = PassCost(fused_passes=streams + 1, fused_launches=1, unfused_passes=15 * streams + 5, unfused_launches=12)
    return (
        share.linear("hyper_head_weights", role="router", n=streams, k=streams * share.hidden_size, bias=streams + 1),
        share.elementwise("hyper_head_gather", cost=gather, width=share.hidden_size, role="norm"),
    )  # fmt: skip
