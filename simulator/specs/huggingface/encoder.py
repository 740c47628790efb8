"""Encoders and encoder-decoders: BERT and T5.

Parameters of vision towers: stored with the model, never run on text, so only their number matters.
"""

from __future__ import annotations

import math

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import Trunk, decoder, encoder, grouped_attention, read_trunk, split_heads
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ModelSpec

MASKED_LM = "BertForMaskedLM"
BARE_ENCODER = "BertModel"


def read_bert(fields: Fields) -> ModelSpec:
    """BertConfig: norms behind the sublayers; with a masked-LM head the pooler is left out, as transformers does."""
    trunk = read_trunk(fields)
    fields.expect("is_decoder", value=False, why="a causal BERT is not a published model")
    fields.expect("position_embedding_type", value="absolute", why="positions are learned rows")
    heads = fields.size("num_attention_heads")
    attention = grouped_attention(
        fields, heads=heads, kv_heads=heads, head_dim=split_heads(fields, trunk.hidden_size, heads)
    ).model_copy(update={"causal": False, "rotary": False, "qkv_bias": True, "o_bias": True})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), gated=False, bias=True)
    layer = LayerSpec(mixer=attention, feed_forward=(mlp,))
    has_head = _has_masked_head(fields)
    spec = decoder(
        fields,
        trunk=trunk,
        layers=(layer,) * trunk.num_hidden_layers,
        norm="layer",
        tie_default=True,
        position_embeddings=fields.size("max_position_embeddings", default=512),
        embedding_norm=True,
        final_norm=False,
        lm_head_bias=has_head,
    )
    width = trunk.hidden_size
    return spec.model_copy(
        update={
            "token_types": fields.size("type_vocab_size", default=2),
            "has_lm_head": has_head,
            "pooler": not has_head,
            "head_hidden_parameters": width * width + width + 2 * width if has_head else 0,
            "notes": ("an encoder: one pass over the whole text, nothing is generated",),
        }
    )


def _has_masked_head(fields: Fields) -> bool:
    """The head that ``architectures`` names; BertModel where it names none."""
    named = fields.raw("architectures") or [BARE_ENCODER]
    if named not in ([MASKED_LM], [BARE_ENCODER]):
        raise fields.refusal("architectures", f"is {named!r}, understood are {[MASKED_LM]} and {[BARE_ENCODER]}")
    return named == [MASKED_LM]


def read_t5(fields: Fields) -> ModelSpec:
    """T5Config: one table of relative positions per stack, held by its first layer; no biases."""
    trunk = Trunk(
        hidden_size=fields.size("d_model"),
        num_hidden_layers=fields.depth("num_decoder_layers" if fields.has("num_decoder_layers") else "num_layers"),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=None,
    )
    heads, width = fields.size("num_heads"), fields.size("d_kv")
    plain = AttentionSpec(num_attention_heads=heads, num_key_value_heads=heads, head_dim=width, rotary=False)
    table = fields.size("relative_attention_num_buckets", default=32) * heads
    kind = fields.text("feed_forward_proj", allowed=("relu", "gated-gelu", "gated-silu"), default="relu")
    mlp = MlpSpec(intermediate_size=fields.size("d_ff"), gated=kind.startswith("gated"))
    fields.costless("num_decoder_layers", "relative_attention_max_distance", "n_positions")
    fields.costless("is_gated_act", "dense_act_fn", "scale_decoder_outputs")
    causal = _stack(plain, mlp, depth=trunk.num_hidden_layers, table=table, causal=True)
    seeing = _stack(plain, mlp, depth=fields.depth("num_layers"), table=table, causal=False)
    spec = decoder(fields, trunk=trunk, layers=causal, tie_default=True)
    return spec.model_copy(update={"encoder": encoder(seeing, final_norm=True)})


def _stack(plain: AttentionSpec, mlp: MlpSpec, *, depth: int, table: int, causal: bool) -> tuple[LayerSpec, ...]:
    cross = plain.model_copy(update={"is_cross": True, "causal": False}) if causal else None
    return tuple(
        LayerSpec(
            mixer=plain.model_copy(update={"causal": causal, "position_bias_parameters": table if index == 0 else 0}),
            cross_attention=cross,
            feed_forward=(mlp,),
            norms=3 if causal else 2,
        )
        for index in range(depth)
    )


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _encoder_layer(hidden: int, intermediate: int) -> int:
    """A pre-norm block with four biased projections, a two-matrix feed-forward part and two layer norms."""
    attention = 4 * _linear(hidden, hidden)
    feed_forward = _linear(hidden, intermediate) + _linear(intermediate, hidden)
    return attention + feed_forward + 2 * 2 * hidden


