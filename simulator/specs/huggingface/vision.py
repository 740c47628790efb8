"""Parameters of vision towers: stored with the model, never run on text, so only their number matters."""

from __future__ import annotations

import math

from simulator.specs.huggingface.fields import Fields


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
