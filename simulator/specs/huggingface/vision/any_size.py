"""Towers that take pictures of any size: Qwen-VL, EXAONE 4.5, GLM-4V, Pixtral and Mistral 3, Kimi."""

from __future__ import annotations

import math
from functools import partial

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import split_heads
from simulator.specs.huggingface.vision import shapes
from simulator.specs.huggingface.vision.fixed_size import clip_tower
from simulator.specs.model.architecture import ProjectionSpec, VisionSpec


def qwen_tower(fields: Fields) -> VisionSpec:
    """Qwen3VLVisionModel and Qwen3_5VisionModel: patches, learned grid, blocks, one merger and the deepstack ones."""
    vision = fields.section("vision_config")
    tower = shapes.tower_of(vision, patch=16, merge=vision.size("spatial_merge_size", default=2))
    hidden, merged = tower.hidden, tower.merged
    deepstack = len(vision.integers("deepstack_visual_indexes") or ())
    return tower.spec(
        tower.blocks(),
        frames=vision.size("temporal_patch_size", default=2),
        projections=shapes.products(merged, merged, vision.size("out_hidden_size")) * (1 + deepstack),
        extra=vision.size("num_position_embeddings") * hidden + 2 * hidden + deepstack * 2 * merged,
    )


def qwen2_tower(fields: Fields) -> VisionSpec:
    """Qwen2VisionTransformer: blocks without learned positions, embed_dim wide, and one merger."""
    vision = fields.section("vision_config")
    merge = vision.size("spatial_merge_size", default=2)
    tower = shapes.tower_of(vision, hidden="embed_dim", width=1280, patch=14, merge=merge)
    return tower.spec(
        tower.blocks(intermediate=int(tower.hidden * vision.ratio("mlp_ratio", default=4.0))),
        frames=vision.size("temporal_patch_size", default=2),
        patch_bias=False,
        projections=shapes.products(tower.merged, tower.merged, vision.size("hidden_size")),
        extra=2 * tower.hidden,
    )


def ernie_tower(fields: Fields) -> VisionSpec:
    """Ernie4_5_VLMoeVisionTransformer and its resampler, which joins squares of patches, then two frames."""
    width, vision = shapes.text_width(fields), fields.section("vision_config")
    tower = shapes.tower_of(vision, patch=14, merge=vision.size("spatial_merge_size", default=2))
    joined, ratio = tower.merged, vision.ratio("mlp_ratio", default=4.0)
    frames = vision.size("temporal_merge_size", default=2)
    resampler = (*shapes.products(joined, joined, joined), *shapes.products(joined * frames, joined, joined, width))
    return tower.spec(
        tower.blocks(intermediate=vision.optional_size("intermediate_size") or int(tower.hidden * ratio)),
        patch_bias=False,
        projections=resampler,
        extra=2 * tower.hidden + 2 * 2 * joined + width,
    )


def minimax_tower(fields: Fields) -> VisionSpec:
    """MiniMaxM3VLVisionModel: every patch is projected to the text's width, then squares of them are joined."""
    width, inner = shapes.text_width(fields), fields.size("projector_hidden_size")
    vision = fields.section("vision_config")
    nested = vision.has("img_token_compression_config")
    sizes = vision.section("img_token_compression_config") if nested else vision
    if nested:
        sizes.text("image_token_compression_method", allowed=("patch_merge",))
    tower = shapes.tower_of(vision, patch=14, merge=sizes.size("spatial_merge_size", default=2))
    patches = (
        product.model_copy(update={"per_patch": True}) for product in shapes.products(tower.hidden, inner, width)
    )
    return tower.spec(
        tower.blocks(),
        frames=sizes.size("temporal_patch_size", default=2),
        patch_bias=False,
        projections=(*patches, *shapes.products(width * tower.merge**2, inner, width)),
        extra=2 * tower.hidden,
    )


