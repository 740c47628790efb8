"""Sparse weights: smaller dense shapes, the matrix units' 2:4 rate, or fewer stored bytes; never a silent nothing."""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import RoofcastError, did_you_mean
from simulator.operators.formats import PrecisionPlan
from simulator.operators.roles import model_roles
from simulator.operators.sparse_formats import (
    SPARSE_KERNELS,
    bitmap_bits,
    compressed_product,
    pattern_bits,
    sparse_product,
)
from simulator.operators.work import MatmulFormat
from simulator.specs.hardware import AcceleratorSpec
from simulator.specs.sparsity import SparsitySpec
from simulator.techniques.applied import AppliedTechniques
from simulator.techniques.pruned_model import pruned_model
from simulator.units import percent_text

SPARSE_ROLES = frozenset({"attention", "mlp", "shared_expert", "mixer"})
"""Products with sparse kernels; grouped products of routed experts have none, embeddings and LM head stay dense."""

ON_MATRIX_UNITS = (2, 4)


def structured_sparsity(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """Heads, channels or layers taken out of the model: every later count follows from the smaller shapes."""
    spec = applied.spec.sparsity
    if spec is None or spec.pattern != "structured":
        return applied
    model = pruned_model(applied.model, spec)
    assumed = () if spec.target else (f"sparsity.target = {spec.pruned} (default)",)
    return replace(
        applied,
        model=model,
        notes=(*applied.notes, _quality_note(spec)),
        assumptions=(*applied.assumptions, *assumed),
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
    notes = [*applied.notes, f"sparse: {', '.join(sorted(roles))}; dense: {', '.join(sorted(dense)) or 'none'}"]
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
        if product.name not in SPARSE_KERNELS:
            raise _refusal(
                f"no kernel multiplies 2:4 sparse {product.name} weights; there are kernels for "
                + ", ".join(SPARSE_KERNELS),
                "contradiction",
                hint=did_you_mean(product.name, SPARSE_KERNELS),
            )
        if product.kernel not in ("", SPARSE_KERNELS[product.name]):
            raise _refusal(f"{product.kernel} kernels do not multiply 2:4 weights", "contradiction", hint="drop kernel")
        if product.math not in rates:
            have = ", ".join(sorted(rates)) or "none"
            raise _refusal(
                f"{hardware.name} has no 2:4 rate for {product.math}; it has {have}",
                "unsupported_option",
                hint="NVIDIA since Ampere and AMD since CDNA 3 have one",
            )
    kept, of = ON_MATRIX_UNITS
    return plan.with_formats(lambda product: sparse_product(product, kept=kept, of=of), roles=roles)


def _compressed(product: MatmulFormat, spec: SparsitySpec) -> MatmulFormat:
    """The format stored without zeros, where that saves bytes."""
    if spec.kept_of is not None:
        bits = pattern_bits(product.weight_bits, kept=spec.kept_of[0], of=spec.kept_of[1])
    else:
        bits = bitmap_bits(product.weight_bits, kept_fraction=spec.kept_fraction)
    if bits >= product.weight_bits:
        raise _refusal(
            f"{percent_text(1 - spec.kept_fraction, digits=3)} zeros in {product.name} save nothing: "
            f"{bits:.3g} bits a weight with the places of the kept ones, {product.weight_bits:.3g} without",
            "no_effect",
            hint="a larger fraction, or wider weights",
        )
    return compressed_product(product, weight_bits=bits)


def _quality_note(spec: SparsitySpec) -> str:
    method = spec.method or "any method"
    return f"sparsity by {method}: the method changes quality and preparation, not speed"


def _refusal(message: str, code: str, *, hint: str = "") -> RoofcastError:
    return RoofcastError(message, field="techniques.sparsity", code=code, hint=hint)
