"""Answers of a worker are those of this process, refusals included; one that ends is replaced."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator

import pytest

from app.hosting import work
from app.hosting.workers import LARGEST_WORKER_BYTES, Crew, Receiver, Sender, _answer_all
from simulator.errors import RoofcastError
from simulator.planner.gap.records import GapError
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.scenario import ScenarioSpec
from tests.app.served import ROOT

START_S = 120.0


def _asked(**changed: object) -> PlanSpec:
    return plan_spec({"model": "llama-3.1-8b", "hardware": ("h100-sxm-80gb",), "rate_per_s": 20.0, **changed})


def _ready(crew: Crew) -> Crew:
    until = time.monotonic() + START_S
    while not crew.is_ready():
        assert time.monotonic() < until, "no worker came"
        time.sleep(0.05)
    return crew


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    found = Crew(most=1)
    found.grow()
    yield _ready(found)
    found.end()


def test_a_plan_of_a_worker_is_the_plan_of_this_process(crew: Crew) -> None:
    there, here = crew.ask(work.planned, _asked()), work.planned(_asked())
    assert there.plan.best == here.plan.best
    assert there.verdict == here.verdict
    assert there.ranges == here.ranges
    assert crew.ask(os.getpid) != os.getpid()


def test_a_served_scenario_is_the_same_in_both(crew: Crew) -> None:
    load = {"isl_tokens": 200, "osl_tokens": 20, "stages": [{"rate_per_s": 2.0, "duration_s": 20.0}]}
    fields = {"id": "served", "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100-sxm-80gb", "workload": load}
    scenario = ScenarioSpec.model_validate(fields)
    assert crew.ask(work.served, scenario, None).document == work.served(scenario, None).document


@pytest.mark.slow
def test_a_refusal_is_raised_here_with_all_it_says(crew: Crew) -> None:
    with pytest.raises(GapError) as there:
        crew.ask(work.planned, _asked(rate_per_s=2000.0, max_gpus=2))
    with pytest.raises(GapError) as here:
        work.planned(_asked(rate_per_s=2000.0, max_gpus=2))
    assert str(there.value) == str(here.value)
    assert there.value.hint == here.value.hint
    assert there.value.gap == here.value.gap


def test_too_much_memory_is_refused_and_the_worker_lives(crew: Crew) -> None:
    before = crew.ask(os.getpid)
    with pytest.raises(RoofcastError, match="memory"):
        crew.ask(bytearray, LARGEST_WORKER_BYTES)
    assert crew.ask(os.getpid) == before


@pytest.mark.slow
def test_a_worker_that_ends_is_replaced(crew: Crew) -> None:
    before = crew.ask(os.getpid)
    with pytest.raises(RoofcastError, match="ended"):
        crew.ask(os.kill, before, signal.SIGKILL)
    assert _ready(crew).ask(os.getpid) not in (before, os.getpid())


_TRIED: list[weakref.ref[object]] = []


def _refused() -> None:
    tried = Crew(most=0)
    _TRIED.append(weakref.ref(tried))
    raise RoofcastError("no")


@pytest.mark.slow
def test_a_worker_whose_server_ends_while_it_starts_ends_quietly() -> None:
    command, pipe = (sys.executable, "-m", "app.hosting.workers"), subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.close()
        worker.stdin.close()
        assert worker.stderr.read() == b""
        assert worker.wait(START_S) == 0


def test_a_refusal_that_was_sent_keeps_nothing_of_what_was_tried() -> None:
    questions, answers = io.BytesIO(), Sender(io.BytesIO())
    Sender(questions).send((_refused, (), {}))
    questions.seek(0)
    _answer_all(Receiver(questions), answers)
    gc.collect()
    assert _TRIED.pop()() is None


def test_where_no_process_can_start_this_process_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_words: object, **_named: object) -> None:
        raise OSError("no process is left")

    monkeypatch.setattr(subprocess, "Popen", full)
    assert Crew(most=1, patient=True).ask(os.getpid) == os.getpid()


def test_without_workers_this_process_answers() -> None:
    assert Crew(most=0).ask(os.getpid) == os.getpid()
