"""Mixtures of experts under ordinary attention: Granite, dots.llm1, Hunyuan, Trinity, Laguna, ERNIE, K-EXAONE, Solar.

Command A+: the same beside its attention, behind one norm.
"""

from __future__ import annotations

from simulator.specs.huggingface.dense_variants import exaone_windows
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    FULL,
    SLIDING,
    choose,
    decoder,
    patterned_windows,
    periodic_windows,
    read_attention,
    read_experts,
    read_mlp,
    read_trunk,
    sparse_after,
    stack,
)
from simulator.specs.huggingface.moe import read_mixtral
from simulator.specs.model.architecture import LayerSpec, Mamba2Spec, MlpSpec, ModelSpec, MoeSpec

_SCANNING = ("mamba", "linear_attention")
_HYBRID_LAYERS = (*_SCANNING, "attention", FULL)
"""Layers of a Granite hybrid, in the words of its checkpoints and of transformers 5."""


def read_granite_moe(fields: Fields) -> ModelSpec:
    """GraniteMoeConfig: Mixtral whose router scales are folded into the multipliers."""
    return read_mixtral(fields)


def read_granite_hybrid(fields: Fields) -> ModelSpec:
    """GraniteMoeHybridConfig: Mamba-2 or attention, then experts beside a shared block, or that block alone."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    rotary = fields.text("position_embedding_type", allowed=("nope", "rope"), default="nope") == "rope"
    attention = read_attention(fields).model_copy(update={"rotary": rotary})
    scan = Mamba2Spec(
        num_heads=fields.size("mamba_n_heads"),
        head_dim=fields.size("mamba_d_head"),
        state_size=fields.size("mamba_d_state"),
        n_groups=fields.size("mamba_n_groups", default=1),
        conv_kernel=fields.size("mamba_d_conv", default=4),
        chunk_size=fields.size("mamba_chunk_size", default=256),
        use_bias=fields.flag("mamba_proj_bias", default=False),
        use_conv_bias=fields.flag("mamba_conv_bias", default=True),
    )
    types = fields.words("layer_types", length=depth, allowed=_HYBRID_LAYERS)
    if types is None:
        raise fields.refusal("layer_types", "is missing: which layers attend is unknown")
    width = fields.size("intermediate_size")
    shared = fields.size("shared_intermediate_size")
    block: MlpSpec | MoeSpec = MlpSpec(intermediate_size=shared)
    if fields.count("num_local_experts"):
        block = read_experts(fields, total="num_local_experts", width=width, shared=shared)
    else:
        fields.expect("num_experts_per_tok", value=0, why="there is no expert to pick")
    layers = tuple(LayerSpec(mixer=scan if kind in _SCANNING else attention, feed_forward=(block,)) for kind in types)
    return decoder(fields, trunk=trunk, layers=layers)


def read_dots1(fields: Fields) -> ModelSpec:
    """Dots1Config: norms over heads, DeepSeek-V3's experts under ordinary attention."""
    attention = read_attention(fields, bias="attention_bias", qk_norm="head")
    fields.words("layer_types", length=fields.depth("num_hidden_layers"), allowed=(FULL,))
    sparse = read_experts(fields, total="n_routed_experts", shared_count="n_shared_experts", correction_bias=True)
    return stack(fields, attention, choose(fields, sparse_after(fields), sparse=sparse))


def read_solar_open(fields: Fields) -> ModelSpec:
    """SolarOpenConfig: DeepSeek-V3's experts in every layer, under ordinary attention without norms of heads."""
    attention = read_attention(fields, head_dim_default=128, bias="attention_bias")
    sparse = read_experts(fields, total="n_routed_experts", shared_count="n_shared_experts", correction_bias=True)
    return stack(fields, attention, choose(fields, sparse_after(fields, first_default=0), sparse=sparse))


def read_exaone_moe(fields: Fields) -> ModelSpec:
    """ExaoneMoeConfig (K-EXAONE): norms over heads, three sliding layers in four, DeepSeek-V3's experts."""
    sparse = read_experts(fields, total="num_experts", shared_count="num_shared_experts", correction_bias=True)
    is_sparse = _sparse_flags(fields) or sparse_after(fields, first_default=1)
    blocks = choose(fields, is_sparse, sparse=sparse)
    return stack(fields, read_attention(fields, qk_norm="head"), blocks, windows=exaone_windows(fields))


def _sparse_flags(fields: Fields) -> tuple[bool, ...] | None:
    """One boolean a layer, as K-EXAONE's checkpoint lists them; None where it does not."""
    flags, depth = fields.raw("is_moe_layer"), fields.depth("num_hidden_layers")
    if flags is None:
        return None
    if not isinstance(flags, list) or len(flags) != depth or not all(isinstance(flag, bool) for flag in flags):
        raise fields.refusal("is_moe_layer", f"must be a list of {depth} booleans, one per layer")
    return tuple(flags)


