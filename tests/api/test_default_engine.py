"""One engine runs whatever a question leaves open, and every answer says so; who names one is not told."""

from __future__ import annotations

from typing import Any

import pytest

import simulator

SAID = "engine.name = vllm (default)"
BATCH: dict[str, Any] = {
    "id": "x", "kind": "batch", "model": "llama-3.1-8b", "hardware": "h100", "batch_size": 4, "isl_tokens": 128,
    "osl_tokens": 16,
}  # fmt: skip


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_step_says_its_engine(phase: str) -> None:
    asked = {"model": "llama-3.1-8b", "hardware": "h100", "phase": phase}
    assert SAID in simulator.step(**asked).to_dict()["assumptions"]
    assert SAID not in simulator.step(**asked, engine="vllm").to_dict()["assumptions"]


def test_a_crossover_says_its_engine() -> None:
    asked = {"model": "llama-3.1-8b", "hardware": "h100", "formats": "bf16,fp8"}
    assert SAID in simulator.crossover(**asked).to_dict()["assumptions"]
    assert f"assumed: {SAID}" in simulator.crossover(**asked).to_text()
    assert SAID not in simulator.crossover(**asked, engine="vllm").to_dict()["assumptions"]


def test_a_scenario_says_its_engine() -> None:
    plain = simulator.simulate(BATCH).to_dict()
    named = simulator.simulate({**BATCH, "engine": {"name": "vllm"}}).to_dict()
    assert SAID in plain["assumptions"]
    assert SAID not in named["assumptions"]
    assert plain["tpot_s"] == named["tpot_s"]


def test_a_plan_says_its_engine() -> None:
    found = simulator.plan(model="llama-3.1-8b", rps=5, hardware=("l40s",)).to_dict()["assumptions"]
    assert {"name": "engine.name", "value": "vllm", "source": "default"} in found
