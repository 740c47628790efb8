"""What most families share: sizes, heads, from a trunk and its layers to a ModelSpec; layouts of those without code.

``families/huggingface.yaml`` describes attention, windows and blocks of decoders that need no code.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from simulator.records import dataclass
from simulator.specs.base import Note, Spec, validate
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model import architecture as arch

MOSAIC_NAMES = {
    "hidden_size": ("d_model",),
    "num_hidden_layers": ("n_layers",),
    "num_attention_heads": ("n_heads",),
    "max_position_embeddings": ("max_seq_len",),
}
"""Sizes as MosaicML's configurations call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trunk:
    """Width, depth and vocabulary; ``max_position_embeddings`` is the context the model was configured for."""

    hidden_size: int
    num_hidden_layers: int
    vocab_size: int
    max_position_embeddings: int | None


def read_trunk(fields: Fields, *, vocab_default: int | None = None) -> Trunk:
    """The four sizes under their usual names."""
    return Trunk(
        hidden_size=fields.size("hidden_size"),
        num_hidden_layers=fields.depth("num_hidden_layers"),
        vocab_size=fields.size("vocab_size", default=vocab_default),
        max_position_embeddings=fields.optional_size(fields.either("max_position_embeddings", "model_max_length")),
    )


def read_attention(
    fields: Fields,
    *,
    heads_default: int | None = None,
    kv_heads_default: int | None = None,
    head_dim_default: int | None = None,
    bias: str | None = None,
    qk_norm: str = "none",
) -> arch.AttentionSpec:
    """Head layout under the usual names; without defaults KV heads are the heads and head_dim fills hidden_size.

    bias : flag that puts biases on all four projections, off unless given; qk_norm : norm of query and key heads
    """
    heads = fields.size("num_attention_heads", default=heads_default)
    kv_heads = fields.size("num_key_value_heads", default=kv_heads_default or heads)
    head_dim = fields.optional_size("head_dim") or head_dim_default
    if head_dim is None:
        head_dim = split_heads(fields, fields.size("hidden_size"), heads)
    attention = grouped_attention(fields, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    biased = bias is not None and fields.flag(bias, default=False)
    return attention.model_copy(update={"qkv_bias": biased, "o_bias": biased, "qk_norm": qk_norm})


def read_heads(fields: Fields, *, one_kv_head: bool = False) -> arch.AttentionSpec:
    """Heads that fill hidden_size, each with keys and values of its own or all with the same."""
    heads = fields.size("num_attention_heads")
    kv_heads = 1 if one_kv_head else heads
    fields.expect("num_key_value_heads", value=kv_heads, why="the family leaves no choice")
    head_dim = split_heads(fields, fields.size("hidden_size"), heads)
    return grouped_attention(fields, heads=heads, kv_heads=kv_heads, head_dim=head_dim)


def read_mlp(fields: Fields, *, bias: str | None = None) -> arch.MlpSpec:
    """The feed-forward block of ``intermediate_size``. bias : flag that puts biases on its matrices, else off"""
    biased = bias is not None and fields.flag(bias, default=False)
    return arch.MlpSpec(intermediate_size=fields.size("intermediate_size"), bias=biased)


def split_heads(fields: Fields, hidden_size: int, heads: int) -> int:
    """Width of a head where heads fill hidden_size exactly."""
    if hidden_size % heads:
        raise fields.refusal("num_attention_heads", f"{heads} heads do not divide hidden_size {hidden_size} evenly")
    return hidden_size // heads


def grouped_attention(fields: Fields, *, heads: int, kv_heads: int, head_dim: int) -> arch.AttentionSpec:
    """Attention of ``heads`` query heads on ``kv_heads`` key and value heads, which must divide them."""
    if heads % kv_heads:
        raise fields.refusal("num_key_value_heads", f"is {kv_heads}, which does not divide {heads} attention heads")
    return arch.AttentionSpec(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim)


def with_window(attention: arch.AttentionSpec, window: int | None) -> arch.AttentionSpec:
    """An attention over at most ``window`` keys."""
    return attention.model_copy(update={"sliding_window": window})


def distinct(layers: Sequence[arch.LayerSpec]) -> tuple[tuple[arch.LayerSpec, ...], tuple[int, ...]]:
    """Distinct blocks in order of appearance, and which of them stands at each depth."""
    known: list[arch.LayerSpec] = []
    order: list[int] = []
    for layer in layers:
        if layer not in known:
            known.append(layer)
        order.append(known.index(layer))
    return tuple(known), tuple(order)


def choose(
    fields: Fields, is_sparse: Sequence[bool], *, sparse: arch.MoeSpec, dense: arch.MlpSpec | None = None
) -> tuple[tuple[arch.FeedForward, ...], ...]:
    """One feed-forward part per layer; dense ones of ``intermediate_size`` unless given."""
    if dense is None and all(is_sparse):
        fields.costless("intermediate_size")
        return ((sparse,),) * len(is_sparse)
    others = dense or read_mlp(fields)
    return tuple((sparse,) if chosen else (others,) for chosen in is_sparse)


_PREDICTION_LAYERS = (
    *("num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules"),
    *("mtp_num_hidden_layers", "_num_mtp_layers"),
)


def prediction_layers(fields: Fields) -> int:
    """Multi-token-prediction layers behind the last layer, by whichever name a checkpoint gives their number."""
    return max(fields.count(name) for name in _PREDICTION_LAYERS)


def decoder(
    fields: Fields,
    *,
    trunk: Trunk,
    layers: Sequence[arch.LayerSpec],
    norm: arch.Norm = "rms",
    tie_default: bool = False,
    lm_head_bias: bool = False,
    position_embeddings: int = 0,
    embedding_norm: bool = False,
    final_norm: bool = True,
    per_layer_embedding_size: int = 0,
    extra_parameters: int = 0,
    notes: tuple[Note, ...] = (),
) -> arch.ModelSpec:
    """A decoder-only model; ``tie_default`` is what the configuration class documents."""
    known, order = distinct(layers)
    predicting = prediction_layers(fields)
    unrun = Note("prediction_layers", {"layers": predicting})
    return arch.ModelSpec(
        name="unnamed",
        model_type="unnamed",
        hidden_size=trunk.hidden_size,
        vocab_size=trunk.vocab_size,
        max_position_embeddings=trunk.max_position_embeddings,
        layers=known,
        layer_order=order,
        tie_word_embeddings=fields.flag("tie_word_embeddings", default=tie_default),
        norm=norm,
        lm_head_bias=lm_head_bias,
        position_embeddings=position_embeddings,
        embedding_norm=embedding_norm,
        final_norm=final_norm,
        per_layer_embedding_size=per_layer_embedding_size,
        extra_parameters=extra_parameters,
        num_nextn_predict_layers=predicting,
        notes=(*notes, unrun) if predicting else notes,
    )


def stack(
    fields: Fields,
    mixers: arch.Mixer | Sequence[arch.Mixer],
    blocks: arch.FeedForward | Sequence[tuple[arch.FeedForward, ...]],
    *,
    trunk: Trunk | None = None,
    norms: int = 2,
    extra_parameters: int = 0,
    summed_once: bool = False,
    norm: arch.Norm = "rms",
    tie_default: bool = False,
    lm_head_bias: bool = False,
    notes: tuple[Note, ...] = (),
) -> arch.ModelSpec:
    """A decoder of mixers and the feed-forward blocks behind them.

    mixers, blocks : one for all layers, or those of each
    trunk : where its sizes do not stand under their usual names; norms, extra_parameters, summed_once : of a layer
    """
    trunk = trunk or read_trunk(fields)
    depth = trunk.num_hidden_layers
    each = blocks if isinstance(blocks, Sequence) else ((blocks,),) * depth
    own = mixers if isinstance(mixers, Sequence) else (mixers,) * depth
    layers = tuple(
        arch.LayerSpec(
            mixer=mixer,
            feed_forward=feed_forward,
            norms=norms,
            summed_once=summed_once,
            extra_parameters=extra_parameters,
        )
        for mixer, feed_forward in zip(own, each, strict=True)
    )
    return decoder(
        fields, trunk=trunk, layers=layers, norm=norm, tie_default=tie_default, lm_head_bias=lm_head_bias, notes=notes
    )


class Flag(Spec):
    """A flag of the configuration, and what it is where the configuration does not say."""

    flag: str
    default: bool


Switch = bool | str | Flag
"""Always or never, or as a flag of the configuration says; a name alone is off unless it is given."""


class ExpertsLayout(Spec):
    """Experts of one family.

    experts, picked : ``num_experts`` and ``num_experts_per_tok`` where the configuration does not say
    width : the field with an expert's width
    shared : the field with the width of what sees every token, in all; shared_count : or with the number of such
        experts, as wide as the others; each with what it is where the configuration does not say; shared_gate : on it
    correction_bias, biased, routing_skew : as in MoeSpec, ``biased`` for experts and router; the skew where texts were
        counted [Jiang2024]
    layers : that hold experts: ``all``; ``after`` the first dense ones (``first`` of them unless given); ``listed`` one
        by one, or else so; ``steps`` apart, as Qwen writes it; ``between`` two indices
    dense_width : the field with the width of the other layers where it is not intermediate_size
    """

    experts: int | None = None
    picked: int | None = None
    width: str = "moe_intermediate_size"
    shared: str | None = None
    shared_default: int | None = None
    shared_count: str | None = None
    shared_count_default: int = 0
    shared_gate: bool = False
    correction_bias: Switch = False
    biased: bool = False
    routing_skew: float | None = None
    layers: Literal["all", "after", "listed", "steps", "between"] = "all"
    first: int | None = None
    dense_width: str = "intermediate_size"


class DecoderLayout(Spec):
    """One family.

    names : what the configuration calls a usual field, the first of them that is given
    heads, kv_heads, head_dim, vocab : where the configuration does not say; tied : likewise
    grouped : whether there may be fewer KV heads than heads; one_kv_head : where not, whether there is one in all
    bias, qkv_bias, o_bias, mlp_bias : biases on all projections of attention, on q, k and v, on the output, and on the
        feed-forward matrices
    qk_norm, normed_if : norms of query and key heads, and what switches them on; qk_norm_bias : these have biases
    mlp_ratio : width of the feed-forward block over hidden_size where the configuration does not say
    windows : ``each`` slides over sliding_window where it is given; ``listed`` too, unless layer_types says otherwise;
        ``periodic``: each ``period``-th sees everything, the others ``window`` keys; ``leading``: so does the first
        layer; ``patterned``: as periodic where the configuration gives no period; ``qwen``, ``exaone``: as these write
        it; none of them: all see everything
    norms, extra_parameters : of a layer; parallel : what puts its sublayers side by side, behind one norm
    learned_positions : a stored row for each position; embedding_norm : behind the embedding
    experts : in place of feed-forward blocks
    """

    names: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    tied: bool = False
    grouped: bool = True
    one_kv_head: Switch = False
    bias: Switch = False
    qkv_bias: Switch = False
    o_bias: Switch = False
    mlp_bias: Switch = False
    lm_head_bias: Switch = False
    qk_norm: arch.QkNorm = "none"
    normed_if: Switch = True
    qk_norm_bias: bool = False
    rotary: bool = True
    sinks: bool = False
    output_gate: arch.OutputGate = "none"
    gated: bool = True
    mlp_ratio: int | None = None
    windows: Literal["each", "listed", "full", "periodic", "leading", "patterned", "qwen", "exaone"] | None = None
    period: int = 1
    window: int | None = None
    norms: int = 2
    parallel: Switch = False
    norm: arch.Norm = "rms"
    extra_parameters: int = 0
    learned_positions: bool = False
    embedding_norm: bool = False
    experts: ExpertsLayout | None = None


def read_layout(fields: Fields, given: Mapping[str, object], *, where: str) -> arch.ModelSpec:
    """The model of a configuration whose family has the layout that is ``given``."""
    layout = validate(DecoderLayout, given, where=where, profile=True)
    fields.rename(layout.names)
    trunk = read_trunk(fields, vocab_default=layout.vocab)
    positions = trunk.max_position_embeddings if layout.learned_positions else 0
    if positions is None:
        raise fields.refusal("max_position_embeddings", "is missing: one learned row per position is stored")
    attention, windows = _attention(fields, layout), None
    if layout.windows is not None:
        from simulator.specs.huggingface.windows import windows_of_kind

        windows = windows_of_kind(fields, layout.windows, period=layout.period, window=layout.window)
    model = stack(
        fields,
        attention if windows is None else [with_window(attention, window) for window in windows],
        _mlp(fields, layout) if layout.experts is None else _blocks(fields, layout, layout.experts),
        trunk=trunk,
        norms=1 if _is_on(fields, layout.parallel) else layout.norms,
        norm=layout.norm,
        extra_parameters=layout.extra_parameters,
        tie_default=layout.tied,
        lm_head_bias=_is_on(fields, layout.lm_head_bias),
    )
    return model.model_copy(update={"position_embeddings": positions, "embedding_norm": layout.embedding_norm})


def _is_on(fields: Fields, switch: Switch) -> bool:
    match switch:
        case bool():
            return switch
        case str():
            return fields.flag(switch, default=False)
        case Flag():
            return fields.flag(switch.flag, default=switch.default)


def _attention(fields: Fields, layout: DecoderLayout) -> arch.AttentionSpec:
    if layout.grouped:
        attention = read_attention(
            fields, heads_default=layout.heads, kv_heads_default=layout.kv_heads, head_dim_default=layout.head_dim
        )
    else:
        attention = read_heads(fields, one_kv_head=_is_on(fields, layout.one_kv_head))
    everywhere = _is_on(fields, layout.bias)
    normed = layout.qk_norm != "none" and _is_on(fields, layout.normed_if)
    return attention.model_copy(
        update={
            "qkv_bias": everywhere or _is_on(fields, layout.qkv_bias),
            "o_bias": everywhere or _is_on(fields, layout.o_bias),
            "qk_norm": layout.qk_norm if normed else "none",
            "qk_norm_bias": normed and layout.qk_norm_bias,
            "rotary": layout.rotary,
            "sinks": layout.sinks,
            "output_gate": layout.output_gate,
        }
    )


def _mlp(fields: Fields, layout: DecoderLayout, *, name: str = "intermediate_size") -> arch.MlpSpec:
    if layout.mlp_ratio is None:
        width = fields.size(name)
    else:
        width = fields.optional_size(name) or layout.mlp_ratio * fields.size("hidden_size")
    return arch.MlpSpec(intermediate_size=width, gated=layout.gated, bias=_is_on(fields, layout.mlp_bias))


def _blocks(fields: Fields, layout: DecoderLayout, experts: ExpertsLayout) -> Sequence[tuple[arch.FeedForward, ...]]:
    from simulator.specs.huggingface.experts import read_experts, sparse_layers

    width, shared = fields.size(experts.width), 0
    if experts.shared is not None:
        shared = fields.size(experts.shared, default=experts.shared_default)
    elif experts.shared_count is not None:
        shared = width * fields.count(experts.shared_count, default=experts.shared_count_default)
    sparse = read_experts(
        fields,
        total="num_experts",
        total_default=experts.experts,
        picked_default=experts.picked,
        width=width,
        shared=shared,
        correction_bias=_is_on(fields, experts.correction_bias),
    ).model_copy(
        update={"shared_expert_gate": experts.shared_gate, "expert_bias": experts.biased, "router_bias": experts.biased}
        | ({} if experts.routing_skew is None else {"routing_skew": experts.routing_skew})
    )
    is_sparse = sparse_layers(fields, experts.layers, first=experts.first)
    fields.costless(experts.dense_width)
    dense_width = experts.dense_width if fields.has(experts.dense_width) else "intermediate_size"
    dense = None if all(is_sparse) else _mlp(fields, layout, name=dense_width)
    return choose(fields, is_sparse, sparse=sparse, dense=dense)
