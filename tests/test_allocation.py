"""What a long process keeps takes no more than it may."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest

from simulator.allocation import kept_within
from simulator.specs.hardware.calibration import load_arrays


@pytest.mark.parametrize("nested", [False, True])
def test_what_is_kept_takes_no_more_than_it_may(nested: bool) -> None:
    alive: list[weakref.ref[np.ndarray]] = []

    @kept_within(most=100, most_bytes=10_000)
    def made(size: int) -> object:
        array = np.ones(size)
        alive.append(weakref.ref(array))
        return ("a name", (array,)) if nested else array

    for size in [*range(1, 300, 7), 5_000, 3]:
        assert made(size) is made(size)
        assert sum(array.nbytes for each in alive if (array := each()) is not None) <= max(10_000, 8 * size)


def test_arrays_that_ship_are_read_once_whatever_folder_of_ones_own_is_beside_them(tmp_path: Path) -> None:
    shipped = load_arrays("h100-sxm-80gb", library="vllm", group="gemm")
    assert load_arrays("h100-sxm-80gb", library="vllm", group="gemm", profiles=str(tmp_path)) is shipped
