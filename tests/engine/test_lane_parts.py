"""Parts of a lane by theory: its birth-death chain against M/M/c, and sampled requests against their own moments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine.lanes.limits import LaneLimits
from simulator.engine.lanes.load_curve import load_curve
from simulator.engine.lanes.occupancy import lane_states, rows_of_one, slot_occupancy
from simulator.engine.lanes.prompt_queue import SAMPLES, Draw, compound_s, delayed_s, sampled_lengths
from simulator.operators.work import StepShape
from simulator.traffic.lengths import Array, LengthDistribution, RequestMix
from tests.engine.queue_laws import erlang_c

MIX = RequestMix(isl=LengthDistribution(mean_tokens=200.0, cv=0.5), osl=LengthDistribution(mean_tokens=101.0, cv=1.0))
SLOTS, STEP_S = 8, 0.02


def _constant(step: StepShape) -> Array:
    """Steps that take the same time whatever is in them: each slot is then a server of its own."""
    return np.full_like(np.asarray(step.decode_sequences, dtype=np.float64), STEP_S)


CURVE = load_curve(
    _constant,
    mix=replace(MIX, prefix_hit_fraction=1.0),
    limits=LaneLimits(sequences=SLOTS, batched_tokens=100_000, kv_tokens=float("inf")),
)


@pytest.mark.parametrize("load", [0.3, 0.7, 0.95])
def test_slots_of_constant_steps_are_servers(load: float) -> None:
    """With free prompts and steps of one length a lane is M/G/c without queue order: Erlang's formulas hold."""
    service_s = MIX.decode_steps * STEP_S
    found = slot_occupancy(rows_of_one(CURVE, rates_per_s=load * SLOTS / service_s))
    assert float(found.load[0]) == pytest.approx(load)
    assert float(found.mean[0]) <= SLOTS * load * (1 + 1e-9)
    assert float(found.wait_probability[0]) == pytest.approx(
        float(erlang_c(offered_load=load * SLOTS, servers=SLOTS)), rel=1e-6
    )


def test_more_arrivals_never_find_a_lane_emptier() -> None:
    rates = np.linspace(0.05, 0.95, 12) * SLOTS / (MIX.decode_steps * STEP_S)
    lane = lane_states(rows_of_one(CURVE, rates_per_s=rates))
    assert (np.diff(lane.occupancy.mean) > 0).all()
    assert (np.diff(lane.occupancy.wait_probability) > 0).all()
    assert (np.diff(lane.idle_probability) < 0).all()


def test_sampled_lengths_have_the_means_of_the_mix() -> None:
    lengths = sampled_lengths(MIX)
    assert lengths.prompt_tokens.mean() == pytest.approx(200.0, rel=0.01)
    assert lengths.prompt_tokens.std() == pytest.approx(100.0, rel=0.05)
    assert lengths.decode_steps.mean() == pytest.approx(100.0, rel=1e-12)


@pytest.mark.parametrize("probability", [0.1, 0.6, 1.0])
def test_sampled_waits_are_exponential_for_those_that_wait(probability: float) -> None:
    waits = delayed_s(Draw.BUDGET_WAIT, probability=np.array([probability]), conditional_mean_s=np.array([2.0]))
    assert (waits > 0).mean() == pytest.approx(probability, abs=2 / SAMPLES)
    assert waits.mean() == pytest.approx(2.0 * probability, rel=0.05)


def test_compound_times_keep_their_mean() -> None:
    ones = np.ones((1, SAMPLES))
    times = compound_s(Draw.LATER_PROMPTS, none=0.4 * ones, mean_s=0.5 * ones, variance=0.3 * ones)
    assert (times == 0).mean() == pytest.approx(0.4, abs=2 / SAMPLES)
    assert times.mean() == pytest.approx(0.5, rel=0.03)
