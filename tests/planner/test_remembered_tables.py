"""Tables of a search that are remembered: another rate is answered as if nothing had been asked before."""

from __future__ import annotations

import pytest

from simulator.planner.plan import plan_capacity
from simulator.planner.search import screened_space
from simulator.specs.question.plan import plan_spec

ASKED = {"model": "llama-3.1-8b", "hardware": ("h100-sxm-80gb", "l40s")}


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screened_space, "_TABLES", {})


@pytest.mark.parametrize(
    "changed", [{"rate_per_s": 90.0}, {"tpot_p95": 0.03}, {"isl_tokens": 3000}, {"weights": "fp8"}]
)
def test_a_second_question_is_answered_as_a_first_one(changed: dict[str, object]) -> None:
    plan_capacity(plan_spec({"rate_per_s": 40.0, **ASKED}))
    second = plan_spec({"rate_per_s": 40.0, **ASKED, **changed})
    after = plan_capacity(second)
    screened_space._TABLES.clear()
    alone = plan_capacity(second)
    assert after.fleets == alone.fleets
    assert after.families == alone.families


def test_plans_that_differ_in_rate_and_bounds_share_their_tables_and_no_others_do() -> None:
    plan_capacity(plan_spec({"rate_per_s": 40.0, **ASKED}))
    first = len(screened_space._TABLES)
    plan_capacity(plan_spec({"rate_per_s": 41.0, "ttft_p95": 0.9, **ASKED}))
    assert len(screened_space._TABLES) == first > 0
    plan_capacity(plan_spec({"rate_per_s": 41.0, "isl_tokens": 999, **ASKED}))
    assert len(screened_space._TABLES) > first


@pytest.mark.slow
def test_so_many_searches_are_kept_and_no_more() -> None:
    for tokens in range(600, 600 + 2 * screened_space._KEPT):
        plan_capacity(
            plan_spec({"rate_per_s": 1.0, "isl_tokens": tokens, "model": "llama-3.1-8b", "hardware": ("l4",)})
        )
    assert len(screened_space._TABLES) == screened_space._KEPT
