"""Sparse weights: smaller dense shapes, the matrix units' 2:4 rate, or fewer stored bytes."""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import RoofcastError, did_you_mean, no_effect
from simulator.operators.formats import sparse_formats
from simulator.operators.formats.tensor_formats import PrecisionPlan, model_roles
from simulator.operators.work import MatmulFormat
from simulator.specs.base import Assumption, Note
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from simulator.specs.question.techniques import SparsitySpec
from simulator.techniques.applied import AppliedTechniques
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
        raise no_effect(
            f"taking {percent_text(1 - spec.kept_fraction, digits=3)} of the {spec.pruned} out of {model.name} "
            "changes nothing",
            field="techniques.sparsity",
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


SPARSE_ROLES = frozenset({"attention", "mlp", "shared_expert", "mixer"})
"""Products with sparse kernels; grouped products of routed experts have none, embeddings and LM head stay dense."""

ON_MATRIX_UNITS = (2, 4)


def structured_sparsity(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """Heads, channels or layers taken out of the model: every later count follows from the smaller shapes."""
    spec = applied.spec.sparsity
    if spec is None or spec.pattern != "structured":
        return applied
    model = pruned_model(applied.model, spec)
    assumed = () if spec.target else (Assumption(key="sparsity.target", value=spec.pruned),)
    return replace(
        applied, model=model, notes=(*applied.notes, _quality_note(spec)), assumptions=(*applied.assumptions, *assumed)
    )


def sparse_weights(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """N:M and unstructured zeros in the products that have kernels for them; refused where nothing would change."""
    spec = applied.spec.sparsity
    if spec is None or spec.pattern == "structured":
        return applied
    roles = SPARSE_ROLES & model_roles(applied.model)
    if not roles:
        raise _refusal(f"{applied.model.name} has no products that sparse kernels multiply", "no_effect")
    if spec.compressed:
        plan = applied.plan.with_formats(lambda product: _compressed(product, spec), roles=roles)
    else:
        plan = _on_matrix_units(spec, plan=applied.plan, roles=roles, hardware=hardware)
    dense = model_roles(applied.model) - roles
    notes = [*applied.notes, Note("sparse_roles", {"sparse": sorted(roles), "dense": sorted(dense)})]
    if spec.method is not None:
        notes.append(_quality_note(spec))
    return replace(applied, plan=plan, notes=tuple(notes))


def _on_matrix_units(
    spec: SparsitySpec, *, plan: PrecisionPlan, roles: frozenset[str], hardware: AcceleratorSpec
) -> PrecisionPlan:
    """The plan with 2:4 products at the sparse rate, or the reason why there are none."""
    rates = hardware.sparse_peak_flops_per_s
    if spec.kept_of != ON_MATRIX_UNITS:
        what = f"{spec.fraction:g} unstructured" if spec.kept_of is None else spec.pattern
        raise _refusal(
            f"{what} zeros change nothing on {hardware.name}: its matrix units multiply "
            + ("2:4 and dense weights" if rates else "dense weights only"),
            "no_effect",
            hint="compressed: true stores fewer bytes, which helps while memory bound",
        )
    for role in sorted(roles):
        product = plan.format_for(role)
        if product.name not in sparse_formats.SPARSE_KERNELS:
            raise _refusal(
                f"no kernel multiplies 2:4 sparse {product.name} weights; there are kernels for "
                + ", ".join(sparse_formats.SPARSE_KERNELS),
                "contradiction",
                hint=did_you_mean(product.name, sparse_formats.SPARSE_KERNELS),
            )
        if product.kernel not in ("", sparse_formats.SPARSE_KERNELS[product.name]):
            raise _refusal(f"{product.kernel} kernels do not multiply 2:4 weights", "contradiction", hint="drop kernel")
        if product.math not in rates:
            have = ", ".join(sorted(rates)) or "none"
            raise _refusal(
                f"{hardware.name} has no 2:4 rate for {product.math}; it has {have}",
                "unsupported_option",
                hint="NVIDIA since Ampere and AMD since CDNA 3 have one",
            )
    kept, of = ON_MATRIX_UNITS
    return plan.with_formats(lambda product: sparse_formats.sparse_product(product, kept=kept, of=of), roles=roles)


def _compressed(product: MatmulFormat, spec: SparsitySpec) -> MatmulFormat:
    """The format stored without zeros, where that saves bytes."""
    if spec.kept_of is not None:
        bits = sparse_formats.pattern_bits(product.weight_bits, kept=spec.kept_of[0], of=spec.kept_of[1])
    else:
        bits = sparse_formats.bitmap_bits(product.weight_bits, kept_fraction=spec.kept_fraction)
    if bits >= product.weight_bits:
        raise _refusal(
            f"{percent_text(1 - spec.kept_fraction, digits=3)} zeros in {product.name} save nothing: "
            f"{bits:.3g} bits a weight with the places of the kept ones, {product.weight_bits:.3g} without",
            "no_effect",
            hint="a larger fraction, or wider weights",
        )
    return sparse_formats.compressed_product(product, weight_bits=bits)


def _quality_note(spec: SparsitySpec) -> Note:
    return Note("sparsity_method", {"method": spec.method})


def _refusal(message: str, code: str, *, hint: str = "") -> RoofcastError:
    return RoofcastError(message, field="techniques.sparsity", code=code, hint=hint)
