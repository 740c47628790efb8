"""``simulator.engine.events.request_life``: queues keep their order, slots are conserved, clients give up in time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.events import kv_cache, steps
from simulator.engine.events import request_life as life
from simulator.engine.events import state as at
from simulator.engine.events.decodes import has_room
from simulator.engine.settings import Routing, SchedulerPolicy
from tests.engine.events.one_replica import Parts, lengths, parts, sharing


def waiting(one: Parts, replica: int = 0) -> list[int]:
    """Requests in the queue of a replica, in its order."""
    found, node = [], int(one.stack.count[replica, at.WAIT_HEAD])
    while node >= 0:
        found.append(node)
        node = int(one.fate.next_waiting[node])
    assert one.stack.count[replica, at.WAIT_TAIL] == (found[-1] if found else -1)
    return found


def route(one: Parts, request: int) -> int:
    return life.route(one.stack, one.demand, one.fate, one.limits, request)


def admit(one: Parts) -> int:
    """Let the next candidate have its slot. Returns the slot, -1 where nobody is admitted."""
    request, slot = life.next_candidate(one.state, one.fate)
    if request >= 0:
        life.take_slot(one.state, one.fate, slot, request, int(one.demand.prompt_tokens[request]), 0, 1.0)
        one.state.slots[slot, at.SLOT_STATUS] = at.PREFILL
    return slot


class TestRouting:
    def test_in_turn_whoever_is_busy(self) -> None:
        one = parts(lengths([8] * 7), replicas=3)
        assert [route(one, request) for request in range(7)] == [0, 1, 2, 0, 1, 2, 0]
        assert waiting(one) == [0, 3, 6]
        assert one.stack.count[:, at.OUTSTANDING].tolist() == [3, 2, 2]

    def test_to_the_least_busy(self) -> None:
        one = parts(lengths([8] * 3), replicas=3, routing=Routing.LEAST_OUTSTANDING)
        one.stack.count[:, at.OUTSTANDING] = [5, 3, 4]
        assert [route(one, request) for request in range(3)] == [1, 1, 2]

    def test_to_the_longest_prefix_and_of_equal_ones_to_the_least_busy(self) -> None:
        one = parts(sharing([16] * 2, [[0, 1], [2, 3]]), replicas=3, routing=Routing.PREFIX_AWARE)
        one.stack.count[:, at.OUTSTANDING] = [1, 9, 2]
        one.stack.holder[1, at.ON_DEVICE, [0, 1]] = [0, 1]
        one.stack.holder[2, at.ON_DEVICE, 0] = 0
        assert route(one, 0) == 1
        assert route(one, 1) == 0

    def test_a_hole_in_a_prefix_ends_it(self) -> None:
        one = parts(sharing([16], [[0, 1, 2]]), replicas=2, routing=Routing.PREFIX_AWARE)
        one.stack.holder[0, at.ON_DEVICE, 0] = 0
        one.stack.holder[1, at.ON_DEVICE, [1, 2]] = [0, 1]
        assert route(one, 0) == 0


class TestQueue:
    def test_first_come_first_admitted_until_the_slots_are_taken(self) -> None:
        one = parts(lengths([8] * 6))
        for request in range(6):
            route(one, request)
        slots = [admit(one) for _ in range(5)]
        assert sorted(slots[:4]) == [0, 1, 2, 3]
        assert slots[4] == -1
        assert one.state.slots[slots[:4], at.SLOT_REQUEST].tolist() == [0, 1, 2, 3]
        assert waiting(one) == [4, 5]
        assert one.state.count[at.FULL] == 1
        assert one.fate.outcome[:6].tolist() == [at.ADMITTED] * 4 + [at.WAITING] * 2
        assert one.fate.admitted_s[:4].tolist() == [1.0] * 4

    def test_a_slot_that_was_left_is_the_next(self) -> None:
        one = parts(lengths([8] * 6))
        for request in range(6):
            route(one, request)
        taken = [admit(one) for _ in range(4)]
        life.free_slot(one.state, taken[2])
        assert admit(one) == taken[2]
        assert life.slot_of(one.state, 4) == taken[2]
        assert life.slot_of(one.state, 2) == -1
        assert life.slot_of(one.state, 5) == -1

    def test_who_gave_up_while_waiting_is_passed_over(self) -> None:
        one = parts(lengths([8] * 3))
        for request in range(3):
            route(one, request)
        one.fate.outcome[[0, 1]] = at.TIMED_OUT
        assert life.next_candidate(one.state, one.fate)[0] == 2
        one.fate.outcome[2] = at.TIMED_OUT
        assert life.next_candidate(one.state, one.fate) == (-1, -1)
        assert waiting(one) == []
        assert route(one, 0) == 0
        assert waiting(one) == [0]

    def test_who_was_thrown_out_comes_first_and_keeps_its_slot(self) -> None:
        one = parts(lengths([8] * 3))
        for request in range(3):
            route(one, request)
        first, second = admit(one), admit(one)
        life.stand_by(one.state, one.fate, second)
        life.stand_by(one.state, one.fate, first)
        assert life.next_candidate(one.state, one.fate) == (0, first)
        assert one.fate.preemptions.tolist() == [1, 1, 0]
        assert one.state.usage[0, at.PREEMPTIONS] == 2
        # A client that gave up meanwhile leaves its slot to others.
        one.state.slots[first, at.SLOT_STATUS] = at.ABORTED
        free = int(one.state.count[at.FREE_SLOTS])
        assert life.next_candidate(one.state, one.fate) == (1, second)
        assert one.state.count[at.FREE_SLOTS] == free + 1
        life.take_slot(one.state, one.fate, second, 1, 8, 0, 2.0)
        assert one.fate.admitted_s[1] == 1.0
        assert life.next_candidate(one.state, one.fate)[0] == 2

    def test_the_longest_cached_prefix_goes_to_the_head(self) -> None:
        one = parts(sharing([16] * 4, [[0, 1], [2, 3], [4, 5], [4, 6]]))
        for request in range(4):
            route(one, request)
        one.state.holder[at.ON_DEVICE, [2, 4, 5]] = [0, 1, 2]
        life.order_by_prefix(one.state, one.demand, one.fate)
        assert waiting(one) == [2, 0, 1, 3]
        one.state.holder[at.ON_DEVICE, 6] = 3
        life.order_by_prefix(one.state, one.demand, one.fate)
        assert waiting(one) == [2, 0, 1, 3], "of equal ones the first stays first"
        one.fate.outcome[2] = at.TIMED_OUT
        life.order_by_prefix(one.state, one.demand, one.fate)
        assert waiting(one) == [3, 2, 0, 1], "the last becomes the first and the tail another"

    def test_a_long_queue_is_left_in_its_order(self) -> None:
        many = life.ORDERED_REQUESTS + 1
        one = parts(sharing([16] * many, [[request] for request in range(many)]))
        for request in range(many):
            route(one, request)
        one.state.holder[at.ON_DEVICE, 1] = 0
        life.order_by_prefix(one.state, one.demand, one.fate)
        assert waiting(one) == list(range(many))


class TestRoom:
    def test_the_watermark_is_left_free(self) -> None:
        one = parts(lengths([8]), watermark_fraction=0.25)
        fits = [has_room(one.state, one.demand, one.limits, 0, 0, blocks, 4 * blocks) for blocks in (5, 6, 7)]
        assert fits == [True, True, False]

    def test_sglang_keeps_room_for_a_share_of_running_answers(self) -> None:
        one = parts(lengths([8, 8], [10, 10]), policy=SchedulerPolicy.PREFILL_FIRST)
        state, ratio = one.state, one.limits.ratio_first
        assert has_room(state, one.demand, one.limits, 1, 1, 8, 32), "an empty engine takes whoever fits"
        state.slots[0, [at.SLOT_REQUEST, at.SLOT_TARGET, at.SLOT_COMPUTED]] = [0, 8, 8]
        kv_cache.seat(state, one.limits, 0, 0)
        state.slots[0, at.SLOT_COMPUTED] = 8
        kv_cache.grow(state, one.limits, 0, 2)
        # 6 blocks of 4 tokens are free; the answer claims ratio x 10, the newcomer's own 10.
        most = next(tokens for tokens in range(24, -1, -1) if tokens + 10 < 24 - 10 * ratio)
        fits = [has_room(state, one.demand, one.limits, 1, 1, -(-tokens // 4), tokens) for tokens in (most, most + 1)]
        assert fits == [True, False]
        assert ratio == 0.7
        assert most == 6


class TestClients:
    def test_patience_counts_from_when_a_request_was_sent(self) -> None:
        one = parts(lengths([8, 100], arrival_s=[1.0, 4.0]), timeout_s=10.0)
        assert [steps.deadline_s(one.demand, one.limits, request) for request in (0, 1)] == [11.0, 14.0]

    def test_the_order_of_the_queue_does_not_move_deadlines(self) -> None:
        # The first takes longer to the queue than the second: it stands behind it.
        one = parts(lengths([100, 4], arrival_s=[1.0, 1.5]), timeout_s=10.0, prompt_token_delay_s=0.1)
        assert one.demand.prompt_tokens.tolist() == [4, 100]
        assert [steps.deadline_s(one.demand, one.limits, place) for place in (0, 1)] == [11.5, 11.0]

    def test_nobody_gives_up_where_no_time_is_set(self) -> None:
        one = parts(lengths([8]))
        one.fate.numbers[at.DISPATCHED] = 1
        assert steps._patient_until_s(one.demand, one.fate, one.limits, 0) == np.inf

    @settings(max_examples=40, deadline=None)
    @given(times=st.lists(st.integers(0, 6), min_size=1, max_size=12))
    def test_follow_ups_are_sent_in_the_order_of_their_times(self, times: list[int]) -> None:
        count = len(times)
        requests = lengths(
            [8] * (2 * count),
            previous=np.concatenate([np.full(count, -1), np.arange(count)]),
            think_s=np.concatenate([np.zeros(count), np.array(times, dtype=np.float64)]),
        )
        one = parts(requests)
        for request in range(count):
            life.push_follow_up(one.demand, one.fate, one.limits, request, 5.0)
        sent = [life.pop_follow_up(one.fate) for _ in range(count)]
        assert [(times[place - count], place) for place in sent] == sorted(
            (time, place + count) for place, time in enumerate(times)
        )
        assert one.fate.numbers[at.HEAP_SIZE] == 0
        assert one.fate.sent_s[count:].tolist() == [5.0 + time for time in times]

    def test_a_turn_follows_the_answer_by_the_time_of_reading_and_has_patience_of_its_own(self) -> None:
        requests = lengths([8, 8], previous=np.array([-1, 0]), think_s=np.array([0.0, 3.0]))
        one = parts(requests, timeout_s=10.0, request_delay_s=0.25)
        route(one, 0)
        slot = admit(one)
        life.finish_request(one.state, one.demand, one.fate, one.limits, slot, 2.0)
        assert one.fate.finish_s[0] == 2.0
        assert one.fate.outcome[0] == at.FINISHED
        assert one.state.count[at.OUTSTANDING] == one.state.count[at.LIVE] == 0
        assert one.fate.sent_s[1] == 5.0
        assert one.fate.heap_s[0] == pytest.approx(5.25)
        assert steps.deadline_s(one.demand, one.limits, 1) == 15.0
