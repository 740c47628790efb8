"""The JSON of a result is its fields: what is left out, put beside or named, and nothing computed on the way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.runs.capacity import sustained_rate
from simulator.engine.runs.metrics import FLAT, ObjectiveCheck
from simulator.errors import RoofcastError
from simulator.kernels.intervals import interval
from simulator.kernels.timing import Provenance
from simulator.reports.answer import dump, error_object, result_object
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.scenario import ScenarioSpec

BATCH = {"id": "x", "kind": "batch", "model": "llama-3.1-8b", "hardware": "h100", "batch_size": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    mean_s: float
    p95_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    ttft: _Times = field(metadata=FLAT)
    rate_per_s: float | None
    known: Provenance
    curve: np.ndarray
    bounds: dict[str, tuple[float, float] | None]
    load: float | None = None
    stages: tuple[_Times, ...] = ()
    run: object = field(metadata={"inside": True})


def _answer(**changes: Any) -> _Answer:
    given: dict[str, Any] = {
        "ttft": _Times(mean_s=0.1, p95_s=nan),
        "rate_per_s": None,
        "known": Provenance.CALIBRATED,
        "curve": np.array([1.0, 2.0]),
        "bounds": {"ttft_s": (0.1, inf), "tpot_s": None},
        "run": object(),
    }
    return _Answer(**{**given, **changes})


def test_fields_become_json_under_their_own_names() -> None:
    assert dump(_answer()) == {
        "ttft_mean_s": 0.1,
        "ttft_p95_s": None,
        "rate_per_s": None,
        "known": "calibrated",
        "curve": [1.0, 2.0],
        "bounds": {"ttft_s": [0.1, None], "tpot_s": None},
    }


def test_a_field_appears_once_it_leaves_its_default() -> None:
    document = dump(_answer(load=0.0, stages=(_Times(mean_s=1.0, p95_s=2.0),)))
    assert document["load"] == 0.0
    assert document["stages"] == [{"mean_s": 1.0, "p95_s": 2.0}]


@pytest.mark.parametrize(("value_s", "shown", "holds"), [(0.5, 0.5, True), (inf, None, False)])
def test_an_objective_is_told_by_its_name_and_bound(value_s: float, shown: float | None, holds: bool) -> None:
    check = ObjectiveCheck(objective=ObjectiveSpec(metric="ttft", percentile=95, bound_s=1.0), value_s=value_s)
    assert dump(check) == {"objective": "ttft_p95", "value_s": shown, "bound_s": 1.0, "holds": holds}


def test_the_document_holds_what_the_result_holds() -> None:
    result = answer(ScenarioSpec.model_validate({**BATCH, "isl_tokens": 512, "osl_tokens": 64}))
    document = result_object(result)
    assert document["id"] == "x"
    assert document["ttft_s"] == result.ttft_s
    assert document["decode"]["step_s"] == result.decode.step_s if result.decode else False
    assert document["memory"]["kv_utilization"] == result.memory.kv_utilization
    assert document["power_w"] == result.power_w
    assert document["energy_per_output_token_j"] * result.output_tokens_per_s == pytest.approx(result.power_w)
    assert not {"run", "deployment", "scenario", "stages", "load", "speculation"} & set(document)
    json.dumps(document, allow_nan=False)


def test_intervals_are_log_normal() -> None:
    bounds = interval(0.2, log_sigma=0.3)
    assert bounds is not None
    assert bounds[0] * bounds[1] == pytest.approx(0.2**2)
    assert interval(nan, log_sigma=0.3) is None


def test_a_refusal_keeps_its_parts_apart() -> None:
    document = error_object(7, RoofcastError("too small", field="tp_size", code="out_of_range", hint="larger"))
    assert document == {
        "id": 7,
        "error": {"code": "out_of_range", "field": "tp_size", "message": "too small", "hint": "larger"},
    }


def test_a_capacity_is_dumped_by_the_same_rules() -> None:
    workload = {"arrival": "poisson", "isl_tokens": 200, "osl_tokens": 20}
    scenario = ScenarioSpec.model_validate(
        {"id": "c", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", "workload": workload}
    )
    bound = ObjectiveSpec(metric="ttft", percentile=95, bound_s=0.4)
    found = sustained_rate(scenario, objectives=(bound,), seeds=2, requests=300)
    document = result_object(found)
    assert document["objectives"] == [{"objective": "ttft_p95", "bound_s": 0.4}]
    held = next(point for point in document["points"] if point["rate_per_s"] == document["rate_per_s"])
    assert held["holds"]
    assert held["objectives"][0]["value_s"] == held["ttft_p95_s"] <= 0.4
    low, high = document["interval"]["rate_per_s"]
    assert low <= document["seed_interval"]["rate_per_s"][0] <= document["rate_per_s"] <= high
    json.dumps(document, allow_nan=False)
