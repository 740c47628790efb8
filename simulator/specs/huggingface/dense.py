"""Dense decoders that a layout does not describe: MPT, OPT, Falcon, Mllama, BitNet, ChatGLM, Nemotron-NAS, Gemma 4."""

from __future__ import annotations

from dataclasses import replace

from simulator.specs.base import Note
from simulator.specs.huggingface import layers as usual
from simulator.specs.huggingface.fields import LARGEST_SIZE, Fields
from simulator.specs.huggingface.windows import FULL, SLIDING, every_nth_full
from simulator.specs.model.architecture import AttentionSpec, FeedForward, LayerSpec, MlpSpec, ModelSpec, MoeSpec, Norm

MLP_RATIO = 4  # MptConfig and FalconConfig
OPT_POSITION_OFFSET = 2  # OPTLearnedPositionalEmbedding keeps two rows before position 0


def read_mpt(fields: Fields) -> ModelSpec:
    """MptConfig: ALiBi, no biases, norms without bias, tied embeddings."""
    fields.rename(usual.MOSAIC_NAMES)
    if fields.has("attn_config"):
        inner = fields.section("attn_config")
        inner.expect("alibi", value=True, why="without ALiBi positions are learned, which transformers does not run")
        inner.expect("qk_ln", value=False, why="norms on queries and keys are not modelled here")
        inner.expect("prefix_lm", value=False, why="prompts seen in both directions are not modelled")
        inner.expect("attn_type", value="multihead_attention", why="other layouts of heads are not modelled here")
        inner.costless("attn_impl", "attn_pdrop", "clip_qkv", "softmax_scale", "attn_uses_sequence_id")
        inner.costless("alibi_bias_max", "model_type")
    attention = usual.read_heads(fields).model_copy(update={"rotary": False})
    width = fields.size("expansion_ratio", default=MLP_RATIO) * fields.size("hidden_size")
    mlp = MlpSpec(intermediate_size=width, gated=False)
    return usual.stack(fields, attention, mlp, norm="layer_no_bias", tie_default=True)


def read_opt(fields: Fields) -> ModelSpec:
    """OPTConfig: learned positions with two rows ahead, ReLU, and for OPT-350m norms behind and a narrow embedding."""
    trunk = usual.read_trunk(fields)
    if trunk.max_position_embeddings is None:
        raise fields.refusal("max_position_embeddings", "is missing: OPT stores one learned row per position")
    biased = fields.flag("enable_bias", default=True)
    norm: Norm = "layer" if fields.flag("layer_norm_elementwise_affine", default=True) else "none_affine"
    before = fields.flag("do_layer_norm_before", default=True)
    removed = fields.flag("_remove_final_layer_norm", default=False)
    attention = usual.read_heads(fields)
    attention = attention.model_copy(update={"rotary": False, "qkv_bias": biased, "o_bias": biased})
    mlp = MlpSpec(intermediate_size=fields.size("ffn_dim"), gated=False, bias=biased)
    narrow = fields.optional_size("word_embed_proj_dim")
    changed = {
        "position_embeddings": trunk.max_position_embeddings + OPT_POSITION_OFFSET,
        "embedding_size": None if narrow == trunk.hidden_size else narrow,
        "final_norm": before and not removed,
    }
    return usual.stack(fields, attention, mlp, trunk=trunk, norm=norm, tie_default=True).model_copy(update=changed)


