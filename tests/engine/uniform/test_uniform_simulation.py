"""Equal requests step by step: conservation, hand-made schedules, agreement with closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.uniform.simulation import UniformDemand, UniformLimits, simulate_uniform
from simulator.phases.compiled import uniform_tables

# One second per step whatever it holds: schedules can be counted by hand.
TABLES = uniform_tables(step_s=1.0, max_tokens=4096, max_sequences=512)


def demand(**changes: float) -> UniformDemand:
    base = {"requests": 6, "at_once": 2, "isl_tokens": 10, "osl_tokens": 4}
    return UniformDemand(**{**base, **changes})  # type: ignore[arg-type]


def test_a_batch_that_fits_takes_one_pass_and_a_step_per_further_token() -> None:
    records = simulate_uniform(
        TABLES, demand=demand(requests=4, at_once=4), limits=UniformLimits(resident=8, step_tokens=64)
    )
    np.testing.assert_array_equal(records.first_token_s, 1.0)
    np.testing.assert_array_equal(records.finish_s, 4.0)


def test_prompts_beyond_the_budget_go_in_chunks() -> None:
    # 25 prompt tokens, 10 a step: chunks of 10, 10, 5; the second prompt starts in the rest of the third step.
    records = simulate_uniform(
        TABLES,
        demand=demand(requests=2, at_once=2, isl_tokens=25, osl_tokens=1),
        limits=UniformLimits(resident=2, step_tokens=10),
    )
    np.testing.assert_array_equal(records.first_token_s, [3.0, 5.0])


def test_clients_send_the_next_request_when_one_is_answered() -> None:
    records = simulate_uniform(TABLES, demand=demand(), limits=UniformLimits(resident=2, step_tokens=64))
    np.testing.assert_array_equal(records.sent_s, [0, 0, 4, 4, 8, 8])
    np.testing.assert_array_equal(records.finish_s, [4, 4, 8, 8, 12, 12])


def test_beyond_the_resident_number_requests_wait() -> None:
    records = simulate_uniform(
        TABLES, demand=demand(requests=4, at_once=4), limits=UniformLimits(resident=2, step_tokens=64)
    )
    np.testing.assert_array_equal(np.sort(records.first_token_s), [1.0, 1.0, 5.0, 5.0])


@settings(max_examples=60, deadline=None)
@given(
    requests=st.integers(1, 60),
    at_once=st.integers(1, 60),
    isl=st.integers(1, 200),
    osl=st.integers(1, 20),
    resident=st.integers(1, 40),
    extra=st.integers(1, 100),
)
def test_nothing_is_lost_and_time_only_moves_forward(
    requests: int, at_once: int, isl: int, osl: int, resident: int, extra: int
) -> None:
    records = simulate_uniform(
        TABLES,
        demand=demand(requests=requests, at_once=min(at_once, requests), isl_tokens=isl, osl_tokens=osl, delay_s=0.25),
        limits=UniformLimits(resident=resident, step_tokens=resident + extra),
    )
    assert np.all(records.finish_s > 0)
    assert np.all(records.sent_s < records.first_token_s)
    # Every token after the first takes a step of its own, and a step one second.
    np.testing.assert_array_equal(np.round(records.finish_s - records.first_token_s, 9), osl - 1)
    assert records.steps >= osl


def test_littles_law() -> None:
    records = simulate_uniform(
        TABLES, demand=demand(requests=400, at_once=8), limits=UniformLimits(resident=8, step_tokens=4096)
    )
    rate = 400 / records.finish_s.max()
    assert rate * np.mean(records.finish_s - records.sent_s) == pytest.approx(8)
