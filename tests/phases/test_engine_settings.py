"""The engine of a replica: what was given stays and is said by nobody else, what was not is filled in and said."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.phases.deployment import deploy
from simulator.phases.engine_settings import EngineSettings, engine_assumptions, engine_settings
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec

LLAMA = load_model("llama-3.1-8b")
LIMITS = ("max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization", "block_size_tokens", "max_model_len")


def settled(**asked: object) -> tuple[EngineSettings, set[str]]:
    spec = EngineSpec.model_validate({"name": "vllm", **asked})
    profile = load_engine("vllm").at(spec.version)
    limits = profile.limits(spec, hardware=load_hardware("h100"), parallelism=ParallelismSpec())
    found = engine_settings(spec, profile=profile, limits=limits, model=LLAMA)
    return found, {item.key for item in engine_assumptions(spec, found, limits, profile=profile, vendor="nvidia")}


def test_every_limit_that_nobody_gave_is_said() -> None:
    found, said = settled()
    assert {f"engine.{name}" for name in LIMITS} <= said
    assert found.max_model_len == LLAMA.max_position_embeddings
    assert "engine.name" not in said, "it was named"


@pytest.mark.parametrize(("name", "value"), [("max_num_seqs", 7), ("max_model_len", 512), ("block_size_tokens", 32)])
def test_a_limit_that_was_given_stays_and_is_no_assumption(name: str, value: int) -> None:
    found, said = settled(**{name: value})
    assert getattr(found, name) == value
    assert f"engine.{name}" not in said


def test_one_piece_of_cache_for_all_that_a_request_may_need() -> None:
    found, _ = settled(kv_allocation="max_length", max_model_len=2048)
    assert (found.block_size_tokens, found.prefix_caching) == (2048, False)
    with pytest.raises(RoofcastError, match="leaves nothing for block_size_tokens"):
        settled(kv_allocation="max_length", block_size_tokens=16)


@pytest.mark.parametrize(
    ("engine", "model", "asked", "block"),
    [
        ("vllm", "qwen3-235b-a22b", {"weights": "fp8"}, True),
        ("tensorrt-llm", "qwen3-235b-a22b", {"weights": "fp8"}, False),
        ("tensorrt-llm", "qwen3-235b-a22b", {"scheme": "fp8-block"}, True),
        ("tensorrt-llm", "deepseek-r1", {"weights": "fp8"}, True),
    ],
)
def test_fp8_of_a_model_in_16_bit_is_the_checkpoint_that_the_engines_recipes_take(
    engine: str, model: str, asked: dict[str, str], block: bool
) -> None:
    replica = deploy(
        model=load_model(model),
        hardware=load_hardware("h200"),
        parallelism=ParallelismSpec(tp_size=8),
        precision=PrecisionSpec.model_validate(asked),
        engine=EngineSpec(name=engine),
    )
    assert replica.plan.format_for("experts").name == ("fp8_block" if block else "fp8")
