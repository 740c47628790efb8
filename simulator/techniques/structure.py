"""What if the model were built differently: other KV heads, latents, windows, experts, depth, width, routing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.work import MoeShape, Work
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model import architecture as arch
from simulator.specs.question.techniques import MlaOverride, MoeOverride, StructureSpec
from simulator.techniques.applied import AppliedTechniques, RowContext, with_rule


def structure(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``structure``: a model with the overrides, or a refusal of one that changes nothing."""
    spec = applied.spec.structure
    if spec is None:
        return applied
    model = applied.model
    given = [field for field in _OVERRIDES if getattr(spec, field) is not None]
    if not given and spec.expert_imbalance is None:
        _refuse("", "no override is given", code="no_effect", hint="one of " + ", ".join(_OVERRIDES))
    if spec.window_every is not None and spec.sliding_window is None:
        _refuse("window_every", "has no effect without sliding_window", code="ignored_option", hint="give both")
    for field in given:
        changed = _OVERRIDES[field](model, spec)
        if changed == model:
            _refuse(field, f"changes nothing in {model.name}", code="no_effect", hint="leave it out, or another value")
        model = changed
    notes = (*applied.notes, Note("structure_changed", {"model": model.name, "fields": given}))
    applied = replace(applied, model=model, notes=notes if given else applied.notes)
    if spec.expert_imbalance is None:
        return applied
    _experts_needed("expert_imbalance", model)
    if spec.expert_placement is not None:
        _refuse("expert_placement", "has no effect beside expert_imbalance, which says what the busiest rank gets",
                code="ignored_option", hint="give one of them")  # fmt: skip
    return with_rule(applied, BusiestRank(imbalance=spec.expert_imbalance))


