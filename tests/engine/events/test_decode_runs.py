"""Runs of decodes (``simulator.engine.events.decodes``, ``steps``): what is skipped leaves what its steps leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from simulator.engine.events import scheduler, simulation, steps
from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.loop import loop_of
from simulator.engine.settings import SchedulerPolicy, SchedulerSettings, SpeculativeSteps
from simulator.traffic.requests import Requests, make_requests
from tests.engine.events.test_invariants import PROPERTY, bytes_of, demands, limits, run

ROOMY = SchedulerSettings(
    max_num_batched_tokens=48, max_num_seqs=6, max_model_len=256, kv_blocks=400, block_size_tokens=4
)


def served(requests: Requests, chosen: SchedulerSettings, *, skips: bool) -> tuple[SimulationRun, int]:
    """A run in Python, and how many of its steps were formed one by one."""
    formed = 0

    def form(*given: object) -> bool:
        nonlocal formed
        formed += 1
        return bool(scheduler.form(*given))

    with pytest.MonkeyPatch.context() as patched:
        chosen_scheduler = scheduler.SCHEDULER._replace(form=form, skip=scheduler.skip if skips else steps.stay)
        patched.setattr(simulation, "event_loop", lambda: loop_of(chosen_scheduler))
        return run(requests, chosen, trace_steps=0), formed


@PROPERTY
@given(demands(), limits())
def test_the_bytes_are_those_of_the_steps_one_by_one(requests: Requests, chosen: SchedulerSettings) -> None:
    fast, slow = (served(requests, chosen, skips=skips)[0] for skips in (True, False))
    assert bytes_of(fast) == bytes_of(slow)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {},
        {"policy": SchedulerPolicy.PREFILL_FIRST},
        {"policy": SchedulerPolicy.PREFILL_FIRST, "block_size_tokens": 1, "kv_blocks": 1600},
        {"policy": SchedulerPolicy.GUARANTEED_NO_EVICT},
        {"speculation": SpeculativeSteps(verify_tokens=3, acceptance=(0.3, 0.2))},
    ],
)
def test_few_of_the_steps_of_long_answers_are_formed_one_by_one(other: dict[str, Any], ahead: bool) -> None:
    """Three answers of 200 tokens: a handful of steps around each beginning and end."""
    requests = make_requests(
        arrival_s=np.array([0.0, 0.5, 1.0]), prompt_tokens=np.full(3, 20), output_tokens=np.full(3, 200)
    )
    chosen = replace(ROOMY, async_scheduling=ahead, **other)
    (fast, few), (slow, all_steps) = (served(requests, chosen, skips=skips) for skips in (True, False))
    assert fast.steps == slow.steps
    assert all_steps >= slow.steps
    assert few < 60 < 200 < all_steps
    assert bytes_of(fast) == bytes_of(slow)
