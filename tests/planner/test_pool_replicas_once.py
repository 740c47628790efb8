"""A replica of a pool is priced once, and asked once what it sustains alone, whatever it is paired with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from simulator.operators.work import Work
from simulator.planner.records import Candidate, Platform
from simulator.planner.search import screen_rows, search, usual_search
from simulator.planner.search.candidates import candidates, platforms
from simulator.planner.search.question import resolve
from simulator.planner.search.usual_search import evaluate_all
from simulator.planner.serving import capacity, disaggregated
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import ObjectiveSpec
from tests.for_every import for_every


def test_pairs_of_one_search_share_their_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve(plan_spec({"rps": 21, "model": "llama-3.1-8b", "hardware": "h100", "isl": 777, "osl": 111}))
    (platform,) = platforms(asked.spec)
    single = candidates(asked.spec, model=asked.model, platform=platform)
    pairs = [replace(decode, prefill=prefill) for decode in single[:2] for prefill in single[:2]]
    priced: list[str] = []
    calls: list[int] = []
    prepare = disaggregated.prepare_all

    def counted(tried: Sequence[Candidate], *, prefill_pool: bool, **known: object) -> object:
        calls.append(len(tried))
        priced.extend(["prefill" if prefill_pool else "decode"] * len(tried))
        return prepare(tried, prefill_pool=prefill_pool, **known)  # type: ignore[arg-type]

    monkeypatch.setattr(disaggregated, "prepare_all", counted)
    within = capacity.capacity_within

    def asked_alone(*given: object, objectives: tuple[ObjectiveSpec, ...], **known: object) -> object:
        priced.append(objectives[0].metric.name)
        return within(*given, objectives=objectives, **known)  # type: ignore[arg-type]

    monkeypatch.setattr(disaggregated, "capacity_within", asked_alone)
    found = evaluate_all(asked, pairs)
    assert len(found.sized) == 4
    # Both of either kind in one call.
    assert [count for count in calls if count] == [2, 2]
    # The link to the larger pool carries more for one of the prompts.
    assert sorted(priced) == ["TPOT"] * 2 + ["TTFT"] * 3 + ["decode"] * 2 + ["prefill"] * 2
    for item, pair in zip(found.sized, pairs, strict=True):
        alone = disaggregated.evaluate_pools(
            pair, model=asked.model, mix=asked.demand.mix, objectives=asked.objectives, policy=asked.policy
        )
        assert not isinstance(alone, disaggregated.Rejection)
        assert item.evaluated.replica.capacity_per_s == alone.replica.capacity_per_s
    # Earlier answers ask the same replicas anew, and price none.
    soon = replace(asked, objectives=tuple(item.within(0.6 * item.bound_s) for item in asked.objectives))
    monkeypatch.setattr(disaggregated, "prepare_all", lambda tried, **_: [] if not tried else pytest.fail("priced"))
    for less, more in zip(evaluate_all(soon, pairs).sized, found.sized, strict=True):
        assert less.evaluated.parts[0].replica.capacity_per_s < more.evaluated.parts[0].replica.capacity_per_s


@for_every([{}, {"e2e_p95": "9s"}, {"spares": 3}, {"round_to": "device"}, {"availability": 99.9}])
def test_pairs_that_are_not_worked_out_take_no_less(fields: dict[str, object]) -> None:
    asked = resolve(
        plan_spec({"rps": 90, "model": "qwen3-30b-a3b", "hardware": "h200", "serving": "disaggregated", **fields})
    )
    (platform,) = platforms(asked.spec)
    shown = usual_search.try_pair(asked, platform, platform).sized
    single = candidates(asked.spec, model=asked.model, platform=platform)
    every = evaluate_all(asked, [replace(decode, prefill=prefill) for decode in single for prefill in single]).sized
    assert 0 < len(shown) < len(every)
    assert sorted(item.devices for item in shown) == sorted(item.devices for item in every)[: len(shown)]


@pytest.mark.slow
def test_a_search_lists_candidates_and_takes_rows_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve(plan_spec({"rps": 40, "model": "llama-3.1-8b"}))
    listed: list[str] = []
    screens: list[int] = []
    once, taken_apart = usual_search.candidates, screen_rows.DistinctRows._reduced
    contents: list[object] = []

    def counted(spec: object, *, platform: Platform, **known: object) -> object:
        listed.append(platform.hardware.name)
        return once(spec, platform=platform, **known)  # type: ignore[arg-type]

    def reduced(self: screen_rows.DistinctRows, work: Work, *, cases: int) -> screen_rows.DistinctRow:
        contents.append((screen_rows._contents(work), screen_rows._contents(work.shape)))
        return taken_apart(self, work, cases=cases)

    def screened(*given: Any, **known: Any) -> object:
        screens.append(len(given[1]))
        return screen_space(*given, **known)

    screen_space = search.screen_space
    monkeypatch.setattr(usual_search, "candidates", counted)
    monkeypatch.setattr(screen_rows.DistinctRows, "_reduced", reduced)
    monkeypatch.setattr(search, "screen_space", screened)
    search.search(asked)
    kinds = list(dict.fromkeys(listed))
    assert listed[: len(kinds)] == kinds
    assert len(listed) - len(kinds) < len(kinds) / 2  # larger degrees, where all usual are too small
    assert len(screens) > 1
    assert len(contents) == len(set(contents))
