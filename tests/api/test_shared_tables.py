"""Lines that share a deployment share its step tables, and answer what each would have answered alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.api.scenarios import simulate_line
from simulator.phases import tabulate

LOOP = {"kind": "closed_loop", "concurrency": 8, "isl_tokens": 300, "osl_tokens": 40}
LOAD = {"stages": [{"rate_per_s": 4, "duration_s": 10}], "question_tokens": 300, "osl_tokens": 40}
SCENARIOS: dict[str, dict[str, Any]] = {
    "served": {"kind": "serve", "workload": LOAD},
    "pipeline": {"kind": "serve", "workload": LOAD, "pp_size": 2},
    "loop": LOOP,
    "offline": {"kind": "offline", "isl_tokens": 300, "osl_tokens": 40},
    "ranks sharing experts": {**LOOP, "model": "qwen3-30b-a3b", "dp_size": 2, "ep_size": 2},
    "drafted": {**LOOP, "techniques": {"speculation": {"method": "eagle", "k": 3, "acceptance": 0.7}}},
    "drafted under load": {
        "kind": "serve",
        "workload": LOAD,
        "techniques": {"speculation": {"method": "ngram", "k": 3, "acceptance": 0.5}},
    },
}


def answered(name: str) -> str:
    given = {"id": name, "model": "llama-3.1-8b", "hardware": "h100", **SCENARIOS[name]}
    result = simulate_line(json.dumps(given), number=1)
    assert "error" not in result, result
    return json.dumps(result)


def forget() -> None:
    for kept in (tabulate._compile, tabulate._compile_stages):
        kept.cache_clear()


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """Each answer with tables of its own."""
    answers = {}
    for name in SCENARIOS:
        forget()
        answers[name] = answered(name)
    return answers


@pytest.mark.slow
def test_an_answer_is_the_same_whoever_asked_before(alone: dict[str, str]) -> None:
    forget()
    for other in reversed(SCENARIOS):
        answered(other)
    made = tabulate._compile.cache_info().misses
    assert {name: answered(name) for name in SCENARIOS} == alone
    assert tabulate._compile.cache_info().misses == made
