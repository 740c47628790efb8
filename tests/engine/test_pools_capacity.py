"""The highest rate of separate pools: what the smaller pool allows, and what more replicas add."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli.roofcast import app
from simulator.engine.runs.capacity import capacity_by_simulation
from simulator.engine.runs.capacity_search import SimulatedCapacity, workload_source
from simulator.engine.runs.disaggregation import ServedPools, served_pools
from simulator.errors import InfeasibleError
from simulator.phases.deployment import deploy
from simulator.specs.engine.deployment import DisaggregationSpec, ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.workload import WorkloadSpec

DEPLOYMENT = deploy(
    model=load_model("llama-3.1-8b"),
    hardware=load_hardware("h100"),
    parallelism=ParallelismSpec(),
    engine=EngineSpec(max_model_len=8192),
)
SOURCE = workload_source(
    WorkloadSpec(arrival="poisson", isl_tokens=1000, osl_tokens=100, isl_cv=0.5, osl_cv=0.5), block_size_tokens=16
)
TTFT = ObjectiveSpec(metric="ttft", percentile=95, bound_s=0.5)
TPOT = ObjectiveSpec(metric="tpot", percentile=95, bound_s=0.02)


def served(prefill: int, decode: int) -> ServedPools:
    spec = DisaggregationSpec(prefill_replicas=prefill, decode_replicas=decode)
    return served_pools(DEPLOYMENT, DEPLOYMENT, spec=spec, server=None)


@cache
def found(prefill: int, decode: int, *objectives: ObjectiveSpec) -> SimulatedCapacity:
    return capacity_by_simulation(
        served(prefill, decode), source=SOURCE, objectives=objectives or (TTFT, TPOT), seeds=2, requests=800
    )


def test_the_answer_was_seen_to_hold_and_what_is_beyond_it_to_fail() -> None:
    capacity = found(1, 1)
    assert capacity.at_capacity.holds
    assert capacity.rate_per_s < capacity.failing_per_s <= 1.011 * capacity.rate_per_s
    assert capacity.low_per_s <= capacity.rate_per_s <= capacity.high_per_s
    assert capacity.rate_per_s < capacity.saturation_per_s


def test_prompts_bind_until_their_pool_is_larger() -> None:
    one, two = found(1, 2), found(2, 2)
    assert one.binding == TTFT
    # Two prefill replicas carry more than twice as much: less of their time has to stay free for bursts.
    assert two.rate_per_s > 1.9 * one.rate_per_s
    assert found(1, 1).rate_per_s == pytest.approx(one.rate_per_s, rel=0.1)


def test_a_bound_on_tokens_is_held_by_the_decode_pool() -> None:
    strict = ObjectiveSpec(metric="tpot", percentile=95, bound_s=0.0085)
    one, two = found(4, 1, strict), found(4, 2, strict)
    assert one.binding == strict
    assert two.rate_per_s > 1.5 * one.rate_per_s


def test_what_even_idling_misses_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="idle"):
        found(1, 1, ObjectiveSpec(metric="ttft", percentile=95, bound_s=0.001))


def test_slower_steps_carry_less() -> None:
    slow = capacity_by_simulation(
        served(1, 1).at_scale(1.3), source=SOURCE, objectives=(TTFT, TPOT), seeds=2, requests=800
    ).rate_per_s
    assert slow < 0.85 * found(1, 1).rate_per_s


def test_guesses_of_the_decode_pool_carry_more_within_a_tpot() -> None:
    from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec

    guessing = deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        techniques=TechniquesSpec(speculation=SpeculationSpec(method="eagle", k=2, acceptance=0.8)),
        engine=EngineSpec(max_model_len=8192),
    )
    spec = DisaggregationSpec(prefill_replicas=2, decode_replicas=1)
    pools = served_pools(guessing, guessing, spec=spec, server=None)
    tight = ObjectiveSpec(metric="tpot", percentile=95, bound_s=0.008)
    carried = capacity_by_simulation(pools, source=SOURCE, objectives=(tight,), seeds=1, requests=400).rate_per_s
    plain = capacity_by_simulation(served(2, 1), source=SOURCE, objectives=(tight,), seeds=1, requests=400).rate_per_s
    assert carried > 1.2 * plain


def test_from_the_command_line(tmp_path: Path) -> None:
    scenario = {
        "id": "pools",
        "kind": "serve",
        "model": "llama-3.1-8b",
        "hardware": "h100",
        "disaggregation": {"prefill_replicas": 1, "decode_replicas": 2},
        "engine": {"max_model_len": 8192},
        "workload": {"arrival": "poisson", "isl_tokens": 800, "osl_tokens": 50},
    }
    path = tmp_path / "pools.json"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    words = ["capacity", str(path), "--slo", "ttft-p95=500ms", "--seeds", "2", "--requests", "300"]
    text = CliRunner().invoke(app, words)
    assert text.exit_code == 0, text.output
    assert "1 x TP1 h100-sxm-80gb for prompts and 2 x TP1 h100-sxm-80gb for answers" in text.stdout
    assert "first of the pools to fill up saturates" in text.stdout
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert document["id"] == "pools"
    low, high = document["interval"]["rate_per_s"]
    assert low <= document["rate_per_s"] <= high
