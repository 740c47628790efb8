"""Runs of decodes (``simulator.engine.events.walk_runs``, ``steps``): what is skipped leaves what its steps leave."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from simulator.engine.events import scheduler_lists, scheduler_walk, simulation, steps
from simulator.engine.events.arrays import SimulationRun
from simulator.engine.settings import SchedulerPolicy, SchedulerSettings, SpeculativeSteps
from simulator.traffic.requests import Requests, make_requests
from tests.engine.events.test_invariants import PROPERTY, bytes_of, demands, limits, run

ROOMY = SchedulerSettings(
    max_num_batched_tokens=48, max_num_seqs=6, max_model_len=256, kv_blocks=400, block_size_tokens=4
)


Kind, Changes = ModuleType, dict[str, Any]
KINDS = (scheduler_lists, scheduler_walk)


def served(requests: Requests, chosen: SchedulerSettings, *, kind: Kind, skips: bool) -> tuple[SimulationRun, int]:
    """A run in Python, and how many of its steps were formed one by one."""
    formed = 0

    def form(*given: object) -> bool:
        nonlocal formed
        formed += 1
        return bool(kind.form(*given))

    scheduler = kind.SCHEDULER._replace(form=form, skip=kind.skip if skips else steps.stay)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kind, "SCHEDULER", scheduler)
        patched.setattr(simulation, "_walks", lambda *_, **__: kind is scheduler_walk)
        return run(requests, chosen, trace_steps=0), formed


@pytest.mark.parametrize("kind", KINDS)
@PROPERTY
@given(demands(), limits())
def test_the_bytes_are_those_of_the_steps_one_by_one(kind: Kind, requests: Requests, chosen: SchedulerSettings) -> None:
    if kind is scheduler_walk or not chosen.walks:
        fast, slow = (served(requests, chosen, kind=kind, skips=skips)[0] for skips in (True, False))
        assert bytes_of(fast) == bytes_of(slow)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (scheduler_lists, {}),
        (scheduler_walk, {"policy": SchedulerPolicy.PREFILL_FIRST}),
        (scheduler_walk, {"policy": SchedulerPolicy.PREFILL_FIRST, "block_size_tokens": 1, "kv_blocks": 1600}),
        (scheduler_walk, {"policy": SchedulerPolicy.GUARANTEED_NO_EVICT}),
        (scheduler_walk, {"speculation": SpeculativeSteps(verify_tokens=3, acceptance=(0.3, 0.2))}),
    ],
)
def test_few_of_the_steps_of_long_answers_are_formed_one_by_one(kind: Kind, other: Changes, ahead: bool) -> None:
    """Three answers of 200 tokens: a handful of steps around each beginning and end."""
    requests = make_requests(
        arrival_s=np.array([0.0, 0.5, 1.0]), prompt_tokens=np.full(3, 20), output_tokens=np.full(3, 200)
    )
    chosen = replace(ROOMY, async_scheduling=ahead, **other)
    (fast, few), (slow, all_steps) = (served(requests, chosen, kind=kind, skips=skips) for skips in (True, False))
    assert fast.steps == slow.steps
    assert all_steps >= slow.steps
    assert few < 60 < 200 < all_steps
    assert bytes_of(fast) == bytes_of(slow)
