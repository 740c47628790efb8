"""Three ways to waste KV memory, on lengths whose answer is known by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.published.kv_waste import ALLOCATIONS, WATERMARK, Allocation, KvWaste, kv_waste, sharegpt_waste

SLOTS = 4096
MANY = np.ones(64)


def alike(
    allocation: str,
    *,
    prompt: float = 100,
    output: float = 200,
    longest: int = 1024,
    slots: int = SLOTS,
    block: int = 16,
) -> KvWaste:
    """Requests of one length, which start and end together."""
    return kv_waste(
        prompt * MANY,
        output_tokens=output * MANY,
        allocation=allocation,  # type: ignore[arg-type]
        max_model_len=longest,
        kv_slots=slots,
        block_size_tokens=block,
    )


def test_requests_of_one_length_by_hand() -> None:
    """Each holds 200 of its 300 tokens on average."""
    whole = alike("max_length")
    assert whole.used == pytest.approx(200 / 1024)
    assert whole.reserved == pytest.approx(100 / 1024)
    assert whole.internal == pytest.approx(724 / 1024)
    assert whole.requests == 4
    rounded = alike("power_of_two")  # 100 + 256, from a piece of 512
    assert rounded.internal == pytest.approx(56 / 512)
    assert rounded.external == pytest.approx(156 / 512)
    known = alike("oracle")  # 300 from a piece of 512
    assert known.internal == 0
    assert known.external == pytest.approx(212 / 512)
    assert known.requests == 8
    paged = alike("paged")
    assert paged.used == pytest.approx((1 - WATERMARK) * 200 / 207.5)
    assert paged.reserved == 0
    assert paged.requests == pytest.approx((1 - WATERMARK) * SLOTS / 207.5)


def test_memory_that_holds_no_further_reservation_is_lost() -> None:
    """1,000 tokens beside four pieces of 1,024."""
    assert alike("max_length", slots=SLOTS + 1000).external == pytest.approx(1000 / (SLOTS + 1000))
    assert alike("max_length").external == pytest.approx(0, abs=1e-12)


@given(
    prompts=st.lists(st.integers(1, 1000), min_size=40, max_size=80),
    outputs=st.lists(st.integers(1, 1000), min_size=40, max_size=80),
)
def test_shares_add_up_and_none_is_negative(prompts: list[int], outputs: list[int]) -> None:
    count = min(len(prompts), len(outputs))
    # A thousand steps at the end, so that one turn of the memory is over before the last request enters.
    prompt = np.array([*prompts[:count], *16 * [1000]], dtype=np.float64)
    output = np.array([*outputs[:count], *16 * [1000]], dtype=np.float64)
    for allocation in ALLOCATIONS:
        waste = kv_waste(prompt, output_tokens=output, allocation=allocation, max_model_len=2048, kv_slots=SLOTS)
        shares = (waste.used, waste.reserved, waste.internal, waste.external)
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) >= -1e-9


def test_two_lengths_share_a_memory_by_their_times() -> None:
    """Of 3 tokens and of 1,000 by turns, through one piece of 1,024: after the first, each pair takes 1,001 steps."""
    waste = kv_waste(
        np.ones(40), output_tokens=np.tile([999.0, 2.0], 20), allocation="oracle", max_model_len=1024, kv_slots=1024
    )
    # Seen from the end of the first long request to the start of the last short one: 20 short, 19 long, less one short.
    steps, held = 19 * 1001, 19 * (2 * 2 + 999 * 500.5)
    assert waste.used == pytest.approx(held / steps / 1024)
    assert waste.requests == pytest.approx(1.0)


def test_smaller_blocks_waste_less() -> None:
    used = [alike("paged", block=size).used for size in (256, 64, 16, 1)]
    assert used == sorted(used)
    assert used[-1] == pytest.approx(1.0 - WATERMARK)


def test_bad_input_is_refused() -> None:
    with pytest.raises(RoofcastError, match="exceeds max_model_len 256"):
        alike("paged", longest=256)
    with pytest.raises(RoofcastError, match="allowed: max_length"):
        alike("slab")
    with pytest.raises(RoofcastError, match="1000 tokens hold no request of 1024"):
        alike("oracle", slots=1000)
    with pytest.raises(RoofcastError, match="never fill"):
        alike("oracle", slots=2**20)


def test_every_way_to_set_cache_aside_runs_fewer_requests_than_pages() -> None:
    kinds: tuple[Allocation, ...] = ("max_length", "power_of_two", "oracle", "paged")
    at_once = [sharegpt_waste(kind, max_model_len=2048).requests for kind in kinds]
    assert at_once == sorted(at_once)
    assert len(set(at_once)) == len(kinds)
