"""Capacity within objectives: bisection side by side finds what trying every rate finds."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.lanes.limits import LaneLimits
from simulator.engine.lanes.load_curve import LoadCurve, load_curve, saturation, stack
from simulator.engine.lanes.occupancy import lane_rows
from simulator.engine.lanes.steady_state import steady_state, steady_states
from simulator.planner.serving.capacity import (
    UNLOADED_SHARE,
    Capacity,
    Missed,
    capacities_within,
    capacity_within,
    excess_of,
)
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix
from tests.engine.batching_simulation import affine_steps

UTILIZATION = 0.9
MIX = RequestMix(
    isl=LengthDistribution(mean_tokens=1155.0, cv=0.96), osl=LengthDistribution(mean_tokens=211.0, cv=0.77)
)


def _objectives(ttft_s: float, tpot_s: float) -> tuple[ObjectiveSpec, ...]:
    return (
        ObjectiveSpec(metric=LatencyMetric.TTFT, percentile=95.0, bound_s=ttft_s),
        ObjectiveSpec(metric=LatencyMetric.TPOT, percentile=95.0, bound_s=tpot_s),
    )


def _curves() -> list[LoadCurve]:
    limits = LaneLimits(sequences=128, batched_tokens=4096, kv_tokens=float("inf"))
    return [load_curve(affine_steps(pace, 1.2e-4, 4e-5), mix=MIX, limits=limits) for pace in (0.006, 0.012, 0.02, 0.08)]


def _together(curves: list[LoadCurve], objectives: tuple[ObjectiveSpec, ...]) -> list[Capacity | Missed]:
    lanes = stack(curves)
    return capacities_within(
        lambda of, rates: steady_states(lane_rows(lanes, of=of, rates_per_s=rates)),
        saturation_per_s=np.array([saturation(curve).rate_per_s for curve in curves]),
        objectives=objectives,
        utilization=UTILIZATION,
    )


def _scanned(curve: LoadCurve, objectives: tuple[ObjectiveSpec, ...]) -> float:
    """The highest rate that holds of two rounds of 16 evenly spaced ones, every one of them tried."""
    low, high = (share * saturation(curve).rate_per_s for share in (UNLOADED_SHARE, UTILIZATION))
    for _ in range(2):
        rates = np.linspace(low, high, 16)
        fails = (excess_of(steady_state(curve, rates_per_s=rates), objectives) > 1).any(axis=0)
        first = int(np.argmax(fails))
        assert fails[first:].all(), "an objective that fails at a rate fails at every higher one"
        low, high = float(rates[first - 1]), float(rates[first])
    return low


@pytest.mark.parametrize(("ttft_s", "tpot_s"), [(0.5, 0.05), (2.0, 0.03), (0.25, 0.2)])
def test_side_by_side_finds_what_trying_every_rate_finds(ttft_s: float, tpot_s: float) -> None:
    curves, objectives = _curves(), _objectives(ttft_s, tpot_s)
    bound = 0
    for curve, found in zip(curves, _together(curves, objectives), strict=True):
        if isinstance(found, Missed) or found.binding is None:
            continue
        bound += 1
        assert found.rate_per_s == pytest.approx(_scanned(curve, objectives), rel=1e-12)
        assert (excess_of(found.state, objectives) <= 1).all()
    assert bound > 0


def test_one_lane_is_the_case_of_one() -> None:
    curves, objectives = _curves(), _objectives(0.5, 0.05)
    for curve, beside in zip(curves, _together(curves, objectives), strict=True):
        alone = capacity_within(
            lambda rates, of=curve: steady_state(of, rates_per_s=rates),  # type: ignore[misc]
            saturation_per_s=saturation(curve).rate_per_s,
            objectives=objectives,
            utilization=UTILIZATION,
        )
        assert type(alone) is type(beside)
        if isinstance(alone, Capacity) and isinstance(beside, Capacity):
            assert (alone.rate_per_s, alone.binding) == (beside.rate_per_s, beside.binding)


@pytest.mark.parametrize(("ttft_s", "tpot_s"), [(0.5, 0.05), (2.0, 0.03), (0.25, 0.2)])
def test_rates_asked_for_at_once_are_those_of_one_after_another(
    ttft_s: float, tpot_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves, objectives = _curves(), _objectives(ttft_s, tpot_s)
    found = []
    for most in (0, 20, 1000):
        monkeypatch.setattr("simulator.planner.serving.capacity._TOGETHER", most)
        found.append(_together(curves, objectives))
    for one, some, every in zip(*found, strict=True):
        assert type(one) is type(some) is type(every)
        if isinstance(one, Capacity):
            assert isinstance(some, Capacity)
            assert isinstance(every, Capacity)
            assert one.rate_per_s == some.rate_per_s == every.rate_per_s
            assert one.binding == some.binding == every.binding
            for metric in ("sorted_ttft_s", "sorted_tpot_s", "sorted_e2e_s"):
                assert getattr(one.state, metric) == pytest.approx(getattr(every.state, metric), rel=1e-12)
        else:
            assert isinstance(some, Missed)
            assert isinstance(every, Missed)
            assert one.objective is some.objective is every.objective


def test_a_lane_that_misses_even_idle_says_which_objective() -> None:
    curves, objectives = _curves(), _objectives(5.0, 0.05)
    outcomes = _together(curves, objectives)
    assert isinstance(outcomes[0], Capacity)
    assert isinstance(outcomes[-1], Missed)
    assert outcomes[-1].objective is objectives[1]
    assert outcomes[-1].excess > 1


def test_without_objectives_the_load_is_the_limit() -> None:
    for curve, found in zip(_curves(), _together(_curves(), ()), strict=True):
        assert isinstance(found, Capacity)
        assert found.binding is None
        assert found.rate_per_s == pytest.approx(UTILIZATION * saturation(curve).rate_per_s)
