"""Closed forms against theory worked by hand, against each other, and against simulated queues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.events.state import SEQUENCE_S
from simulator.engine.lanes import queueing
from simulator.engine.runs.metrics import ServeResult
from simulator.engine.runs.serving import simulate_serving
from simulator.engine.settings import SchedulerSettings
from simulator.phases.compiled import uniform_tables
from simulator.traffic.requests import make_requests
from tests.engine import queue_laws


def simulated_waits_s(
    rng: np.random.Generator, *, rate_per_s: float, service_s: np.ndarray, servers: int
) -> np.ndarray:
    """FCFS waits of a multi-server queue with Poisson arrivals: each request takes the server that is free first."""
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, len(service_s)))
    free = np.zeros(servers)
    waits = np.empty(len(service_s))
    for index, (arrival, service) in enumerate(zip(arrivals, service_s, strict=True)):
        server = int(np.argmin(free))
        start = max(arrival, free[server])
        waits[index] = start - arrival
        free[server] = start + service
    return waits[len(waits) // 10 :]


def confidence_99(samples_of: list[float]) -> tuple[float, float]:
    """99 % interval of the mean of independent runs (normal deviate 2.576, a little widened for few runs)."""
    values = np.array(samples_of)
    half = 3.2 * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean() - half, values.mean() + half


def test_mm1_by_hand() -> None:
    # rho = 0.8, E[S] = 2 s: W = 0.8 / 0.2 * 2 = 8 s; P(W > t) = 0.8 exp(-t / 10).
    assert queue_laws.mm1_wait_mean_s(arrival_rate_per_s=0.4, service_mean_s=2.0) == pytest.approx(8.0)
    p95 = queue_laws.mm1_wait_quantile_s(arrival_rate_per_s=0.4, service_mean_s=2.0, probability=0.95)
    assert p95 == pytest.approx(10 * np.log(0.8 / 0.05))


def test_md1_waits_half_as_long_as_mm1() -> None:
    rates = np.array([0.1, 0.5, 0.9])
    deterministic = queue_laws.md1_wait_mean_s(arrival_rate_per_s=rates, service_mean_s=1.0)
    exponential = queue_laws.mm1_wait_mean_s(arrival_rate_per_s=rates, service_mean_s=1.0)
    np.testing.assert_allclose(deterministic, exponential / 2)


def test_erlang_c_by_hand() -> None:
    # Two servers, one erlang: C = 1/3 (Erlang B = 1/5, C = 0.2 / (1 - 0.5 * 0.8)).
    assert queue_laws.erlang_c(offered_load=1.0, servers=2) == pytest.approx(1 / 3)
    # Cooper's table: 10 servers, 8 erlangs, probability of delay 0.409.
    assert queue_laws.erlang_c(offered_load=8.0, servers=10) == pytest.approx(0.409, abs=5e-4)


def test_one_server_is_the_single_server_queue() -> None:
    rates = np.array([0.2, 0.7, 0.95])
    many = queue_laws.mmc_wait_mean_s(arrival_rate_per_s=rates, service_mean_s=1.0, servers=1)
    np.testing.assert_allclose(many, queue_laws.mm1_wait_mean_s(arrival_rate_per_s=rates, service_mean_s=1.0))


def test_thousand_servers_do_not_overflow() -> None:
    waits = queue_laws.erlang_c(offered_load=np.array([100.0, 900.0, 990.0]), servers=1000)
    assert waits[0] == pytest.approx(0.0, abs=1e-12)
    assert (np.diff(waits) > 0).all()
    assert (waits <= 1).all()


@pytest.mark.parametrize("rate_per_s", [1.0, 1.5])
def test_overload_has_no_steady_state(rate_per_s: float) -> None:
    assert queue_laws.mg1_wait_mean_s(arrival_rate_per_s=rate_per_s, service_mean_s=1.0, service_cv=0.5) == np.inf
    assert queue_laws.mmc_wait_mean_s(arrival_rate_per_s=2 * rate_per_s, service_mean_s=1.0, servers=2) == np.inf
    for probability in (0.0, 0.5, 0.99):
        quantile = queue_laws.mm1_wait_quantile_s(
            arrival_rate_per_s=rate_per_s, service_mean_s=1.0, probability=probability
        )
        assert quantile == np.inf


def test_quantile_is_zero_for_those_who_do_not_wait() -> None:
    p50 = queue_laws.mm1_wait_quantile_s(arrival_rate_per_s=0.3, service_mean_s=1.0, probability=0.5)
    assert p50 == 0


@given(load=st.floats(0.05, 0.95), servers=st.integers(1, 40), service_cv=st.floats(0, 3), arrival_cv=st.floats(0.1, 3))
def test_waits_grow_with_load_and_variability(load: float, servers: int, service_cv: float, arrival_cv: float) -> None:
    def mean_s(share: float, cs: float, ca: float) -> float:
        return float(
            queue_laws.ggc_wait_mean_s(
                arrival_rate_per_s=share * servers, service_mean_s=1.0, servers=servers, service_cv=cs, arrival_cv=ca
            )
        )

    base = mean_s(load, service_cv, arrival_cv)
    assert mean_s(load * 1.01, service_cv, arrival_cv) > base
    assert mean_s(load, service_cv + 0.1, arrival_cv) > base
    assert mean_s(load, service_cv, arrival_cv + 0.1) > base
    assert base >= 0


@given(load=st.floats(0.1, 0.95), servers=st.integers(1, 20))
def test_mean_is_the_integral_of_the_quantiles(load: float, servers: int) -> None:
    probabilities = (np.arange(20000) + 0.5) / 20000
    quantiles_s = queue_laws.ggc_wait_quantile_s(
        arrival_rate_per_s=load * servers,
        service_mean_s=1.0,
        servers=servers,
        service_cv=1.0,
        arrival_cv=1.0,
        probability=probabilities,
    )
    mean_s = queue_laws.mmc_wait_mean_s(arrival_rate_per_s=load * servers, service_mean_s=1.0, servers=servers)
    assert quantiles_s.mean() == pytest.approx(float(mean_s), rel=0.01, abs=1e-4)


@pytest.mark.parametrize(
    ("servers", "service_cv"), [(1, 0.0), (1, 1.0), (1, 2.0), (4, 1.0)], ids=["M/D/1", "M/M/1", "M/G/1", "M/M/4"]
)
def test_simulated_mean_wait_lies_in_its_interval(servers: int, service_cv: float) -> None:
    rng = np.random.default_rng(20261121)
    rate_per_s = 0.7 * servers
    means = []
    for _ in range(10):
        if service_cv == 0:
            service_s = np.ones(6000)
        else:
            shape = 1 / service_cv**2
            service_s = rng.gamma(shape, 1 / shape, 6000)
        means.append(float(simulated_waits_s(rng, rate_per_s=rate_per_s, service_s=service_s, servers=servers).mean()))
    low, high = confidence_99(means)
    theory_s = queue_laws.ggc_wait_mean_s(
        arrival_rate_per_s=rate_per_s, service_mean_s=1.0, servers=servers, service_cv=service_cv, arrival_cv=1.0
    )
    assert low <= theory_s <= high


def test_simulated_percentiles_of_mm2() -> None:
    rng = np.random.default_rng(7)
    p95s = [
        float(
            np.percentile(simulated_waits_s(rng, rate_per_s=1.5, service_s=rng.exponential(1.0, 8000), servers=2), 95)
        )
        for _ in range(8)
    ]
    low, high = confidence_99(p95s)
    theory_s = queue_laws.ggc_wait_quantile_s(
        arrival_rate_per_s=1.5, service_mean_s=1.0, servers=2, service_cv=1.0, arrival_cv=1.0, probability=0.95
    )
    assert low <= theory_s <= high


STEP_S = 0.01


def served_queue(rng: np.random.Generator, *, tokens: np.ndarray, servers: int, load: float) -> ServeResult:
    """The event simulation as a queue: ``servers`` slots, a step of fixed length, one step per answer token."""
    rate_per_s = load * servers / (tokens.mean() * STEP_S)
    requests = make_requests(
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, len(tokens))),
        prompt_tokens=np.ones(len(tokens), dtype=np.int64),
        output_tokens=tokens,
    )
    settings = SchedulerSettings(
        max_num_batched_tokens=64,
        max_num_seqs=servers,
        max_model_len=100_000,
        kv_blocks=50_000,
        prefix_caching=False,
        async_scheduling=False,
    )
    tables = uniform_tables(step_s=STEP_S, max_tokens=64, max_sequences=servers)
    return simulate_serving(tables, requests, settings=settings)


def answers(rng: np.random.Generator, *, cv: float, count: int) -> np.ndarray:
    """Answer lengths of mean 100 tokens: all equal, or gamma with a coefficient of variation."""
    if cv == 0:
        return np.full(count, 100)
    return np.maximum(np.rint(rng.gamma(1 / cv**2, 100 * cv**2, count)), 1).astype(np.int64)


@pytest.mark.parametrize(
    ("servers", "cv", "load"),
    [(1, 0.0, 0.7), (1, 1.0, 0.7), (1, 2.0, 0.6), (4, 1.0, 0.7), (16, 1.0, 0.9)],
    ids=["M/D/1", "M/M/1", "M/G/1", "M/M/4", "M/M/16"],
)
def test_event_simulation_is_the_queue_that_theory_describes(servers: int, cv: float, load: float) -> None:
    rng = np.random.default_rng(11)
    waits_s, theory_s = [], []
    for _ in range(10):
        tokens = answers(rng, cv=cv, count=3500)
        result = served_queue(rng, tokens=tokens, servers=servers, load=load)
        waits_s.append(float((result.run.records.admitted_s - result.requests.arrival_s)[350:].mean()))
        # Theory at the moments of what was drawn, so that the interval holds the luck of arrivals only.
        theory_s.append(
            float(
                queue_laws.ggc_wait_mean_s(
                    arrival_rate_per_s=load * servers / (tokens.mean() * STEP_S),
                    service_mean_s=tokens.mean() * STEP_S,
                    servers=servers,
                    service_cv=tokens.std() / tokens.mean(),
                    arrival_cv=1.0,
                )
            )
        )
    low, high = confidence_99(waits_s)
    # Beside others who run, an arrival also waits for the step in flight to end.
    assert low - STEP_S * (servers > 1) <= np.mean(theory_s) <= high


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (8, 0.8), (64, 0.95)])
def test_littles_law_holds_exactly_for_what_was_simulated(servers: int, load: float) -> None:
    """Over a whole run, time-averaged sequences equal the rate times the mean stay, whatever the lengths."""
    rng = np.random.default_rng(5)
    result = served_queue(rng, tokens=answers(rng, cv=1.0, count=3000), servers=servers, load=load)
    records, series = result.run.records, result.run.series
    stays_s = float((records.finish_s - records.admitted_s).sum())
    in_steps_s = float(result.run.usage[:, SEQUENCE_S].sum())
    assert in_steps_s == pytest.approx(stays_s, rel=1e-9)
    assert float(series.batch.sum() * series.width_s) == pytest.approx(stays_s, rel=1e-6)


@pytest.mark.parametrize("servers", [1, 2, 8, 64])
@pytest.mark.parametrize("load", [0.75, 0.9, 0.97])
def test_busy_servers_are_near_erlang_c(servers: int, load: float) -> None:
    near = float(queueing.busy_servers_probability(load=load, servers=servers))
    exact = float(queue_laws.erlang_c(offered_load=load * servers, servers=servers))
    assert near == pytest.approx(exact, abs=0.06)
    if servers == 1:
        assert near == pytest.approx(load)


def test_variance_of_delayed_waits_is_that_of_drawn_ones() -> None:
    rng = np.random.default_rng(1)
    waits_s = np.where(rng.uniform(size=400_000) < 0.3, rng.exponential(2.0, size=400_000), 0.0)
    variance = queueing.delayed_wait_variance(mean_s=waits_s.mean(), probability=0.3)
    assert float(variance) == pytest.approx(waits_s.var(), rel=0.02)


@given(st.floats(1, 500), st.floats(1, 2000), st.floats(1e-3, 0.1), st.floats(0, 1))
def test_arrivals_obey_littles_law(sequences: float, steps: float, decode_s: float, prefill_s: float) -> None:
    rate = float(
        queueing.arrival_rate_per_s(sequences=sequences, decode_steps=steps, decode_s=decode_s, prefill_s=prefill_s)
    )
    load = rate * prefill_s
    assert 0 <= load < 1
    # A step is longer by what prompts take of the time; who decodes stays for all of its steps.
    assert rate * steps * decode_s / (1 - load) == pytest.approx(sequences, rel=1e-6)
    more = queueing.arrival_rate_per_s(
        sequences=2 * sequences, decode_steps=steps, decode_s=decode_s, prefill_s=prefill_s
    )
    assert float(more) >= rate
