"""Shared experts beside the routed ones: cheaper in small steps, never below what they take from the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.kernels.engine_traits import EngineTraits
from simulator.operators.work import GemmShape, decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model

TOKENS = 256
BATCHES = np.array([1.0, 64.0, 256.0, 257.0, 512.0])


def replica(model: str) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware("h200"),
        parallelism=ParallelismSpec(tp_size=8),
        engine=EngineSpec(name="vllm", max_num_seqs=512),
    )


def estimates(model: str) -> tuple[StepEstimate, StepEstimate]:
    """One stream, and two streams up to TOKENS tokens."""
    deployment = replica(model)
    one, two = (
        replace(deployment, kernels=replace(deployment.kernels, traits=EngineTraits(side_stream_tokens=tokens)))
        for tokens in (0, TOKENS)
    )
    step = decode_step(sequences=BATCHES, context=1000.0)
    return estimate_step(one, step), estimate_step(two, step)


@pytest.mark.parametrize("model", ["deepseek-v3", "llama-4-scout"])
def test_small_steps_gain_and_large_ones_do_not(model: str) -> None:
    one, two = estimates(model)
    small = BATCHES <= TOKENS
    assert (two.step_s < one.step_s)[small].all()
    np.testing.assert_array_equal(two.step_s[~small], one.step_s[~small])


def test_what_runs_beside_still_takes_its_bandwidth_and_its_math() -> None:
    one, two = estimates("deepseek-v3")
    shared = [place for place, row in enumerate(one.rows) if row.work.role == "shared_expert"]
    assert shared
    for place in shared:
        alone, beside = one.rows[place].timing, two.rows[place].timing
        taken_s = np.minimum(alone.seconds, np.maximum(alone.compute_s, alone.memory_s))
        split = (BATCHES <= TOKENS) & isinstance(one.rows[place].work.shape, GemmShape)
        np.testing.assert_array_equal(beside.seconds, np.where(split, taken_s, alone.seconds))
    others = [place for place in range(len(one.rows)) if place not in shared]
    assert all((one.rows[place].timing.seconds == two.rows[place].timing.seconds).all() for place in others)


def test_models_without_shared_experts_take_as_long() -> None:
    one, two = estimates("mixtral-8x7b")
    np.testing.assert_array_equal(two.step_s, one.step_s)


def test_deployments_take_the_limit_of_their_engine() -> None:
    assert replica("mixtral-8x7b").kernels.traits.side_stream_tokens == TOKENS