def lfm2_tower(fields: Fields) -> VisionSpec:
    """Siglip2VisionModel without its head, squares of patches joined and projected."""
    width, merge = shapes.text_width(fields), fields.size("downsample_factor", default=2)
    inner = fields.size("projector_hidden_size", default=2560)
    bias, normed = fields.flag("projector_bias", default=True), fields.flag("projector_use_layernorm", default=True)
    vision = fields.section("vision_config")
    vision.expect("vision_use_head", value=False, why="LFM2-VL runs its tower without the pooling head")
    tower = shapes.tower_of(vision, patch=16, merge=merge)
    positions = vision.size("num_patches", default=256) * tower.hidden
    return tower.spec(
        tower.blocks(),
        projections=shapes.products(tower.merged, inner, width, bias=bias),
        extra=positions + 2 * tower.hidden + (2 * tower.merged if normed else 0),
    )


def windowed_tower(fields: Fields) -> VisionSpec:
    """Qwen2_5_VisionTransformer, and EXAONE's and MiMo's with grouped query heads. Gated blocks, all but a few of them
    over squares of window_size pixels."""
    if fields.has("text_config"):
        fields.expect("vocab_size", value=fields.peek("text_config", "vocab_size"), why="it repeats the text part's")
    vision = fields.section("vision_config")
    tower = shapes.tower_of(vision, patch=14, merge=vision.size("spatial_merge_size", default=2))
    heads = vision.size("num_heads", default=16)
    full = frozenset(vision.integers("fullatt_block_indexes") or (7, 15, 23, 31))
    square = tower.grid("window_size", vision.size("window_size", default=112))
    layer = partial(
        shapes.tower_layer,
        heads=heads,
        kv_heads=vision.optional_size("num_key_value_heads") or heads,
        head_dim=split_heads(vision, tower.hidden, heads),
        intermediate=vision.size("intermediate_size"),
        gated=True,
    )
    depth = vision.depth("depth", default=32)
    return tower.spec(
        tuple(layer(window=None if index in full else square) for index in range(depth)),
        frames=vision.size("temporal_patch_size", default=2),
        channels=("in_channels", "in_chans"),
        patch_bias=False,
        norm="rms",
        projections=shapes.products(tower.merged, tower.merged, vision.size("out_hidden_size")),
        extra=tower.hidden,
    )


