"""The encoder of pictures: its rows for the pictures in the prompt tokens of a step, and the weights that it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil

import numpy as np

from simulator.errors import contradiction, ignored_option
from simulator.operators.device_share import DeviceShare, has_prefill
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.work import Array, MatmulFormat, StepShape, Work, mixed_step, prefill_step
from simulator.specs.base import Note
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, PicturesSpec, VisionSpec
from simulator.specs.model.precision import BITS, Dtype

LayerRows = Callable[..., list[Work]]
"""``layer_rows`` of the operator list, which calls these rows and so cannot be imported here."""


def vision_rows(share: DeviceShare, *, layer_rows: LayerRows) -> tuple[Work, ...]:
    """What the first stage does and holds of the encoder; it does nothing without pictures in the prompts.

    A step encodes as many pictures as its new prompt tokens hold on average: engines encode a picture in the step that
    first needs it, so that the sum over a prompt's chunks is the whole encoder. Weights stay in 16 bits. Left out: the
    encoder's own cache of pictures, resizing and tiling on the host.
    """
    vision = share.model.vision
    if vision is None:
        return ()
    held = share.held_only("vision_weights", role="unused", parameters=vision_parameters(vision, layer_rows))
    if vision.pictures is None or not has_prefill(share.step):
        return (held,)
    prompts = share.step.prefill_sequences * share.step.prefill_tokens
    rows = _tower_rows(
        vision, pictures=prompts * vision.pictures.per_prompt_token, load=vision.pictures, share=share,
        layer_rows=layer_rows,
    )  # fmt: skip
    # Beside the row that holds their weights.
    rows = [
        replace(row, name=f"vision_{row.name}", parameters=0.0, active_parameters=0.0, stored_bytes=0.0) for row in rows
    ]
    return (held, *rows)


@lru_cache(maxsize=256)
def vision_parameters(vision: VisionSpec, layer_rows: LayerRows) -> float:
    """Weights of the encoder and its projection (elements)."""
    bf16 = MatmulFormat(name="bf16", weight_bits=BITS[Dtype.BF16], activation_bits=BITS[Dtype.BF16], math=Dtype.BF16)
    plan = PrecisionPlan(
        weights=Dtype.BF16,
        activations=Dtype.BF16,
        activation_dtype=Dtype.BF16,
        kv_dtype=Dtype.BF16,
        linear=bf16,
        plain=bf16,
        quantised_roles=frozenset(),
    )
    step = prefill_step(sequences=1, tokens=1)
    share = _share(vision, plan=plan, step=step, tp_size=1, fused=True)
    rows = _tower_rows(
        vision.model_copy(update={"pictures": None}), pictures=step.new_tokens,
        load=PicturesSpec(per_prompt_token=1.0, patches=1.0, tokens=1.0), share=share, layer_rows=layer_rows,
    )  # fmt: skip
    return sum(row.count * row.parameters for row in rows) + vision.extra_parameters


def _tower_rows(
    vision: VisionSpec, *, pictures: Array, load: PicturesSpec, share: DeviceShare, layer_rows: LayerRows
) -> list[Work]:
    """Patch embedding, layers (those with windows over squares of patches), projection of the tokens."""
    whole = mixed_step(prefill_sequences=pictures, prefill_tokens=load.patches, prefill_logits=0.0)
    tower = _share(
        vision, plan=_plain(share.plan), step=whole, tp_size=_tower_tp(vision, share.tp_size), fused=share.fused
    )
    patches = pictures * load.patches
    width = float(vision.hidden_size)
    rows = [
        tower.linear("patch_embedding", role="embedding", m=patches, n=width, k=float(vision.patch_inputs),
                     bias=width if vision.patch_bias else 0.0)
    ]  # fmt: skip
    for index, layer in enumerate(vision.layers):
        inside, plain = _windowed(layer, tower=tower, pictures=pictures, patches=load.patches)
        rows += layer_rows(plain, share=inside, count=vision.layer_order.count(index))
    for product in vision.projections:
        bias = float(product.outputs) if product.bias else 0.0
        projected = patches if product.per_patch else pictures * load.tokens
        rows.append(
            tower.linear("projection", role="embedding", m=projected, n=float(product.outputs), k=float(product.inputs),
                         bias=bias)
        )  # fmt: skip
    return rows


def _windowed(
    layer: LayerSpec, *, tower: DeviceShare, pictures: Array, patches: float
) -> tuple[DeviceShare, LayerSpec]:
    """A layer whose squares attend among themselves sees as many short sequences; others the whole picture."""
    mixer = layer.mixer
    if not isinstance(mixer, AttentionSpec) or mixer.sliding_window is None:
        return tower, layer
    square = min(float(mixer.sliding_window), patches)
    step = mixed_step(prefill_sequences=pictures * (patches / square), prefill_tokens=square, prefill_logits=0.0)
    plain = layer.model_copy(update={"mixer": mixer.model_copy(update={"sliding_window": None})})
    return replace(tower, step=step, source=step), plain


def _share(vision: VisionSpec, *, plan: PrecisionPlan, step: StepShape, tp_size: int, fused: bool) -> DeviceShare:
    model = ModelSpec(
        name="vision",
        model_type="vision",
        hidden_size=vision.hidden_size,
        vocab_size=1,
        layers=vision.layers,
        layer_order=vision.layer_order,
        norm=vision.norm,
        has_lm_head=False,
    )
    return DeviceShare(
        model=model, plan=plan, step=step, source=step, tp_size=tp_size, ep_size=1, dp_size=1, fused=fused
    )


def _plain(plan: PrecisionPlan) -> PrecisionPlan:
    return replace(plan, quantised_roles=frozenset(), role_formats=(), kv_dtype=plan.activation_dtype)


def _tower_tp(vision: VisionSpec, tp_size: int) -> int:
    """Engines split the encoder like the model where its heads allow it, and otherwise keep a copy on each device."""
    counts: list[int] = []
    for layer in vision.layers:
        if isinstance(layer.mixer, AttentionSpec):
            counts += [layer.mixer.num_attention_heads, layer.mixer.num_key_value_heads]
        counts += [block.intermediate_size for block in layer.feed_forward if isinstance(block, MlpSpec)]
    return tp_size if all(count % tp_size == 0 for count in counts) else 1


def picture_sizes(vision: VisionSpec, *, pixels: float) -> tuple[float, float, float]:
    """Pieces that one picture of ``pixels`` is cut into, patches of a piece, and tokens of a piece."""
    edge, merged = vision.image_size, vision.merge**2
    if vision.resolution == "any":
        kept = pixels if edge is None else min(pixels, float(edge**2))
        tokens = max(1.0, float(np.round(kept / (vision.patch_size**2 * merged))))
        return 1.0, tokens * merged, tokens
    if edge is not None:
        patches = float((edge // vision.patch_size) ** 2)
        tokens = float(vision.tokens_per_image or max(1.0, patches / merged))
    else:
        tokens = float(vision.tokens_per_image or 1)
        patches = tokens * merged
    if vision.resolution == "fixed" or edge is None:
        return 1.0, patches, tokens
    tiles = max(1.0, float(np.round(pixels / edge**2)))
    return tiles + (1.0 if tiles > 1 else 0.0), patches, tokens


DEFAULT_IMAGE_PIXELS = 1024 * 1024
"""Of a picture whose size nobody gave."""


def with_pictures(
    model: ModelSpec,
    *,
    images_per_request: float,
    image_pixels: int | None,
    prompt_tokens: float,
    encoded_apart: bool = False,
) -> ModelSpec:
    """The model with pictures in its prompts, whose tokens are part of ``prompt_tokens``.

    A large picture becomes as many tiles as its area holds, and a small copy, where the model cuts pictures up; the
    processor's own rules (aspect ratios, most tiles) are not in a configuration.

    Raises RoofcastError: the model has no encoder of pictures that is known, or the pictures alone fill more than a
    prompt.
    """
    vision = model.vision
    if vision is None:
        raise ignored_option(
            f"{model.name} has no encoder of pictures that is known",
            field="images_per_request",
            hint="leave it out, or take a vision-language model such as qwen2.5-vl-7b",
        )
    pixels = image_pixels or DEFAULT_IMAGE_PIXELS
    pieces, patches, tokens = picture_sizes(vision, pixels=float(pixels))
    taken = images_per_request * pieces * tokens
    if taken > prompt_tokens:
        both = ceil(taken + prompt_tokens)
        raise contradiction(
            f"{images_per_request:g} x {pixels:,} pixels are {taken:,.0f} tokens, a prompt has {prompt_tokens:,.0f}",
            field="images_per_request",
            hint=f"the prompt's length counts those of its pictures: `isl_tokens` {both} has both, or smaller pictures",
        ).offering({"isl_tokens": both})
    pictures = PicturesSpec(
        per_prompt_token=images_per_request * pieces / prompt_tokens, patches=patches, tokens=tokens
    )
    said = {"prompt_tokens": prompt_tokens, "images": images_per_request, "pixels": pixels, "taken_tokens": taken}
    note = Note("pictures", {**said, "assumed": not image_pixels, "apart": encoded_apart})
    return model.model_copy(
        update={"vision": vision.model_copy(update={"pictures": pictures}), "notes": (*model.notes, note)}
    )
