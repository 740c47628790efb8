"""What devices wait for each other: once per collective, longer the more there are, never alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.kernels.engine_traits import EngineTraits, slowest_lag
from simulator.operators.work import CollectiveShape, decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model

LAG_S = 1e-4


def _steps(tp_size: int) -> tuple[Deployment, StepEstimate, StepEstimate]:
    replica = deploy(
        model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"), parallelism=ParallelismSpec(tp_size=tp_size)
    )
    waiting = replace(replica, kernels=replace(replica.kernels, traits=EngineTraits(collective_lag_s=LAG_S)))
    step = decode_step(sequences=np.array([1.0, 64.0]), context=1000.0)
    return replica, estimate_step(replica, step), estimate_step(waiting, step)


@pytest.mark.parametrize("tp_size", [2, 8])
def test_a_step_waits_once_per_collective(tp_size: int) -> None:
    _, before, after = _steps(tp_size)
    collectives = sum(row.work.count for row in before.rows if isinstance(row.work.shape, CollectiveShape))
    assert collectives >= 2 * 32
    np.testing.assert_allclose(after.step_s - before.step_s, collectives * LAG_S * slowest_lag(tp_size), rtol=1e-9)


def test_the_lag_of_the_slowest_is_the_expected_largest_of_exponential_lags() -> None:
    lags = np.random.default_rng(1).exponential(size=(200_000, 8))
    for participants in (1, 2, 4, 8):
        largest = lags[:, :participants].max(axis=1).mean()
        assert slowest_lag(participants) == pytest.approx(largest - 1, abs=0.02)


def test_one_device_waits_for_nobody() -> None:
    _, before, after = _steps(1)
    np.testing.assert_array_equal(after.step_s, before.step_s)


def test_deployments_take_the_wait_of_their_engine() -> None:
    replica, _, _ = _steps(2)
    assert replica.kernels.traits.collective_lag_s == replica.engine.overheads.collective_lag_s
