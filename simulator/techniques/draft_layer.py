"""EAGLE's drafter as a model of its own: one layer of the target over its features, between its embedding and head."""

from __future__ import annotations

from simulator.errors import RoofcastError
from simulator.operators.linear import linear
from simulator.operators.work import Work
from simulator.specs.model import ModelSpec
from simulator.techniques.applied import RowContext

SHARED_ROLES = frozenset({"embedding", "lm_head"})
"""What the drafter borrows from the target, and so takes no memory for."""


def draft_layer_model(target: ModelSpec) -> ModelSpec:
    """One decoder layer like the target's last.

    References
    ----------
    [Li2024]
    """
    if target.encoder is not None:
        raise RoofcastError(
            f"eagle drafts with a decoder layer, and {target.name} has an encoder too",
            field="techniques.speculation.method",
            code="contradiction",
            hint="method ngram works with every model that generates",
        )
    return target.model_copy(
        update={
            "name": f"{target.name}-draft-layer",
            "layers": (target.layers[target.layer_order[-1]],),
            "layer_order": (0,),
            "extra_parameters": 0,
            "notes": (),
        }
    )


def join_features(rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
    """Rows with EAGLE's product that brings embedding and feature, side by side, back to hidden_size."""
    share = context.share()
    hidden = context.model.hidden_size
    joined = linear(
        "feature_proj",
        share=share,
        role="mlp",
        m=share.tokens,
        n=hidden / share.tp_size,
        k=2 * hidden,
        bias=hidden / share.tp_size,
        count=1.0,
    )
    return (joined, *rows)
