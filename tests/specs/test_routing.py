"""The routing of experts: a fit that ships, and a layer that may say otherwise."""

from __future__ import annotations

from simulator.specs.model.architecture import MoeSpec
from simulator.specs.model.fitted import load_routing_fit, routing_skew


def test_a_layer_takes_the_fitted_skew_unless_it_has_its_own() -> None:
    layer = MoeSpec(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=128)
    assert routing_skew(layer) == load_routing_fit().skew > 0
    assert routing_skew(layer.model_copy(update={"routing_skew": 0.0})) == 0.0
