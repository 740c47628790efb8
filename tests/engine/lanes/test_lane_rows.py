"""Lanes side by side: each comes to what it comes to alone, whatever stands beside it."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from simulator.engine.lanes.limits import LaneLimits
from simulator.engine.lanes.load_curve import LoadCurve, load_curve, saturation, stack
from simulator.engine.lanes.occupancy import lane_rows, rows_of_one
from simulator.engine.lanes.steady_state import SteadyState, steady_state, steady_states
from simulator.traffic.lengths import LengthDistribution, RequestMix
from tests.engine.batching_simulation import affine_steps

LOADS = np.array([0.001, 0.3, 0.7, 0.89, 1.2])


def _mix(*, osl: float = 211.0) -> RequestMix:
    return RequestMix(
        isl=LengthDistribution(mean_tokens=1155.0, cv=0.96), osl=LengthDistribution(mean_tokens=osl, cv=0.77)
    )


def _lanes(mix: RequestMix) -> list[LoadCurve]:
    """Of unlike pace, slots, budget, cache and host time."""
    limits = [
        LaneLimits(sequences=256, batched_tokens=8192, kv_tokens=float("inf")),
        LaneLimits(sequences=256, batched_tokens=2048, kv_tokens=30_000.0, block_tokens=16),
        LaneLimits(sequences=3, batched_tokens=512, kv_tokens=90_000.0, request_s=0.01, prompt_token_s=1e-6),
    ]
    steps = [affine_steps(0.01 * (1 + place), 1e-4, 4e-5) for place in range(len(limits))]
    return [load_curve(step, mix=mix, limits=limit) for step, limit in zip(steps, limits, strict=True)]


def _beside(curves: list[LoadCurve], rates: list[np.ndarray]) -> SteadyState:
    of = np.repeat(np.arange(len(curves)), [len(rate) for rate in rates])
    return steady_states(lane_rows(stack(curves), of=of, rates_per_s=np.concatenate(rates)))


@pytest.mark.parametrize("osl", [211.0, 2.0, 1.0])
def test_company_changes_no_digit(osl: float) -> None:
    curves = _lanes(_mix(osl=osl))
    rates = [LOADS * saturation(curve).rate_per_s for curve in curves]
    together = _beside(curves, rates)
    for lane, (curve, rate) in enumerate(zip(curves, rates, strict=True)):
        alone = steady_state(curve, rates_per_s=rate)
        rows = slice(lane * len(LOADS), (lane + 1) * len(LOADS))
        for field in fields(SteadyState):
            np.testing.assert_array_equal(getattr(together, field.name)[rows], getattr(alone, field.name), field.name)


def test_many_rows_are_those_of_their_parts() -> None:
    curve = _lanes(_mix())[1]
    rates = np.linspace(0.01, 0.95, 80) * saturation(curve).rate_per_s
    whole = steady_state(curve, rates_per_s=rates)
    some = steady_state(curve, rates_per_s=rates[40:44])
    np.testing.assert_allclose(whole.sorted_ttft_s[40:44], some.sorted_ttft_s, rtol=1e-12)
    np.testing.assert_allclose(whole.e2e_mean_s[40:44], some.e2e_mean_s, rtol=1e-12)


def test_quantities_between_whole_sequences_lie_on_the_line() -> None:
    curves = _lanes(_mix())
    lanes = stack(curves)
    sequences = np.array([0.0, 1.25, 2.0, 2.75, 3.0])
    for lane, curve in enumerate(curves):
        rows = lane_rows(lanes, of=np.full(len(sequences), lane), rates_per_s=np.ones(len(sequences)))
        expected = np.interp(sequences, np.arange(curve.slots + 1), curve.decode_s)
        np.testing.assert_allclose(rows.at(lanes.decode_s, sequences), expected, rtol=1e-14)


def test_a_lanes_prompt_costs_do_not_depend_on_longer_ones_beside_it() -> None:
    curves = _lanes(_mix())
    lengths = np.array([1.0, 300.0, 2500.0, 20_000.0])
    for lane, curve in enumerate(curves):
        sequences = np.array([0.0, curve.slots / 3, float(curve.slots)])
        rows = lane_rows(stack(curves), of=np.full(len(sequences), lane), rates_per_s=np.ones(len(sequences)))
        beside = rows.prompt_costs(sequences).added_by_s(lengths)
        alone = rows_of_one(curve, rates_per_s=np.ones(len(sequences))).prompt_costs(sequences).added_by_s(lengths)
        np.testing.assert_array_equal(beside, alone)
