"""Techniques as an axis of a search: what is compared, and the word for it in a label and in a flag."""

from __future__ import annotations

from itertools import product

from simulator.specs.model import ModelSpec, MoeSpec
from simulator.specs.plan import NONE, PlanSpec
from simulator.specs.techniques import TechniquesSpec
from simulator.units import percent_text

USUAL_SPECULATION = ("eagle", "ngram")
USUAL_SPARSITY = ("2:4",)
USUAL_DP_SIZES = (2, 4, 8)
NO_TECHNIQUES = TechniquesSpec()


def _text(value: str | None) -> str | None:
    return None if value == NONE else value


def technique_choices(spec: PlanSpec) -> tuple[TechniquesSpec, ...]:
    """Every combination of the techniques to compare; with ``any_technique`` the usual ones beside none at all."""
    if not (spec.any_technique or spec.speculation or spec.sparsity or spec.kv_policy or spec.weight_offload):
        return (NO_TECHNIQUES,)
    from simulator.specs.techniques_text import TechniquesText, techniques_spec

    speculation: tuple[str | None, ...] = spec.speculation or (None,)
    sparsity: tuple[str | None, ...] = spec.sparsity or (None,)
    if spec.any_technique:
        speculation, sparsity = (None, *USUAL_SPECULATION), (None, *USUAL_SPARSITY)
    found = (
        techniques_spec(
            TechniquesText(
                speculation=_text(guess), sparsity=_text(zeros), kv_policy=_text(policy), weight_offload=_text(share)
            )
        )
        for guess, zeros, policy, share in product(
            speculation, sparsity, spec.kv_policy or (None,), spec.weight_offload or (None,)
        )
    )
    return tuple(dict.fromkeys(found))


def has_experts(model: ModelSpec) -> bool:
    """Whether any layer routes tokens to experts."""
    return any(isinstance(block, MoeSpec) for layer in model.layers for block in layer.feed_forward)


def dp_sizes(spec: PlanSpec, *, model: ModelSpec) -> tuple[int, ...]:
    """Ranks of data-parallel attention to compare; one where nobody asks, or no experts would be shared by them."""
    if spec.dp:
        return tuple(sorted(set(spec.dp)))
    return (1, *USUAL_DP_SIZES) if spec.any_technique and has_experts(model) else (1,)


def technique_label(techniques: TechniquesSpec) -> str:
    """``eagle sparse 2:4 h2o 1024``; empty where nothing is changed."""
    parts: list[str] = []
    if techniques.speculation is not None:
        parts.append(techniques.speculation.method)
        if techniques.speculation.k is not None:
            parts.append(f"k{techniques.speculation.k}")
    if techniques.sparsity is not None:
        parts.append(f"sparse {techniques.sparsity.pattern}")
    if techniques.kv_policy is not None:
        parts.append(f"{techniques.kv_policy.method} {techniques.kv_policy.budget_tokens}")
    if techniques.weight_offload is not None:
        parts.append(f"{percent_text(techniques.weight_offload.fraction)} of weights in host")
    return " ".join(parts)
