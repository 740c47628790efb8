"""What most families share: sizes, head layouts, windows, and from a trunk and its layers to a ModelSpec."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model import architecture as arch

SLIDING = "sliding_attention"
FULL = "full_attention"
DENSE, SPARSE = "dense", "sparse"
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


Windows = tuple[int | None, ...]
"""The number of keys that each layer sees, None for all of them."""


def windows_of_types(fields: Fields, *, window: int | None, default: Sequence[str]) -> Windows:
    """Window of every layer from ``layer_types``, or from ``default`` where the configuration does not list them."""
    types = fields.words("layer_types", length=len(default), allowed=(SLIDING, FULL)) or tuple(default)
    if window is None and SLIDING in types:
        raise fields.refusal("sliding_window", "is missing while layer_types names sliding_attention layers")
    return tuple(window if kind == SLIDING else None for kind in types)


def periodic_windows(fields: Fields, *, period: int, window: int | None) -> Windows:
    """Window of every layer where, unless ``layer_types`` lists them, each ``period``-th one sees everything."""
    return windows_of_types(fields, window=window, default=every_nth_full(fields.depth("num_hidden_layers"), period))


def patterned_windows(fields: Fields, *, period: int, window: int | None) -> Windows:
    """`periodic_windows` with the defaults of ``sliding_window_pattern`` and ``sliding_window``."""
    given = fields.size(fields.either("sliding_window_pattern", "_sliding_window_pattern"), default=period)
    return periodic_windows(fields, period=given, window=fields.size("sliding_window", default=window))


def qwen_windows(fields: Fields) -> Windows:
    """Qwen: the window holds from layer ``max_window_layers`` on, and only where ``use_sliding_window`` is set."""
    depth = fields.depth("num_hidden_layers")
    used = fields.flag("use_sliding_window", default=False)
    given = fields.optional_count("sliding_window") or None
    first = fields.optional_count("max_window_layers")
    if not used:
        fields.costless("layer_types")
        return (None,) * depth
    if given is None or (first is None and not fields.has("layer_types")):
        missing = "sliding_window" if given is None else "max_window_layers"
        raise fields.refusal(missing, "is missing while use_sliding_window is true")
    default = tuple(SLIDING if index >= (first or 0) else FULL for index in range(depth))
    return windows_of_types(fields, window=given, default=default)


def listed_windows(fields: Fields) -> Windows:
    """A window on every layer where ``sliding_window`` is given, unless ``layer_types`` says otherwise."""
    window = fields.optional_size("sliding_window")
    default = (SLIDING if window else FULL,) * fields.depth("num_hidden_layers")
    return windows_of_types(fields, window=window, default=default)


_PATTERN = {"L": SLIDING, "G": FULL}


def exaone_windows(fields: Fields) -> Windows:
    """Window of every layer: ``sliding_window_pattern`` is LLLG or the distance of full layers."""
    depth = fields.depth("num_hidden_layers")
    window = fields.optional_size("sliding_window")
    pattern = fields.raw("sliding_window_pattern")
    default: tuple[str, ...] = (FULL,) * depth
    if window is not None and isinstance(pattern, str) and pattern and set(pattern) <= set(_PATTERN):
        default = tuple(_PATTERN[pattern[index % len(pattern)]] for index in range(depth))
    elif window is not None and isinstance(pattern, int) and pattern > 0:
        default = every_nth_full(depth, pattern)
    return windows_of_types(fields, window=window, default=default)


def every_nth_full(depth: int, period: int) -> tuple[str, ...]:
    """Layer types where each ``period``-th layer sees everything and the others slide."""
    return tuple(FULL if (index + 1) % period == 0 else SLIDING for index in range(depth))


def distinct(layers: Sequence[arch.LayerSpec]) -> tuple[tuple[arch.LayerSpec, ...], tuple[int, ...]]:
    """Distinct blocks in order of appearance, and which of them stands at each depth."""
    known: list[arch.LayerSpec] = []
    order: list[int] = []
    for layer in layers:
        if layer not in known:
            known.append(layer)
        order.append(known.index(layer))
    return tuple(known), tuple(order)


def read_experts(
    fields: Fields,
    *,
    total: str,
    picked: str = "num_experts_per_tok",
    total_default: int | None = None,
    picked_default: int | None = None,
    width: int | None = None,
    shared: int = 0,
    shared_count: str | None = None,
    correction_bias: bool = False,
) -> arch.MoeSpec:
    """Experts of ``width`` (moe_intermediate_size unless given), of which a router picks no more than there are.

    shared : width of the experts that see every token, in all; shared_count : field with their number, where each is
        as wide as the others
    """
    experts = fields.size(total, default=total_default)
    chosen = fields.size(picked, default=picked_default)
    if chosen > experts:
        raise fields.refusal(picked, f"is {chosen}, more than the {experts} experts")
    width = width or fields.size("moe_intermediate_size")
    # Models without experts need no fits of routers.
    from simulator.specs.model.fitted import load_routing_fit

    return arch.MoeSpec(
        num_experts=experts,
        num_experts_per_tok=chosen,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=shared if shared_count is None else width * fields.count(shared_count),
        correction_bias=correction_bias,
        fitted_skew=load_routing_fit().families.get(fields.config_class),
    )


def sparse_after(fields: Fields, *, first_default: int | None = None) -> tuple[bool, ...]:
    """Which layers hold experts: mlp_layer_types, moe_layer_freq (a list or 1) or first_k_dense_replace."""
    depth = fields.depth("num_hidden_layers")
    types = fields.words("mlp_layer_types", length=depth, allowed=(DENSE, SPARSE))
    first = fields.optional_count("first_k_dense_replace")
    listed = fields.raw("moe_layer_freq")
    if isinstance(listed, list):
        frequency = fields.integers("moe_layer_freq") or ()
        if len(frequency) != depth:
            raise fields.refusal("moe_layer_freq", f"has {len(frequency)} entries for {depth} layers")
        types = types or tuple(SPARSE if entry else DENSE for entry in frequency)
    else:
        fields.expect("moe_layer_freq", value=1, why="experts on every layer after the first dense ones")
    if types is not None:
        return tuple(kind == SPARSE for kind in types)
    if first is None and first_default is None:
        raise fields.refusal("first_k_dense_replace", "is missing: which layers hold experts is unknown")
    return tuple(index >= (first if first is not None else first_default or 0) for index in range(depth))


def sparse_steps(fields: Fields) -> tuple[bool, ...]:
    """Which layers hold experts: each ``decoder_sparse_step``-th one that mlp_only_layers does not list."""
    step = fields.size("decoder_sparse_step", default=1)
    dense_only = fields.integers("mlp_only_layers") or ()
    depth = fields.depth("num_hidden_layers")
    return tuple(index not in dense_only and (index + 1) % step == 0 for index in range(depth))


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
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "num_mtp_modules",
    "mtp_num_hidden_layers",
    "_num_mtp_layers",
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


def encoder(layers: Sequence[arch.LayerSpec]) -> arch.EncoderSpec:
    """The encoder of an encoder-decoder model."""
    known, order = distinct(layers)
    return arch.EncoderSpec(layers=known, layer_order=order)
