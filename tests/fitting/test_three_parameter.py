"""``simulator.fitting.three_parameter``: known parameters come back, flat directions are named, outliers weigh less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fitting.three_parameter import (
    LOSS_SCALE,
    ParameterRange,
    Points,
    identified,
    loss,
    roofline_seconds,
    search,
    settled,
)
from simulator.operators.work import Array

RANGE = ParameterRange(lower=np.log([1e-7, 0.01, 0.01]), upper=np.log([1e-4, 1.0, 1.0]))
TYPICAL = np.log([3e-6, 0.7, 0.8])


def points(values: tuple[float, float, float], *, rows: int = 60, seed: int = 0, spread: float = 0.0) -> Points:
    """Points that follow the parameters, with both sides of the ridge and small shapes among them."""
    draw = np.random.default_rng(seed)
    peak_s, bandwidth_s = 10.0 ** draw.uniform(-7.5, -3.5, (2, rows))
    exact = roofline_seconds(np.log(values), peak_s=peak_s, bandwidth_s=bandwidth_s)[0]
    return Points(peak_s=peak_s, bandwidth_s=bandwidth_s, seconds=exact * np.exp(draw.normal(0.0, spread, rows)))


@settings(max_examples=8, deadline=None)
@given(launch_s=st.floats(5e-7, 3e-5), compute=st.floats(0.1, 0.95), memory=st.floats(0.1, 0.95))
def test_known_parameters_come_back(launch_s: float, compute: float, memory: float) -> None:
    found = np.exp(search(points((launch_s, compute, memory)), within=RANGE))
    assert found == pytest.approx([launch_s, compute, memory], rel=0.01)


def test_hand_number_of_a_kernel_on_either_side_of_the_ridge() -> None:
    """2 us + 10 us / 0.5 = 22 us where compute bounds, 2 us + 30 us / 0.75 = 42 us where memory does."""
    seconds = roofline_seconds(
        np.log([2e-6, 0.5, 0.75]), peak_s=np.array([10e-6, 10e-6]), bandwidth_s=np.array([6e-6, 30e-6])
    )
    assert seconds[0] == pytest.approx([22e-6, 42e-6])


def test_the_loss_is_quadratic_for_small_errors_and_linear_for_large_ones() -> None:
    exact = points((4e-6, 0.6, 0.8))

    def at(factor: float) -> float:
        scaled = Points(peak_s=exact.peak_s, bandwidth_s=exact.bandwidth_s, seconds=exact.seconds / factor)
        return float(loss(np.log([4e-6, 0.6, 0.8]), scaled)[0])

    assert at(1.0) == pytest.approx(0.0, abs=1e-15)
    assert at(np.exp(0.002)) == pytest.approx(0.002**2, rel=1e-3)
    assert at(np.exp(20 * LOSS_SCALE)) - at(np.exp(10 * LOSS_SCALE)) == pytest.approx(
        2 * LOSS_SCALE * 10 * LOSS_SCALE, rel=0.01
    )


def test_one_wild_point_in_twenty_moves_no_parameter_by_five_percent() -> None:
    clean = points((4e-6, 0.6, 0.8), spread=0.01)
    wild = clean.seconds.copy()
    wild[::20] *= 10.0
    dirty = Points(peak_s=clean.peak_s, bandwidth_s=clean.bandwidth_s, seconds=wild)
    moved = search(dirty, within=RANGE) - search(clean, within=RANGE)
    assert np.abs(moved).max() < 0.05


def test_what_no_point_depends_on_is_not_identified_and_takes_the_other_value() -> None:
    """With operands so small that bandwidth never bounds, the share of it is anyone's guess."""
    exact = points((4e-6, 0.6, 0.8))
    starved = Points(peak_s=exact.peak_s, bandwidth_s=exact.peak_s * 1e-6, seconds=4e-6 + exact.peak_s / 0.6)
    logs = search(starved, within=RANGE)
    assert identified(logs, starved, within=RANGE).tolist() == [True, True, False]
    kept = settled(logs, starved, within=RANGE, otherwise=TYPICAL)
    assert np.exp(kept) == pytest.approx([4e-6, 0.6, 0.8], rel=0.01)


def test_a_fallback_outside_the_range_is_clipped_to_it() -> None:
    exact = points((4e-6, 0.6, 0.8))
    starved = Points(peak_s=exact.peak_s, bandwidth_s=exact.peak_s * 1e-6, seconds=4e-6 + exact.peak_s / 0.6)
    kept = settled(search(starved, within=RANGE), starved, within=RANGE, otherwise=np.log([1e-6, 0.5, 5.0]))
    assert np.exp(kept[2]) == pytest.approx(1.0)


def test_all_three_are_identified_where_launches_compute_and_memory_each_bound_some_points() -> None:
    exact = points((4e-6, 0.6, 0.8), spread=0.02)
    logs = search(exact, within=RANGE)
    assert identified(logs, exact, within=RANGE).all()
    assert np.array_equal(settled(logs, exact, within=RANGE, otherwise=TYPICAL), logs)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_search_is_no_worse_than_any_of_a_thousand_random_guesses(seed: int) -> None:
    noisy = points((6e-6, 0.5, 0.7), seed=seed, spread=0.1)
    best = loss(search(noisy, within=RANGE), noisy)[0]
    draw = np.random.default_rng(seed)
    guesses: Array = draw.uniform(RANGE.lower, RANGE.upper, (1000, 3))
    assert best <= loss(guesses, noisy).min() + 1e-9


def test_times_scale_with_the_unit() -> None:
    """Measured in units a thousand times as long, only the launch changes."""
    exact = points((4e-6, 0.6, 0.8))
    wide = ParameterRange(lower=np.log([1e-10, 0.01, 0.01]), upper=np.log([1e-1, 1.0, 1.0]))
    longer = Points(peak_s=exact.peak_s * 1e3, bandwidth_s=exact.bandwidth_s * 1e3, seconds=exact.seconds * 1e3)
    found = np.exp([search(exact, within=wide), search(longer, within=wide)])
    assert found[1, 0] / found[0, 0] == pytest.approx(1e3, rel=0.01)
    assert found[1, 1:] == pytest.approx(found[0, 1:], rel=0.01)
