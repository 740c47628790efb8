"""``simulator.engine.lanes.queueing``: limits and monotonicity of the closed forms that lanes are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.lanes.queueing import (
    arrivals_after_one,
    busy_servers_probability,
    followers,
    gg1_wait_mean_s,
    smooth_arrivals_factor,
    wait_probability,
    window_factor,
)

FEW = settings(max_examples=30, deadline=None)
LOAD, CV = st.floats(0.01, 0.99), st.floats(0.0, 3.0)


@FEW
@given(load=LOAD, service_s=st.floats(1e-3, 10), cv=CV)
def test_poisson_arrivals_wait_as_pollaczek_and_khinchine_say(load: float, service_s: float, cv: float) -> None:
    found = gg1_wait_mean_s(
        arrival_rate_per_s=load / service_s, service_mean_s=service_s, service_cv=cv, arrival_cv=1.0
    )
    assert float(found) == pytest.approx(load * service_s * (1 + cv**2) / (2 * (1 - load)))


@FEW
@given(load=LOAD, cv=CV, arrival_cv=CV)
def test_waits_are_measured_in_service_times(load: float, cv: float, arrival_cv: float) -> None:
    one, thousand = (
        float(
            gg1_wait_mean_s(
                arrival_rate_per_s=load / seconds, service_mean_s=seconds, service_cv=cv, arrival_cv=arrival_cv
            )
        )
        for seconds in (1.0, 1000.0)
    )
    assert thousand == pytest.approx(1000 * one)


@pytest.mark.parametrize("load", [1.0, 1.5, 100.0])
def test_no_steady_state_no_mean(load: float) -> None:
    assert np.isinf(gg1_wait_mean_s(arrival_rate_per_s=load, service_mean_s=1.0, service_cv=1.0, arrival_cv=1.0))


@FEW
@given(load=LOAD)
def test_clockwork_arrivals_at_clockwork_service_do_not_wait(load: float) -> None:
    found = gg1_wait_mean_s(arrival_rate_per_s=load, service_mean_s=1.0, service_cv=0.0, arrival_cv=0.0)
    assert float(found) == 0
    assert float(wait_probability(load=load, service_cv=0.0, arrival_cv=0.0)) == pytest.approx(0.0, abs=1e-9)


@FEW
@given(load=LOAD, cv=CV)
def test_poisson_arrivals_see_the_load_and_need_no_correction(load: float, cv: float) -> None:
    assert float(wait_probability(load=load, service_cv=cv, arrival_cv=1.0)) == pytest.approx(load)
    assert float(smooth_arrivals_factor(load=load, service_cv=cv, arrival_cv=1.0)) == pytest.approx(1.0)


@FEW
@given(load=LOAD, cv=st.floats(0.1, 3), arrival_cv=st.floats(0.0, 1.0))
def test_smoother_arrivals_wait_less_and_less_often(load: float, cv: float, arrival_cv: float) -> None:
    assert float(smooth_arrivals_factor(load=load, service_cv=cv, arrival_cv=arrival_cv)) <= 1 + 1e-12
    assert float(wait_probability(load=load, service_cv=cv, arrival_cv=arrival_cv)) <= load + 1e-9


@FEW
@given(load=LOAD, cv=CV, arrival_cv=CV)
def test_a_probability_is_one(load: float, cv: float, arrival_cv: float) -> None:
    assert 0 <= float(wait_probability(load=load, service_cv=cv, arrival_cv=arrival_cv)) <= 1


@FEW
@given(expected=st.floats(0, 100), arrival_cv=st.floats(0, 1))
def test_after_one_arrival_a_smooth_stream_pauses(expected: float, arrival_cv: float) -> None:
    found = float(arrivals_after_one(expected, arrival_cv=arrival_cv))
    assert -1e-9 <= found <= expected + 1e-9
    # In the long run half of what is missing from Poisson's variance.
    assert float(arrivals_after_one(1e6, arrival_cv=arrival_cv)) == pytest.approx(1e6 - (1 - arrival_cv**2) / 2)


@pytest.mark.parametrize("expected", [0.1, 1.0, 5.0])
def test_erlang_gaps_have_their_renewal_function(expected: float) -> None:
    """Gaps of two exponential phases: x - (1 - exp(-4 x)) / 4."""
    exact = expected - (1 - np.exp(-4 * expected)) / 4
    assert float(arrivals_after_one(expected, arrival_cv=np.sqrt(0.5))) == pytest.approx(exact)


def test_erlang_gaps_by_drawing() -> None:
    draw = np.random.default_rng(0)
    times = np.cumsum(draw.gamma(2, 0.5, (20_000, 40)), axis=1)
    for horizon in (0.5, 2.0, 8.0):
        assert float(arrivals_after_one(horizon, arrival_cv=np.sqrt(0.5))) == pytest.approx(
            np.mean((times < horizon).sum(axis=1)), rel=0.03
        )


@pytest.mark.parametrize("arrival_cv", [1.2, 2.0, 4.0])
def test_followers_by_drawing(arrival_cv: float) -> None:
    draw, shape = np.random.default_rng(0), arrival_cv**-2
    times = np.cumsum(draw.gamma(shape, 1 / shape, (20_000, 150)), axis=1)
    for horizon in (1e-3, 0.03, 0.5, 4.0):
        number, found = (times < horizon).sum(axis=1), followers(horizon, arrival_cv=arrival_cv)
        assert float(found.none) == pytest.approx((number == 0).mean(), abs=0.01)
        assert float(found.mean) == pytest.approx(number.mean(), rel=0.05, abs=2e-3)
        assert float(found.mean * found.dispersion) == pytest.approx(number.var(), rel=0.1, abs=2e-3)


@FEW
@given(expected=st.floats(1e-9, 1e6), arrival_cv=st.floats(1.0, 10))
def test_burstier_arrivals_have_more_company(expected: float, arrival_cv: float) -> None:
    found, more = (followers(expected, arrival_cv=value) for value in (arrival_cv, 1.1 * arrival_cv))
    assert expected <= float(found.mean) <= float(more.mean) * (1 + 1e-6)
    assert 0 <= float(found.none) <= 1
    # In the long run half of what is beyond Poisson's variance.
    beyond = (arrival_cv**2 - 1) / 2
    assert float(followers(1e6, arrival_cv=arrival_cv).mean) == pytest.approx(1e6 + beyond)


def test_the_variance_of_an_average_falls_with_its_window() -> None:
    windows = np.array([1e-9, 1e-3, 0.1, 1.0, 10.0, 1e3])
    factor = window_factor(windows)
    assert np.all(np.diff(factor) <= 1e-12)
    assert factor[0] == pytest.approx(1.0, abs=1e-3)
    assert factor[-1] == pytest.approx(2e-3, rel=2e-3)


def test_the_window_factor_by_drawing() -> None:
    """An Ornstein-Uhlenbeck path averaged over three correlation times."""
    draw, step, paths = np.random.default_rng(1), 0.05, 4000
    state, total = draw.standard_normal(paths), np.zeros(paths)
    keep = np.exp(-step)
    for _ in range(60):
        total += state * step
        state = keep * state + np.sqrt(1 - keep**2) * draw.standard_normal(paths)
    assert np.var(total / 3.0) == pytest.approx(float(window_factor(np.array(3.0))), rel=0.08)


@FEW
@given(load=LOAD)
def test_one_server_is_busy_for_its_load(load: float) -> None:
    assert float(busy_servers_probability(load=load, servers=1)) == pytest.approx(load, rel=0.02)


@FEW
@given(load=LOAD, servers=st.integers(1, 63))
def test_more_servers_at_one_load_are_all_busy_less_often(load: float, servers: int) -> None:
    fewer, more = (float(busy_servers_probability(load=load, servers=count)) for count in (servers, servers + 1))
    assert 0 <= more <= fewer + 1e-9 <= 1 + 2e-9
