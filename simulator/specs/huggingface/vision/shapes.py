"""What all towers are made of: pre-norm layers that see both ways, products behind them, sizes in pixels."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from simulator.records import dataclass
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


CHANNEL_NAMES = ("num_channels", "in_channels", "in_chans")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """The vision part of a configuration with the sizes that all else hangs on: its width, the edge of a patch
    [pixels], and how many patches along an edge are joined into one token."""

    fields: Fields
    hidden: int
    patch: int
    merge: int = 1

    @property
    def merged(self) -> int:
        """Width of the patches of a token side by side."""
        return self.hidden * self.merge**2

    def grid(self, name: str, edge: int) -> int:
        """Patches in a square whose edge ``name`` gives."""
        if edge < self.patch:
            raise self.fields.refusal(name, f"is {edge}, smaller than a patch of {self.patch} pixels")
        return (edge // self.patch) ** 2

    def blocks(self, *, intermediate: int | None = None) -> tuple[LayerSpec, ...]:
        """Equal layers with biases, by the usual names of their sizes."""
        vision = self.fields
        heads = vision.size(vision.either("num_attention_heads", "num_heads", "vt_num_attention_heads"), default=16)
        width = intermediate or vision.size(vision.either("intermediate_size", "vt_intermediate_size"))
        depth = vision.depth(vision.either("num_hidden_layers", "depth", "vt_num_hidden_layers"))
        head_dim = split_heads(vision, self.hidden, heads)
        return (tower_layer(heads=heads, head_dim=head_dim, intermediate=width),) * depth

    def spec(
        self,
        layers: tuple[LayerSpec, ...],
        *,
        projections: tuple[ProjectionSpec, ...] = (),
        extra: int = 0,
        frames: int = 1,
        channels: tuple[str, ...] = CHANNEL_NAMES,
        patch_bias: bool = True,
        norm: Literal["rms", "layer"] = "layer",
        resolution: Literal["any", "fixed", "tiles"] = "any",
        image_size: int | None = None,
        tokens_per_image: int | None = None,
    ) -> VisionSpec:
        """The tower of these layers; ``extra`` counts positions, norms and other small weights."""
        distinct_layers, order = distinct(layers)
        given = self.fields.size(self.fields.either(*channels), default=CHANNELS) if channels else CHANNELS
        return VisionSpec(
            hidden_size=self.hidden,
            patch_size=self.patch,
            patch_inputs=given * frames * self.patch**2,
            patch_bias=patch_bias,
            norm=norm,
            layers=distinct_layers,
            layer_order=order,
            merge=self.merge,
            projections=projections,
            resolution=resolution,
            image_size=image_size,
            tokens_per_image=tokens_per_image,
            extra_parameters=extra,
        )


def tower_of(
    vision: Fields, *, hidden: str = "hidden_size", width: int | None = None, patch: int | None = None, merge: int = 1
) -> Tower:
    """A tower by the usual names of its sizes; ``width`` and ``patch`` where the configuration does not say."""
    sizes = vision.size(hidden, default=width), vision.size("patch_size", default=patch)
    return Tower(fields=vision, hidden=sizes[0], patch=sizes[1], merge=merge)


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
