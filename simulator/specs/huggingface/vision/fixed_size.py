"""Towers that resize a picture or cut it into tiles: InternVL, Llama 4, Gemma 4, SigLIP in Gemma 3 and others."""

from __future__ import annotations

import math

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import split_heads
from simulator.specs.huggingface.vision import shapes
from simulator.specs.model.architecture import ProjectionSpec, VisionSpec


def internvl_tower(fields: Fields) -> VisionSpec:
    """InternVLVisionModel: a class token, layer scales, tiles of one size, pixels shuffled before the projection."""
    width, merge = shapes.text_width(fields), shapes.shuffled_patches(fields, "downsample_ratio")
    tokens = fields.size("image_seq_length", default=256)
    vision = fields.section("vision_config")
    hidden, heads = vision.size("hidden_size"), vision.size("num_attention_heads")
    tower = shapes.Tower(fields=vision, hidden=hidden, patch=shapes.edge_of(vision, "patch_size"), merge=merge)
    edge = shapes.edge_of(vision, "image_size")
    rms = vision.text("norm_type", allowed=("layer_norm", "rms_norm"), default="layer_norm") == "rms_norm"
    normed = vision.flag("use_qk_norm", default=False)
    layer = shapes.tower_layer(
        heads=heads,
        head_dim=split_heads(vision, hidden, heads),
        intermediate=vision.size("intermediate_size"),
        bias=vision.flag("attention_bias", default=False),
        o_bias=True,
        mlp_bias=True,
        extra=2 * hidden + (2 * hidden if normed else 0),
    )
    positions = tower.grid("image_size", edge) + 1
    positions = positions if vision.flag("use_absolute_position_embeddings", default=False) else 0
    pooled = vision.flag("use_mean_pooling", default=True)
    return tower.spec(
        (layer,) * vision.depth("num_hidden_layers"),
        channels=("num_channels",),
        norm="rms" if rms else "layer",
        projections=shapes.products(tower.merged, width, width),
        resolution="tiles",
        image_size=edge,
        tokens_per_image=tokens,
        extra=hidden + positions * hidden + (0 if pooled else 2 * hidden) + 2 * tower.merged,
    )


def llama4_tower(fields: Fields) -> VisionSpec:
    """Llama4VisionModel and its projector: tiles, a class token, pixels shuffled into a quarter of the tokens."""
    width = shapes.text_width(fields)
    vision = fields.section("vision_config")
    tower = shapes.tower_of(vision, merge=shapes.shuffled_patches(vision, "pixel_shuffle_ratio"))
    hidden, intermediate, edge = tower.hidden, vision.size("intermediate_size"), vision.size("image_size")
    heads = vision.size("num_attention_heads", default=16)
    layer = shapes.tower_layer(heads=heads, head_dim=split_heads(vision, hidden, heads), intermediate=intermediate)
    inner, outputs = vision.size("projector_input_dim"), vision.size("projector_output_dim")
    positions = tower.grid("image_size", edge) + 1
    return tower.spec(
        (layer,) * vision.depth("num_hidden_layers"),
        channels=("num_channels",),
        patch_bias=False,
        projections=(
            *shapes.products(intermediate, inner, bias=False),
            *shapes.products(outputs, outputs, bias=False),
            *shapes.products(vision.size("vision_output_dim"), width, bias=False),
        ),
        resolution="tiles",
        image_size=edge,
        extra=hidden + positions * hidden + 2 * 2 * hidden,
    )


