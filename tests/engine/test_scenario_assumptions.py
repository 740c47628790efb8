"""What was filled in of a scenario is said once, and what was given is not."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.engine.runs.assumptions import pool_assumptions, scenario_assumptions, scenario_warnings
from simulator.engine.runs.scenario_setup import deployment_of
from simulator.specs.base import ValueOrigin
from simulator.specs.question.scenario import ScenarioSpec

LOOP = {"id": "x", "kind": "closed_loop", "model": "llama-3.1-8b", "hardware": "h100-sxm-80gb", "concurrency": 4}
DEGREES = ("tp_size", "pp_size", "ep_size", "dp_size", "replicas")
FREE = ("seed", "num_requests", "range_ratio")


def keys(**fields: Any) -> list[str]:
    scenario = ScenarioSpec.model_validate({**LOOP, "isl_tokens": 512, "osl_tokens": 64, **fields})
    return [item.key for item in scenario_assumptions(scenario, deployment_of(scenario)) if item.key != "precision"]


def test_what_was_left_out_is_said_and_what_was_given_is_not() -> None:
    said = keys()
    assert {*DEGREES, *FREE} <= set(said)
    assert len(set(said)) == len(said)
    given = keys(**dict.fromkeys(DEGREES, 1), seed=3, num_requests=40, range_ratio=0.5)
    assert not {*DEGREES, *FREE} & set(given)


@pytest.mark.parametrize(("tokens", "warned"), [(512, False), (200_000, True)])
def test_lengths_beyond_the_positions_of_a_model_are_a_warning(tokens: int, warned: bool) -> None:
    scenario = ScenarioSpec.model_validate({**LOOP, "isl_tokens": tokens, "osl_tokens": 64})
    found = scenario_warnings(scenario, deployment_of(scenario), None)
    assert any("131072 positions" in text for text in found) == warned


def test_the_hand_over_between_pools_is_said_to_be_fitted() -> None:
    pools = {"prefill_replicas": 1, "decode_replicas": 2}
    scenario = ScenarioSpec.model_validate({**LOOP, "isl_tokens": 512, "osl_tokens": 64, "disaggregation": pools})
    (found,) = [item for item in pool_assumptions(scenario) if item.key == "disaggregation.hand_over_s"]
    assert found.origin is ValueOrigin.FITTED
