"""The routing of experts: a fit that ships, and a layer that may say otherwise."""

from __future__ import annotations

import pytest

from simulator.phases.deployment import Deployment, deploy
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.architecture import MoeSpec
from simulator.specs.model.fitted import load_routing_fit, routing_skew
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import TechniquesSpec


def skews(replica: Deployment) -> set[float]:
    layers = replica.model.layers
    return {routing_skew(block) for layer in layers for block in layer.feed_forward if isinstance(block, MoeSpec)}


def test_a_layer_takes_the_fitted_skew_unless_it_has_its_own() -> None:
    layer = MoeSpec(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=128)
    assert routing_skew(layer) == load_routing_fit().skew > 0
    family = layer.model_copy(update={"fitted_skew": 1.1})
    assert routing_skew(family) == 1.1
    assert routing_skew(family.model_copy(update={"routing_skew": 0.0})) == 0.0


@pytest.mark.parametrize(("engine", "asked"), [("vllm", None), ("tensorrt-llm", None), ("tensorrt-llm", 0.5)])
def test_answers_of_one_engine_reach_experts_as_its_runs_did(engine: str, asked: float | None) -> None:
    """A skew that a question gives stays; a model that nothing was found of has one under every engine."""
    fit, spec = load_routing_fit(), EngineSpec(name=engine)
    techniques = None if asked is None else TechniquesSpec.model_validate({"structure": {"routing_skew": asked}})
    hardware = load_hardware("h200")
    found = deploy(model=load_model("gpt-oss-120b"), hardware=hardware, engine=spec, techniques=techniques)
    known = fit.engines.get(engine, {}).get("gpt_oss", fit.families["GptOssConfig"])
    assert skews(found) == {known if asked is None else asked}
    assert fit.engines["tensorrt-llm"]["gpt_oss"] > fit.families["GptOssConfig"]
    assert skews(deploy(model=load_model("qwen3-30b-a3b"), hardware=hardware, engine=spec)) == {fit.skew}
