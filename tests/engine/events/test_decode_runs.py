"""Runs of decodes in ``simulator.engine.events.steps``: what is skipped at once leaves what its steps leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from simulator.engine.events import scheduler_lists, simulation, steps
from simulator.engine.events.arrays import SimulationRun
from simulator.engine.settings import SchedulerSettings
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
        return bool(scheduler_lists.form(*given))

    skip = scheduler_lists.skip if skips else steps.stay
    scheduler = scheduler_lists.SCHEDULER._replace(form=form, skip=skip)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scheduler_lists, "SCHEDULER", scheduler)
        patched.setattr(simulation, "_walks", lambda *_, **__: False)
        return run(requests, chosen, trace_steps=0), formed


@PROPERTY
@given(demands(), limits())
def test_the_bytes_are_those_of_the_steps_one_by_one(requests: Requests, chosen: SchedulerSettings) -> None:
    if not chosen.walks:
        assert bytes_of(served(requests, chosen, skips=True)[0]) == bytes_of(served(requests, chosen, skips=False)[0])


@pytest.mark.parametrize("ahead", [False, True])
def test_few_of_the_steps_of_long_answers_are_formed_one_by_one(ahead: bool) -> None:
    """Three answers of 200 tokens: a handful of steps around each beginning and end."""
    requests = make_requests(
        arrival_s=np.array([0.0, 0.5, 1.0]), prompt_tokens=np.full(3, 20), output_tokens=np.full(3, 200)
    )
    chosen = replace(ROOMY, async_scheduling=ahead)
    (fast, few), (slow, all_steps) = (served(requests, chosen, skips=skips) for skips in (True, False))
    assert fast.steps == slow.steps
    assert all_steps >= slow.steps
    assert few < 60 < 200 < all_steps
    assert bytes_of(fast) == bytes_of(slow)
