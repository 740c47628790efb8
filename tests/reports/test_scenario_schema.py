"""The schema takes what the gate takes, and refuses what it refuses by shape alone."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from simulator.errors import RoofcastError
from simulator.reports.formats.scenario_schema import scenario_schema
from simulator.specs.question.scenario import IDLE_FIELDS, REQUIRED_FIELDS, ScenarioSpec
from simulator.specs.question.technique_words import OF_PARTS
from tests.for_every import for_every

LINES = (Path(__file__).parents[1] / "golden" / "scenarios.jsonl").read_text("utf-8").splitlines()
BATCH: dict[str, Any] = {
    "id": 1,
    "kind": "batch",
    "model": "llama-3.1-8b",
    "hardware": "h100",
    "batch_size": 4,
    "isl_tokens": 100,
    "osl_tokens": 10,
}


@cache
def validator() -> jsonschema.Draft202012Validator:
    schema = scenario_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def accepted() -> list[dict[str, Any]]:
    """The golden lines that the gate lets in."""
    found = []
    for line in LINES:
        with suppress(ValueError, RoofcastError):
            scenario = json.loads(line)
            ScenarioSpec.model_validate(scenario)
            found.append(scenario)
    return found


def test_what_the_gate_takes_is_valid() -> None:
    check, scenarios = validator(), accepted()
    assert len(scenarios) > len(LINES) / 2
    for scenario in scenarios:
        refused = [error.message for error in check.iter_errors(scenario)]
        # What its kind lacks or does not use passes the gate and is refused when it is answered.
        idle = set(scenario) & set(IDLE_FIELDS[scenario["kind"]])
        missing = set(REQUIRED_FIELDS[scenario["kind"]]) - set(scenario)
        assert bool(refused) == bool(idle | missing), (scenario["id"], refused)


@pytest.mark.parametrize(
    "change",
    [
        {"techniques": {"kv_policy": "h2o:819"}},
        {"techniques": {"sparsity": "2:4", "speculation": "eagle:k=4", "weight_offload": 0.5}},
        {"engine": "vllm", "precision": "w8a8"},
        {"engine": {"name": "vLLM", "version": 0.11}, "precision": {"weights": "nvfp4"}},
        {"concurrency": None, "precision": None},
    ],
)
def test_short_forms_and_nulls_are_valid(change: dict[str, Any]) -> None:
    validator().validate({**BATCH, **change})


@for_every(
    [
        {"batchsize": 4},
        {"kind": "stream"},
        {"tp_size": 0},
        {"isl_tokens": "many"},
        {"concurrency": 3},
        {"batch_size": None, "kind": "serve"},
        {"techniques": {"sparcity": "2:4"}},
        {"techniques": {"attention": "fast"}},
    ]
)
def test_what_the_gate_refuses_by_shape_is_invalid(change: dict[str, Any]) -> None:
    scenario = {name: value for name, value in {**BATCH, **change}.items() if value is not None}
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(scenario)


def test_fields_have_units_defaults_and_words() -> None:
    schema = scenario_schema()
    assert set(schema["properties"]) == set(ScenarioSpec.model_fields)
    assert schema["properties"]["isl_tokens"]["description"].startswith("[tokens]")
    assert schema["properties"]["ramp_s"]["description"].startswith("[s]")
    assert schema["properties"]["tp_size"]["default"] == 1
    assert {rule["if"]["properties"]["kind"]["const"] for rule in schema["allOf"]} == set(IDLE_FIELDS)
    techniques = schema["$defs"]["TechniquesSpec"]["properties"]
    assert techniques["kv_policy"]["anyOf"][-1]["examples"] == [OF_PARTS["kv_policy"]]
    assert "llama-3.1-8b" in schema["properties"]["model"]["anyOf"][-1]["examples"]
