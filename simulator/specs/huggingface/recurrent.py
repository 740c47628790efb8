"""State-space models and hybrids around them: Mamba, Mamba-2, Jamba, Nemotron-H, Granite; short convolutions: LFM2."""

from __future__ import annotations

import math

from simulator.specs.base import Note
from simulator.specs.huggingface import layers as usual
from simulator.specs.huggingface.experts import read_experts
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.windows import FULL
from simulator.specs.model import architecture as arch

CHANNELS_PER_RANK = 16  # time_step_rank "auto": MambaConfig and JambaConfig


def _rank(fields: Fields, name: str, *, hidden_size: int) -> int:
    if fields.raw(name) in (None, "auto"):
        return math.ceil(hidden_size / CHANNELS_PER_RANK)
    return fields.size(name)


def read_mamba(fields: Fields) -> arch.ModelSpec:
    """MambaConfig: one norm and one selective scan a layer, no feed-forward part, tied embeddings."""
    trunk = _scan_trunk(fields)
    inner = fields.optional_size("intermediate_size") or fields.size("expand", default=2) * trunk.hidden_size
    fields.expect("d_inner", value=inner, why="it is the intermediate_size")
    fields.costless("expand", "use_mambapy", "rms_norm", "fused_add_norm", "pad_vocab_size_multiple", "ssm_cfg")
    fields.costless("use_associative_scan")
    mixer = arch.MambaSpec(
        intermediate_size=inner,
        state_size=fields.size("state_size", default=16),
        conv_kernel=fields.size("conv_kernel", default=4),
        time_step_rank=_rank(fields, "time_step_rank", hidden_size=trunk.hidden_size),
        use_bias=fields.flag("use_bias", default=False),
        use_conv_bias=fields.flag("use_conv_bias", default=True),
    )
    layers = (arch.LayerSpec(mixer=mixer, norms=1),) * trunk.num_hidden_layers
    return usual.decoder(fields, trunk=trunk, layers=layers, tie_default=True)


def read_falcon_mamba(fields: Fields) -> arch.ModelSpec:
    """FalconMambaConfig: Mamba whose step, B and C pass norms without weights; intermediate_size is the inner width."""
    return read_mamba(fields)


def _scan_trunk(fields: Fields) -> usual.Trunk:
    """The repetitions d_model and n_layer of original Mamba checkpoints may stand beside the usual names."""
    for name, original in (("hidden_size", "d_model"), ("num_hidden_layers", "n_layer")):
        fields.either(name, original)
        fields.costless(original)
    return usual.read_trunk(fields)


_MAMBA2 = ("n_groups", "conv_kernel", "chunk_size", "use_bias", "use_conv_bias")
_INNER = ("mamba_n_groups", "mamba_d_conv", "mamba_chunk_size", "mamba_proj_bias", "mamba_conv_bias")
"""Parts of a scan as Mamba2Config calls them, and as FalconH1Config and GraniteMoeHybridConfig do."""


def _heads_scan(
    fields: Fields, names: tuple[str, ...], *, heads: int, width: int, state_size: int, groups: int, chunk: int = 256
) -> arch.Mamba2Spec:
    """groups, chunk : where the configuration does not say"""
    grouped, kernel, chunked, bias, conv_bias = names
    return arch.Mamba2Spec(
        num_heads=heads,
        head_dim=width,
        state_size=state_size,
        n_groups=fields.size(grouped, default=groups),
        conv_kernel=fields.size(kernel, default=4),
        chunk_size=fields.size(chunked, default=chunk),
        use_bias=fields.flag(bias, default=False),
        use_conv_bias=fields.flag(conv_bias, default=True),
    )


def read_mamba2(fields: Fields) -> arch.ModelSpec:
    """Mamba2Config: heads x head_dim must be expand x hidden_size."""
    trunk = _scan_trunk(fields)
    inner = fields.size("expand", default=2) * trunk.hidden_size
    heads, width = fields.size("num_heads"), fields.size("head_dim", default=64)
    if heads * width != inner:
        raise fields.refusal("num_heads", f"{heads} heads of {width} do not make expand x hidden_size = {inner}")
    state_size = fields.size("state_size", default=128)
    mixer = _heads_scan(fields, _MAMBA2, heads=heads, width=width, state_size=state_size, groups=8)
    layers = (arch.LayerSpec(mixer=mixer, norms=1),) * trunk.num_hidden_layers
    return usual.decoder(fields, trunk=trunk, layers=layers)


