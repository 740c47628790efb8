"""Tiers of ``simulator.engine.events.kv_cache``: evicted blocks move down, come back over a link, and stand in one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.events import kv_cache
from simulator.engine.events import state as at
from simulator.engine.settings import CacheTier
from simulator.errors import RoofcastError
from simulator.traffic.requests import Requests, make_requests
from tests.engine.events.one_replica import Parts, lengths, listed, parts, sharing
from tests.engine.events.test_kv_cache import begin
from tests.engine.events.test_policies import STEP_S, serve
from tests.engine.events.test_policies import settings as limits_of


def below(one: Parts, request: int, *, found: int = 0, most: int = 8) -> int:
    """Blocks that a request would load; it asks from a slot of its own."""
    return kv_cache.blocks_below(one.state, one.demand, one.limits, request, 2, found, most, 0.0)


class TestOneTier:
    def test_what_the_device_evicts_can_come_back(self) -> None:
        one = parts(sharing([32, 32], [[0, 1], [2, 3]]), tiers=(CacheTier(blocks=4, block_load_s=1e-3),))
        begin(one, 0, blocks=8)
        kv_cache.publish_blocks(one.state, one.demand, 0, 0, 2)
        kv_cache.vacate(one.state, 0)
        assert below(one, 0) == 0
        begin(one, 1, blocks=8)
        assert one.state.holder[at.ON_DEVICE].tolist() == [-1] * 4
        assert below(one, 0) == 2
        assert below(one, 0, found=1) == 1
        assert below(one, 0, most=1) == 1
        assert below(one, 1) == 0

    def test_places_are_kept_whole_or_not_at_all(self) -> None:
        one = parts(lengths([32, 32]), tiers=(CacheTier(blocks=4, block_load_s=1e-3),))
        state = one.state
        kv_cache.pin_places(state, one.limits, 0, 3)
        kv_cache.pin_places(state, one.limits, 1, 2)
        assert state.slots[[0, 1], at.SLOT_PINNED].tolist() == [3, 0]
        assert state.count[at.PINNED] == 3
        assert len(listed(state.places, 4)) == 1
        kv_cache.unpin_places(state, one.limits, 0)
        assert state.count[at.PINNED] == 0
        assert sorted(listed(state.places, 4)) == [0, 1, 2, 3]

    def test_a_tier_without_room_for_a_block_is_refused(self) -> None:
        with pytest.raises(RoofcastError, match="room for 0 blocks"):
            CacheTier(blocks=0, block_load_s=1.0)


def contents(one: Parts) -> list[list[int]]:
    """Contents of each tier, the oldest first, empty places left out."""
    places, heads = one.state.places, len(one.state.places) - len(one.limits.tiers)
    held = [listed(places, heads + tier) for tier in range(len(one.limits.tiers))]
    return [[int(content) for content in places[tier, at.PLACE_CONTENT] if content != at.EMPTY] for tier in held]


class TestSeveral:
    @settings(max_examples=60, deadline=None)
    @given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3), kept=st.lists(st.integers(-1, 6), max_size=30))
    def test_tiers_are_one_stack_cut_by_their_sizes(self, sizes: list[int], kept: list[int]) -> None:
        """Of known and unknown contents: the last kept first, each known one once."""
        tiers = tuple(CacheTier(blocks=size, block_load_s=1e-3) for size in sizes)
        one, stack = parts(sharing([32], [list(range(7))]), tiers=tiers), list[int]()
        for content in kept:
            kv_cache._keep(one.state, one.limits, content)
            stack = [item for item in stack if item != content or content < 0] + [content]
        held = [item for tier in reversed(contents(one)) for item in tier]
        # A block that moves back to the top leaves room where it was, so that what lies under it stays.
        assert held[max(len(held) - sizes[0], 0) :] == stack[-sizes[0] :]
        assert sorted(item for item in held if item >= 0) == sorted({item for item in held if item >= 0})
        for content in range(7):
            assert (one.state.holder[at.BELOW, content] >= 0) == (content in held)
        assert set(held) >= set(stack[-sum(sizes) :])

    def test_loading_stops_where_computing_is_sooner(self) -> None:
        """Two blocks near, two far: those far are computed when they come later than computing takes."""
        near, far = CacheTier(blocks=2, block_load_s=1e-3), CacheTier(blocks=8, block_load_s=1.0)
        one = parts(
            sharing([32], [[0, 1, 2, 3]]), tiers=(near, far), prompt_s=tuple(0.1 * block for block in range(40))
        )
        for content in (3, 2, 1, 0):
            kv_cache._keep(one.state, one.limits, content)
        assert contents(one) == [[1, 0], [3, 2]]
        assert below(one, 0) == 2
        assert one.state.tiers[:, at.COMING_BLOCKS].tolist() == [2, 0]
        assert kv_cache.load(one.state, one.limits, 5.0, True) == pytest.approx(5.002)
        assert one.state.usage[0, at.TIER_BLOCKS :].tolist() == [2, 0, 0]
        # The link is taken now, for longer than computing would take.
        one.state.tiers[0, at.LINK_FREE_S] = 1.0
        assert below(one, 0) == 0

    def test_latency_counts_once_and_leaves_the_link_free(self) -> None:
        tier = CacheTier(blocks=4, block_load_s=1e-3, latency_s=0.5)
        one = parts(sharing([32], [[0, 1]]), tiers=(tier,))
        for content in (1, 0):
            kv_cache._keep(one.state, one.limits, content)
        assert below(one, 0) == 2
        assert kv_cache.load(one.state, one.limits, 0.0, False) == pytest.approx(0.502)
        assert one.state.tiers[0, at.LINK_FREE_S] == pytest.approx(0.002)
        assert one.state.usage.sum() == 0


def rounds(prompts: int, times: int) -> Requests:
    """So many prompts of 4 blocks in turn, one a second."""
    count = prompts * times
    return make_requests(
        arrival_s=np.arange(float(count)),
        prompt_tokens=np.full(count, 17),
        output_tokens=np.ones(count, dtype=int),
        prefix_list=np.arange(count) % prompts,
        list_start=np.arange(prompts + 1) * 4,
        block_ids=np.arange(prompts * 4),
    )


def test_each_tier_gives_what_those_above_have_no_room_for() -> None:
    """Six prompts in turn, LRU: a stack that holds all finds all, one that is too small nothing."""
    requests, limits = rounds(6, 4), limits_of(prefix_caching=True, kv_blocks=8)
    none = serve(requests, limits)
    assert none.records.cached_tokens.sum() == 0
    fast = (CacheTier(blocks=12, block_load_s=1e-4), CacheTier(blocks=40, block_load_s=1e-3))
    run = serve(requests, replace(limits, tiers=fast))
    assert run.records.cached_tokens[6:].tolist() == [16] * 18
    found = run.usage[:, at.TIER_BLOCKS :].sum(axis=0)
    assert found.sum() == 4 * 18
    assert found[1] > 0
    small = serve(requests, replace(limits, tiers=(CacheTier(blocks=4, block_load_s=1e-4),)))
    assert small.records.cached_tokens.sum() == 0
    assert (run.records.first_token_s - requests.arrival_s)[6:].max() < STEP_S * 3


def test_a_tier_that_is_slower_than_computing_changes_nothing() -> None:
    requests, limits = rounds(6, 4), limits_of(prefix_caching=True, kv_blocks=8)
    slow = replace(limits, tiers=(CacheTier(blocks=40, block_load_s=9.0),), prompt_s=tuple(np.arange(99.0).tolist()))
    one, other = serve(requests, replace(slow, tiers=())).records, serve(requests, slow).records
    assert one.first_token_s.tobytes() == other.first_token_s.tobytes()
    assert other.cached_tokens.sum() == 0


class TestShared:
    def test_a_replica_finds_what_another_one_left(self) -> None:
        """Two replicas in turns, six prompts: each comes to the other one the next time."""
        limits = replace(limits_of(prefix_caching=True, kv_blocks=8), replicas=2)
        requests = rounds(5, 4)
        tier = CacheTier(blocks=100, block_load_s=1e-4)
        own, common = (
            serve(requests, replace(limits, tiers=(replace(tier, shared=shared),))) for shared in (False, True)
        )
        assert own.records.cached_tokens[:10].sum() == 0
        assert common.records.cached_tokens[5:].tolist() == [16] * 15
        assert common.usage[:, at.TIER_BLOCKS].sum() > own.usage[:, at.TIER_BLOCKS].sum()
        assert set(common.records.replica.tolist()) == {0, 1}

    def test_one_replica_shares_with_nobody(self) -> None:
        limits = limits_of(prefix_caching=True, kv_blocks=8)
        tier = CacheTier(blocks=100, block_load_s=1e-4)
        one, other = (
            serve(rounds(6, 4), replace(limits, tiers=(replace(tier, shared=shared),))).records
            for shared in (False, True)
        )
        assert one.first_token_s.tobytes() == other.first_token_s.tobytes()