def siglip_tower(fields: Fields) -> VisionSpec:
    """Gemma3's SigLIP tower and its projection: every picture becomes mm_tokens_per_image tokens."""
    width, tokens = shapes.text_width(fields), fields.optional_size("mm_tokens_per_image") or 256
    vision = fields.section("vision_config")
    vision.expect("vision_use_head", value=False, why="Gemma 3 runs its tower without the pooling head")
    tower = _siglip(vision)
    hidden, pooled = tower.hidden_size, tower.tokens_per_image or tokens
    return tower.model_copy(
        update={
            "merge": max(1, math.isqrt(pooled // tokens)),
            "projections": shapes.products(hidden, width, bias=False),
            "resolution": "fixed",
            "tokens_per_image": tokens,
            "extra_parameters": tower.extra_parameters + hidden,
        }
    )


def cohere_tower(fields: Fields) -> VisionSpec:
    """Cohere2VisionModel: SigLIP over tiles, pixels shuffled into tokens, a gated projection."""
    width, inner = shapes.text_width(fields), fields.size("alignment_intermediate_size", default=36864)
    joined = fields.size("downsample_factor", default=2)
    tower = _siglip(fields.section("vision_config"))
    merged = tower.hidden_size * joined**2
    return _shuffled(
        tower, joined=joined, projections=(*shapes.products(merged, inner), *shapes.products(inner // 2, width))
    )


def smolvlm_tower(fields: Fields) -> VisionSpec:
    """SmolVLMModel and Idefics3Model: SigLIP over tiles, pixels shuffled into tokens, one product."""
    width, joined = shapes.text_width(fields), fields.size("scale_factor", default=2)
    tower = _siglip(fields.section("vision_config"))
    return _shuffled(
        tower, joined=joined, projections=shapes.products(tower.hidden_size * joined**2, width, bias=False)
    )


def _shuffled(tower: VisionSpec, *, joined: int, projections: tuple[ProjectionSpec, ...]) -> VisionSpec:
    """Squares of ``joined`` x ``joined`` patches become one token each."""
    patches = tower.tokens_per_image or 1
    return tower.model_copy(
        update={"merge": joined, "projections": projections, "tokens_per_image": max(1, patches // joined**2)}
    )


def _siglip(vision: Fields) -> VisionSpec:
    """SiglipVisionTransformer without its pooling head, over tiles; ``tokens_per_image`` counts patches."""
    tower, edge = shapes.tower_of(vision, width=1152), vision.size("image_size")
    positions = tower.grid("image_size", edge)
    extra = positions * tower.hidden + 2 * tower.hidden
    return tower.spec(tower.blocks(), extra=extra, resolution="tiles", image_size=edge, tokens_per_image=positions)


def paligemma_tower(fields: Fields) -> VisionSpec:
    """PaliGemma's SigLIP tower over pictures of one size and its product to the text's width."""
    width, vision = shapes.text_width(fields), fields.section("vision_config")
    fields.expect("projection_dim", value=width, why="pictures become as wide as the text")
    vision.expect("vision_use_head", value=False, why="PaliGemma runs its tower without the pooling head")
    tower = _siglip(vision)
    return tower.model_copy(update={"projections": shapes.products(tower.hidden_size, width), "resolution": "fixed"})


def clip_tower(fields: Fields, *, width: int, bias: bool) -> VisionSpec:
    """CLIPVisionModel over pictures of one size, and Llava's projection of every patch."""
    vision = fields.section("vision_config")
    tower, edge = shapes.tower_of(vision), vision.size("image_size")
    positions = tower.grid("image_size", edge)
    return tower.spec(
        tower.blocks(),
        patch_bias=False,
        projections=shapes.products(tower.hidden, width, width, bias=bias),
        resolution="fixed",
        image_size=edge,
        tokens_per_image=positions,
        extra=(positions + 2) * tower.hidden + 4 * tower.hidden,
    )


def llava_next_tower(fields: Fields) -> VisionSpec:
    """LLaVA's encoder over tiles and a small copy of the picture, with a learned end of every row of patches."""
    width, bias = shapes.text_width(fields), fields.flag("multimodal_projector_bias", default=True)
    tower = clip_tower(fields, width=width, bias=bias)
    return tower.model_copy(update={"resolution": "tiles", "extra_parameters": tower.extra_parameters + width})


def gemma4_tower(fields: Fields) -> VisionSpec:
    """Gemma4VisionModel: gated blocks with four norms, pooled to a fixed number of tokens; no biases."""
    width, vision = shapes.text_width(fields), fields.section("vision_config")
    tokens = fields.optional_size("vision_soft_tokens_per_image") or 280
    tower = shapes.tower_of(vision, merge=vision.size("pooling_kernel_size", default=3))
    head_dim = vision.size("head_dim")
    layer = shapes.tower_layer(
        heads=vision.size("num_attention_heads"),
        kv_heads=vision.size("num_key_value_heads"),
        head_dim=head_dim,
        gated=True,
        bias=False,
        intermediate=vision.size("intermediate_size"),
        norms=4,
        extra=2 * head_dim,
    )
    return tower.spec(
        (layer,) * vision.depth("num_hidden_layers"),
        channels=(),
        patch_bias=False,
        norm="rms",
        projections=shapes.products(tower.hidden, width, bias=False),
        resolution="fixed",
        tokens_per_image=tokens,
        extra=2 * vision.size("position_embedding_size") * tower.hidden,
    )


def gemma4_patches(fields: Fields) -> VisionSpec:
    """Gemma4UnifiedVision: one product from pooled patches of pixels to tokens, between norms; no blocks."""
    width, vision = shapes.text_width(fields), fields.section("vision_config")
    edge = vision.size("patch_size") * vision.size("pooling_kernel_size", default=3)
    vision.expect("model_patch_size", value=edge, why="it is patch_size x pooling_kernel_size")
    tower = shapes.Tower(fields=vision, hidden=vision.size("mm_embed_dim"), patch=edge)
    inputs = shapes.CHANNELS * edge**2
    return tower.spec(
        (),
        channels=(),
        projections=shapes.products(vision.size("output_proj_dims", default=tower.hidden), width, bias=False),
        resolution="fixed",
        tokens_per_image=vision.size("num_soft_tokens", default=280),
        extra=2 * vision.size("mm_posemb_size") * tower.hidden + 2 * inputs + 4 * tower.hidden,
    )
