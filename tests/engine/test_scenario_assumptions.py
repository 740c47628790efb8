"""What was filled in of a scenario is said once, and what was given is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.engine.runs.assumptions import pool_assumptions, scenario_assumptions, scenario_warnings
from simulator.engine.runs.scenario_setup import deployment_of, pool_deployments
from simulator.kernels.engine_traits import EngineTraits
from simulator.kernels.timing import Provenance
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, assumed_of_pools
from simulator.phases.step import estimate_step
from simulator.reports.words.fields import note_texts
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
    assert any("131,072 positions" in text for text in note_texts(found)) == warned


def test_the_hand_over_between_pools_is_said_to_be_fitted() -> None:
    pools = {"prefill_replicas": 1, "decode_replicas": 2}
    scenario = ScenarioSpec.model_validate({**LOOP, "isl_tokens": 512, "osl_tokens": 64, "disaggregation": pools})
    (found,) = [item for item in pool_assumptions(scenario) if item.key == "disaggregation.hand_over_s"]
    assert found.origin is ValueOrigin.FITTED


POOLS = {"prefill_replicas": 2, "decode_replicas": 1, "prefill_tp_size": 4, "prefill_max_num_batched_tokens": 4096}


def prompt_s(replica: Deployment) -> float:
    work = prefill_step(sequences=np.array([1.0]), tokens=np.array([8192.0]))
    return float(estimate_step(replica, work).step_s[0])


def at_the_tables_rate(replica: Deployment) -> Deployment:
    traits: EngineTraits = replace(replica.kernels.traits, slower_experts=(), slow_products=())
    return replace(replica, kernels=replace(replica.kernels, traits=traits))


@pytest.mark.parametrize("hardware", ["b200-sxm", "b300-sxm", "gb200", "h200-sxm-141gb", "mi300x", "mi355x"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(("model", "tp_size"), [("deepseek-r1", 8), ("minimax-m2.5", 4), ("llama-3.1-8b", 1)])
def test_a_rate_that_no_table_holds_is_said_exactly_where_it_changes_a_price(
    hardware: str, engine: str, model: str, tp_size: int
) -> None:
    fields = {"model": model, "hardware": hardware, "tp_size": tp_size, "engine": {"name": engine}}
    lengths = {"isl_tokens": 8192, "osl_tokens": 64}
    pools = {"prefill_replicas": 1, "decode_replicas": 1}
    scenario = ScenarioSpec.model_validate(LOOP | fields | lengths | {"disaggregation": pools})
    assert scenario.disaggregation
    for replica in pool_deployments(scenario, scenario.disaggregation):
        said = [item for item in replica.assumptions if item.key in ("engine.slower_experts", "engine.slow_products")]
        assert bool(said) == (prompt_s(replica) > prompt_s(at_the_tables_rate(replica)))
        assert all(item.origin is ValueOrigin.FITTED for item in said)


@pytest.mark.parametrize("hardware", ["h200-sxm-141gb", "mi300x", "mi355x"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("dp_size", [1, 8])
def test_latent_decode_that_nobody_timed_is_said_and_no_step_of_it_is_calibrated(
    hardware: str, engine: str, dp_size: int
) -> None:
    fields = {"model": "deepseek-r1", "hardware": hardware, "engine": {"name": engine}, "ep_size": 8}
    ranks = {"tp_size": 8 // dp_size, "dp_size": dp_size, "isl_tokens": 8192, "osl_tokens": 64}
    replica = deployment_of(ScenarioSpec.model_validate(LOOP | fields | ranks))
    traits = replace(replica.kernels.traits, undivided=None)
    divided = replace(replica, kernels=replace(replica.kernels, traits=traits))
    step = decode_step(sequences=np.array([64.0]), context=np.array([32768.0]))
    told, other = (
        next(row for row in estimate_step(one, step).rows if row.work.name == "decode_attention")
        for one in (replica, divided)
    )
    slower = bool(told.timing.seconds[0] > other.timing.seconds[0])
    assert ("engine.undivided_latent" in {item.key for item in replica.assumptions}) == slower
    assert slower == (engine == "sglang" and hardware != "h200-sxm-141gb" and dp_size == 8)
    assert not slower or told.timing.provenance[0] >= Provenance.EXTRAPOLATED


def test_both_pools_say_what_was_filled_in_and_what_they_share_once() -> None:
    fields = {"model": "deepseek-r1", "hardware": "b200-sxm", "tp_size": 8, "engine": {"name": "sglang"}}
    scenario = ScenarioSpec.model_validate(
        LOOP | fields | {"isl_tokens": 8192, "osl_tokens": 64, "disaggregation": POOLS}
    )
    assert scenario.disaggregation
    prefill, decode = pool_deployments(scenario, scenario.disaggregation)
    said = assumed_of_pools(prefill, decode)
    assert scenario_assumptions(scenario, decode, prefill=prefill)[: len(said)] == said
    for pool, replica in (("prefill", prefill), ("decode", decode)):
        own = [replace(item, pool="") for item in said if item.pool in ("", pool)]
        assert len(own) == len(replica.assumptions)
        assert all(item in own for item in replica.assumptions)
    assert [item.pool for item in said if item.key == "engine.slower_experts"] == ["prefill"]
    assert [item.pool for item in said if item.key == "engine.max_num_batched_tokens"] == ["decode"]
    assert assumed_of_pools(decode, decode) == decode.assumptions
