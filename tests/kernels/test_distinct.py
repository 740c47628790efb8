"""Products that occur again are priced once, and every case gets its own price back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernels.timing import distinct

SIZES = st.lists(st.tuples(*[st.sampled_from([1.0, 2.0, 8192.0])] * 3), min_size=1, max_size=30)


@given(SIZES)
def test_each_case_finds_itself_and_nothing_is_kept_twice(sizes: list[tuple[float, float, float]]) -> None:
    m, n, k = np.array(sizes).T
    once, cases = distinct(m, n, k)
    assert len(once) == len(set(sizes))
    for column in (m, n, k):
        np.testing.assert_array_equal(column[once][cases], column)
