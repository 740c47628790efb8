"""``simulator.kernels.timing`` and ``simulator.kernels.step_rows``: intervals, spreads, smooth maxima, joined rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernels.intervals import DEVIATE, LEVEL, interval
from simulator.kernels.timing import (
    Provenance,
    Timing,
    distinct,
    join,
    l2_hit_share,
    smooth_maximum,
    split,
    widened,
    without_idle,
)
from simulator.operators.work import ElementwiseShape, Family, GemmShape, MatmulFormat, Work
from simulator.specs.model.precision import Dtype

BF16 = MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16)
POSITIVE = st.floats(1e-9, 1e3)


def timing(*seconds: float, log_sigma: float = 0.1, provenance: Provenance = Provenance.CALIBRATED) -> Timing:
    total = np.array(seconds)
    return Timing(
        seconds=total,
        compute_s=total / 2,
        memory_s=total / 3,
        network_s=np.zeros_like(total),
        tensor_s=total / 2,
        log_sigma=np.full_like(total, log_sigma),
        provenance=np.full_like(total, float(provenance)),
    )


@given(value=POSITIVE, log_sigma=st.floats(0, 2))
def test_an_interval_is_centred_in_log_and_holds_its_value(value: float, log_sigma: float) -> None:
    found = interval(value, log_sigma=log_sigma)
    assert found is not None
    low, high = found
    assert low <= value <= high
    assert low * high == pytest.approx(value**2, rel=1e-9)


def test_a_tenth_lies_on_either_side() -> None:
    assert LEVEL == 0.8
    assert pytest.approx(1.2816, abs=1e-4) == DEVIATE
    draws = np.random.default_rng(0).lognormal(0.0, 0.3, 200_000)
    found = interval(1.0, log_sigma=0.3)
    assert found is not None
    assert np.mean(draws < found[0]) == pytest.approx(0.1, abs=0.003)
    assert np.mean(draws > found[1]) == pytest.approx(0.1, abs=0.003)


def test_what_is_not_known_has_no_interval() -> None:
    assert interval(math.nan, log_sigma=0.1) is None


@given(extra=st.floats(0.01, 1), other=st.floats(0.01, 1))
def test_spreads_add_in_quadrature_in_any_order(extra: float, other: float) -> None:
    first = widened(widened(timing(1.0), log_sigma_extra=extra), log_sigma_extra=other)
    second = widened(widened(timing(1.0), log_sigma_extra=other), log_sigma_extra=extra)
    expected = math.sqrt(0.1**2 + extra**2 + other**2)
    assert first.log_sigma[0] == pytest.approx(expected)
    assert second.log_sigma[0] == pytest.approx(expected)
    assert first.seconds[0] == 1.0


@pytest.mark.parametrize("known", list(Provenance))
def test_what_is_carried_over_is_extrapolated_at_best(known: Provenance) -> None:
    assert widened(timing(1.0, provenance=known), log_sigma_extra=0.2).provenance[0] == max(
        known, Provenance.EXTRAPOLATED
    )


def test_nothing_added_is_the_same_object() -> None:
    price = timing(1.0)
    assert widened(price, log_sigma_extra=0) is price


def test_provenances_are_ordered_from_best_to_worst() -> None:
    assert list(Provenance) == sorted(Provenance)
    assert [item.label for item in Provenance] == ["measured", "calibrated", "extrapolated", "assumed"]


@given(first=POSITIVE, second=POSITIVE, sharpness=st.floats(1, 20))
def test_the_order_of_two_terms_does_not_matter(first: float, second: float, sharpness: float) -> None:
    one = smooth_maximum(np.array([first]), second, sharpness=sharpness)[0]
    other = smooth_maximum(np.array([second]), first, sharpness=sharpness)[0]
    assert one == pytest.approx(other)


@given(term=POSITIVE, sharpness=st.floats(1, 20))
def test_equal_terms_cost_the_root_of_two_more(term: float, sharpness: float) -> None:
    found = smooth_maximum(np.array([term]), term, sharpness=sharpness)[0]
    assert found == pytest.approx(term * 2 ** (1 / sharpness))


@given(first=POSITIVE, second=POSITIVE)
def test_a_sharpness_of_one_is_the_sum(first: float, second: float) -> None:
    assert smooth_maximum(np.array([first]), second, sharpness=1.0)[0] == pytest.approx(first + second)


@given(fill=st.floats(0.01, 0.99), sharpness=st.floats(1, 12))
def test_hits_and_misses_mirror_each_other_about_the_capacity(fill: float, sharpness: float) -> None:
    below = l2_hit_share(np.array([fill]), l2_bytes=1.0, sharpness=sharpness)[0]
    above = l2_hit_share(np.array([1 / fill]), l2_bytes=1.0, sharpness=sharpness)[0]
    assert below + above == pytest.approx(1.0)
    assert above <= 0.5 <= below


def gemm(m: list[float], n: float, k: float) -> GemmShape:
    return GemmShape(m=np.array(m), n=n, k=k, format=BF16)


def test_joined_products_are_end_to_end_and_come_apart_again() -> None:
    shapes = [gemm([1.0, 2.0], 10, 20), gemm([3.0], 30, 40)]
    joined = join(shapes)
    assert joined.m.tolist() == [1, 2, 3]
    assert np.asarray(joined.n).tolist() == [10, 10, 30]
    assert np.asarray(joined.k).tolist() == [20, 20, 40]
    first, second = split(timing(0.1, 0.2, 0.3), sizes=[2, 1])
    assert first.seconds.tolist() == [0.1, 0.2]
    assert second.seconds.tolist() == [0.3]
    assert second.memory_s.tolist() == [pytest.approx(0.1)]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=40))
def test_distinct_products_rebuild_every_case(cases: list[tuple[int, int, int]]) -> None:
    m, n, k = (np.array(column, dtype=float) for column in zip(*cases, strict=True))
    places, back = distinct(m, n, k)
    assert len(places) == len(set(cases))
    for sizes in (m, n, k):
        assert np.array_equal(sizes[places][back], sizes)


def work(moved: list[float]) -> Work:
    each = np.array(moved)
    nothing = np.zeros_like(each)
    return Work(
        name="x",
        family=Family.ELEMENTWISE,
        role="norm",
        shape=ElementwiseShape(bytes=each),
        count=1.0,
        flops=nothing,
        weight_bytes=nothing,
        kv_bytes=nothing,
        activation_bytes=each,
    )


def test_idle_cases_take_no_time_and_have_no_error() -> None:
    price = without_idle(timing(1.0, 2.0), work([0.0, 5.0]))
    assert price.seconds.tolist() == [0.0, 2.0]
    assert price.log_sigma.tolist() == [0.0, 0.1]
    assert price.provenance.tolist() == [0.0, 1.0]


def test_busy_cases_are_left_alone() -> None:
    price = timing(1.0, 2.0)
    assert without_idle(price, work([1.0, 5.0])) is price
