"""Experts that a layout does not describe: Llama 4, DBRX, Laguna, MiMo-V2, ERNIE-VL, MiniMax, Step 3.7."""

from __future__ import annotations

from simulator.errors import shown
from simulator.specs.base import Note
from simulator.specs.huggingface import layers as usual
from simulator.specs.huggingface.experts import DENSE, SPARSE, read_experts, sparse_after
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.windows import FULL, SLIDING
from simulator.specs.model.architecture import AttentionSpec, IndexerSpec, MlpSpec, ModelSpec, MoeSpec

LLAMA4_NO_ROPE_INTERVAL = 4  # Llama4TextConfig


def read_llama4(fields: Fields) -> ModelSpec:
    """Llama4TextConfig: chunked attention on rotary layers, one shared expert, experts on every n-th layer."""
    depth = fields.depth("num_hidden_layers")
    attention = usual.read_attention(fields, kv_heads_default=8, head_dim_default=128, bias="attention_bias")
    chunk = fields.size("attention_chunk_size", default=8192)
    width = fields.size("intermediate_size")
    sparse = read_experts(fields, total="num_local_experts", picked_default=1, width=width, shared=width)
    dense = MlpSpec(intermediate_size=fields.size("intermediate_size_mlp", default=16384))
    mixers = [usual.with_window(attention, chunk if rotary else None) for rotary in _llama4_rotary(fields, depth=depth)]
    blocks = usual.choose(fields, _llama4_sparse(fields, depth=depth), sparse=sparse, dense=dense)
    return usual.stack(fields, mixers, blocks)


def _llama4_rotary(fields: Fields, *, depth: int) -> tuple[bool, ...]:
    listed = fields.integers("no_rope_layers")
    interval = fields.size("no_rope_layer_interval", default=LLAMA4_NO_ROPE_INTERVAL)
    types = fields.words("layer_types", length=depth, allowed=("chunked_attention", FULL))
    if types is not None:
        return tuple(kind != FULL for kind in types)
    if not listed:
        return tuple((index + 1) % interval != 0 for index in range(depth))
    if len(listed) != depth:
        raise fields.refusal("no_rope_layers", f"has {len(listed)} entries for {depth} layers")
    return tuple(bool(entry) for entry in listed)


def _llama4_sparse(fields: Fields, *, depth: int) -> tuple[bool, ...]:
    step = fields.size("interleave_moe_layer_step", default=1)
    listed = fields.integers("moe_layers")
    sparse = frozenset(range(step - 1, depth, step) if listed is None else listed)
    return tuple(index in sparse for index in range(depth))


