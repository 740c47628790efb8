"""Linear attention between full layers: Qwen3-Next, Qwen3.5, Kimi Linear (Kimi K3), Ling 3 and MiniMax-01."""

from __future__ import annotations

from simulator.specs.base import Note
from simulator.specs.huggingface import layers as usual
from simulator.specs.huggingface.deepseek import read_mla
from simulator.specs.huggingface.experts import read_experts, sparse_after, sparse_steps
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.windows import FULL
from simulator.specs.model.architecture import FeedForward, GatedDeltaSpec, LayerSpec, LightningSpec, ModelSpec, MoeSpec

LINEAR = "linear_attention"
FULL_ATTENTION_INTERVAL = 4  # Qwen3NextConfig, Qwen3_5TextConfig


def read_qwen_hybrid(fields: Fields) -> ModelSpec:
    """Qwen3NextConfig, Qwen3_5TextConfig, Qwen3_5MoeTextConfig: three gated-delta layers, then gated full attention."""
    depth = fields.depth("num_hidden_layers")
    attention = usual.read_attention(fields, head_dim_default=256, bias="attention_bias", qk_norm="head")
    attention = attention.model_copy(update={"output_gate": "elementwise"})
    delta = _gated_delta(fields)
    interval = fields.size("full_attention_interval", default=FULL_ATTENTION_INTERVAL)
    types = fields.words("layer_types", length=depth, allowed=(LINEAR, FULL)) or tuple(
        FULL if (index + 1) % interval == 0 else LINEAR for index in range(depth)
    )
    mixers = [attention if kind == FULL else delta for kind in types]
    return usual.stack(fields, mixers, _qwen_feed_forwards(fields, depth=depth))


def _qwen_feed_forwards(fields: Fields, *, depth: int) -> tuple[tuple[FeedForward, ...], ...]:
    if fields.has("num_experts"):
        shared = fields.size("shared_expert_intermediate_size", default=512)
        total = fields.either("num_experts", "num_local_experts")
        sparse = read_experts(fields, total=total, shared=shared).model_copy(update={"shared_expert_gate": True})
        return usual.choose(fields, sparse_steps(fields), sparse=sparse)
    fields.expect("mlp_only_layers", value=[], why="without experts every layer is dense")
    return ((usual.read_mlp(fields),),) * depth


def _gated_delta(fields: Fields) -> GatedDeltaSpec:
    key_heads = fields.size("linear_num_key_heads", default=16)
    value_heads = fields.size("linear_num_value_heads", default=32)
    if value_heads % key_heads:
        raise fields.refusal("linear_num_value_heads", f"{value_heads} is not a multiple of {key_heads} key heads")
    return GatedDeltaSpec(
        linear_num_key_heads=key_heads,
        linear_num_value_heads=value_heads,
        linear_key_head_dim=fields.size("linear_key_head_dim", default=128),
        linear_value_head_dim=fields.size("linear_value_head_dim", default=128),
        linear_conv_kernel_dim=fields.size("linear_conv_kernel_dim", default=4),
    )


def read_kimi_linear(fields: Fields) -> ModelSpec:
    """KimiLinearConfig: Kimi delta attention layers between latent attention without rotary positions."""
    depth = fields.depth("num_hidden_layers")
    mla = read_mla(fields)
    if fields.flag("mla_use_output_gate", default=False):
        mla = mla.model_copy(update={"output_gate": "elementwise"})
    delta, is_linear = _kimi_delta(fields, depth=depth)
    experts, latent_norm = _kimi_experts(fields)
    dense = usual.read_mlp(fields)
    blocks = usual.choose(fields, sparse_after(fields, first_default=1), sparse=experts, dense=dense)
    notes = (Note("residuals_uncounted"),) if fields.optional_size("attn_res_block_size") else ()
    layers = tuple(
        LayerSpec(
            mixer=delta if linear else mla,
            feed_forward=feed_forward,
            extra_parameters=0 if feed_forward == (dense,) else latent_norm,
        )
        for linear, feed_forward in zip(is_linear, blocks, strict=True)
    )
    return usual.decoder(fields, trunk=usual.read_trunk(fields), layers=layers, notes=notes)


