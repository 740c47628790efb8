"""``simulator.engine.events.columns``: order of the queue, refusals at the door, parts that join to the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.events import columns
from simulator.engine.events import state as at
from simulator.engine.settings import CacheTier, SchedulerPolicy
from simulator.traffic.requests import Outcome
from tests.engine.events.one_replica import SETTINGS, lengths, parts, sharing


def test_requests_that_come_as_they_are_sent_need_no_order() -> None:
    assert columns.queue_order(lengths([50, 4], arrival_s=[0.0, 1.0]), SETTINGS) is None
    late = replace(SETTINGS, request_delay_s=3.0)
    assert columns.queue_order(lengths([50, 4], arrival_s=[0.0, 1.0]), late) is None, "a delay of all changes no order"


def test_long_prompts_are_overtaken_on_the_way_to_the_queue() -> None:
    slow = replace(SETTINGS, prompt_token_delay_s=0.1)
    order = columns.queue_order(lengths([50, 4, 4], arrival_s=[0.0, 1.0, 1.0]), slow)
    assert order is not None
    assert order.tolist() == [1, 2, 0]


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    gap_s=st.sampled_from([0.0, 0.5, 3.0]),
    delay_s=st.sampled_from([0.0, 0.1]),
)
def test_the_queue_is_filled_in_the_order_of_its_times(prompts: list[int], gap_s: float, delay_s: float) -> None:
    slow = replace(SETTINGS, prompt_token_delay_s=delay_s, request_delay_s=0.25)
    requests = lengths(prompts, arrival_s=[gap_s * place for place in range(len(prompts))])
    order = columns.queue_order(requests, slow)
    rows = columns.queue_rows(order, group=0, groups=1)
    ready_s = columns.ready_s(requests.part(rows), slow)
    assert (np.diff(ready_s) >= 0).all()
    assert sorted(ready_s) == pytest.approx(
        sorted(gap_s * place + 0.25 + delay_s * tokens for place, tokens in enumerate(prompts))
    )
    demand = columns.make_demand(requests, slow, rows=rows)
    assert sorted(demand.prompt_tokens) == sorted(prompts)


def test_columns_that_nobody_needs_are_empty() -> None:
    everybody = slice(None)
    demand = columns.make_demand(lengths([8, 8]), SETTINGS, rows=everybody)
    assert [len(getattr(demand, name)) for name in ("prefix", "deadline_s", "think_s", "follower", "sent_s")] == [0] * 5
    assert len(columns.make_demand(lengths([8, 8]), replace(SETTINGS, timeout_s=9.0), rows=everybody).sent_s) == 2
    assert len(columns.make_demand(sharing([8], [[0]]), SETTINGS, rows=everybody).prefix) == 1


def test_follow_ups_stand_at_the_places_of_the_queue() -> None:
    requests = lengths([50, 4, 4], arrival_s=[0.0, 1.0, 1.0], previous=np.array([-1, 0, -1]))
    slow = replace(SETTINGS, prompt_token_delay_s=0.1)
    order = columns.queue_order(requests, slow)
    assert order is not None
    assert order.tolist() == [1, 2, 0]
    assert columns.has_turns(requests)
    assert columns.make_demand(requests, slow, rows=order).follower.tolist() == [-1, -1, 0]
    ready_s = columns.ready_s(requests.part(order), slow)
    assert np.isnan(ready_s).tolist() == [True, False, False], "nobody knows when an answer will have been read"


class TestRefusals:
    @staticmethod
    def outcomes(prompts: list[int], answers: list[int], **limits: object) -> list[Outcome]:
        return [Outcome(outcome) for outcome in parts(lengths(prompts, answers), **limits).fate.outcome]

    def test_longer_than_the_context(self) -> None:
        found = self.outcomes([100, 100], [28, 29], kv_blocks=100)
        assert found == [Outcome.WAITING, Outcome.TOO_LONG]

    def test_more_blocks_than_there_are_above_the_watermark(self) -> None:
        assert self.outcomes([28, 29], [4, 4]) == [Outcome.WAITING, Outcome.TOO_LARGE]
        assert self.outcomes([20, 21], [4, 4], watermark_fraction=0.25) == [Outcome.WAITING, Outcome.TOO_LARGE]

    def test_a_prompt_in_one_piece_has_to_fit_a_step(self) -> None:
        whole = {"chunked_prefill": False, "kv_blocks": 100}
        assert self.outcomes([60, 61], [4, 4], **whole) == [Outcome.WAITING, Outcome.TOO_LONG]
        kept = {**whole, "policy": SchedulerPolicy.GUARANTEED_NO_EVICT}
        assert self.outcomes([61, 64, 65], [4, 4, 4], **kept) == [Outcome.WAITING, Outcome.WAITING, Outcome.TOO_LONG]


def test_host_memory_and_shared_prompts_are_recorded_where_there_are_any() -> None:
    plain = parts(lengths([8]))
    assert len(plain.fate.loaded_s) == len(plain.fate.cached_tokens) == 0
    other = parts(sharing([8], [[0]]), tiers=(CacheTier(blocks=2, block_load_s=0.1),))
    assert len(other.fate.loaded_s) == len(other.fate.cached_tokens) == 1


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("token_delay_s", [0.0, 0.1])
def test_groups_are_parts_of_the_whole_and_join_to_it(groups: int, token_delay_s: float) -> None:
    requests = lengths([50, 4, 10, 11, 12], arrival_s=[0.0, 1.0, 2.0, 3.0, 4.0])
    settings = replace(SETTINGS, prompt_token_delay_s=token_delay_s, timeout_s=100.0)
    order, fate = columns.queue_order(requests, settings), columns.make_fate(requests, settings)
    for group in range(groups):
        rows = columns.queue_rows(order, group=group, groups=groups)
        demand = columns.make_demand(requests, settings, rows=rows)
        part = columns.fate_of_group(fate, demand, settings, group=group, groups=groups)
        assert (np.diff(columns.ready_s(requests.part(rows), settings)) >= 0).all()
        part.outcome[:] = at.FINISHED
        part.finish_s[:] = demand.sent_s + demand.prompt_tokens
        part.replica[:] = group
    records = columns.records_of(requests, fate._asdict(), order=order, groups=groups)
    assert records.finish_s.tolist() == [50.0, 5.0, 12.0, 14.0, 16.0]
    queue = range(5) if order is None else order.tolist()
    assert [int(records.replica[request]) for request in queue] == [place % groups for place in range(5)]
    assert records.sent_s.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert records.cached_tokens.tolist() == [0, 0, 0, 0, 0]


def test_rows_of_a_group_are_those_of_the_queue() -> None:
    for order in (None, np.array([3, 1, 0, 2, 4, 6, 5], dtype=np.int32)):
        queue = np.arange(7) if order is None else order
        rows = columns.queue_rows(order, group=1, groups=3, rows=slice(1, 2))
        assert np.arange(7)[rows].tolist() == [queue[4]]