def read_dbrx(fields: Fields) -> ModelSpec:
    """DbrxConfig: nested attn_config and ffn_config, layer norms without bias."""
    fields.rename(usual.MOSAIC_NAMES)
    heads, hidden_size = fields.size("num_attention_heads"), fields.size("hidden_size")
    inner = fields.section("attn_config")
    inner.costless("clip_qkv", "attn_pdrop")
    kv_heads = inner.size("kv_n_heads", default=1)
    fields.expect("num_key_value_heads", value=kv_heads, why="it is attn_config.kv_n_heads")
    head_dim = usual.split_heads(fields, hidden_size, heads)
    attention = usual.grouped_attention(fields, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    experts = fields.section("ffn_config")
    experts.costless("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights")
    experts.costless("uniform_expert_assignment")
    experts.expect("hidden_size", value=hidden_size, why="the experts work at d_model")
    width = experts.size("ffn_hidden_size", default=3584)
    block = read_experts(
        experts, total="moe_num_experts", picked="moe_top_k", total_default=4, picked_default=1, width=width
    )
    return usual.stack(fields, attention, block, norm="layer_no_bias")


def read_laguna(fields: Fields) -> ModelSpec:
    """LagunaConfig: a gate per head, more query heads on sliding layers, many narrow experts."""
    depth = fields.depth("num_hidden_layers")
    attention = usual.read_attention(fields, bias="attention_bias", qk_norm="head")
    attention = attention.model_copy(update={"output_gate": "headwise"})
    heads = fields.integers("num_attention_heads_per_layer", least=1) or (attention.num_attention_heads,) * depth
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
    blocks = usual.choose(fields, sparse_after(fields, first_default=1), sparse=sparse)
    mixers = [
        attention.model_copy(
            update={"num_attention_heads": count, "sliding_window": window if kind == SLIDING else None}
        )
        for count, kind in zip(heads, types, strict=True)
    ]
    return usual.stack(fields, mixers, blocks)


def read_mimo_v2(fields: Fields) -> ModelSpec:
    """MiMoV2FlashConfig: full layers between runs of sliding ones that have their own head layout and sinks."""
    # transformers counts the query itself into sliding_window, so that the published name wins where both are given.
    window = fields.size("sliding_window_size" if fields.has("sliding_window_size") else "sliding_window")
    full, swa = _mimo_attention(fields)
    slides = _mimo_sliding(fields, depth=fields.depth("num_hidden_layers"))
    sparse = read_experts(fields, total="n_routed_experts", shared_count="n_shared_experts", correction_bias=True)
    blocks = usual.choose(fields, sparse_after(fields, first_default=1), sparse=sparse)
    return usual.stack(fields, [usual.with_window(swa, window) if slide else full for slide in slides], blocks)


def _mimo_sliding(fields: Fields, *, depth: int) -> tuple[bool, ...]:
    types = fields.words("layer_types", length=depth, allowed=(SLIDING, FULL))
    pattern = fields.integers("hybrid_layer_pattern")
    if pattern is not None and len(pattern) == depth:
        return tuple(bool(entry) for entry in pattern)
    if types is None or pattern is not None:
        raise fields.refusal("hybrid_layer_pattern", f"must list {depth} entries: 0 full, 1 sliding")
    return tuple(kind == SLIDING for kind in types)


def _mimo_attention(fields: Fields) -> tuple[AttentionSpec, AttentionSpec]:
    """Attention of full and of sliding layers, which have twice the KV heads unless told otherwise."""
    heads, kv_heads = fields.size("num_attention_heads"), fields.size("num_key_value_heads")
    head_dim, value_dim = fields.size("head_dim"), fields.size("v_head_dim")
    bias = fields.flag("attention_bias", default=False)
    full = usual.grouped_attention(fields, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    swa = usual.grouped_attention(
        fields,
        heads=fields.size("swa_num_attention_heads", default=heads),
        kv_heads=fields.size("swa_num_key_value_heads", default=2 * kv_heads),
        head_dim=fields.size("swa_head_dim", default=head_dim),
    )
    swa_value_dim = fields.size("swa_v_head_dim", default=value_dim)
    sinks = fields.flag("add_full_attention_sink_bias", default=False)
    swa_sinks = fields.flag("add_swa_attention_sink_bias", default=True)
    return (
        full.model_copy(update={"v_head_dim": value_dim, "qkv_bias": bias, "sinks": sinks}),
        swa.model_copy(update={"v_head_dim": swa_value_dim, "qkv_bias": bias, "sinks": swa_sinks}),
    )


def read_ernie_vl(fields: Fields) -> ModelSpec:
    """Ernie4_5_VLMoeConfig: ERNIE's experts for tokens of text beside narrower ones for those of pictures."""
    depth, width = fields.depth("num_hidden_layers"), fields.size("hidden_size")
    widths = _text_and_pictures(fields, "moe_intermediate_size")
    counts = _text_and_pictures(fields, "moe_num_experts")
    sparse = MoeSpec(
        num_experts=counts[0],
        num_experts_per_tok=fields.size("moe_k", default=6),
        moe_intermediate_size=widths[0],
        shared_expert_intermediate_size=widths[0] * fields.count("moe_num_shared_experts", default=2),
        correction_bias=True,
    )
    types = fields.words("mlp_layer_types", length=depth, allowed=(DENSE, SPARSE))
    first = _text_and_pictures(fields, "moe_layer_start_index", default=1)[0]
    is_sparse = [kind == SPARSE for kind in types] if types else [index >= first for index in range(depth)]
    blocks = usual.choose(fields, is_sparse, sparse=sparse, dense=usual.read_mlp(fields, bias="use_bias"))
    model = usual.stack(
        fields, usual.read_attention(fields, kv_heads_default=4, bias="use_bias"), blocks, tie_default=True
    )
    unrun = sum(is_sparse) * counts[1] * (3 * widths[1] * width + width + 1)
    note = Note("picture_experts", {"text": widths[0], "pictures": widths[1]})
    return model.model_copy(update={"extra_parameters": unrun, "notes": (*model.notes, note)})


def _text_and_pictures(fields: Fields, name: str, *, default: int | None = None) -> tuple[int, ...]:
    """What holds for tokens of text and for those of pictures; some configurations write one number for both."""
    both = fields.integers(name) if isinstance(fields.raw(name), list) else (fields.size(name, default=default),) * 2
    if both is None or len(both) != 2 or 0 in both:
        raise fields.refusal(name, f"is {shown(both)}, understood are one or two integers of at least 1")
    return both


def read_minimax_m2(fields: Fields) -> ModelSpec:
    """MiniMaxM2Config: softmax attention on every layer, norms over all heads together, 256 small experts."""
    kinds = [1] * fields.depth("num_hidden_layers")
    fields.expect("attn_type_list", value=kinds, why="1 is softmax attention; other kinds are not in M2")
    attention = usual.read_attention(fields, kv_heads_default=8, qk_norm="full")
    return usual.stack(fields, attention, _minimax_experts(fields, shared=0))


def _minimax_experts(fields: Fields, *, shared: int) -> MoeSpec:
    width = fields.size(fields.either("intermediate_size", "moe_intermediate_size"))
    corrected = fields.flag("use_routing_bias", default=True)
    return read_experts(fields, total="num_local_experts", width=width, shared=shared, correction_bias=corrected)


def read_minimax_m3(fields: Fields) -> ModelSpec:
    """MiniMaxM3VLTextConfig: a block indexer on most layers picks topk_blocks x block_size keys."""
    attention = usual.read_attention(fields, kv_heads_default=4, head_dim_default=128, qk_norm="head")
    shared = fields.size("shared_intermediate_size", default=3072) * fields.count("n_shared_experts", default=1)
    sparse = _minimax_experts(fields, shared=shared)
    dense = MlpSpec(intermediate_size=fields.size("dense_intermediate_size", default=12288))
    blocks = usual.choose(fields, sparse_after(fields, first_default=0), sparse=sparse, dense=dense)
    indexer, indexed = _minimax_indexer(fields, depth=fields.depth("num_hidden_layers"))
    mixers = [attention.model_copy(update={"indexer": indexer if picks else None}) for picks in indexed]
    notes = (Note("blocks_as_window"),)
    return usual.stack(fields, mixers, blocks, notes=notes)


def _minimax_indexer(fields: Fields, *, depth: int) -> tuple[IndexerSpec, tuple[bool, ...]]:
    section = fields.section("sparse_attention_config")
    section.expect("use_sparse_attention", value=True, why="a dense MiniMax-M3 is not published")
    section.costless("sparse_disable_index_value", "sparse_init_block", "sparse_local_block", "sparse_score_type")
    block_size = section.size("sparse_block_size", default=128)
    indexer = IndexerSpec(
        index_n_heads=section.size("sparse_num_index_heads", default=4),
        index_head_dim=section.size("sparse_index_dim", default=128),
        index_topk=section.size("sparse_topk_blocks", default=16) * block_size,
        index_block_size=block_size,
        splits_heads=True,
    )
    frequency = section.integers("sparse_attention_freq")
    if frequency is None or len(frequency) != depth:
        raise section.refusal("sparse_attention_freq", f"must list {depth} entries, one per layer")
    return indexer, tuple(bool(entry) for entry in frequency)


def read_step3p7(fields: Fields) -> ModelSpec:
    """Step3p7TextConfig: a gate per head, norms over heads, one shared expert beside many small ones."""
    attention = usual.read_attention(
        fields, kv_heads_default=8, head_dim_default=128, bias="attention_bias", qk_norm="head"
    ).model_copy(update={"output_gate": "headwise"})
    sliding_heads = fields.size("num_sliding_attention_heads", default=attention.num_attention_heads)
    window = fields.size("sliding_window")
    slides = attention.model_copy(update={"sliding_window": window, "num_attention_heads": sliding_heads})
    depth = fields.depth("num_hidden_layers")
    types = fields.words("layer_types", length=depth, allowed=(SLIDING, FULL))
    if types is None:
        raise fields.refusal("layer_types", "is missing: which layers slide is unknown")
    total = fields.either("n_routed_experts", "num_experts", "moe_num_experts", "num_local_experts")
    sparse = read_experts(fields, total=total, picked=fields.either("num_experts_per_tok", "moe_top_k"))
    shared = fields.size(fields.either("share_expert_dim", "share_expert_dims"), default=1280)
    shared *= fields.count("n_shared_experts", default=1)
    corrected = fields.flag("use_moe_router_bias", default=True)
    sparse = sparse.model_copy(update={"shared_expert_intermediate_size": shared, "correction_bias": corrected})
    dense = usual.read_mlp(fields, bias="mlp_bias")
    blocks = usual.choose(fields, sparse_after(fields, first_default=3), sparse=sparse, dense=dense)
    return usual.stack(fields, [slides if kind == SLIDING else attention for kind in types], blocks)
