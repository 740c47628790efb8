"""Three ways to waste KV memory, on lengths whose answer is known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.published.kv_waste import ALLOCATIONS, Allocation, KvWaste, concurrency, kv_waste, next_power_of_two

ONE = np.ones(1)


def one_request(allocation: str, *, prompt: float = 100, output: float = 200, longest: int = 1024) -> KvWaste:
    return kv_waste(prompt * ONE, output_tokens=output * ONE, allocation=allocation, max_model_len=longest)  # type: ignore[arg-type]


def test_one_request_by_hand() -> None:
    """It holds 200 of its 300 tokens on average."""
    whole = one_request("max_length")
    assert whole.used == pytest.approx(200 / 1024)
    assert whole.reserved == pytest.approx(100 / 1024)
    assert whole.internal == pytest.approx(724 / 1024)
    rounded = one_request("power_of_two")  # 100 + 256, from a piece of 512
    assert rounded.internal == pytest.approx(56 / 512)
    assert rounded.external == pytest.approx(156 / 512)
    known = one_request("oracle")  # 300 from a piece of 512
    assert known.internal == 0
    assert known.external == pytest.approx(212 / 512)
    paged = one_request("paged")
    assert paged.used == pytest.approx(200 / 207.5)
    assert paged.reserved == paged.external == 0


@given(
    prompts=st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    outputs=st.lists(st.integers(1, 1000), min_size=1, max_size=20),
)
def test_shares_add_up_and_better_knowledge_wastes_less(prompts: list[int], outputs: list[int]) -> None:
    count = min(len(prompts), len(outputs))
    prompt = np.array(prompts[:count], dtype=np.float64)
    output = np.array(outputs[:count], dtype=np.float64)
    found = {
        allocation: kv_waste(prompt, output_tokens=output, allocation=allocation, max_model_len=2048)
        for allocation in ALLOCATIONS
    }
    for waste in found.values():
        assert waste.used + waste.reserved + waste.internal + waste.external == pytest.approx(1.0)
    assert found["oracle"].used >= found["power_of_two"].used * (1 - 1e-12)
    assert found["oracle"].used >= found["max_length"].used * (1 - 1e-12)


def test_concurrency_follows_the_slots() -> None:
    capacity = 10_240.0
    assert concurrency(one_request("max_length"), kv_capacity_tokens=capacity) == pytest.approx(10)
    assert concurrency(one_request("paged"), kv_capacity_tokens=capacity) == pytest.approx(10_240 / 207.5)


def test_long_requests_weigh_by_their_time() -> None:
    waste = kv_waste(
        np.array([1.0, 1.0]), output_tokens=np.array([1.0, 999.0]), allocation="oracle", max_model_len=1024
    )
    assert waste.used == pytest.approx((1 * 1.5 / 1000 + 999 / 1000 * 500.5) / (2 * 1 / 1000 + 1024 * 999 / 1000))


def test_smaller_blocks_waste_less() -> None:
    used = [
        kv_waste(
            100 * ONE, output_tokens=200 * ONE, allocation="paged", max_model_len=1024, block_size_tokens=size
        ).used
        for size in (256, 64, 16, 1)
    ]
    assert used == sorted(used)
    assert used[-1] == 1.0
    assert list(next_power_of_two(np.array([1.0, 2.0, 3.0, 1024.0, 1025.0]))) == [1, 2, 4, 1024, 2048]


def test_bad_input_is_refused() -> None:
    with pytest.raises(RoofcastError, match="exceeds max_model_len 256"):
        one_request("paged", longest=256)
    with pytest.raises(RoofcastError, match="allowed: max_length"):
        one_request("slab")


def test_every_way_to_set_cache_aside_wastes_more_than_pages() -> None:
    kinds: tuple[Allocation, ...] = ("paged", "oracle", "power_of_two", "max_length")
    slots = [
        kv_waste(
            np.array([100.0]), output_tokens=np.array([150.0]), allocation=kind, max_model_len=2048
        ).slots_per_request
        for kind in kinds
    ]
    assert slots == sorted(slots)
    assert len(set(slots)) == len(kinds)
