"""Recorded sessions of agents in the event simulation: turns wait for answers and tools, and find what was said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simulator.engine.runs.answers import answer
from simulator.errors import RoofcastError
from simulator.planner.demand import read_demand
from simulator.reports.words.fields import note_texts
from simulator.specs.base import validate
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.recorded.importers import import_demand, trace_hits
from simulator.traffic.recorded.traces import read_trace

SESSIONS, TURNS, TOOL_S = 12, 6, 1.5


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """Sessions that begin 2 s apart; each turn adds 1,024 tokens behind a common system prompt of 1,024."""
    lines = []
    for turn in range(TURNS):
        for session in range(SESSIONS):
            own = [100 * (session + 1) + block for block in range(2 * turn + 2)]
            sent = {"timestamp": 2000 * session} if turn == 0 else {"delay": 1000 * TOOL_S}
            said = {"session_id": session, "input_length": 512 * (2 + len(own)), "output_length": 40}
            lines.append(json.dumps({**sent, **said, "hash_ids": [0, 1, *own]}))
    path = tmp_path / "agents.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def scenario(trace: str, **changes: object) -> ScenarioSpec:
    asked = {
        "id": "agents",
        "kind": "serve",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "hardware": "h100",
        "engine": {"name": "vllm", "prefix_caching": True},
        "workload": {"arrival": "trace", "trace": trace},
        **changes,
    }
    return validate(ScenarioSpec, asked, where="test")


def test_prompts_find_what_the_trace_says_that_they_share(recorded: str) -> None:
    records = answer(scenario(recorded)).run.result.run.records
    trace = read_trace(recorded)
    own = trace_hits(trace, cache_tokens=np.inf)
    assert own is not None
    assert records.cached_tokens.sum() / trace.isl_tokens.sum() == pytest.approx(own, rel=0.02)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_turn_is_sent_when_its_tools_are_done(recorded: str, replicas: int) -> None:
    records = answer(scenario(recorded, replicas=replicas)).run.result.run.records
    previous = read_trace(recorded).previous
    assert previous is not None
    later = np.flatnonzero(previous >= 0)
    assert len(later) == SESSIONS * (TURNS - 1)
    np.testing.assert_allclose(records.sent_s[later], records.finish_s[previous[later]] + TOOL_S)


def test_slower_answers_stretch_the_sessions(recorded: str) -> None:
    ends = [answer(scenario(recorded, hardware=name)).run.result.run.records.finish_s.max() for name in ("h100", "l4")]
    assert ends[1] > ends[0] > 2 * (SESSIONS - 1) + TOOL_S * (TURNS - 1)


def test_demand_says_that_times_are_the_earliest(recorded: str) -> None:
    (waits, hits) = note_texts(import_demand(recorded).notes)
    assert waits.startswith("60 of 72 requests are turns that wait for an answer and then 1.5 s for tools")
    assert hits.startswith("prefix hits")


def test_a_plan_refuses_turns_that_wait(recorded: str) -> None:
    with pytest.raises(RoofcastError, match="no rate but") as refused:
        read_demand(validate(PlanSpec, {"trace": recorded}, where="test"))
    assert refused.value.field == "trace"
