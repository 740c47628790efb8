"""Gemma: wide heads, tied embeddings, and from the second generation on windows and norms on both sides."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    FULL,
    SLIDING,
    decoder,
    every_nth_full,
    patterned_windows,
    periodic_windows,
    read_attention,
    read_mlp,
    read_trunk,
    stack,
)
from simulator.specs.model.architecture import AttentionSpec, FeedForward, LayerSpec, MlpSpec, ModelSpec, MoeSpec

GEMMA3_VOCAB = 262208  # Gemma3TextConfig
GEMMA3_WINDOW = 4096  # Gemma3TextConfig


def read_gemma(fields: Fields) -> ModelSpec:
    """GemmaConfig: head_dim 256 unless given."""
    attention = read_attention(fields, head_dim_default=256, bias="attention_bias")
    return stack(fields, attention, read_mlp(fields), tie_default=True)


def read_gemma2(fields: Fields) -> ModelSpec:
    """Gemma2Config: every other layer slides over 4096 keys; four norms a layer."""
    windows = periodic_windows(fields, period=2, window=fields.size("sliding_window", default=4096))
    attention = _attention(fields, qk_norm="none")
    return stack(fields, attention, read_mlp(fields), windows=windows, norms=4, tie_default=True)


def read_gemma3(fields: Fields) -> ModelSpec:
    """Gemma3TextConfig: five sliding layers, then a full one; norms over query and key heads."""
    trunk = read_trunk(fields, vocab_default=GEMMA3_VOCAB)
    windows = patterned_windows(fields, period=6, window=GEMMA3_WINDOW)
    attention, mlp = _attention(fields, qk_norm="head"), read_mlp(fields)
    return stack(fields, attention, mlp, trunk=trunk, windows=windows, norms=4, tie_default=True)


def _attention(fields: Fields, *, qk_norm: str) -> AttentionSpec:
    """Defaults of Gemma2Config and Gemma3TextConfig: 8 heads on 4, each 256 wide."""
    return read_attention(
        fields, heads_default=8, kv_heads_default=4, head_dim_default=256, bias="attention_bias", qk_norm=qk_norm
    )


def read_gemma4(fields: Fields) -> ModelSpec:
    """Gemma4TextConfig: full layers have wider heads and may reuse keys as values; a dense block beside the experts."""
    trunk = read_trunk(fields)
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
    return decoder(fields, trunk=trunk, layers=layers, tie_default=True, per_layer_embedding_size=per_layer)


def _gemma4_attention(fields: Fields) -> tuple[AttentionSpec, AttentionSpec]:
    """Attention of the sliding and of the full layers."""
    sliding = _attention(fields, qk_norm="head")
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