def read_falcon(fields: Fields) -> ModelSpec:
    """FalconConfig: one KV head (7B) or grouped ones (new_decoder_architecture), parallel sublayers, tied."""
    fields.rename(
        {
            "hidden_size": ("hidden_size", "n_embed"),
            "num_hidden_layers": ("num_hidden_layers", "n_layer"),
            "num_attention_heads": ("num_attention_heads", "n_head"),
        }
    )
    positions = fields.size("max_position_embeddings", default=2048)
    trunk = replace(usual.read_trunk(fields), max_position_embeddings=positions)
    heads = fields.size("num_attention_heads")
    grouped = fields.flag("new_decoder_architecture", default=False)
    single = fields.flag("multi_query", default=True) and not grouped
    given = fields.size(fields.either("num_kv_heads", "n_head_kv"), default=heads)
    kv_heads = given if grouped else 1 if single else heads
    width = usual.split_heads(fields, trunk.hidden_size, heads)
    biased = fields.flag("bias", default=False)
    alibi = fields.flag("alibi", default=False)
    attention = usual.grouped_attention(fields, heads=heads, kv_heads=kv_heads, head_dim=width)
    attention = attention.model_copy(update={"qkv_bias": biased, "o_bias": biased, "rotary": not alibi})
    inner = fields.size("ffn_hidden_size", default=MLP_RATIO * trunk.hidden_size)
    parallel = fields.flag("parallel_attn", default=True)
    norms_given = fields.optional_size("num_ln_in_parallel_attn")
    norms = (norms_given or 2) if grouped else (1 if parallel else 2)
    mlp = MlpSpec(intermediate_size=inner, gated=False, bias=biased)
    # vLLM and TensorRT-LLM sum its parallel sublayers before one all-reduce; in other such families each has its own.
    once = parallel or grouped
    return usual.stack(
        fields, attention, mlp, trunk=trunk, norms=norms, summed_once=once, norm="layer", tie_default=True
    )


CROSS_ATTENTION_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)  # MllamaTextConfig
EXTRA_ROWS = 8  # of MllamaTextModel's embedding, for the picture's token


def read_mllama(fields: Fields) -> ModelSpec:
    """MllamaConfig: Llama between layers that attend to a picture. They and the tower are stored and run for none."""
    text = fields.section("text_config")
    trunk = usual.read_trunk(text)
    hidden, width = trunk.hidden_size, text.size("intermediate_size")
    attention = usual.read_attention(text, kv_heads_default=8)
    crossing = len(text.integers("cross_attention_layers") or CROSS_ATTENTION_LAYERS)
    depth = trunk.num_hidden_layers - crossing
    if depth < 1:
        raise text.refusal("cross_attention_layers", f"are {crossing} of {trunk.num_hidden_layers} layers")
    queries, keys = attention.num_attention_heads, attention.num_key_value_heads
    projections = 2 * (queries + keys) * attention.head_dim * hidden
    block = projections + 3 * hidden * width + 2 * attention.head_dim + 2 * hidden + 2
    stored = crossing * block + EXTRA_ROWS * hidden + _mllama_tower(fields.section("vision_config"), width=hidden)
    fields.costless_rest("vision_config")
    note = Note("crossing_stored", {"layers": crossing})
    layers = (LayerSpec(mixer=attention, feed_forward=(MlpSpec(intermediate_size=width),)),) * depth
    return usual.decoder(text, trunk=trunk, layers=layers, extra_parameters=stored, notes=(note,))


