"""Nemotron-NAS (DeciLM): Llama whose layers were each resized, or emptied, by architecture search."""

from __future__ import annotations

from simulator.specs.huggingface.assembly import decoder
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import grouped_attention, read_trunk, split_heads
from simulator.specs.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec

FFN_MULTIPLE = 256  # find_multiple in the checkpoint's modeling_decilm.py


def read_nemotron_nas(fields: Fields) -> ModelSpec:
    """DeciLMConfig (of the checkpoint): block_configs give each layer's group size and feed-forward multiple."""
    trunk = read_trunk(fields)
    heads = fields.size("num_attention_heads")
    bias = fields.flag("attention_bias", default=False)
    mlp_bias = fields.flag("mlp_bias", default=False)
    fields.expect("num_key_value_heads", value=None, why="block_configs gives a number per layer")
    fields.expect("intermediate_size", value=None, why="block_configs gives a width per layer")
    layers = []
    for block in fields.sections("block_configs", length=trunk.num_hidden_layers):
        attention = _attention(block.section("attention"), heads=heads, hidden_size=trunk.hidden_size)
        width = _width(block.section("ffn"), hidden_size=trunk.hidden_size)
        block.costless("parallel_blocks")
        mixer = None if attention is None else attention.model_copy(update={"qkv_bias": bias, "o_bias": bias})
        mlp = () if width is None else (MlpSpec(intermediate_size=width, bias=mlp_bias),)
        layers.append(LayerSpec(mixer=mixer, feed_forward=mlp, norms=(mixer is not None) + (width is not None)))
    return decoder(fields, trunk=trunk, layers=layers)


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
    width = split_heads(section, hidden_size, heads)
    spec = grouped_attention(section, heads=heads, kv_heads=heads // group, head_dim=width)
    return spec.model_copy(update={"sliding_window": window})


def _width(section: Fields, *, hidden_size: int) -> int | None:
    section.expect("replace_with_linear", value=False, why="a linear layer in place of the block is not modelled")
    section.expect("sparsify", value=None, why="sparsified blocks are not modelled")
    if section.flag("no_op", default=False):
        section.costless("ffn_mult")
        return None
    if not section.has("ffn_mult"):
        raise section.refusal("ffn_mult", "is missing: the width of the feed-forward block is unknown")
    width = int(2 * section.number("ffn_mult", default=1.0) * hidden_size / 3)
    return -(-width // FFN_MULTIPLE) * FFN_MULTIPLE