def read_ernie_moe(fields: Fields) -> ModelSpec:
    """Ernie4_5_MoeConfig: experts from ``moe_layer_start_index`` to ``moe_layer_end_index``, dense layers around."""
    attention = read_attention(fields, kv_heads_default=4, bias="use_bias")
    sparse = read_experts(
        fields, total="moe_num_experts", picked="moe_k", shared_count="moe_num_shared_experts", correction_bias=True
    )
    depth = fields.depth("num_hidden_layers")
    first, last = fields.count("moe_layer_start_index"), fields.optional_count("moe_layer_end_index")
    end = depth - 1 if last is None else last
    is_sparse = tuple(first <= index <= end for index in range(depth))
    blocks = choose(fields, is_sparse, sparse=sparse, dense=read_mlp(fields, bias="use_bias"))
    return stack(fields, attention, blocks, tie_default=True)


def read_hunyuan_moe(fields: Fields) -> ModelSpec:
    """HunYuanMoEV1Config: norms over heads, a shared block of one expert's width, experts in every layer."""
    attention = read_attention(fields, bias="attention_bias", qk_norm="head")
    width = fields.size("intermediate_size")
    fields.expect("moe_intermediate_size", value=width, why="experts are as wide as the shared block")
    sparse = read_experts(fields, total="num_experts", picked="moe_topk", width=width, shared=width)
    return stack(fields, attention, sparse)


def read_cohere2_moe(fields: Fields) -> ModelSpec:
    """Cohere2MoeConfig: attention beside experts behind one norm, three sliding layers before each full one."""
    attention = read_attention(fields, bias="attention_bias")
    windows = patterned_windows(fields, period=4, window=4096)
    width = fields.size("intermediate_size")
    sparse = read_experts(fields, total="num_experts", width=width, shared_count="num_shared_experts")
    dense = MlpSpec(intermediate_size=fields.size("prefix_dense_intermediate_size", default=width))
    blocks = choose(fields, sparse_after(fields, first_default=0), sparse=sparse, dense=dense)
    return stack(fields, attention, blocks, windows=windows, norms=1, norm="layer_no_bias", tie_default=True)


def read_hunyuan3(fields: Fields) -> ModelSpec:
    """HYV3Config: norms over heads, sigmoid routing with a correction bias, one shared expert."""
    sparse = read_experts(
        fields,
        total="num_experts",
        width=fields.size(fields.either("moe_intermediate_size", "expert_hidden_dim")),
        shared_count="num_shared_experts",
        correction_bias=fields.flag("moe_router_enable_expert_bias", default=True),
    )
    attention = read_attention(fields, bias="attention_bias", qk_norm="head")
    return stack(fields, attention, choose(fields, sparse_after(fields), sparse=sparse))


def read_afmoe(fields: Fields) -> ModelSpec:
    """AfmoeConfig (Trinity): gated attention, four norms a layer, sliding layers between full ones, sigmoid routing."""
    attention = read_attention(fields, qk_norm="head").model_copy(update={"output_gate": "elementwise"})
    period = fields.size("global_attn_every_n_layers", default=4)
    windows = periodic_windows(fields, period=period, window=fields.size("sliding_window"))
    sparse = read_experts(fields, total="num_experts", shared_count="num_shared_experts", correction_bias=True)
    first = fields.count("num_dense_layers")
    is_sparse = tuple(index >= first for index in range(fields.depth("num_hidden_layers")))
    return stack(fields, attention, choose(fields, is_sparse, sparse=sparse), windows=windows, norms=4)


def read_laguna(fields: Fields) -> ModelSpec:
    """LagunaConfig: a gate per head, more query heads on sliding layers, many narrow experts."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    attention = read_attention(fields, bias="attention_bias", qk_norm="head")
    attention = attention.model_copy(update={"output_gate": "headwise"})
    heads = fields.integers("num_attention_heads_per_layer") or (attention.num_attention_heads,) * depth
    types = fields.words("layer_types", length=depth, allowed=(SLIDING, FULL))
    if types is None or len(heads) != depth:
        missing = "layer_types" if types is None else "num_attention_heads_per_layer"
        raise fields.refusal(missing, f"must list {depth} entries, one per layer")
    window = fields.size("sliding_window")
    sparse = read_experts(
        fields,
        total="num_experts",
        width=fields.size("moe_intermediate_size"),
        shared=fields.size("shared_expert_intermediate_size"),
        correction_bias=True,
    )
    blocks = choose(fields, sparse_after(fields, first_default=1), sparse=sparse)
    layers = tuple(
        LayerSpec(
            mixer=attention.model_copy(
                update={"num_attention_heads": count, "sliding_window": window if kind == SLIDING else None}
            ),
            feed_forward=block,
        )
        for count, kind, block in zip(heads, types, blocks, strict=True)
    )
    return decoder(fields, trunk=trunk, layers=layers)
