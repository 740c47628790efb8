"""Towers that take pictures of any size: Qwen-VL, EXAONE 4.5, GLM-4V, Pixtral and Mistral 3, Kimi."""

from __future__ import annotations

import math

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import distinct, split_heads
from simulator.specs.huggingface.vision import shapes
from simulator.specs.huggingface.vision.fixed_size import clip_tower
from simulator.specs.model.architecture import ProjectionSpec, VisionSpec


def qwen_tower(fields: Fields) -> VisionSpec:
    """Qwen3VLVisionModel and Qwen3_5VisionModel: patches, learned grid, blocks, one merger and the deepstack ones."""
    vision = fields.section("vision_config")
    hidden, merge = vision.size("hidden_size"), vision.size("spatial_merge_size", default=2)
    patch, frames = vision.size("patch_size", default=16), vision.size("temporal_patch_size", default=2)
    merged = hidden * merge**2
    deepstack = len(vision.integers("deepstack_visual_indexes") or ())
    return shapes.plain_tower(
        vision,
        hidden=hidden,
        patch=patch,
        frames=frames,
        merge=merge,
        projections=shapes.products(merged, merged, vision.size("out_hidden_size")) * (1 + deepstack),
        extra=vision.size("num_position_embeddings") * hidden + 2 * hidden + deepstack * 2 * merged,
    )


def qwen2_tower(fields: Fields) -> VisionSpec:
    """Qwen2VisionTransformer: blocks without learned positions, embed_dim wide, and one merger."""
    vision = fields.section("vision_config")
    hidden, merge = vision.size("embed_dim", default=1280), vision.size("spatial_merge_size", default=2)
    patch, frames = vision.size("patch_size", default=14), vision.size("temporal_patch_size", default=2)
    merged = hidden * merge**2
    return shapes.plain_tower(
        vision,
        hidden=hidden,
        intermediate=int(hidden * vision.ratio("mlp_ratio", default=4.0)),
        patch=patch,
        frames=frames,
        patch_bias=False,
        merge=merge,
        projections=shapes.products(merged, merged, vision.size("hidden_size")),
        extra=2 * hidden,
    )


def ernie_tower(fields: Fields) -> VisionSpec:
    """Ernie4_5_VLMoeVisionTransformer and its resampler, which joins squares of patches, then two frames."""
    width, vision = shapes.text_width(fields), fields.section("vision_config")
    hidden, merge = vision.size("hidden_size"), vision.size("spatial_merge_size", default=2)
    patch, joined = vision.size("patch_size", default=14), hidden * merge**2
    frames, ratio = vision.size("temporal_merge_size", default=2), vision.ratio("mlp_ratio", default=4.0)
    return shapes.plain_tower(
        vision,
        hidden=hidden,
        intermediate=vision.optional_size("intermediate_size") or int(hidden * ratio),
        patch=patch,
        patch_bias=False,
        merge=merge,
        projections=(
            *shapes.products(joined, joined, joined),
            *shapes.products(joined * frames, joined, joined, width),
        ),
        extra=2 * hidden + 2 * 2 * joined + width,
    )


def minimax_tower(fields: Fields) -> VisionSpec:
    """MiniMaxM3VLVisionModel: every patch is projected to the text's width, then squares of them are joined."""
    width, inner = shapes.text_width(fields), fields.size("projector_hidden_size")
    vision = fields.section("vision_config")
    nested = vision.has("img_token_compression_config")
    sizes = vision.section("img_token_compression_config") if nested else vision
    merge, frames = sizes.size("spatial_merge_size", default=2), sizes.size("temporal_patch_size", default=2)
    if nested:
        sizes.text("image_token_compression_method", allowed=("patch_merge",))
    hidden, patch = vision.size("hidden_size"), vision.size("patch_size", default=14)
    patches = (product.model_copy(update={"per_patch": True}) for product in shapes.products(hidden, inner, width))
    return shapes.plain_tower(
        vision,
        hidden=hidden,
        patch=patch,
        frames=frames,
        patch_bias=False,
        merge=merge,
        projections=(*patches, *shapes.products(width * merge**2, inner, width)),
        extra=2 * hidden,
    )


