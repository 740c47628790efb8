"""Towers that take pictures of any size: Qwen-VL, EXAONE 4.5, GLM-4V, Pixtral and Mistral 3, Kimi."""

from __future__ import annotations

import math

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import distinct, split_heads
from simulator.specs.huggingface.vision.shapes import (
    CHANNELS,
    edge_of,
    grid_of,
    products,
    text_width,
    tower_layer,
)
from simulator.specs.model.architecture import ProjectionSpec, VisionSpec


def qwen_tower(fields: Fields) -> VisionSpec:
    """Qwen3VLVisionModel and Qwen3_5VisionModel: patches, learned grid, blocks, one merger and the deepstack ones."""
    vision = fields.section("vision_config")
    hidden, merge = vision.size("hidden_size"), vision.size("spatial_merge_size", default=2)
    heads = vision.size("num_heads", default=16)
    patch, frames = vision.size("patch_size", default=16), vision.size("temporal_patch_size", default=2)
    layer = tower_layer(
        heads=heads, head_dim=split_heads(vision, hidden, heads), intermediate=vision.size("intermediate_size")
    )
    merged, outputs = hidden * merge**2, vision.size("out_hidden_size")
    deepstack = len(vision.integers("deepstack_visual_indexes") or ())
    layers, order = distinct((layer,) * vision.depth("depth"))
    positions = vision.size("num_position_embeddings") * hidden
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=vision.size("in_channels", default=CHANNELS) * frames * patch**2,
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=products(merged, merged, outputs) * (1 + deepstack),
        extra_parameters=positions + 2 * hidden + deepstack * 2 * merged,
    )


def windowed_tower(fields: Fields) -> VisionSpec:
    """Qwen2_5_VisionTransformer, and EXAONE's and MiMo's with grouped query heads.

    Gated blocks, all but a few of them over squares of window_size pixels.
    """
    if fields.has("text_config"):
        fields.expect("vocab_size", value=fields.peek("text_config", "vocab_size"), why="it repeats the text part's")
    vision = fields.section("vision_config")
    hidden, heads = vision.size("hidden_size"), vision.size("num_heads", default=16)
    kv_heads = vision.optional_size("num_key_value_heads") or heads
    patch, merge = vision.size("patch_size", default=14), vision.size("spatial_merge_size", default=2)
    depth, intermediate = vision.depth("depth", default=32), vision.size("intermediate_size")
    full = frozenset(vision.integers("fullatt_block_indexes") or (7, 15, 23, 31))
    square = grid_of(vision, "window_size", edge=vision.size("window_size", default=112), patch=patch)
    layers, order = distinct(
        tuple(
            tower_layer(
                heads=heads,
                kv_heads=kv_heads,
                head_dim=split_heads(vision, hidden, heads),
                intermediate=intermediate,
                gated=True,
                window=None if index in full else square,
            )
            for index in range(depth)
        )
    )
    merged = hidden * merge**2
    channels = vision.size(vision.either("in_channels", "in_chans"), default=CHANNELS)
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=channels * vision.size("temporal_patch_size", default=2) * patch**2,
        patch_bias=False,
        norm="rms",
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=products(merged, merged, vision.size("out_hidden_size")),
        extra_parameters=hidden,
    )


def muse_tower(fields: Fields) -> VisionSpec:
    """MuseGlimmerVisionModel, norms before and behind its blocks, and its adapter of merged patches."""
    width, merged = text_width(fields), fields.size("out_hidden_size")
    inner = fields.size("projector_hidden_size")
    vision = fields.section("vision_config")
    hidden, heads = vision.size("hidden_size"), vision.size("num_attention_heads")
    layer = tower_layer(
        heads=heads, head_dim=split_heads(vision, hidden, heads), intermediate=vision.size("intermediate_size")
    )
    layers, order = distinct((layer,) * vision.depth("num_hidden_layers"))
    patch, merge = vision.size("patch_size"), vision.size("merge_size")
    vision.expect("hidden_size", value=merged // merge**2, why="out_hidden_size is that of the merged patches")
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=CHANNELS * vision.size("patch_temporal") * patch**2,
        patch_bias=False,
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=products(merged, inner, inner, width, bias=False),
        extra_parameters=vision.size("num_position_embeddings", default=1024) * hidden + 4 * hidden,
    )


def glm_tower(fields: Fields) -> VisionSpec:
    """Glm4vVisionModel: gated blocks, a strided convolution that merges patches, and a gated projection."""
    vision = fields.section("vision_config")
    hidden, heads, merge = vision.size("hidden_size"), vision.size("num_heads"), vision.size("spatial_merge_size")
    patch, outputs = vision.size("patch_size"), vision.size("out_hidden_size")
    bias = vision.flag("attention_bias", default=False)
    layer = tower_layer(
        heads=heads,
        head_dim=split_heads(vision, hidden, heads),
        intermediate=outputs,
        gated=True,
        bias=bias,
        o_bias=False,
        mlp_bias=False,
    )
    layers, order = distinct((layer,) * vision.depth("depth"))
    context = vision.size("intermediate_size")
    positions = grid_of(vision, "image_size", edge=edge_of(vision, "image_size"), patch=patch) * hidden
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=vision.size("in_channels", default=CHANNELS) * vision.size("temporal_patch_size") * patch**2,
        norm="rms",
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=(
            *products(hidden * merge**2, outputs),
            *products(outputs, outputs, context, bias=False),
            *products(outputs, context, bias=False),
            *products(context, outputs, bias=False),
        ),
        extra_parameters=positions + 2 * hidden + 2 * outputs,
    )