def _kimi_delta(fields: Fields, *, depth: int) -> tuple[GatedDeltaSpec, tuple[bool, ...]]:
    """The delta layers and where they stand: linear_attn_config of checkpoints, layer_types of transformers 5."""
    types = fields.words("layer_types", length=depth, allowed=(LINEAR, FULL))
    fields.costless("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    if not fields.has("linear_attn_config"):
        if types is None:
            raise fields.refusal("linear_attn_config", "is missing: which layers are linear is unknown")
        heads, width = fields.size("linear_num_heads", default=32), fields.size("linear_head_dim", default=128)
        kernel = fields.size("linear_conv_kernel_dim", default=4)
        spec = _kimi_spec(heads=heads, width=width, kernel=kernel, full_rank=False)
        return spec, tuple(kind == LINEAR for kind in types)
    section = fields.section("linear_attn_config")
    section.costless("gate_lower_bound")
    linear = frozenset(section.integers("kda_layers") or ())
    full = frozenset(section.integers("full_attn_layers") or ())
    if linear & full or linear | full != frozenset(range(1, depth + 1)):
        raise section.refusal("kda_layers", f"and full_attn_layers must name each of the layers 1 to {depth} once")
    spec = _kimi_spec(
        heads=section.size("num_heads"),
        width=section.size("head_dim"),
        kernel=section.size("short_conv_kernel_size", default=4),
        full_rank=section.flag("use_full_rank_gate", default=False),
    )
    return spec, tuple(index in linear for index in range(1, depth + 1))


def _kimi_spec(*, heads: int, width: int, kernel: int, full_rank: bool) -> GatedDeltaSpec:
    return GatedDeltaSpec(
        linear_num_key_heads=heads,
        linear_num_value_heads=heads,
        linear_key_head_dim=width,
        linear_value_head_dim=width,
        linear_conv_kernel_dim=kernel,
        decay="channel",
        decay_lora_rank=width,
        gate_lora_rank=0 if full_rank else width,
    )


def _kimi_experts(fields: Fields) -> tuple[MoeSpec, int]:
    """The experts, and the parameters of the norm in their latent space."""
    total = fields.either("num_experts", "num_local_experts", "n_routed_experts")
    experts = read_experts(fields, total=total, picked=fields.either("num_experts_per_token", "num_experts_per_tok"))
    shared = fields.count(fields.either("num_shared_experts", "n_shared_experts"))
    latent = fields.optional_size("routed_expert_hidden_size")
    normed = fields.flag("latent_moe_use_norm", default=False)
    fields.costless("moe_renormalize", "moe_router_activation_func", "use_grouped_topk", "num_expert_group")
    changed = {
        "shared_expert_intermediate_size": experts.moe_intermediate_size * shared,
        "correction_bias": True,
        "latent_size": latent,
    }
    return experts.model_copy(update=changed), latent if latent is not None and normed else 0


LIGHTNING_BLOCK = 256  # MiniMaxConfig


def read_minimax(fields: Fields) -> ModelSpec:
    """MiniMaxConfig and MiniMaxM1Config: seven layers of lightning attention, then a full one; experts throughout."""
    depth = fields.depth("num_hidden_layers")
    attention = usual.read_attention(fields, kv_heads_default=8)
    lightning = LightningSpec(
        num_heads=attention.num_attention_heads,
        head_dim=attention.head_dim,
        chunk_size=fields.size("block_size", default=LIGHTNING_BLOCK),
    )
    for part in ("full_attn", "linear_attn", "mlp"):
        fields.costless(f"{part}_alpha_factor", f"{part}_beta_factor")
    for part in ("full_attention", "linear_attention", "mlp"):
        fields.costless(f"layernorm_{part}_alpha", f"layernorm_{part}_beta")
    types = fields.words("layer_types", length=depth, allowed=(LINEAR, FULL))
    kinds = fields.integers("attn_type_list")
    if types is None and (kinds is None or len(kinds) != depth or not set(kinds) <= {0, 1}):
        raise fields.refusal("attn_type_list", f"or layer_types must list {depth} layers: which ones attend is unknown")
    is_full = tuple(kind == FULL for kind in types) if types is not None else tuple(map(bool, kinds or ()))
    experts = read_experts(fields, total="num_local_experts", picked_default=2, width=fields.size("intermediate_size"))
    return usual.stack(fields, [attention if full else lightning for full in is_full], experts)


def read_bailing_hybrid(fields: Fields) -> ModelSpec:
    """BailingMoeV2_5 and V3 (Ling 2.5 to 3): linear attention, and latent attention on the last layer of each group.

    V3 runs Kimi delta attention with full-rank decay and gate (``no_kda_lora``), V2.5 lightning attention with norms
    over query and key heads.
    """
    gated = fields.text("gated_attention_proj_granularity_type", allowed=("head_wise", "none"), default="none")
    mla = read_mla(fields).model_copy(update={"output_gate": "headwise" if gated == "head_wise" else "none"})
    linear = _bailing_linear(fields, heads=mla.num_attention_heads)
    period = fields.size("layer_group_size")
    shared = fields.size("moe_shared_expert_intermediate_size") * fields.count("num_shared_experts")
    sparse = read_experts(fields, total="num_experts", shared=shared, correction_bias=True)
    blocks = usual.choose(fields, sparse_after(fields), sparse=sparse)
    return usual.stack(fields, [linear if (index + 1) % period else mla for index in range(len(blocks))], blocks)


def _bailing_linear(fields: Fields, *, heads: int) -> GatedDeltaSpec | LightningSpec:
    width = fields.size("head_dim")
    fields.expect("use_kda_lora", value=False, why="a low-rank decay of this family is not published")
    if not fields.flag("no_kda_lora", default=False):
        return LightningSpec(num_heads=heads, head_dim=width, chunk_size=LIGHTNING_BLOCK)
    return GatedDeltaSpec(
        linear_num_key_heads=heads,
        linear_num_value_heads=heads,
        linear_key_head_dim=width,
        linear_value_head_dim=width,
        linear_conv_kernel_dim=fields.size("short_conv_kernel_size", default=4),
        decay="channel",
    )