def qwen_tower(fields: Fields) -> int:
    """Qwen3VLVisionModel and Qwen3_5VisionModel: patches, learned grid, blocks, one merger and the deepstack ones."""
    vision = fields.section("vision_config")
    hidden, intermediate = vision.size("hidden_size"), vision.size("intermediate_size")
    patch = vision.size("in_channels", default=3) * vision.size("temporal_patch_size", default=2)
    patch *= vision.size("patch_size", default=16) ** 2
    merged = hidden * vision.size("spatial_merge_size", default=2) ** 2
    outputs = vision.size("out_hidden_size")
    merger = _linear(merged, merged) + _linear(merged, outputs)
    deepstack = len(vision.integers("deepstack_visual_indexes") or ())
    total = _linear(patch, hidden) + vision.size("num_position_embeddings") * hidden
    total += vision.size("depth") * _encoder_layer(hidden, intermediate)
    total += merger + 2 * hidden + deepstack * (merger + 2 * merged)
    vision.costless_rest()
    return total


def llama4_tower(fields: Fields) -> int:
    """Llama4VisionModel and its projector."""
    text_width = _text_width(fields)
    vision = fields.section("vision_config")
    hidden, intermediate = vision.size("hidden_size"), vision.size("intermediate_size")
    patch = vision.size("patch_size")
    positions = (vision.size("image_size") // patch) ** 2 + 1
    total = _linear(vision.size("num_channels", default=3) * patch**2, hidden, bias=False)
    total += hidden + positions * hidden + 2 * 2 * hidden
    total += vision.size("num_hidden_layers") * _encoder_layer(hidden, intermediate)
    outputs = vision.size("projector_output_dim")
    total += _linear(intermediate, vision.size("projector_input_dim"), bias=False)
    total += _linear(outputs, outputs, bias=False)
    total += _linear(vision.size("vision_output_dim"), text_width, bias=False)
    vision.costless_rest()
    return total


def siglip_tower(fields: Fields) -> int:
    """Gemma3's SigLIP tower and its projection."""
    text_width = _text_width(fields)
    vision = fields.section("vision_config")
    hidden, intermediate = vision.size("hidden_size"), vision.size("intermediate_size")
    patch = vision.size("patch_size")
    vision.expect("vision_use_head", value=False, why="Gemma 3 runs its tower without the pooling head")
    positions = (vision.size("image_size") // patch) ** 2
    total = _linear(vision.size("num_channels", default=3) * patch**2, hidden) + positions * hidden
    total += vision.size("num_hidden_layers") * _encoder_layer(hidden, intermediate) + 2 * hidden
    vision.costless_rest()
    return total + hidden * text_width + hidden


def gemma4_tower(fields: Fields) -> int:
    """Gemma4VisionModel: gated blocks with four norms and norms over query and key heads, no biases."""
    text_width = _text_width(fields)
    fields.expect("audio_config", value=None, why="audio towers are not counted")
    vision = fields.section("vision_config")
    hidden, intermediate = vision.size("hidden_size"), vision.size("intermediate_size")
    head_dim = vision.size("head_dim")
    query = vision.size("num_attention_heads") * head_dim
    key = vision.size("num_key_value_heads") * head_dim
    layer = 2 * hidden * (query + key) + 3 * hidden * intermediate + 4 * hidden + 2 * head_dim
    total = vision.size("num_hidden_layers") * layer
    total += _linear(3 * vision.size("patch_size") ** 2, hidden, bias=False)
    total += 2 * vision.size("position_embedding_size") * hidden
    vision.costless_rest()
    return total + hidden * text_width


def kimi_tower(fields: Fields) -> int:
    """Kimi_K25VisionModel (MoonViT) and its merging projection."""
    fields.costless("projection_hidden_size", "projection_layer_norm_eps")
    vision = fields.section("vision_config")
    hidden = vision.size(vision.either("vt_hidden_size", "hidden_size"))
    intermediate = vision.size(vision.either("vt_intermediate_size", "intermediate_size"))
    height = vision.size(vision.either("init_pos_emb_height", "pos_emb_height"))
    width = vision.size(vision.either("init_pos_emb_width", "pos_emb_width"))
    depth = vision.size(vision.either("vt_num_hidden_layers", "num_hidden_layers"))
    merged = hidden * math.prod(vision.integers("merge_kernel_size") or (2, 2))
    total = _linear(3 * vision.size("patch_size") ** 2, hidden)
    total += height * width * hidden + depth * _encoder_layer(hidden, intermediate) + 2 * hidden
    total += _linear(merged, merged) + _linear(merged, vision.size("text_hidden_size")) + 2 * hidden
    vision.costless_rest()
    return total


def uncounted_tower(fields: Fields) -> None:
    """A tower whose code is not public in transformers: neither counted nor run."""
    fields.section("vision_config").costless_rest()


def _text_width(fields: Fields) -> int:
    """hidden_size of the text part; the text reader checks the section itself."""
    width = fields.peek("text_config", "hidden_size")
    if not isinstance(width, int):
        raise fields.refusal("text_config.hidden_size", f"is {width!r}, allowed are integers of at least 1")
    return width
