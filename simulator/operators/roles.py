"""Which kinds of weight products a model has, in the words that precision and sparsity are set by."""

from __future__ import annotations

from simulator.specs.model import AttentionSpec, CompressedAttentionSpec, MlaSpec, MlpSpec, ModelSpec, MoeSpec


def model_roles(model: ModelSpec) -> frozenset[str]:
    """Roles of the weight products that a model has."""
    roles = {"lm_head"} if model.has_lm_head else set()
    stacks = (model.layers, model.encoder.layers if model.encoder else ())
    for layer in (layer for stack in stacks for layer in stack):
        attends = isinstance(layer.mixer, AttentionSpec | MlaSpec | CompressedAttentionSpec)
        if attends or layer.cross_attention is not None:
            roles.add("attention")
        elif layer.mixer is not None:
            roles.add("mixer")
        for block in layer.feed_forward:
            roles.add("mlp" if isinstance(block, MlpSpec) else "experts")
            if isinstance(block, MoeSpec) and block.shared_expert_intermediate_size:
                roles.add("shared_expert")
    return frozenset(roles)
