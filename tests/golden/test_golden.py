"""Every figure that the commands print stays what it was; ``python -m tests.golden --write`` stores new ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.golden.answers import table_for
from tests.golden.expected import differences, read_tables, said
from tests.golden.figures import Table, table_of
from tests.golden.questions import GROUPS, Question, questions_of


@cache
def _stored(group: str) -> dict[str, Table]:
    return read_tables(group)


def _cases() -> list[Any]:
    return [
        pytest.param(question, id=f"{group}-{question.name}", marks=() if question.quick else (pytest.mark.slow,))
        for group in GROUPS
        for question in questions_of(group)
    ]


@pytest.mark.parametrize("question", _cases())
def test_figures_are_what_they_were(question: Question) -> None:
    if not question.available:
        pytest.skip("the shared recordings are absent")
    stored = _stored(question.group)
    assert question.name in stored, "no expected table: python -m tests.golden --write stores one"
    lines = differences(stored[question.name], table_for(question))
    assert not lines, said(question.name, lines)


@pytest.mark.parametrize("group", GROUPS)
def test_no_table_is_left_over(group: str) -> None:
    assert set(_stored(group)) <= {question.name for question in questions_of(group)}


def test_a_difference_is_said_with_its_path() -> None:
    before = {"plan": {"devices": 8, "setup": "TP2", "cost": {"per_hour": 24.0}, "note": "any words"}}
    after = {"plan": {"devices": 9, "setup": "TP2", "cost": {"per_day": 24.0}, "note": "other words"}}
    assert differences(table_of(before), table_of(after)) == [
        "plan.devices: expected 8, found 9",
        "plan.cost.per_hour: expected 24.0, found absent",
        "plan.cost.per_day: expected absent, found 24.0",
    ]
    assert not differences({"plan": {"share": 0.1, "fits": True}}, {"plan": {"share": 0.1 + 1e-13, "fits": True}})
    assert differences({"plan": {"fits": True}}, {"plan": {"fits": 1}})


def test_a_change_inside_a_large_list_shows_in_its_digest() -> None:
    fleets: list[dict[str, Any]] = [
        {"hardware": f"card-{place}", "setup": "TP1", **dict.fromkeys("abcdefgh", place)} for place in range(60)
    ]
    changed = [dict(fleet) for fleet in fleets]
    changed[50]["d"] += 1
    lines = differences(table_of({"fleets": fleets}), table_of({"fleets": changed}))
    assert [line.partition(":")[0] for line in lines] == ["fleets#others.d"]
