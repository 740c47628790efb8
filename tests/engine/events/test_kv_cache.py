"""``simulator.engine.events.kv_cache``: blocks are conserved, reused in order, found by content."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.events import kv_cache
from simulator.engine.events import state as at
from simulator.engine.settings import CacheTier
from tests.engine.events.one_replica import Parts, lengths, listed, parts, sharing


def held(one: Parts, slot: int) -> list[int]:
    """Blocks of a sequence, first to last."""
    state = one.state
    return [int(state.table[slot, place, at.BLOCK]) for place in range(state.slots[slot, at.SLOT_BLOCKS])]


def begin(one: Parts, slot: int, *, blocks: int, found: int = 0) -> None:
    """Admit request number ``slot`` into the slot of that number and give it ``blocks`` blocks."""
    one.state.slots[slot, at.SLOT_REQUEST] = slot
    kv_cache.seat(one.state, one.limits, slot, found)
    kv_cache.grow(one.state, one.limits, slot, blocks)


class TestLists:
    @settings(max_examples=30, deadline=None)
    @given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=40))
    def test_a_list_is_what_a_plain_list_would_be(self, steps: list[tuple[bool, int]]) -> None:
        nodes, plain = np.repeat(np.arange(7)[:, None], 2, axis=1), list[int]()
        for adds, node in steps:
            if adds and node not in plain:
                kv_cache.append(nodes, 6, node)
                plain.append(node)
            elif not adds:
                kv_cache.unlink(nodes, node)
                plain = [item for item in plain if item != node]
            assert listed(nodes, 6) == plain

    def test_who_is_in_no_list_stays_so(self) -> None:
        nodes = np.repeat(np.arange(3)[:, None], 2, axis=1)
        kv_cache.unlink(nodes, 1)
        assert nodes.tolist() == [[0, 0], [1, 1], [2, 2]]


class TestBlocks:
    def test_unused_blocks_are_handed_out_in_order_and_then_the_one_released_longest_ago(self) -> None:
        one = parts(lengths([20, 20, 20]))
        begin(one, 0, blocks=3)
        begin(one, 1, blocks=5)
        assert (held(one, 0), held(one, 1)) == ([0, 1, 2], [3, 4, 5, 6, 7])
        assert one.state.count[at.FREE_BLOCKS] == 0
        kv_cache.vacate(one.state, 1)
        kv_cache.vacate(one.state, 0)
        # Of one sequence the last block is released first, as vLLM does: beginnings of prompts live longest.
        assert listed(one.state.blocks, 8) == [7, 6, 5, 4, 3, 2, 1, 0]
        begin(one, 2, blocks=2)
        assert held(one, 2) == [7, 6]

    @settings(max_examples=40, deadline=None)
    @given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30))
    def test_many_blocks_at_once_are_those_that_go_one_by_one(self, steps: list[tuple[int, int]]) -> None:
        shared = sharing([16, 16, 16, 16], [[0, 1], [2, 3], [0, 1], [4, 5]])
        both = [parts(shared), parts(shared)]
        for slot, blocks in steps:
            for one, grow, vacate in (
                (both[0], kv_cache.grow_table, kv_cache.vacate),
                (both[1], kv_cache._grow_one_by_one, kv_cache._vacate_one_by_one),
            ):
                state = one.state
                if state.slots[slot, at.SLOT_BLOCKS] > 0:
                    vacate(state, slot)
                elif 0 < blocks <= state.count[at.FREE_BLOCKS]:
                    state.slots[slot, at.SLOT_REQUEST] = slot
                    found, idle = kv_cache.find_prefix(state, one.demand, slot, slot, blocks)
                    if blocks - found + idle <= state.count[at.FREE_BLOCKS]:
                        kv_cache.seat(state, one.limits, slot, found)
                        grow(state, slot, blocks)
                        kv_cache.publish_blocks(state, one.demand, slot, 0, blocks)
            for mine, other in zip(both[0].state, both[1].state, strict=True):
                np.testing.assert_array_equal(mine, other)

    @settings(max_examples=40, deadline=None)
    @given(
        steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30),
        below=st.sampled_from([(), (2,), (5,), (2, 3)]),
    )
    def test_every_block_is_free_or_held_whatever_happens(
        self, steps: list[tuple[int, int]], below: tuple[int, ...]
    ) -> None:
        tiers = tuple(CacheTier(blocks=size, block_load_s=1e-3) for size in below)
        one, running = parts(lengths([16] * 4), tiers=tiers), set[int]()
        state = one.state
        for slot, blocks in steps:
            if slot in running:
                kv_cache.vacate(state, slot)
                running.remove(slot)
            elif blocks <= state.count[at.FREE_BLOCKS]:
                begin(one, slot, blocks=blocks)
                running.add(slot)
            taken = [block for item in running for block in held(one, item)]
            free = [*listed(state.blocks, 8), *range(int(state.count[at.NEVER_USED]), 8)]
            assert sorted(taken + free) == list(range(8))
            assert state.count[at.FREE_BLOCKS] == len(free)
            assert sorted(state.running[at.ORDER, : state.count[at.RUNNING]]) == sorted(running)

    def test_a_shared_block_is_free_when_its_last_holder_leaves(self) -> None:
        one = parts(sharing([12, 12], [[0, 1], [0, 1]]))
        begin(one, 0, blocks=3)
        kv_cache.publish_blocks(one.state, one.demand, 0, 0, 3)
        assert kv_cache.find_prefix(one.state, one.demand, 1, 1, 2) == (2, 0)
        begin(one, 1, blocks=3, found=2)
        assert held(one, 1) == [0, 1, 3]
        assert one.state.slots[1, at.SLOT_COMPUTED] == 8
        assert one.state.count[at.FREE_BLOCKS] == 4
        kv_cache.vacate(one.state, 0)
        assert one.state.count[at.FREE_BLOCKS] == 5
        kv_cache.vacate(one.state, 1)
        assert one.state.count[at.FREE_BLOCKS] == 8


class TestPrefixCache:
    def test_only_full_blocks_of_known_content_are_published(self) -> None:
        one = parts(sharing([16, 16], [[4, 5], [4, 9]]))
        begin(one, 0, blocks=4)
        kv_cache.publish_blocks(one.state, one.demand, 0, 0, 4)
        assert one.state.holder[at.ON_DEVICE].tolist() == [-1, -1, -1, -1, 0, 1, -1, -1, -1, -1]
        assert kv_cache.find_prefix(one.state, one.demand, 1, 1, 3) == (1, 0)

    def test_a_prompt_without_a_list_shares_nothing(self) -> None:
        one = parts(lengths([16]))
        begin(one, 0, blocks=4)
        kv_cache.publish_blocks(one.state, one.demand, 0, 0, 4)
        assert kv_cache.listed_blocks(one.demand, 0) == (0, 0)
        assert kv_cache.find_prefix(one.state, one.demand, 0, 1, 4) == (0, 0)

    def test_released_blocks_are_found_until_they_are_handed_out_again(self) -> None:
        one = parts(sharing([16, 16], [[0, 1, 2], [0, 1, 2]]))
        begin(one, 0, blocks=4)
        kv_cache.publish_blocks(one.state, one.demand, 0, 0, 3)
        kv_cache.vacate(one.state, 0)
        assert kv_cache.find_prefix(one.state, one.demand, 1, 1, 4) == (3, 3)
        assert kv_cache.find_prefix(one.state, one.demand, 1, 1, 2) == (2, 2)
        # Four blocks that nobody has had, the one without content, and then the third of the prompt.
        for _ in range(6):
            kv_cache.take_block(one.state)
        assert kv_cache.find_prefix(one.state, one.demand, 1, 1, 4) == (2, 2)

    def test_a_preempted_sequence_finds_its_own_blocks_by_their_stamps(self) -> None:
        one = parts(lengths([16]))
        begin(one, 0, blocks=4)
        kv_cache.remember_blocks(one.state, 0, 3)
        kv_cache.vacate(one.state, 0)
        assert kv_cache.find_prefix(one.state, one.demand, 0, 0, 4) == (3, 3)
        for _ in range(4 + 2):
            kv_cache.take_block(one.state)
        # The last block went first and was not remembered; then the third: two are left.
        assert kv_cache.find_prefix(one.state, one.demand, 0, 0, 4) == (2, 2)