def muse_tower(fields: Fields) -> VisionSpec:
    """MuseGlimmerVisionModel, norms before and behind its blocks, and its adapter of merged patches."""
    width, merged = shapes.text_width(fields), fields.size("out_hidden_size")
    inner = fields.size("projector_hidden_size")
    vision = fields.section("vision_config")
    tower = shapes.tower_of(vision, merge=vision.size("merge_size"))
    why = "out_hidden_size is that of the merged patches"
    vision.expect("hidden_size", value=merged // tower.merge**2, why=why)
    return tower.spec(
        tower.blocks(),
        frames=vision.size("patch_temporal"),
        patch_bias=False,
        projections=shapes.products(merged, inner, inner, width, bias=False),
        extra=vision.size("num_position_embeddings", default=1024) * tower.hidden + 4 * tower.hidden,
    )


def glm_tower(fields: Fields) -> VisionSpec:
    """Glm4vVisionModel and GlmOcrVisionModel: gated blocks, a convolution that merges patches, a gated projection.
    GLM-OCR's has norms over its heads, biases throughout and no table of positions."""
    vision = fields.section("vision_config")
    tower = shapes.tower_of(vision, merge=vision.size("spatial_merge_size"))
    hidden, heads, outputs = tower.hidden, vision.size("num_heads"), vision.size("out_hidden_size")
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
    context = outputs * shapes.CHANNELS if reads_text else width
    table = tower.grid("image_size", shapes.edge_of(vision, "image_size"))
    positions = 0 if reads_text else table * hidden + hidden  # the other norm is before the blocks
    return tower.spec(
        (layer,) * vision.depth("depth"),
        frames=vision.size("temporal_patch_size"),
        channels=("in_channels",),
        norm="rms",
        projections=(
            *shapes.products(tower.merged, outputs),
            *shapes.products(outputs, outputs, context, bias=False),
            *shapes.products(outputs, context, bias=False),
            *shapes.products(context, outputs, bias=False),
        ),
        extra=positions + hidden + 2 * outputs,
    )


def mistral3_tower(fields: Fields) -> VisionSpec:
    """Pixtral's encoder behind Mistral3's merger of patches."""
    width, merge = shapes.text_width(fields), fields.size("spatial_merge_size", default=2)
    return _merged_pixtral(fields, width, merge=merge, bias=fields.flag("multimodal_projector_bias", default=False))


def mistral_large3_tower(fields: Fields) -> VisionSpec:
    """Mistral 3's encoder and merger under the names of Mistral's params.json, beside the text fields."""
    width, vision = shapes.text_width(fields), fields.section("vision_config")
    vision.text("mm_projector_id", allowed=("patch_merge",))
    bias = vision.flag("adapter_bias", default=False)
    return _merged_pixtral(fields, width, merge=vision.size("spatial_merge_size"), bias=bias)


def llava_tower(fields: Fields) -> VisionSpec:
    """CLIP's or Pixtral's encoder behind Llava's projection, which keeps every patch as a token."""
    width, bias = shapes.text_width(fields), fields.flag("multimodal_projector_bias", default=True)
    kind = fields.peek("vision_config", "model_type")
    if kind == "pixtral":
        tower = _pixtral_sizes(fields, merge=1)
        return _pixtral(tower, projections=shapes.products(tower.hidden, width, width, bias=bias))
    if kind != "clip_vision_model":
        raise fields.refusal("vision_config.model_type", "understood under llava are clip_vision_model and pixtral")
    return clip_tower(fields, width=width, bias=bias)


def _merged_pixtral(fields: Fields, width: int, *, merge: int, bias: bool) -> VisionSpec:
    tower = _pixtral_sizes(fields, merge=merge)
    joined = shapes.products(tower.merged, tower.hidden, bias=False)
    projections = (*joined, *shapes.products(tower.hidden, width, width, bias=bias))
    return _pixtral(tower, projections=projections, extra=tower.hidden)


def _pixtral_sizes(fields: Fields, *, merge: int) -> shapes.Tower:
    """By the defaults of PixtralVisionConfig."""
    return shapes.tower_of(fields.section("vision_config"), width=1024, patch=16, merge=merge)


def _pixtral(tower: shapes.Tower, *, projections: tuple[ProjectionSpec, ...], extra: int = 0) -> VisionSpec:
    vision, hidden = tower.fields, tower.hidden
    heads = vision.size("num_attention_heads", default=16)
    layer = shapes.tower_layer(
        heads=heads,
        head_dim=split_heads(vision, hidden, heads),
        intermediate=vision.size("intermediate_size", default=4096),
        gated=True,
        bias=False,
    )
    return tower.spec(
        (layer,) * vision.depth("num_hidden_layers", default=24),
        channels=("num_channels",),
        patch_bias=False,
        norm="rms",
        projections=projections,
        image_size=shapes.edge_of(vision, "image_size", default=1024),
        extra=hidden + extra,
    )


def kimi_tower(fields: Fields) -> VisionSpec:
    """Kimi_K25VisionModel (MoonViT) and its merging projection."""
    vision = fields.section("vision_config")
    height = vision.size(vision.either("init_pos_emb_height", "pos_emb_height"))
    width = vision.size(vision.either("init_pos_emb_width", "pos_emb_width"))
    kernel = vision.integers("merge_kernel_size") or (2, 2)
    if 0 in kernel:
        raise vision.refusal("merge_kernel_size", f"is {list(kernel)}, allowed are integers of at least 1")
    tower = shapes.tower_of(vision, hidden=vision.either("vt_hidden_size", "hidden_size"), merge=kernel[0])
    hidden, merged = tower.hidden, tower.hidden * math.prod(kernel)
    return tower.spec(
        tower.blocks(),
        projections=shapes.products(merged, merged, vision.size("text_hidden_size")),
        extra=height * width * hidden + 2 * hidden + 2 * hidden,
    )


def uncounted_tower(fields: Fields) -> None:
    """A tower whose code is not public in transformers: neither counted nor run."""
    fields.section("vision_config")
