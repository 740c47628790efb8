"""A report's studies are computed from the fleets that a plan found; nothing is searched for again."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from pathlib import Path

import pytest

from simulator.api.planning import plan
from simulator.api.reporting import report
from simulator.planner import plan as planning
from simulator.planner.capacity_plan import CapacityPlan, only_asked
from simulator.planner.plan import answered_in_full, completed, is_complete, plan_capacity
from simulator.planner.records import Study
from simulator.planner.search.question import Question
from simulator.planner.search.search import Tried, search
from simulator.planner.studies.asked_for import with_studies
from simulator.planner.studies.growth import Growth
from simulator.reports.answer import dump
from simulator.reports.studies import gather
from simulator.specs.question.plan import plan_spec

FLEET: dict[str, object] = {"model": "llama-3.1-8b", "hardware": "h100", "rps": 50.0}
STUDIES = ("resilience", "growth", "rental", "uncertainty")


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """The questions of every search of a plan."""
    found: list[Question] = []

    def counted(question: Question) -> Tried:
        found.append(question)
        return search(question)

    monkeypatch.setattr(planning, "search", counted)
    return found


def test_a_study_is_made_once() -> None:
    """And where no fleets within the limits are given, only those of every report are."""
    found = plan_capacity(plan_spec({**FLEET, "rental": True, "pareto": True}))
    basis = found.basis
    assert with_studies(found, basis.question, shown=basis.shown) == found
    alone = with_studies(replace(found, studies=()), basis.question, shown=basis.shown)
    assert [item.key for item in found.studies] == ["pareto", "rental"]
    assert [item.key for item in alone.studies] == ["rental"]


def differing(one: CapacityPlan, other: CapacityPlan, *, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def studies(plan: CapacityPlan) -> dict[str, Study]:
    return {item.key: item for item in plan.studies if item.key in STUDIES}


def test_a_report_of_a_plan_searches_once(searched: list[Question], tmp_path: Path) -> None:
    answer = plan(model="llama-3.1-8b", hardware="h100", rate_per_s=50)
    assert len(searched) == 1
    assert gather(answer.plan, command="", created="2026-11-21").plan.study(Growth) is not None
    report(answer, out=str(tmp_path / "r"), formats="json")
    assert len(searched) == 1


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"growth": 0.1},
        {"uncertainty": True, "availability": 99.9},
        pytest.param(
            {"hardware": ("h100", "l40s"), "serving": ("aggregated", "disaggregated"), "max_gpus": 64},
            marks=pytest.mark.slow,
        ),
        pytest.param({"pareto": True, "explain_gap": True}, marks=pytest.mark.slow),
    ],
    ids=["plain", "growth", "uncertainty", "pools", "choices"],
)
def test_a_completed_plan_has_the_studies_of_one_that_was_answered_in_full(asked: dict[str, object]) -> None:
    spec = plan_spec({**FLEET, **asked})
    first = plan_capacity(spec)
    found, full = completed(first), answered_in_full(spec)
    assert not is_complete(first)
    assert is_complete(found)
    assert studies(found) == studies(full)
    assert set(studies(found)) == set(STUDIES)
    others = tuple(item.name for item in fields(CapacityPlan) if item.name not in ("studies", "basis"))
    assert differing(found, first, names=others) == []


def test_a_plan_that_lost_its_studies_gets_the_same_again() -> None:
    full = answered_in_full(plan_spec(FLEET))
    again = completed(only_asked(full))
    assert only_asked(full).study(Growth) is None
    assert again == full


def test_what_a_plan_keeps_for_later_is_no_part_of_the_answer() -> None:
    found = plan_capacity(plan_spec(FLEET))
    assert "basis" not in repr(found)
    assert "basis" not in dump(found)
    kept = pickle.loads(pickle.dumps(found))
    assert kept == found
    assert studies(completed(kept)) == studies(completed(found))
