"""``simulator.traffic.lengths`` and ``workload_requests``: moments, evenly spread points, requests of a mix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.traffic.lengths import (
    DIMENSIONS,
    LengthDistribution,
    RequestMix,
    normal_points,
    uniform_points,
    whole_lengths,
)
from simulator.traffic.workload_requests import at_rate, mean_rate_per_s, mix_of_requests, requests_of_mix

FEW = settings(max_examples=20, deadline=None)
MEAN, CV = st.floats(2, 5000), st.floats(0.05, 2.0)


def mix(**changes: object) -> RequestMix:
    plain = {"isl": LengthDistribution(mean_tokens=512.0), "osl": LengthDistribution(mean_tokens=128.0)}
    return RequestMix(**{**plain, **changes})  # type: ignore[arg-type]


@FEW
@given(mean=MEAN, cv=CV)
def test_moments_are_those_of_drawn_log_normals(mean: float, cv: float) -> None:
    lengths = LengthDistribution(mean_tokens=mean, cv=cv)
    assert lengths.moment(0) == pytest.approx(1.0)
    assert lengths.moment(1) == pytest.approx(mean)
    variance = lengths.moment(2) - lengths.moment(1) ** 2
    assert np.sqrt(variance) / mean == pytest.approx(cv, rel=1e-6)


def test_third_moment_by_drawing() -> None:
    lengths = LengthDistribution(mean_tokens=300.0, cv=0.5)
    drawn = lengths.at(np.random.default_rng(0).standard_normal(2_000_000))
    assert np.mean(drawn**3) == pytest.approx(lengths.moment(3), rel=0.02)


@FEW
@given(mean=MEAN)
def test_fixed_lengths_do_not_vary(mean: float) -> None:
    lengths = LengthDistribution(mean_tokens=mean)
    assert lengths.at(np.array([-3.0, 0.0, 3.0])).tolist() == pytest.approx([mean] * 3)
    for order in range(4):
        assert lengths.moment(order) == pytest.approx(mean**order)


@FEW
@given(mean=st.floats(1, 3), cv=st.floats(1, 3))
def test_no_length_is_below_one_token(mean: float, cv: float) -> None:
    assert LengthDistribution(mean_tokens=mean, cv=cv).at(np.linspace(-5, 5, 101)).min() >= 1.0


@FEW
@given(share=st.floats(0.01, 0.98), cv=st.floats(0.05, 3.0))
def test_cut_lengths_keep_the_mean_and_end_where_they_must(share: float, cv: float) -> None:
    longest = 4096.0
    lengths = LengthDistribution(mean_tokens=share * longest, cv=cv).within(longest)
    assert lengths.mean_tokens == share * longest
    assert lengths.cv <= cv * (1 + 1e-9)
    assert lengths.moment(0) == pytest.approx(1.0, rel=1e-6)
    assert lengths.moment(1) == pytest.approx(share * longest, rel=1e-6)
    at = lengths.at(np.linspace(-8, 8, 2001))
    assert at.max() <= longest
    assert np.diff(at).min() > -1e-6


@pytest.mark.parametrize(("mean", "cv"), [(120_000.0, 0.96), (60_000.0, 1.31), (9000.0, 2.15)])
def test_moments_of_cut_lengths_by_drawing(mean: float, cv: float) -> None:
    lengths = LengthDistribution(mean_tokens=mean, cv=cv).within(131_072)
    drawn = lengths.at(np.random.default_rng(0).standard_normal(1_000_000))
    assert lengths.uncut_cv == cv
    assert drawn.mean() == pytest.approx(mean, rel=0.005)
    assert drawn.std() / drawn.mean() == pytest.approx(lengths.cv, rel=0.01)
    assert np.mean(drawn**3) == pytest.approx(lengths.moment(3), rel=0.02)
    below = mean / 2
    assert np.mean(drawn < below) == pytest.approx(lengths.partial_moment(0, below=below), abs=0.002)


def test_what_no_context_reaches_is_not_cut() -> None:
    chat = LengthDistribution(mean_tokens=1155.0, cv=0.96)
    within = chat.within(131_072)
    assert within.uncut_cv is None
    assert within.cv == chat.cv
    assert within.moment(2) == chat.moment(2)
    assert within.at(np.array([9.0])) <= 131_072


@pytest.mark.parametrize("mean", [131_072.0, 130_900.0])
def test_requests_as_long_as_the_context_are_equal(mean: float) -> None:
    lengths = LengthDistribution(mean_tokens=mean, cv=0.96).within(131_072)
    assert (lengths.cv, lengths.uncut_cv) == (0.0, 0.96)
    assert lengths.at(np.array([-3.0, 3.0])).tolist() == pytest.approx([mean, mean])


@pytest.mark.parametrize("cv", [1e-300, 1e-170, 1e-160, 1e-12])
@pytest.mark.parametrize("mean", [1.0, 900.0, 5000.0])
def test_a_variation_too_small_to_square_is_none(mean: float, cv: float) -> None:
    lengths = LengthDistribution(mean_tokens=mean, cv=cv)
    for longest in (1000.0, 8192.0):
        cut = lengths.within(longest)
        assert cut.mean_tokens == mean
        assert cut.cv <= cv
        assert cut.at(np.linspace(-8, 8, 17)) == pytest.approx(np.full(17, mean))
    assert lengths.partial_moment(1, below=mean / 2) == pytest.approx(0.0)
    assert lengths.partial_moment(1, below=2 * mean) == pytest.approx(mean)


def test_cutting_again_starts_from_the_whole_distribution() -> None:
    whole = LengthDistribution(mean_tokens=3000.0, cv=1.0)
    assert whole.within(5000).within(9000) == whole.within(9000)


def test_prompt_and_answer_share_the_context() -> None:
    long = mix(isl=LengthDistribution(mean_tokens=3000.0, cv=1.0), osl=LengthDistribution(mean_tokens=500.0, cv=1.5))
    requests = requests_of_mix(long.within(4096), rate_per_s=1.0, count=4000, seed=0)
    assert (requests.prompt_tokens + requests.output_tokens).max() <= 4096
    assert requests.prompt_tokens.mean() == pytest.approx(3000, rel=0.02)
    assert requests.output_tokens.mean() == pytest.approx(500, rel=0.1)


def test_whole_lengths_are_whole_and_keep_the_mean() -> None:
    drawn = whole_lengths(500.0, cv=0.4, count=50_000, rng=np.random.default_rng(1))
    assert np.issubdtype(drawn.dtype, np.integer)
    assert drawn.mean() == pytest.approx(500, rel=0.01)
    assert drawn.std() / drawn.mean() == pytest.approx(0.4, rel=0.02)
    assert set(whole_lengths(500.0, cv=0.0, count=10, rng=np.random.default_rng(1))) == {500}


@pytest.mark.parametrize("count", [64, 256, 1024])
def test_points_are_one_per_cell_in_every_dimension(count: int) -> None:
    points = uniform_points(count)
    assert points.shape == (DIMENSIONS, count)
    for row in points:
        assert np.sort(row) == pytest.approx((np.arange(count) + 0.5) / count)


def test_rows_of_points_are_unrelated() -> None:
    correlation = np.corrcoef(uniform_points(256))
    assert np.abs(correlation - np.eye(DIMENSIONS)).max() < 0.2


def test_an_integral_over_the_points_is_far_closer_than_by_drawing() -> None:
    """The mean of a product of smooth functions over the unit cube."""
    points = uniform_points(256)[:5]
    lattice = np.prod(1 + 0.5 * (points - 0.5), axis=0).mean()
    drawn = np.prod(1 + 0.5 * (np.random.default_rng(0).random((5, 256)) - 0.5), axis=0).mean()
    assert abs(lattice - 1) < 0.2 * abs(drawn - 1)


def test_normal_points_have_the_moments_of_a_normal() -> None:
    points = normal_points(256)
    assert points.mean(axis=1) == pytest.approx(0, abs=1e-9)
    assert points.var(axis=1) == pytest.approx(1, abs=0.02)


@FEW
@given(hit=st.floats(0, 1))
def test_cached_tokens_are_not_computed_and_one_always_is(hit: float) -> None:
    found = mix(prefix_hit_fraction=hit).new_prompt_tokens
    assert found == pytest.approx(max(1.0, 512 * (1 - hit)))


def test_a_decoding_sequence_of_fixed_lengths_is_half_way_through_its_answer() -> None:
    found = mix()
    assert found.decode_steps == 127
    assert found.decode_context_tokens == 512 + 64
    # The age of a sequence met at a random step is uniform: a twelfth of the square of its range.
    assert found.decode_context_variance == pytest.approx(128**2 / 12)


@FEW
@given(cv=st.floats(0, 1.5))
def test_long_answers_are_met_more_often_than_they_are_sent(cv: float) -> None:
    context = mix(osl=LengthDistribution(mean_tokens=128.0, cv=cv)).decode_context_tokens - 512
    assert context == pytest.approx(64 * (1 + cv**2))


@pytest.mark.parametrize("arrival_cv", [0.5, 1.0, 2.0])
def test_requests_of_a_mix_come_as_asked(arrival_cv: float) -> None:
    asked = mix(
        isl=LengthDistribution(mean_tokens=500.0, cv=0.6),
        osl=LengthDistribution(mean_tokens=100.0, cv=0.3),
        arrival_cv=arrival_cv,
    )
    requests = requests_of_mix(asked, rate_per_s=5.0, count=4000, seed=3)
    gaps = np.diff(requests.arrival_s)
    assert mean_rate_per_s(requests) == pytest.approx(5.0, rel=0.1 * arrival_cv)
    assert gaps.std() / gaps.mean() == pytest.approx(arrival_cv, rel=0.1)
    measured = mix_of_requests(requests)
    assert measured.isl.mean_tokens == pytest.approx(500, rel=0.01)
    assert measured.isl.cv == pytest.approx(0.6, rel=0.03)
    assert measured.osl.cv == pytest.approx(0.3, rel=0.03)


def test_lengths_do_not_differ_between_seeds_only_their_order_does() -> None:
    asked = mix(isl=LengthDistribution(mean_tokens=500.0, cv=1.5))
    first, second = (requests_of_mix(asked, rate_per_s=5.0, count=300, seed=seed) for seed in (0, 1))
    assert sorted(first.prompt_tokens) == sorted(second.prompt_tokens)
    assert first.prompt_tokens.tolist() != second.prompt_tokens.tolist()


@pytest.mark.parametrize("rate", [0.5, 2.0, 50.0])
def test_another_rate_stretches_time_and_nothing_else(rate: float) -> None:
    requests = requests_of_mix(mix(), rate_per_s=5.0, count=200, seed=0)
    other = at_rate(requests, rate_per_s=rate)
    assert mean_rate_per_s(other) == pytest.approx(rate)
    ratio = other.arrival_s / requests.arrival_s
    assert ratio == pytest.approx(ratio[0])
    assert np.array_equal(other.prompt_tokens, requests.prompt_tokens)
