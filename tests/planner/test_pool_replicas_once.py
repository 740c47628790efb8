"""A replica of a pool is priced once, and asked once what it sustains alone, whatever it is paired with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.engine.lanes.steady_state import Objective
from simulator.planner.search.candidates import candidates, in_pools, platforms
from simulator.planner.search.question import resolve
from simulator.planner.search.usual_search import evaluate_all
from simulator.planner.serving import capacity, disaggregated
from simulator.specs.question.plan import plan_spec


def test_pairs_of_one_search_share_their_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve(plan_spec({"rps": 21, "model": "llama-3.1-8b", "hardware": "h100", "isl": 777, "osl": 111}))
    (platform,) = platforms(asked.spec)
    single = [in_pools(item, profiles=None) for item in candidates(asked.spec, model=asked.model, platform=platform)]
    pairs = [replace(decode, prefill=prefill) for decode in single[:2] for prefill in single[:2]]
    priced: list[str] = []
    for name in ("prefill_replica", "decode_replica"):
        make = getattr(disaggregated, name)

        def counted(candidate: object, made: object = make, **known: object) -> object:
            priced.append(made.__name__)  # type: ignore[attr-defined]
            return made(candidate, **known)  # type: ignore[operator]

        monkeypatch.setattr(disaggregated, name, counted)
    within = capacity.capacity_within

    def asked_alone(*given: object, objectives: tuple[Objective, ...], **known: object) -> object:
        priced.append(objectives[0].metric.name)
        return within(*given, objectives=objectives, **known)  # type: ignore[arg-type]

    monkeypatch.setattr(disaggregated, "capacity_within", asked_alone)
    found = evaluate_all(asked, pairs)
    assert len(found.sized) == 4
    # The link to the larger pool carries more for one of the prompts.
    assert sorted(priced) == ["TPOT"] * 2 + ["TTFT"] * 3 + ["decode_replica"] * 2 + ["prefill_replica"] * 2
    for item, pair in zip(found.sized, pairs, strict=True):
        alone = disaggregated.evaluate_pools(
            pair, model=asked.model, mix=asked.demand.mix, objectives=asked.objectives, policy=asked.policy
        )
        assert not isinstance(alone, disaggregated.Rejection)
        assert item.evaluated.replica.capacity_per_s == alone.replica.capacity_per_s
