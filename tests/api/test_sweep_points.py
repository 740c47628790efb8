"""``simulator.api.sweep_points``: a point is asked as it would be alone, and its errors are rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator import simulate
from simulator.api.sweep_points import ANSWER_COLUMNS, ERROR_COLUMNS, PartTask, answer_part, answer_point, check_point
from simulator.api.sweep_points import point_request as request_of
from simulator.errors import RoofcastError
from simulator.specs.question.sweep import SweepPoints, SweepSpec

BASE = {"model": "llama-3.1-8b", "hardware": "h100", "isl_tokens": 64, "osl_tokens": 8}


def sweep(**grid: list[Any]) -> SweepSpec:
    return SweepSpec.model_validate({"ask": "scenario", "base": BASE, "grid": grid})


def answered(spec: SweepSpec, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer_point(request_of(spec, SweepPoints(spec)[number], profiles=None)))
    return found


def test_a_point_is_answered_as_it_is_alone() -> None:
    spec = sweep(batch_size=[1, 8])
    alone = simulate({**BASE, "batch_size": 8}).to_dict()
    row = answered(spec, 1)
    assert set(row) == {column.name for column in ANSWER_COLUMNS["scenario"]}
    assert row["tpot_s"] == alone["tpot_s"]
    assert row["tpot_s.low"] == alone["interval"]["tpot_s"][0]
    assert row["decode.bound"] == alone["decode"]["bound"]
    assert row["ttft_p95_s"] is None, "a batch has no percentiles"


def test_a_refused_point_is_a_row_with_its_error() -> None:
    row = answered(sweep(model=["nobody", "llama-3.1-8b"]), 0)
    assert set(row) == {column.name for column in ERROR_COLUMNS}
    assert "nobody" in row["error.message"]
    assert "tpot_s" in answered(sweep(batch_size=[1, 2]), 0)


def test_a_part_holds_its_points_in_order() -> None:
    spec = sweep(batch_size=[1, 2, 4, 8])
    task = PartTask(number=3, sweep=spec.model_dump_json(), first=1, last=3, profiles=None, timeout_s=None)
    number, rows = answer_part(task)
    assert number == 3
    assert [row["tpot_s"] for row in rows] == [answered(spec, place)["tpot_s"] for place in (1, 2)]


def test_what_makes_no_question_is_refused_before_any_is_answered() -> None:
    spec = sweep(no_such_field=[1, 2])
    with pytest.raises(RoofcastError, match="no_such_field"):
        check_point(spec, SweepPoints(spec)[0])
    good = sweep(batch_size=[1, 2])
    check_point(good, SweepPoints(good)[0])
