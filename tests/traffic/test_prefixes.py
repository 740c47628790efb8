"""``simulator.traffic.requests``: equal ids mean equal content up to and with a block."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.traffic.requests import PrefixLists, grouped_prompts, hashed_prompts

FEW = settings(max_examples=25, deadline=None)
BLOCK = 16


def lists_of(found: PrefixLists) -> list[list[int]]:
    starts = found.list_start
    return [found.block_ids[low:high].tolist() for low, high in itertools.pairwise(starts)]


def common(first: list[int], second: list[int]) -> int:
    """Blocks at the beginning that two prompts share."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


@FEW
@given(groups=st.integers(1, 5), per_group=st.integers(1, 5), system=st.integers(0, 200), question=st.integers(1, 200))
def test_prompts_share_the_full_blocks_of_their_groups_system_prompt(
    groups: int, per_group: int, system: int, question: int
) -> None:
    count = groups * per_group
    found = lists_of(
        grouped_prompts(
            groups=groups,
            prompts_per_group=per_group,
            system_tokens=system,
            prompt_tokens=np.full(count, system + question),
            block_size_tokens=BLOCK,
        )
    )
    assert len(found) == count
    for index, one in enumerate(found):
        assert len(one) == (system + question) // BLOCK
        for place, other in enumerate(found):
            if place == index:
                continue
            expected = system // BLOCK if place // per_group == index // per_group else 0
            assert common(one, other) == expected
            # Beyond what is shared no block is anyone else's.
            assert not set(one[expected:]) & set(other)


@FEW
@given(groups=st.integers(1, 6), system=st.integers(0, 200))
def test_new_questions_leave_one_list_a_group(groups: int, system: int) -> None:
    found = lists_of(
        grouped_prompts(
            groups=groups,
            prompts_per_group=None,
            system_tokens=system,
            prompt_tokens=np.full(9, system + 50),
            block_size_tokens=BLOCK,
        )
    )
    assert [len(one) for one in found] == [system // BLOCK] * groups
    every = [block for one in found for block in one]
    assert len(every) == len(set(every))


def test_the_block_on_the_border_belongs_to_the_question() -> None:
    found = lists_of(
        grouped_prompts(
            groups=1,
            prompts_per_group=2,
            system_tokens=40,  # two blocks and a half
            prompt_tokens=np.array([64, 64]),
            block_size_tokens=BLOCK,
        )
    )
    assert common(*found) == 2
    assert [len(one) for one in found] == [4, 4]


@pytest.mark.parametrize("parts", [1, 2, 8, 32])
def test_a_traces_block_becomes_so_many_of_the_engines(parts: int) -> None:
    found = lists_of(hashed_prompts([[7, 9], [7, 8], [5]], hash_block_tokens=512, block_size_tokens=512 // parts))
    assert [len(one) for one in found] == [2 * parts, 2 * parts, parts]
    assert common(found[0], found[1]) == parts
    assert common(found[0], found[2]) == 0


@FEW
@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=8))
def test_equal_hashes_become_equal_ids_and_different_ones_different(rows: list[list[int]]) -> None:
    found = lists_of(hashed_prompts(rows, hash_block_tokens=16, block_size_tokens=16))
    pairs = {
        (hashed, block) for row, one in zip(rows, found, strict=True) for hashed, block in zip(row, one, strict=True)
    }
    assert len({hashed for hashed, _ in pairs}) == len({block for _, block in pairs}) == len(pairs)


def test_blocks_that_do_not_fit_into_each_other_are_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        hashed_prompts([[1]], hash_block_tokens=512, block_size_tokens=48)
    assert refused.value.field == "engine.block_size_tokens"


def test_no_prompts_no_lists() -> None:
    found = hashed_prompts([], hash_block_tokens=16, block_size_tokens=16)
    assert lists_of(found) == []
    assert len(found.block_ids) == 0