@dataclass(frozen=True, slots=True, kw_only=True)
class BusiestRank:
    """The rule that gives this device the expert load of the busiest rank, for which all others wait."""

    imbalance: float

    def __call__(self, rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
        """``rows`` with the routed experts' tokens scaled, at most to all of them."""
        return tuple(
            _scaled(row, row.shape, factor=self.imbalance) if isinstance(row.shape, MoeShape) else row for row in rows
        )


def _scaled(row: Work, shape: MoeShape, *, factor: float) -> Work:
    everything = shape.tokens * shape.num_experts_per_tok
    mean = everything * shape.local_experts / shape.num_experts
    load = np.minimum(mean * factor, everything)
    ratio = np.divide(load, mean, out=np.ones_like(load), where=mean > 0)
    return replace(
        row,
        shape=replace(shape, local_assignments=load),
        flops=row.flops * ratio,
        activation_bytes=row.activation_bytes * ratio,
    )


def _over_layers(model: arch.ModelSpec, change: Callable[[arch.LayerSpec], arch.LayerSpec]) -> arch.ModelSpec:
    layers = tuple(change(layer) for layer in model.layers)
    if model.encoder is None:
        return model.model_copy(update={"layers": layers})
    encoder = model.encoder.model_copy(update={"layers": tuple(change(layer) for layer in model.encoder.layers)})
    return model.model_copy(update={"layers": layers, "encoder": encoder})


def _with_kv_heads(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    """GQA or MQA conversion: every attention layer with these KV heads [Ainslie2023]."""
    heads = spec.num_key_value_heads or 0
    if any(isinstance(layer.mixer, arch.MlaSpec) for layer in model.layers):
        _refuse("num_key_value_heads", f"{model.name} caches latents and has no KV heads", code="contradiction",
                hint="leave it out")  # fmt: skip
    _attention_needed("num_key_value_heads", model)

    def change(layer: arch.LayerSpec) -> arch.LayerSpec:
        update = {}
        for place in ("mixer", "cross_attention"):
            mixer = getattr(layer, place)
            if isinstance(mixer, arch.AttentionSpec):
                if mixer.num_attention_heads % heads:
                    _refuse("num_key_value_heads", f"{heads} does not divide {mixer.num_attention_heads} query heads",
                            code="invalid_value", hint=_divisors(mixer.num_attention_heads))  # fmt: skip
                update[place] = mixer.model_copy(update={"num_key_value_heads": heads})
        return layer.model_copy(update=update)

    return _over_layers(model, change)


def _divisors(number: int) -> str:
    return "one of " + ", ".join(str(size) for size in range(1, number + 1) if number % size == 0)


def _with_mla(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    """Every full attention layer with latents; local layers and recurrent ones stay [DeepSeek2024a]."""
    mla = spec.mla
    assert mla is not None, "asked for"
    if any(isinstance(layer.mixer, arch.MlaSpec) for layer in model.layers):
        _refuse("mla", f"{model.name} has latent attention already", code="contradiction", hint="leave it out")
    if spec.num_key_value_heads is not None:
        _refuse("mla", "latents leave no KV heads for num_key_value_heads", code="contradiction", hint="one of the two")
    _attention_needed("mla", model)

    def change(layer: arch.LayerSpec) -> arch.LayerSpec:
        mixer = layer.mixer
        if not isinstance(mixer, arch.AttentionSpec) or not mixer.causal or mixer.sliding_window is not None:
            return layer
        return layer.model_copy(update={"mixer": _latent(mixer, mla)})

    return _over_layers(model, change)


def _latent(mixer: arch.AttentionSpec, mla: MlaOverride) -> arch.MlaSpec:
    return arch.MlaSpec(num_attention_heads=mixer.num_attention_heads, **mla.model_dump())


def _with_window(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    """Full attention layers with a window; with ``window_every`` n the last of each n layers keeps full attention."""
    if spec.mla is not None:
        _refuse("sliding_window", "latent attention (structure.mla) takes no window", code="contradiction",
                hint="one of the two")  # fmt: skip
    _attention_needed("sliding_window", model)

    def change(layer: arch.LayerSpec) -> arch.LayerSpec:
        mixer = layer.mixer
        full = isinstance(mixer, arch.AttentionSpec) and mixer.causal and mixer.sliding_window is None
        if not full or not isinstance(mixer, arch.AttentionSpec):
            return layer
        return layer.model_copy(update={"mixer": mixer.model_copy(update={"sliding_window": spec.sliding_window})})

    every = spec.window_every
    if every is None:
        return _over_layers(model, change)
    local = tuple(change(layer) for layer in model.layers)
    shift = len(model.layers)
    order = tuple(index + (0 if (depth + 1) % every == 0 else shift) for depth, index in enumerate(model.layer_order))
    return model.model_copy(update={"layers": model.layers + local, "layer_order": order})


def _with_experts(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    """Every dense block as experts: as many parameters unless a width is given [Zhang2022]."""
    moe = spec.moe
    assert moe is not None, "asked for"
    if moe.num_experts_per_tok > moe.num_experts:
        _refuse("moe.num_experts_per_tok", f"{moe.num_experts_per_tok} of {moe.num_experts} experts cannot be chosen",
                code="contradiction", hint=f"at most {moe.num_experts}")  # fmt: skip
    blocks = [block for layer in model.layers for block in layer.feed_forward]
    if not any(isinstance(block, arch.MlpSpec) for block in blocks):
        _refuse("moe", f"{model.name} has no dense feed-forward blocks", code="contradiction", hint="leave it out")

    def change(layer: arch.LayerSpec) -> arch.LayerSpec:
        return layer.model_copy(update={"feed_forward": tuple(_experts(block, moe) for block in layer.feed_forward)})

    return model.model_copy(update={"layers": tuple(change(layer) for layer in model.layers)})


def _experts(block: arch.FeedForward, moe: MoeOverride) -> arch.FeedForward:
    if not isinstance(block, arch.MlpSpec):
        return block
    width = moe.moe_intermediate_size
    if width is None:
        left = block.intermediate_size - moe.shared_expert_intermediate_size
        if left <= 0 or left % moe.num_experts:
            _refuse("moe.num_experts", f"{moe.num_experts} experts do not divide a width of {left}",
                    code="invalid_value", hint="give moe_intermediate_size, or another number")  # fmt: skip
        width = left // moe.num_experts
    return arch.MoeSpec(
        num_experts=moe.num_experts,
        num_experts_per_tok=moe.num_experts_per_tok,
        moe_intermediate_size=width,
        gated=block.gated,
        expert_bias=block.bias,
        shared_expert_intermediate_size=moe.shared_expert_intermediate_size,
    )


def _with_skew(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    _experts_needed("routing_skew", model)
    return with_routing_skew(model, spec.routing_skew)


def _with_placement(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    _experts_needed("expert_placement", model)
    return _over_experts(model, {"placed_evenly": spec.expert_placement == "even"})


def _experts_needed(field: str, model: arch.ModelSpec) -> None:
    if not model.has_experts:
        _refuse(field, f"{model.name} has no experts", code="no_effect", hint="leave it out")


def with_routing_skew(model: arch.ModelSpec, skew: float | None) -> arch.ModelSpec:
    """The model with its experts chosen so unevenly, 0 for evenly; one without experts as it is."""
    return _over_experts(model, {"routing_skew": skew})


def _over_experts(model: arch.ModelSpec, update: dict[str, object]) -> arch.ModelSpec:
    def change(layer: arch.LayerSpec) -> arch.LayerSpec:
        blocks = tuple(
            block.model_copy(update=update) if isinstance(block, arch.MoeSpec) else block
            for block in layer.feed_forward
        )
        return layer.model_copy(update={"feed_forward": blocks})

    return _over_layers(model, change)


def _with_depth(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    """The first layers and the last one: deep layers before the last are what pruning drops [Gromov2024]."""
    kept = max(1, round(model.num_hidden_layers * (spec.layers_fraction or 1.0)))
    order = (*model.layer_order[: kept - 1], model.layer_order[-1])
    return model.model_copy(update={"layer_order": order})


def _with_width(model: arch.ModelSpec, spec: StructureSpec) -> arch.ModelSpec:
    """Hidden size, heads and block widths in proportion; head_dim stays."""
    size = spec.hidden_size or 0
    ratio = size / model.hidden_size
    if any(layer.mixer is not None and not isinstance(layer.mixer, arch.AttentionSpec) for layer in model.layers):
        _refuse("hidden_size", f"{model.name} has mixers without a head_dim to keep", code="unsupported_option",
                hint="models with plain attention")  # fmt: skip

    def part(name: str, number: int) -> int:
        scaled = number * ratio
        if scaled != int(scaled) or scaled < 1:
            _refuse("hidden_size", f"{size} gives {scaled:g} {name} instead of {number}", code="invalid_value",
                    hint=f"a multiple of {model.hidden_size} over a power of two")  # fmt: skip
        return int(scaled)

    def change(layer: arch.LayerSpec) -> arch.LayerSpec:
        update: dict[str, object] = {}
        for place in ("mixer", "cross_attention"):
            mixer = getattr(layer, place)
            if isinstance(mixer, arch.AttentionSpec):
                names = ("num_attention_heads", "num_key_value_heads")
                update[place] = mixer.model_copy(update={name: part(name, getattr(mixer, name)) for name in names})
        update["feed_forward"] = tuple(
            block.model_copy(update={"intermediate_size": part("intermediate_size", block.intermediate_size)})
            if isinstance(block, arch.MlpSpec)
            else block.model_copy(
                update={"moe_intermediate_size": part("moe_intermediate_size", block.moe_intermediate_size)}
            )
            for block in layer.feed_forward
        )
        return layer.model_copy(update=update)

    return _over_layers(model, change).model_copy(update={"hidden_size": size})


# Depth and width first, so that the others see the model that stays.
_OVERRIDES: dict[str, Callable[[arch.ModelSpec, StructureSpec], arch.ModelSpec]] = {
    "layers_fraction": _with_depth,
    "hidden_size": _with_width,
    "num_key_value_heads": _with_kv_heads,
    "mla": _with_mla,
    "sliding_window": _with_window,
    "moe": _with_experts,
    "routing_skew": _with_skew,
    "expert_placement": _with_placement,
}


def _attention_needed(field: str, model: arch.ModelSpec) -> None:
    if not any(isinstance(layer.mixer, arch.AttentionSpec) for layer in model.layers):
        _refuse(field, f"{model.name} has no attention layers", code="no_effect", hint="leave it out")


def _refuse(field: str, message: str, *, code: str, hint: str) -> NoReturn:
    where = "techniques.structure" + (f".{field}" if field else "")
    raise RoofcastError(message, field=where, code=code, hint=hint)