def read_jamba(fields: Fields) -> arch.ModelSpec:
    """JambaConfig: one attention layer in eight, experts on every other layer, norms inside the scan."""
    depth, hidden_size = fields.depth("num_hidden_layers"), fields.size("hidden_size")
    attention = usual.read_attention(fields, kv_heads_default=8)
    window = fields.optional_size("sliding_window")
    scan = arch.MambaSpec(
        intermediate_size=fields.size("mamba_expand", default=2) * hidden_size,
        state_size=fields.size("mamba_d_state", default=16),
        conv_kernel=fields.size("mamba_d_conv", default=4),
        time_step_rank=_rank(fields, "mamba_dt_rank", hidden_size=hidden_size),
        use_bias=fields.flag("mamba_proj_bias", default=False),
        use_conv_bias=fields.flag("mamba_conv_bias", default=True),
        inner_norms=fields.flag("mamba_inner_layernorms", default=True),
    )
    width = fields.size("intermediate_size")
    sparse = read_experts(fields, total="num_experts", total_default=16, picked_default=2, width=width)
    dense = arch.MlpSpec(intermediate_size=width)
    has_experts = _periodic(fields, "expert_layer", depth=depth, period=2, offset=1)
    attends = _periodic(fields, "attn_layer", depth=depth, period=8, offset=4)
    windowed = attention.model_copy(update={"sliding_window": window})
    blocks = tuple((sparse if chosen and sparse.num_experts > 1 else dense,) for chosen in has_experts)
    return usual.stack(fields, [windowed if attend else scan for attend in attends], blocks)


def _periodic(fields: Fields, name: str, *, depth: int, period: int, offset: int) -> tuple[bool, ...]:
    every, start = fields.size(f"{name}_period", default=period), fields.count(f"{name}_offset", default=offset)
    if start >= every:
        raise fields.refusal(f"{name}_offset", f"is {start}, which must be below {name}_period {every}")
    return tuple(index % every == start for index in range(depth))


def read_falcon_h1(fields: Fields) -> arch.ModelSpec:
    """FalconH1Config: attention and a scan side by side in every layer, added up, before the feed-forward block. Each
    of them is a block here: both read the layer's first norm and end in an all-reduce of their own."""
    trunk = usual.read_trunk(fields)
    attention = usual.read_attention(fields, kv_heads_default=8, bias="attention_bias")
    expanded = fields.size("mamba_expand", default=2) * trunk.hidden_size
    inner, heads = fields.size("mamba_d_ssm", default=expanded), fields.size("mamba_n_heads", default=128)
    width = inner // heads if fields.raw("mamba_d_head") in (None, "auto") else fields.size("mamba_d_head")
    if heads * width != inner:
        raise fields.refusal("mamba_n_heads", f"{heads} heads of {width} do not make mamba_d_ssm {inner}")
    state_size = fields.size("mamba_d_state", default=256)
    scan = _heads_scan(fields, _INNER, heads=heads, width=width, state_size=state_size, groups=1)
    scan = scan.model_copy(update={"gated_norm": fields.flag("mamba_rms_norm", default=False)})
    mlp = usual.read_mlp(fields, bias="mlp_bias")
    fields.expect("projectors_bias", value=scan.use_bias, why="FalconH1Mixer has one flag for both projections")
    fields.costless("mamba_norm_before_gate", "mamba_use_mlp", "attn_layer_indices", *_FALCON_MULTIPLIERS)
    layer = (arch.LayerSpec(mixer=scan, norms=1), arch.LayerSpec(mixer=attention, feed_forward=(mlp,), norms=1))
    return usual.decoder(fields, trunk=trunk, layers=layer * trunk.num_hidden_layers, notes=(Note("side_by_side"),))


