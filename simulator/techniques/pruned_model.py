"""Structured pruning as a smaller model: fewer heads, narrower feed-forward blocks, fewer layers."""

from __future__ import annotations

from simulator.errors import RoofcastError
from simulator.specs.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from simulator.specs.sparsity import SparsitySpec
from simulator.units import percent_text

CHANNEL_STEP = 64
"""Widths stay multiples of what a tile of a matrix product advances by [NVIDIA2024]."""


def pruned_model(model: ModelSpec, spec: SparsitySpec) -> ModelSpec:
    """``model`` without the pruned part; refused where rounding to whole parts leaves it as it was.

    heads : whole groups of query heads that share a KV head go together; channels : of every feed-forward block, in
    steps of 64; layers : spread evenly over the depth, the first and the last stay
    """
    match spec.pruned:
        case "heads":
            layers = tuple(_fewer_heads(layer, spec.kept_fraction) for layer in model.layers)
            changed = model.model_copy(update={"layers": layers})
        case "channels":
            layers = tuple(_narrower(layer, spec.kept_fraction) for layer in model.layers)
            changed = model.model_copy(update={"layers": layers})
        case _:
            changed = model.model_copy(update={"layer_order": _fewer_layers(model.layer_order, spec.kept_fraction)})
    # Cached properties travel with a copied model.
    changed = ModelSpec.model_validate(changed.model_dump())
    if changed == model:
        raise RoofcastError(
            f"taking {percent_text(1 - spec.kept_fraction, digits=3)} of the {spec.pruned} out of {model.name} "
            "changes nothing",
            field="techniques.sparsity",
            code="no_effect",
            hint="a larger fraction, or another target",
        )
    return changed


def _fewer_heads(layer: LayerSpec, kept: float) -> LayerSpec:
    mixer = layer.mixer
    if not isinstance(mixer, AttentionSpec):
        return layer
    group = mixer.num_attention_heads // mixer.num_key_value_heads
    if mixer.num_key_value_heads == 1:
        heads = max(1, round(mixer.num_attention_heads * kept))
        return layer.model_copy(update={"mixer": mixer.model_copy(update={"num_attention_heads": heads})})
    kv_heads = max(1, round(mixer.num_key_value_heads * kept))
    smaller = {"num_key_value_heads": kv_heads, "num_attention_heads": kv_heads * group}
    return layer.model_copy(update={"mixer": mixer.model_copy(update=smaller)})


def _narrower(layer: LayerSpec, kept: float) -> LayerSpec:
    blocks = tuple(
        block.model_copy(update={"intermediate_size": _width(block.intermediate_size, kept)})
        if isinstance(block, MlpSpec)
        else _narrower_experts(block, kept)
        for block in layer.feed_forward
    )
    return layer.model_copy(update={"feed_forward": blocks})


def _narrower_experts(block: MoeSpec, kept: float) -> MoeSpec:
    shared = block.shared_expert_intermediate_size
    return block.model_copy(
        update={
            "moe_intermediate_size": _width(block.moe_intermediate_size, kept),
            "shared_expert_intermediate_size": _width(shared, kept) if shared else 0,
        }
    )


def _width(size: int, kept: float) -> int:
    return min(size, max(CHANNEL_STEP, round(size * kept / CHANNEL_STEP) * CHANNEL_STEP))


def _fewer_layers(order: tuple[int, ...], kept: float) -> tuple[int, ...]:
    """Evenly spaced survivors with both ends."""
    left = max(1, round(len(order) * kept))
    if left == 1:
        return order[:1]
    step = (len(order) - 1) / (left - 1)
    return tuple(order[round(place * step)] for place in range(left))
