"""``simulator.kernels.timing``: what is priced once goes back to every case, and how two limits meet."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernels.timing import Provenance, Timing, distinct, priced_once, smooth_maximum
from simulator.operators.formats.schemes import format_of_pair
from simulator.operators.work import GemmShape
from simulator.specs.model.precision import Dtype

SIZES = st.lists(st.tuples(*(st.sampled_from([16.0, 32.0, 4096.0]) for _ in range(3))), min_size=1, max_size=20)
PLAIN = format_of_pair(Dtype.BF16, None, plain=Dtype.BF16)


def timed(seconds: np.ndarray) -> Timing:
    """A price of which every field but the time is the same."""
    same: dict[str, object] = {
        field.name: np.zeros(len(seconds)) for field in fields(Timing) if field.name != "provenance"
    }
    return Timing(**{**same, "seconds": seconds, "provenance": np.full(len(seconds), int(Provenance.MEASURED))})  # type: ignore[arg-type]


@given(sizes=SIZES)
def test_each_product_has_one_place_and_every_case_its_own(sizes: list[tuple[float, float, float]]) -> None:
    m, n, k = (np.array(column) for column in zip(*sizes, strict=True))
    once, cases = distinct(m, n, k)
    assert len(once) == len(set(sizes))
    assert [sizes[once[case]] for case in cases] == sizes


@given(sizes=SIZES)
def test_equal_products_are_priced_once_and_get_the_same_price(sizes: list[tuple[float, float, float]]) -> None:
    m, n, k = (np.array(column) for column in zip(*sizes, strict=True))
    asked: list[int] = []

    def price(shape: GemmShape) -> Timing:
        asked.append(len(shape.m))
        return timed(np.asarray(shape.m) * 1e-9 + np.asarray(shape.n) * 1e-6 + np.asarray(shape.k) * 1e-3)

    found = priced_once(GemmShape(m=m, n=n, k=k, format=PLAIN), price)  # type: ignore[arg-type]
    assert found is not None
    assert found.seconds == pytest.approx(m * 1e-9 + n * 1e-6 + k * 1e-3)
    assert asked == [len(set(sizes))]


def test_a_price_that_nothing_tells_stays_none() -> None:
    shape = GemmShape(m=np.array([1.0, 1.0]), n=16.0, k=16.0, format=PLAIN)
    assert priced_once(shape, lambda once: None) is None


@given(first=st.floats(1e-6, 1.0), second=st.floats(1e-6, 1.0), sharpness=st.floats(1.0, 20.0))
def test_two_limits_take_at_least_the_larger_and_at_most_both(first: float, second: float, sharpness: float) -> None:
    found = float(smooth_maximum(np.array([first]), np.array([second]), sharpness=sharpness)[0])
    assert max(first, second) <= found * (1 + 1e-12)
    assert found <= (first + second) * (1 + 1e-12)
    assert found == pytest.approx(float(smooth_maximum(np.array([second]), np.array([first]), sharpness=sharpness)[0]))


@given(first=st.floats(1e-6, 1.0), second=st.floats(1e-6, 1.0), low=st.floats(1.0, 5.0), more=st.floats(0.1, 9.0))
def test_a_sharper_corner_is_never_slower(first: float, second: float, low: float, more: float) -> None:
    blunt, sharp = (
        float(smooth_maximum(np.array([first]), np.array([second]), sharpness=one)[0]) for one in (low, low + more)
    )
    assert sharp <= blunt * (1 + 1e-12)


@pytest.mark.parametrize("known", list(Provenance))
def test_a_sum_is_known_as_its_worst_part(known: Provenance) -> None:
    assert known.label == known.name.lower()
    assert max(Provenance.MEASURED, known) is known
    assert Provenance[known.label.upper()] is known