def _mllama_tower(vision: Fields, *, width: int) -> int:
    """Weights of MllamaVisionModel and the projection behind it: tiles of a picture, each with positions of its own."""
    hidden, inner, patch = vision.size("hidden_size"), vision.size("intermediate_size"), vision.size("patch_size")
    positions = (vision.size("image_size") // patch) ** 2 + 1
    tiles, ratios = vision.size("max_num_tiles", default=4), vision.raw("supported_aspect_ratios")
    shapes = 1 + (len(ratios) if isinstance(ratios, list) else 8)
    gated = vision.depth("num_global_layers", default=8)
    block = 4 * hidden**2 + 2 * hidden * inner + inner + 5 * hidden
    layers = (vision.depth("num_hidden_layers") + gated) * block + 2 * gated
    embedded = vision.size("num_channels", default=3) * patch**2 * hidden + hidden + 4 * hidden
    tables = positions * hidden + shapes * tiles * (positions + 2) * hidden + 3
    outputs = vision.size("vision_output_dim")
    return layers + embedded + tables + (outputs + 1) * width


def read_bitnet(fields: Fields) -> ModelSpec:
    """BitNetConfig: Llama with a norm before the output and before the down projection, over all their inputs."""
    attention, mlp = usual.read_attention(fields, bias="attention_bias"), usual.read_mlp(fields)
    inner = attention.num_attention_heads * attention.head_dim + mlp.intermediate_size
    return usual.stack(fields, attention, mlp, extra_parameters=inner)


def read_chatglm(fields: Fields) -> ModelSpec:
    """ChatGLMConfig (of the checkpoint): GLM under Megatron's names; biases on q, k and v, few KV heads."""
    fields.rename(
        {
            "num_hidden_layers": ("num_layers", "num_hidden_layers"),
            "vocab_size": ("padded_vocab_size",),
            "max_position_embeddings": ("seq_length",),
            "intermediate_size": ("ffn_hidden_size",),
        }
    )
    heads = fields.size("num_attention_heads")
    grouped = fields.flag("multi_query_attention", default=False)
    kv_heads = fields.size("multi_query_group_num", default=heads)
    attention = usual.grouped_attention(
        fields, heads=heads, kv_heads=kv_heads if grouped else heads, head_dim=fields.size("kv_channels")
    ).model_copy(update={"qkv_bias": fields.flag("add_qkv_bias", default=False)})
    return usual.stack(fields, attention, usual.read_mlp(fields))


FFN_MULTIPLE = 256  # find_multiple in the checkpoint's modeling_decilm.py


def read_nemotron_nas(fields: Fields) -> ModelSpec:
    """DeciLMConfig (of the checkpoint): block_configs give each layer's group size and feed-forward multiple."""
    trunk = usual.read_trunk(fields)
    heads = fields.size("num_attention_heads")
    bias = fields.flag("attention_bias", default=False)
    mlp_bias = fields.flag("mlp_bias", default=False)
    layers = []
    for block in fields.sections("block_configs", length=trunk.num_hidden_layers):
        attention = _attention(block.section("attention"), heads=heads, hidden_size=trunk.hidden_size)
        width = _width(block.section("ffn"), hidden_size=trunk.hidden_size)
        block.costless("parallel_blocks")
        mixer = None if attention is None else attention.model_copy(update={"qkv_bias": bias, "o_bias": bias})
        mlp = () if width is None else (MlpSpec(intermediate_size=width, bias=mlp_bias),)
        layers.append(LayerSpec(mixer=mixer, feed_forward=mlp, norms=(mixer is not None) + (width is not None)))
    return usual.decoder(fields, trunk=trunk, layers=layers)


def _attention(section: Fields, *, heads: int, hidden_size: int) -> AttentionSpec | None:
    section.expect("replace_with_linear", value=False, why="a linear layer in place of attention is not modelled")
    section.expect("sparsify", value=None, why="sparsified blocks are not modelled")
    section.expect("num_sink_tokens", value=None, why="attention sinks in a window are not modelled")
    section.expect("unshifted_sink", value=False, why="attention sinks in a window are not modelled")
    section.costless("use_prefill_window_in_sink_attention")
    window = section.optional_size("window_length")
    empty = section.flag("no_op", default=False)
    group = section.optional_size("n_heads_in_group")
    if empty:
        return None
    if group is None or heads % group:
        raise section.refusal("n_heads_in_group", f"is {group}, which must divide {heads} attention heads")
    width = usual.split_heads(section, hidden_size, heads)
    spec = usual.grouped_attention(section, heads=heads, kv_heads=heads // group, head_dim=width)
    return spec.model_copy(update={"sliding_window": window})


def _width(section: Fields, *, hidden_size: int) -> int | None:
    section.expect("replace_with_linear", value=False, why="a linear layer in place of the block is not modelled")
    section.expect("sparsify", value=None, why="sparsified blocks are not modelled")
    if section.flag("no_op", default=False):
        section.costless("ffn_mult")
        return None
    if not section.has("ffn_mult"):
        raise section.refusal("ffn_mult", "is missing: the width of the feed-forward block is unknown")
    width = 2 * section.ratio("ffn_mult", default=1.0) * hidden_size / 3
    if width > LARGEST_SIZE:
        raise section.refusal("ffn_mult", f"gives a width of {width:.3g}, allowed are at most {LARGEST_SIZE:,}")
    return -(-int(width) // FFN_MULTIPLE) * FFN_MULTIPLE


def read_gemma4(fields: Fields) -> ModelSpec:
    """Gemma4TextConfig: full layers have wider heads and may reuse keys as values; a dense block beside the experts."""
    trunk = usual.read_trunk(fields)
    per_layer = fields.count("hidden_size_per_layer_input", default=256)
    sliding, full = _gemma4_attention(fields)
    depth = trunk.num_hidden_layers
    types = fields.words("layer_types", length=depth, allowed=(SLIDING, FULL)) or every_nth_full(depth, 6)
    shared = fields.count("num_kv_shared_layers")
    wide = fields.flag("use_double_wide_mlp", default=False)
    experts = _gemma4_experts(fields, hidden_size=trunk.hidden_size)
    intermediate = fields.size("intermediate_size")
    layers: list[LayerSpec] = []
    for index, kind in enumerate(types):
        shares = index >= depth - shared
        mixer = (full if kind == FULL else sliding).model_copy(update={"shares_kv_with_previous": shares})
        mlp = MlpSpec(intermediate_size=intermediate * (2 if wide and shares else 1))
        blocks: tuple[FeedForward, ...] = (mlp,) if experts is None else (mlp, experts)
        norms = 4 + (3 if experts else 0) + (1 if per_layer else 0)
        layers.append(LayerSpec(mixer=mixer, feed_forward=blocks, norms=norms))
    return usual.decoder(fields, trunk=trunk, layers=layers, tie_default=True, per_layer_embedding_size=per_layer)


def _gemma4_attention(fields: Fields) -> tuple[AttentionSpec, AttentionSpec]:
    """Attention of the sliding and of the full layers."""
    sliding = usual.read_attention(
        fields, heads_default=8, kv_heads_default=4, head_dim_default=256, bias="attention_bias", qk_norm="head"
    )
    window = fields.size("sliding_window", default=512)
    keys_are_values = fields.flag("attention_k_eq_v", default=False)
    head_dim, kv_heads = _gemma4_full_heads(fields)
    kv_heads = kv_heads or sliding.num_key_value_heads
    full = sliding.model_copy(
        update={
            "head_dim": head_dim,
            "num_key_value_heads": kv_heads if keys_are_values else sliding.num_key_value_heads,
            "value_is_key": keys_are_values,
        }
    )
    return sliding.model_copy(update={"sliding_window": window}), full


def _gemma4_full_heads(fields: Fields) -> tuple[int, int | None]:
    """head_dim and KV heads of the full layers: global_* of the checkpoints, per_layer_config of transformers 5."""
    if not fields.has("per_layer_config"):
        fields.costless("per_layer_config")
        return fields.optional_size("global_head_dim") or 512, fields.optional_size("num_global_key_value_heads")
    overrides = fields.section("per_layer_config").all_sections()
    sizes = {(item.size("head_dim"), item.optional_size("num_key_value_heads")) for item in overrides}
    if len(sizes) != 1:
        raise fields.refusal("per_layer_config", f"gives {len(sizes)} different head layouts, understood is one")
    return sizes.pop()


def _gemma4_experts(fields: Fields, *, hidden_size: int) -> MoeSpec | None:
    """Experts beside the dense block; the router scales its input and every expert's output."""
    if not fields.flag("enable_moe_block", default=False):
        fields.costless("num_experts", "top_k_experts", "moe_intermediate_size")
        return None
    experts = fields.size("num_experts")
    return MoeSpec(
        num_experts=experts,
        num_experts_per_tok=fields.size("top_k_experts"),
        moe_intermediate_size=fields.size("moe_intermediate_size"),
        router_parameters_extra=hidden_size + experts,
    )


def refuse_gemma3n(fields: Fields) -> ModelSpec:
    """Gemma 3n is not modelled."""
    raise fields.refusal(
        "model_type",
        "gemma3n is not modelled: its alternating updates, low-rank side paths and per-layer embeddings on the host "
        "would make every estimate a guess",
        hint="gemma-3-4b-it is the nearest model that is",
    )