def lfm2_tower(fields: Fields) -> VisionSpec:
    """Siglip2VisionModel without its head, squares of patches joined and projected."""
    width, merge = shapes.text_width(fields), fields.size("downsample_factor", default=2)
    inner = fields.size("projector_hidden_size", default=2560)
    bias, normed = fields.flag("projector_bias", default=True), fields.flag("projector_use_layernorm", default=True)
    vision = fields.section("vision_config")
    vision.expect("vision_use_head", value=False, why="LFM2-VL runs its tower without the pooling head")
    hidden, patch = vision.size("hidden_size"), vision.size("patch_size", default=16)
    merged = hidden * merge**2
    return shapes.plain_tower(
        vision,
        hidden=hidden,
        patch=patch,
        merge=merge,
        projections=shapes.products(merged, inner, width, bias=bias),
        extra=vision.size("num_patches", default=256) * hidden + 2 * hidden + (2 * merged if normed else 0),
    )


def windowed_tower(fields: Fields) -> VisionSpec:
    """Qwen2_5_VisionTransformer, and EXAONE's and MiMo's with grouped query heads. Gated blocks, all but a few of them
    over squares of window_size pixels."""
    if fields.has("text_config"):
        fields.expect("vocab_size", value=fields.peek("text_config", "vocab_size"), why="it repeats the text part's")
    vision = fields.section("vision_config")
    hidden, heads = vision.size("hidden_size"), vision.size("num_heads", default=16)
    kv_heads = vision.optional_size("num_key_value_heads") or heads
    patch, merge = vision.size("patch_size", default=14), vision.size("spatial_merge_size", default=2)
    depth, intermediate = vision.depth("depth", default=32), vision.size("intermediate_size")
    full = frozenset(vision.integers("fullatt_block_indexes") or (7, 15, 23, 31))
    square = shapes.grid_of(vision, "window_size", edge=vision.size("window_size", default=112), patch=patch)
    layers, order = distinct(
        tuple(
            shapes.tower_layer(
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
    channels = vision.size(vision.either("in_channels", "in_chans"), default=shapes.CHANNELS)
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=channels * vision.size("temporal_patch_size", default=2) * patch**2,
        patch_bias=False,
        norm="rms",
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=shapes.products(merged, merged, vision.size("out_hidden_size")),
        extra_parameters=hidden,
    )


def muse_tower(fields: Fields) -> VisionSpec:
    """MuseGlimmerVisionModel, norms before and behind its blocks, and its adapter of merged patches."""
    width, merged = shapes.text_width(fields), fields.size("out_hidden_size")
    inner = fields.size("projector_hidden_size")
    vision = fields.section("vision_config")
    hidden = vision.size("hidden_size")
    patch, merge = vision.size("patch_size"), vision.size("merge_size")
    vision.expect("hidden_size", value=merged // merge**2, why="out_hidden_size is that of the merged patches")
    return shapes.plain_tower(
        vision,
        hidden=hidden,
        patch=patch,
        frames=vision.size("patch_temporal"),
        patch_bias=False,
        merge=merge,
        projections=shapes.products(merged, inner, inner, width, bias=False),
        extra=vision.size("num_position_embeddings", default=1024) * hidden + 4 * hidden,
    )


def glm_tower(fields: Fields) -> VisionSpec:
    """Glm4vVisionModel and GlmOcrVisionModel: gated blocks, a convolution that merges patches, a gated projection.
    GLM-OCR's has norms over its heads, biases throughout and no table of positions."""
    vision = fields.section("vision_config")
    hidden, heads, merge = vision.size("hidden_size"), vision.size("num_heads"), vision.size("spatial_merge_size")
    patch, outputs = vision.size("patch_size"), vision.size("out_hidden_size")
    width, bias = vision.size("intermediate_size"), vision.flag("attention_bias", default=False)
    reads_text = fields.peek("vision_config", "model_type") == "glm_ocr_vision"
    head_dim = split_heads(vision, hidden, heads)
    layer = shapes.tower_layer(
        heads=heads,
        head_dim=head_dim,
        intermediate=width if reads_text else outputs,
        gated=True,
        bias=bias,
        o_bias=bias and reads_text,
        mlp_bias=bias and reads_text,
        extra=2 * head_dim if reads_text else 0,
    )
    layers, order = distinct((layer,) * vision.depth("depth"))
    context = outputs * shapes.CHANNELS if reads_text else width
    table = shapes.grid_of(vision, "image_size", edge=shapes.edge_of(vision, "image_size"), patch=patch)
    positions = 0 if reads_text else table * hidden + hidden  # the other norm is before the blocks
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=vision.size("in_channels", default=shapes.CHANNELS)
        * vision.size("temporal_patch_size")
        * patch**2,
        norm="rms",
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=(
            *shapes.products(hidden * merge**2, outputs),
            *shapes.products(outputs, outputs, context, bias=False),
            *shapes.products(outputs, context, bias=False),
            *shapes.products(context, outputs, bias=False),
        ),
        extra_parameters=positions + hidden + 2 * outputs,
    )


def mistral3_tower(fields: Fields) -> VisionSpec:
    """Pixtral's encoder behind Mistral3's merger of patches."""
    width, merge = shapes.text_width(fields), fields.size("spatial_merge_size", default=2)
    bias = fields.flag("multimodal_projector_bias", default=False)
    hidden = _pixtral_width(fields)
    projections = (
        *shapes.products(hidden * merge**2, hidden, bias=False),
        *shapes.products(hidden, width, width, bias=bias),
    )
    return _pixtral(fields, merge=merge, projections=projections, extra=hidden)


def mistral_large3_tower(fields: Fields) -> VisionSpec:
    """The same encoder and merger under the names of Mistral's params.json, beside the text fields."""
    width, vision = shapes.text_width(fields), fields.section("vision_config")
    vision.text("mm_projector_id", allowed=("patch_merge",))
    merge, hidden = vision.size("spatial_merge_size"), vision.size("hidden_size")
    bias = vision.flag("adapter_bias", default=False)
    projections = (
        *shapes.products(hidden * merge**2, hidden, bias=False),
        *shapes.products(hidden, width, width, bias=bias),
    )
    return _pixtral(fields, merge=merge, projections=projections, extra=hidden)


def llava_tower(fields: Fields) -> VisionSpec:
    """CLIP's or Pixtral's encoder behind Llava's projection, which keeps every patch as a token."""
    width, bias = shapes.text_width(fields), fields.flag("multimodal_projector_bias", default=True)
    kind = fields.peek("vision_config", "model_type")
    if kind == "pixtral":
        return _pixtral(
            fields, merge=1, projections=shapes.products(_pixtral_width(fields), width, width, bias=bias), extra=0
        )
    if kind != "clip_vision_model":
        raise fields.refusal("vision_config.model_type", "understood under llava are clip_vision_model and pixtral")
    return clip_tower(fields, width=width, bias=bias)


PIXTRAL_WIDTH = 1024  # PixtralVisionConfig


def _pixtral_width(fields: Fields) -> int:
    given = fields.peek("vision_config", "hidden_size")
    return given if isinstance(given, int) and given > 0 else PIXTRAL_WIDTH


def _pixtral(fields: Fields, *, merge: int, projections: tuple[ProjectionSpec, ...], extra: int) -> VisionSpec:
    vision = fields.section("vision_config")
    hidden = vision.size("hidden_size", default=PIXTRAL_WIDTH)
    heads, patch = vision.size("num_attention_heads", default=16), vision.size("patch_size", default=16)
    layer = shapes.tower_layer(
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
        patch_inputs=vision.size("num_channels", default=shapes.CHANNELS) * patch**2,
        patch_bias=False,
        norm="rms",
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=projections,
        image_size=shapes.edge_of(vision, "image_size", default=1024),
        extra_parameters=hidden + extra,
    )


def kimi_tower(fields: Fields) -> VisionSpec:
    """Kimi_K25VisionModel (MoonViT) and its merging projection."""
    vision = fields.section("vision_config")
    hidden = vision.size(vision.either("vt_hidden_size", "hidden_size"))
    height = vision.size(vision.either("init_pos_emb_height", "pos_emb_height"))
    width = vision.size(vision.either("init_pos_emb_width", "pos_emb_width"))
    kernel, patch = vision.integers("merge_kernel_size") or (2, 2), vision.size("patch_size")
    if 0 in kernel:
        raise vision.refusal("merge_kernel_size", f"is {list(kernel)}, allowed are integers of at least 1")
    merged = hidden * math.prod(kernel)
    return shapes.plain_tower(
        vision,
        hidden=hidden,
        patch=patch,
        merge=kernel[0],
        projections=shapes.products(merged, merged, vision.size("text_hidden_size")),
        extra=height * width * hidden + 2 * hidden + 2 * hidden,
    )


def uncounted_tower(fields: Fields) -> None:
    """A tower whose code is not public in transformers: neither counted nor run."""
    fields.section("vision_config")
