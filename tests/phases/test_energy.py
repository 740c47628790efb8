"""Energy: parts add up to power times time, bytes cost more than FLOPs, narrow formats cost less."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.operators.work import StepShape, decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.power import average_power_w, energy_prices, energy_split
from simulator.phases.step import estimate_step
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype
from simulator.units import TERA

REPLICA = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"))


@pytest.mark.parametrize(
    "step", [decode_step(sequences=[1, 64], context=1000), prefill_step(sequences=[1, 4], tokens=2048)]
)
def test_parts_add_up_to_power_times_time(step: StepShape) -> None:
    estimate = estimate_step(REPLICA, step)
    weights = np.array([3.0, 2.0])
    split = energy_split(REPLICA, estimate=estimate, weights=weights)
    power_w = average_power_w(REPLICA, phases=((weights, estimate),))
    assert split.total_j == pytest.approx(power_w * float(weights @ estimate.step_s), rel=1e-9)
    assert min(split.idle_j, split.compute_j, split.memory_j) > 0
    assert split.busy_j >= 0


def test_decode_pays_for_bytes_and_prefill_for_arithmetic() -> None:
    one = np.ones(1)
    decode = energy_split(REPLICA, estimate=estimate_step(REPLICA, decode_step(sequences=1, context=500)), weights=one)
    prefill = energy_split(
        REPLICA, estimate=estimate_step(REPLICA, prefill_step(sequences=1, tokens=4096)), weights=one
    )
    # Tensor units work on the padding of tiles as well, so that arithmetic is no small part of a step with one row.
    assert decode.memory_j > 3 * decode.compute_j
    assert prefill.compute_j > 2 * prefill.memory_j
    assert decode.total_j > 10 * prefill.total_j / 4096  # a token of one sequence against one of a long prompt


def test_a_byte_costs_more_than_a_flop_and_fp8_less_than_bf16() -> None:
    prices = energy_prices(load_hardware("h100"))
    assert prices.byte_j > 20 * prices.flop_j[Dtype.BF16]
    assert prices.flop_j[Dtype.FP8] == pytest.approx(prices.flop_j[Dtype.BF16] / 2, rel=0.01)
    # Published estimates of an HBM access lie at 4 to 7 pJ a bit, with everything on the way to the cores more.
    # The share is that of H200, whose memory moves more bytes for the same watts.
    assert 10 < prices.byte_j * TERA < 250