_FALCON_MULTIPLIERS = (
    "lm_head_multiplier", "mlp_multipliers", "key_multiplier", "attention_out_multiplier", "attention_in_multiplier",
    "ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier", "mlp_expansion_factor",
)  # fmt: skip

BLOCK_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}  # NemotronHConfig.hybrid_override_pattern
BLOCK_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}  # as transformers 5 writes them


def read_nemotron_h(fields: Fields) -> arch.ModelSpec:
    """NemotronHConfig: each layer is one block - scan, attention, squared-ReLU feed-forward or experts."""
    blocks = _nemotron_blocks(fields)
    trunk = usual.Trunk(
        hidden_size=fields.size("hidden_size"),
        num_hidden_layers=len(blocks),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=fields.optional_size("max_position_embeddings"),
    )
    fields.expect("num_hidden_layers", value=len(blocks), why="the pattern lists one block per layer")
    kinds = {kind: _nemotron_layer(fields, kind, hidden_size=trunk.hidden_size) for kind in set(blocks)}
    for kind in set(BLOCK_LETTERS.values()) - set(blocks):
        fields.costless(*_UNUSED_WITHOUT[kind])
    return usual.decoder(fields, trunk=trunk, layers=tuple(kinds[kind] for kind in blocks))


_UNUSED_WITHOUT = {
    "mamba": ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "chunk_size",
              "mamba_d_state"),
    "attention": ("num_attention_heads", "num_key_value_heads", "head_dim", "attention_head_dim"),
    "mlp": ("intermediate_size",),
    "moe": (
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_latent_size", "n_shared_experts",
        "moe_shared_expert_intermediate_size",
    ),
}  # fmt: skip


def _nemotron_blocks(fields: Fields) -> tuple[str, ...]:
    blocks: tuple[str, ...]
    pattern = fields.raw("hybrid_override_pattern")
    listed = fields.raw("layers_block_type")
    if pattern is None and isinstance(listed, list):
        blocks = tuple(BLOCK_WORDS.get(str(word), str(word)) for word in listed)
    elif isinstance(pattern, str):
        blocks = tuple(BLOCK_LETTERS.get(letter, letter) for letter in pattern)
    else:
        raise fields.refusal("hybrid_override_pattern", "is missing, and so is layers_block_type: give one of them")
    for block in blocks:
        if block not in BLOCK_LETTERS.values():
            raise fields.refusal("hybrid_override_pattern", f"names the block {block!r}, known are M * - and E")
    return blocks


def _nemotron_layer(fields: Fields, kind: str, *, hidden_size: int) -> arch.LayerSpec:
    bias = fields.flag("mlp_bias", default=False)
    if kind == "mamba":
        return arch.LayerSpec(mixer=_nemotron_scan(fields), norms=1)
    if kind == "attention":
        width = fields.optional_size(fields.either("head_dim", "attention_head_dim"))
        fields.expect("sliding_window", value=None, why="NemotronHAttention sees every key")
        spec = usual.read_attention(fields, kv_heads_default=8, head_dim_default=width)
        fields.expect("attention_bias", value=False, why="NemotronHAttention has no biases")
        return arch.LayerSpec(mixer=spec.model_copy(update={"rotary": False}), norms=1)
    block: arch.FeedForward
    if kind == "mlp":
        block = arch.MlpSpec(intermediate_size=fields.size("intermediate_size"), gated=False, bias=bias)
        return arch.LayerSpec(feed_forward=(block,), norms=1)
    fields.expect("n_shared_experts", value=1, why="NemotronHMoE has one shared expert")
    changed = {
        "gated": False,
        "correction_bias": True,
        "shared_expert_intermediate_size": fields.size("moe_shared_expert_intermediate_size"),
        "latent_size": fields.optional_size("moe_latent_size"),
    }
    block = read_experts(fields, total="n_routed_experts").model_copy(update=changed)
    return arch.LayerSpec(feed_forward=(block,), norms=1)


