"""Accepted runs and rounds: published identities, conservation of tokens, agreement with drawn rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.techniques.speculation import acceptance
from simulator.techniques.speculation.acceptance import (
    any_child_accepted,
    mean_tokens,
    rate_of_mean,
    rounds_at,
    rounds_needed,
    run_distribution,
    schedule_length,
    unfinished,
)

RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).map(np.array)


@given(rates=RATES)
def test_the_accepted_run_is_a_distribution_with_the_stated_mean(rates: np.ndarray) -> None:
    weights = run_distribution(rates)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0).all()
    assert 1 + weights @ np.arange(len(weights)) == pytest.approx(mean_tokens(rates))


@given(rate=st.floats(0.0, 0.999), k=st.integers(1, 12))
def test_one_rate_gives_leviathans_equation_1(rate: float, k: int) -> None:
    assert mean_tokens(np.full(k, rate)) == pytest.approx((1 - rate ** (k + 1)) / (1 - rate))


def test_limits_of_the_rate() -> None:
    assert mean_tokens(np.zeros(4)) == 1
    assert mean_tokens(np.ones(4)) == 5
    # Leviathan et al. 2023, section 3.5: alpha = 0.8 and gamma = 5 yield 3.69 tokens.
    assert mean_tokens(np.full(5, 0.8)) == pytest.approx(3.689, abs=0.001)


@given(rate=st.floats(0.0, 1.0), k=st.integers(1, 16))
def test_the_rate_is_recovered_from_its_mean(rate: float, k: int) -> None:
    tokens = mean_tokens(np.full(k, rate))
    assert mean_tokens(np.full(k, rate_of_mean(tokens, k=k))) == pytest.approx(tokens, rel=1e-9)


def test_several_children_beat_one_and_one_changes_nothing() -> None:
    rates = np.array([0.3, 0.6])
    assert any_child_accepted(rates, children=np.ones(2)) == pytest.approx(rates)
    assert any_child_accepted(rates, children=np.array([2.0, 2.0])) == pytest.approx([0.51, 0.84])


def test_the_schedule_settles_where_one_round_in_three_succeeds() -> None:
    k = schedule_length(2.29)
    rate = (2.29 - 1) / (2.29 - 1 / 3)
    assert rate**k == pytest.approx(1 / 3)
    assert schedule_length(1.0) == 1


@settings(deadline=None)
@given(rates=RATES, tokens=st.integers(1, 120))
def test_rounds_lie_between_all_and_none_accepted(rates: np.ndarray, tokens: int) -> None:
    rounds = rounds_needed(rates, tokens=tokens)
    assert np.ceil(tokens / (len(rates) + 1)) - 1e-9 <= rounds <= tokens + 1e-9
    # Wald: the tokens of all rounds, the cut-off ones included, are mu a round and never fewer than asked for.
    assert rounds * mean_tokens(rates) >= tokens - 1e-6


def test_nothing_accepted_takes_a_round_per_token_and_everything_one_per_block() -> None:
    assert rounds_needed(np.zeros(5), tokens=77) == 77
    assert rounds_needed(np.ones(4), tokens=77) == 16
    assert rounds_needed(np.ones(4), tokens=0) == 0
    assert rounds_needed(np.ones(4), tokens=75, sequences=64) == 15


def test_two_tokens_by_hand() -> None:
    # One round with probability a, else two: 2 - a for one sequence, 2 - a^2 for the slower of two.
    rates = np.array([0.25])
    assert rounds_needed(rates, tokens=2) == pytest.approx(1.75)
    assert rounds_needed(rates, tokens=2, sequences=2) == pytest.approx(2 - 0.25**2)


def test_the_slowest_of_more_sequences_needs_no_fewer_rounds() -> None:
    rounds = [rounds_needed(np.array([0.7, 0.6, 0.5]), tokens=100, sequences=count) for count in (1, 2, 8, 64, 512)]
    assert rounds == sorted(rounds)
    assert rounds[-1] <= 100


def test_drawn_rounds_have_the_expected_mean_and_yield_exactly_the_answer() -> None:
    rates, tokens = np.array([0.8, 0.7, 0.5]), 90
    generator = np.random.default_rng(1)
    needed = []
    for _ in range(4000):
        left, rounds = tokens, 0
        while left > 0:
            run = int(np.argmin(np.append(generator.random(3) < rates, False)))
            left -= min(run + 1, left)
            rounds += 1
        assert left == 0
        needed.append(rounds)
    assert rounds_needed(rates, tokens=tokens) == pytest.approx(np.mean(needed), rel=0.01)
    lacking = unfinished(rates, tokens=tokens)
    assert lacking[40] == pytest.approx(np.mean(np.array(needed) > 40), abs=0.03)


def test_quantiles_of_the_rounds_average_to_their_mean() -> None:
    rates = np.array([0.7, 0.6, 0.5, 0.4])
    levels = (np.arange(2000) + 0.5) / 2000
    drawn = rounds_at(rates, tokens=200, levels=levels)
    assert drawn.mean() == pytest.approx(rounds_needed(rates, tokens=200), rel=1e-3)
    assert (np.diff(drawn) >= 0).all()
    assert (rounds_at(np.zeros(3), tokens=50, levels=levels) == 50).all()
    assert (rounds_at(np.ones(3), tokens=50, levels=levels) == 13).all()
    assert (rounds_at(rates, tokens=0, levels=levels) == 0).all()


@pytest.mark.parametrize("sequences", [1, 16])
def test_the_limit_of_long_answers_joins_the_exact_sum(sequences: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rates, levels = np.array([0.8, 0.6, 0.4]), np.array([0.1, 0.5, 0.9])
    exact = rounds_needed(rates, tokens=1500, sequences=sequences)
    drawn = rounds_at(rates, tokens=1500, levels=levels)
    monkeypatch.setattr(acceptance, "EXACT_TOKENS", 1000)
    assert rounds_needed(rates, tokens=1500, sequences=sequences) == pytest.approx(exact, rel=2e-3)
    assert rounds_at(rates, tokens=1500, levels=levels) == pytest.approx(drawn, abs=2)
