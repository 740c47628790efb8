"""What all towers are made of: pre-norm layers that see both ways, products behind them, sizes in pixels."""

from __future__ import annotations

from itertools import pairwise

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import distinct, split_heads
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ProjectionSpec, VisionSpec

CHANNELS = 3


def edge_of(fields: Fields, name: str, *, default: int | None = None) -> int:
    """One edge of a square, which some configurations write twice."""
    value = fields.raw(name)
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1] and type(value[0]) is int:
        return int(value[0])
    return fields.size(name, default=default)


def tower_layer(
    *,
    heads: int,
    head_dim: int,
    intermediate: int,
    kv_heads: int | None = None,
    bias: bool = True,
    o_bias: bool | None = None,
    gated: bool = False,
    mlp_bias: bool | None = None,
    norms: int = 2,
    extra: int = 0,
    window: int | None = None,
) -> LayerSpec:
    """A pre-norm block that sees in both directions; ``extra`` counts its small vectors."""
    attention = AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        head_dim=head_dim,
        causal=False,
        qkv_bias=bias,
        o_bias=bias if o_bias is None else o_bias,
        sliding_window=window,
    )
    mlp = MlpSpec(intermediate_size=intermediate, gated=gated, bias=bias if mlp_bias is None else mlp_bias)
    return LayerSpec(mixer=attention, feed_forward=(mlp,), norms=norms, extra_parameters=extra)


def plain_tower(
    vision: Fields,
    *,
    hidden: int,
    patch: int,
    intermediate: int | None = None,
    frames: int = 1,
    patch_bias: bool = True,
    merge: int = 1,
    projections: tuple[ProjectionSpec, ...] = (),
    extra: int = 0,
) -> VisionSpec:
    """Equal blocks with layer norms and biases over pictures of any size, by the usual names of their sizes."""
    heads = vision.size(vision.either("num_attention_heads", "num_heads", "vt_num_attention_heads"), default=16)
    width = intermediate or vision.size(vision.either("intermediate_size", "vt_intermediate_size"))
    depth = vision.depth(vision.either("num_hidden_layers", "depth", "vt_num_hidden_layers"))
    layer = tower_layer(heads=heads, head_dim=split_heads(vision, hidden, heads), intermediate=width)
    layers, order = distinct((layer,) * depth)
    channels = vision.size(vision.either("num_channels", "in_channels", "in_chans"), default=CHANNELS)
    return VisionSpec(
        hidden_size=hidden,
        patch_size=patch,
        patch_inputs=channels * frames * patch**2,
        patch_bias=patch_bias,
        layers=layers,
        layer_order=order,
        merge=merge,
        projections=projections,
        extra_parameters=extra,
    )


def grid_of(vision: Fields, name: str, *, edge: int, patch: int) -> int:
    """Squares of ``patch`` pixels in a square of ``edge`` pixels."""
    if edge < patch:
        raise vision.refusal(name, f"is {edge}, smaller than a patch of {patch} pixels")
    return (edge // patch) ** 2


def shuffled_patches(fields: Fields, name: str) -> int:
    """Patches along an edge that a pixel shuffle of this ratio joins."""
    ratio = fields.ratio(name, default=0.5)
    if ratio > 1:
        raise fields.refusal(name, f"is {ratio:g}, allowed are ratios up to 1")
    return int(1 / ratio)


def products(*widths: int, bias: bool = True) -> tuple[ProjectionSpec, ...]:
    """Products from each width to the next."""
    return tuple(ProjectionSpec(inputs=a, outputs=b, bias=bias) for a, b in pairwise(widths))


def text_width(fields: Fields) -> int:
    """hidden_size of the text part, nested or beside the tower; the text reader checks it itself."""
    section = "text_config" if fields.has("text_config") else ""
    width = fields.peek(section, "hidden_size") if section else fields.raw("hidden_size")
    if type(width) is not int or width < 1:
        name = f"{section}.hidden_size" if section else "hidden_size"
        raise fields.refusal(name, f"is {width!r}, allowed are integers of at least 1")
    return width