def mistral3_tower(fields: Fields) -> VisionSpec:
    """Pixtral's encoder behind Mistral3's merger of patches."""
    width, merge = text_width(fields), fields.size("spatial_merge_size", default=2)
    bias = fields.flag("multimodal_projector_bias", default=False)
    hidden = _pixtral_width(fields)
    projections = (*products(hidden * merge**2, hidden, bias=False), *products(hidden, width, width, bias=bias))
    return _pixtral(fields, merge=merge, projections=projections, extra=hidden)


def mistral_large3_tower(fields: Fields) -> VisionSpec:
    """The same encoder and merger under the names of Mistral's params.json, beside the text fields."""
    width, vision = text_width(fields), fields.section("vision_config")
    vision.text("mm_projector_id", allowed=("patch_merge",))
    merge, hidden = vision.size("spatial_merge_size"), vision.size("hidden_size")
    bias = vision.flag("adapter_bias", default=False)
    projections = (*products(hidden * merge**2, hidden, bias=False), *products(hidden, width, width, bias=bias))
    return _pixtral(fields, merge=merge, projections=projections, extra=hidden)


def llava_tower(fields: Fields) -> VisionSpec:
    """Pixtral's encoder behind Llava's projection, which keeps every patch as a token."""
    if fields.peek("vision_config", "model_type") != "pixtral":
        raise fields.refusal("vision_config.model_type", "understood under llava is only pixtral")
    width = text_width(fields)
    bias = fields.flag("multimodal_projector_bias", default=True)
    return _pixtral(fields, merge=1, projections=products(_pixtral_width(fields), width, width, bias=bias), extra=0)


PIXTRAL_WIDTH = 1024  # PixtralVisionConfig


def _pixtral_width(fields: Fields) -> int:
    given = fields.peek("vision_config", "hidden_size")
    return given if isinstance(given, int) and given > 0 else PIXTRAL_WIDTH


def _pixtral(fields: Fields, *, merge: int, projections: tuple[ProjectionSpec, ...], extra: int) -> VisionSpec:
    vision = fields.section("vision_config")
    hidden = vision.size("hidden_size", default=PIXTRAL_WIDTH)
    heads, patch = vision.size("num_attention_heads", default=16), vision.size("patch_size", default=16)
    layer = tower_layer(
        heads=heads,
        head_dim=split_heads(vision, hidden, heads),
        intermediate=vision.size("intermediate_size", default=4096),
        gated=True,
        bias=False,
    )
    layers, order = distinct((layer,) * vision.depth("num_hidden_layers", default=24))
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=vision.size("num_channels", default=CHANNELS) * patch**2,
        patch_bias=False,
        norm="rms",
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=projections,
        image_size=edge_of(vision, "image_size", default=1024),
        extra_parameters=hidden + extra,
    )


def kimi_tower(fields: Fields) -> VisionSpec:
    """Kimi_K25VisionModel (MoonViT) and its merging projection."""
    vision = fields.section("vision_config")
    hidden = vision.size(vision.either("vt_hidden_size", "hidden_size"))
    heads = vision.size(vision.either("vt_num_attention_heads", "num_attention_heads"), default=16)
    height = vision.size(vision.either("init_pos_emb_height", "pos_emb_height"))
    width = vision.size(vision.either("init_pos_emb_width", "pos_emb_width"))
    intermediate = vision.size(vision.either("vt_intermediate_size", "intermediate_size"))
    layer = tower_layer(heads=heads, head_dim=split_heads(vision, hidden, heads), intermediate=intermediate)
    layers, order = distinct((layer,) * vision.depth(vision.either("vt_num_hidden_layers", "num_hidden_layers")))
    kernel, patch = vision.integers("merge_kernel_size") or (2, 2), vision.size("patch_size")
    if 0 in kernel:
        raise vision.refusal("merge_kernel_size", f"is {list(kernel)}, allowed are integers of at least 1")
    merged = hidden * math.prod(kernel)
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=CHANNELS * patch**2,
        layers=layers,
        layer_order=order,
        merge=kernel[0],
        projections=products(merged, merged, vision.size("text_hidden_size")),
        extra_parameters=height * width * hidden + 2 * hidden + 2 * hidden,
    )


def uncounted_tower(fields: Fields) -> None:
    """A tower whose code is not public in transformers: neither counted nor run."""
    fields.section("vision_config")
