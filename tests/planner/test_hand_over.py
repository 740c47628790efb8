"""What a request takes between two pools: counted in TTFT alone, once, and said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.engine.pools import HAND_OVER_S
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.planner.serving import pool_states
from simulator.reports.tables.plan_document import plan_document
from simulator.reports.words.plan_inputs import plan_input
from simulator.specs.base import ValueOrigin
from simulator.specs.question.plan import plan_spec

ASKED: dict[str, Any] = {
    "rate_per_s": 60.0,
    "model": "llama-3.1-8b",
    "hardware": ("h100",),
    "isl_tokens": 1500,
    "osl_tokens": 200,
    "ttft_p95": 5.0,
    "tpot_p95": 0.03,
    "verify": False,
}


def plan(serving: str) -> CapacityPlan:
    return plan_capacity(plan_spec({**ASKED, "serving": (serving,)}))


def said(found: CapacityPlan) -> list[str]:
    return [plan_input(item).value for item in found.assumptions if item.key == "hand_over_s"]


def test_a_plan_of_two_pools_says_it_and_one_of_replicas_does_not() -> None:
    (text,) = said(plan("disaggregated"))
    assert text.startswith(f"{HAND_OVER_S:g} s of every TTFT")
    assert said(plan("aggregated")) == []


def test_it_is_an_assumption_with_its_origin_in_the_document() -> None:
    found = plan("disaggregated")
    (item,) = [item for item in found.assumptions if item.key == "hand_over_s"]
    assert (item.value, item.origin) == (HAND_OVER_S, ValueOrigin.FITTED)
    names = [entry["name"] for entry in json.loads(plan_document(found))["assumptions"]]
    assert names.count("hand-over between pools") == 1


@pytest.mark.parametrize("longer_s", [0.0, 0.4])
def test_where_it_does_not_bind_it_moves_ttft_by_itself_and_nothing_else(
    longer_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = plan("disaggregated").best
    monkeypatch.setattr(pool_states, "HAND_OVER_S", longer_s)
    other = plan("disaggregated").best
    assert (other.label, other.devices, other.replicas) == (usual.label, usual.devices, usual.replicas)
    assert usual.at_peak.ttft_p95_s - other.at_peak.ttft_p95_s == pytest.approx(HAND_OVER_S - longer_s, rel=0.02)
    assert other.at_peak.tpot_p95_s == pytest.approx(usual.at_peak.tpot_p95_s, rel=1e-9)


def test_an_objective_that_it_takes_whole_cannot_be_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """More hand-over never takes fewer devices, and TTFT below it is refused by pools that replicas would serve."""
    tight = {**ASKED, "ttft_p95": 0.4}
    counts = []
    for seconds in (0.0, HAND_OVER_S, 0.25):
        monkeypatch.setattr(pool_states, "HAND_OVER_S", seconds)
        counts.append(plan_capacity(plan_spec({**tight, "serving": ("disaggregated",)})).best.devices)
    assert counts == sorted(counts)