def _nemotron_scan(fields: Fields) -> arch.Mamba2Spec:
    fields.expect("mamba_d_state", value=fields.raw("ssm_state_size"), why="it repeats ssm_state_size")
    heads, width, state_size = (fields.size(name) for name in ("mamba_num_heads", "mamba_head_dim", "ssm_state_size"))
    scan = _heads_scan(fields, _MAMBA2, heads=heads, width=width, state_size=state_size, groups=8, chunk=128)
    why = "NemotronHMamba2Mixer takes use_bias for both projections"
    fields.expect("mamba_proj_bias", value=scan.use_bias, why=why)
    return scan


def read_lfm2(fields: Fields) -> arch.ModelSpec:
    """Lfm2Config, Lfm2MoeConfig: gated short convolutions between attention with norms over heads. Dense blocks, whose
    width is derived unless told otherwise, or experts behind a few of them."""
    depth = fields.depth("num_hidden_layers")
    attention = usual.read_attention(fields, kv_heads_default=8, qk_norm="head")
    convolution = arch.ShortConvolutionSpec(
        conv_kernel=fields.size("conv_L_cache", default=3), use_bias=fields.flag("conv_bias", default=False)
    )
    attends = fields.integers("full_attn_idxs")
    types = fields.words("layer_types", length=depth, allowed=("conv", FULL))
    if types is None and attends is None:
        raise fields.refusal("layer_types", "is missing: which layers attend is unknown")
    full = [index in (attends or ()) if types is None else types[index] == FULL for index in range(depth)]
    blocks: tuple[tuple[arch.FeedForward, ...], ...] = ((_lfm2_block(fields),),) * depth
    if fields.has("num_experts"):
        bias, first = fields.flag("use_expert_bias", default=True), fields.count("num_dense_layers")
        sparse = read_experts(fields, total="num_experts", correction_bias=bias)
        blocks = usual.choose(
            fields, tuple(index >= first for index in range(depth)), sparse=sparse, dense=usual.read_mlp(fields)
        )
    mixers = [attention if is_full else convolution for is_full in full]
    return usual.stack(fields, mixers, blocks, tie_default=fields.flag("tie_embedding", default=True))


def _lfm2_block(fields: Fields) -> arch.MlpSpec:
    width = fields.size(fields.either("block_ff_dim", "intermediate_size"))
    if not fields.flag("block_auto_adjust_ff_dim", default=not fields.has("num_experts")):
        return arch.MlpSpec(intermediate_size=width)
    share = fields.ratio("block_ffn_dim_multiplier", default=1.0)
    multiple = fields.size("block_multiple_of", default=256)
    return arch.MlpSpec(intermediate_size=math.ceil(int(share * int(2 * width / 3)) / multiple) * multiple)


_SCANNING = ("mamba", "linear_attention")
_HYBRID_LAYERS = (*_SCANNING, "attention", FULL)
"""Layers of a Granite hybrid, in the words of its checkpoints and of transformers 5."""


def read_granite_hybrid(fields: Fields) -> arch.ModelSpec:
    """GraniteMoeHybridConfig: Mamba-2 or attention, then experts beside a shared block, or that block alone."""
    depth = fields.depth("num_hidden_layers")
    rotary = fields.text("position_embedding_type", allowed=("nope", "rope"), default="nope") == "rope"
    attention = usual.read_attention(fields).model_copy(update={"rotary": rotary})
    heads, width, state_size = (fields.size(f"mamba_{name}") for name in ("n_heads", "d_head", "d_state"))
    scan = _heads_scan(fields, _INNER, heads=heads, width=width, state_size=state_size, groups=1)
    types = fields.words("layer_types", length=depth, allowed=_HYBRID_LAYERS)
    if types is None:
        raise fields.refusal("layer_types", "is missing: which layers attend is unknown")
    width = fields.size("intermediate_size")
    shared = fields.size("shared_intermediate_size")
    block: arch.MlpSpec | arch.MoeSpec = arch.MlpSpec(intermediate_size=shared)
    if fields.count("num_local_experts"):
        block = read_experts(fields, total="num_local_experts", width=width, shared=shared)
    else:
        fields.expect("num_experts_per_tok", value=0, why="there is no expert to pick")
    return usual.stack(fields, [scan if kind in _SCANNING else attention for kind in types], block)
