"""``simulator.traffic.reuse``: hits of LRU caches of every size from the distances of one pass."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from simulator.specs.question.workload import ConversationSpec, StageSpec, WorkloadSpec
from simulator.traffic.requests import Ints, RequestRecords, Requests, make_requests
from simulator.traffic.reuse import reuse_fractions
from simulator.traffic.workload_requests import build_requests

BLOCK = 4


def as_they_came(requests: Requests, *, replica: Ints | None = None) -> RequestRecords:
    """Records of requests that are admitted in their order."""
    count = len(requests)
    zeros = np.zeros(count, dtype=np.int64)
    return RequestRecords(
        outcome=zeros,
        admitted_s=np.arange(float(count)),
        first_token_s=np.arange(float(count)),
        finish_s=np.arange(float(count)),
        cached_tokens=zeros,
        preemptions=zeros,
        replica=zeros if replica is None else replica,
    )


def listed(prompts: list[list[int]], *, answer: int = 1) -> Requests:
    """Requests whose prompts are those blocks and one token more."""
    return make_requests(
        arrival_s=np.arange(float(len(prompts))),
        prompt_tokens=np.array([BLOCK * len(ids) + 1 for ids in prompts]),
        output_tokens=np.full(len(prompts), answer),
        prefix_list=np.arange(len(prompts)),
        list_start=np.cumsum([0, *map(len, prompts)]),
        block_ids=np.concatenate([np.array(ids) for ids in prompts]),
    )


def fractions(requests: Requests, *sizes: float) -> list[float]:
    return list(reuse_fractions(requests, as_they_came(requests), block_size_tokens=BLOCK, capacities=np.array(sizes)))


def by_queue(prompts: list[list[int]], size: int) -> float:
    """Share of prompt tokens found in a cache that is kept block by block; the rest of a prompt takes a block too."""
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for number, ids in enumerate(prompts):
        for block in [*ids, -1 - number]:
            hits += block in kept
            kept.pop(block, None)
            kept[block] = None
            if len(kept) > size:
                kept.popitem(last=False)
    return hits * BLOCK / sum(BLOCK * len(ids) + 1 for ids in prompts)


def test_an_endless_cache_holds_what_the_requests_share_and_none_holds_nothing() -> None:
    requests = listed([[0, 1, 2], [0, 1, 3], [4, 5, 6], [0, 1, 2]])
    assert fractions(requests, 0.0, np.inf) == [0.0, pytest.approx((2 + 3) * BLOCK / (4 * (3 * BLOCK + 1)))]


def test_prompts_in_turn_are_found_when_all_of_them_fit_and_not_before() -> None:
    """Five prompts of two blocks and one of their own each: 10 named and the 5 last ones must fit."""
    requests = listed([[2 * item, 2 * item + 1] for item in range(5)] * 8)
    whole = fractions(requests, np.inf)[0]
    assert fractions(requests, 9, 16, 1000) == [0.0, pytest.approx(whole), pytest.approx(whole)]


@pytest.mark.parametrize("seed", range(3))
def test_hits_of_every_size_are_those_of_a_queue(seed: int) -> None:
    """Popularity falls as 1 / rank; within 2 points of a cache that is simulated block by block."""
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, 201)
    drawn = rng.choice(200, size=4000, p=chances / chances.sum())
    prompts = [[2 * int(item), 2 * int(item) + 1] for item in drawn]
    sizes = [3, 10, 30, 100, 300, 2000]
    found = fractions(listed(prompts), *sizes)
    assert found == sorted(found)
    for size, share in zip(sizes, found, strict=True):
        assert share == pytest.approx(by_queue(prompts, size), abs=0.02)


def test_each_replica_has_a_cache_of_its_own() -> None:
    requests = listed([[0, 1]] * 4)
    apart = as_they_came(requests, replica=np.array([0, 1, 0, 1]))
    each = reuse_fractions(requests, apart, block_size_tokens=BLOCK, capacities=np.array([np.inf]))
    assert each[0] == pytest.approx(2 / 3 * fractions(requests, np.inf)[0])


def test_turns_of_a_conversation_find_what_was_said_before() -> None:
    workload = WorkloadSpec(
        stages=(StageSpec(rate_per_s=1.0, duration_s=100.0),),
        question_tokens=100,
        osl_tokens=40,
        conversation=ConversationSpec(turns_mean=4.0),
    )
    requests = build_requests(workload, block_size_tokens=BLOCK)
    said = requests.prompt_tokens - 100
    assert fractions(requests, np.inf)[0] == pytest.approx(said.sum() / requests.prompt_tokens.sum(), abs=0.02)
