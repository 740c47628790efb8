"""What a request and a replica take of memory, and that nothing depends on how much of it there is."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pytest

from simulator.engine.events import simulation
from simulator.engine.events.arrays import state_size
from simulator.engine.events.simulation import simulate_requests
from simulator.engine.runs.metrics import request_columns, serve_result
from simulator.engine.settings import Routing, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.compiled import uniform_tables
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic import requests as traffic
from simulator.traffic.requests import Requests
from simulator.traffic.workload_requests import build_requests
from simulator.units import KIB

LIMITS = SchedulerSettings(
    max_num_batched_tokens=512,
    max_num_seqs=64,
    max_model_len=4096,
    kv_blocks=2000,
    prompt_token_delay_s=1e-4,
    timeout_s=300.0,
)
TABLES = uniform_tables(step_s=0.002, max_tokens=512, max_sequences=64, max_context=4096)
BYTES_OF_A_REQUEST = 85
"""Ten million take 850 MB beside the 150 MB of the process."""


def demand(count: int) -> Requests:
    stage = StageSpec(rate_per_s=100.0, duration_s=count / 100.0)
    drawn = WorkloadSpec(
        arrival="poisson", stages=(stage,), isl_tokens=40, osl_tokens=4, isl_cv=0.8, osl_cv=0.5, timeout_s=300.0
    )
    return build_requests(drawn, block_size_tokens=LIMITS.block_size_tokens)


def peak_bytes(count: int, limits: SchedulerSettings) -> int:
    """Of drawing, serving and summing up."""
    tracemalloc.start()
    try:
        requests = demand(count)
        run = simulate_requests(TABLES, requests=requests, settings=limits)
        serve_result(requests, run, kv_blocks=limits.kv_blocks)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_request_takes_few_bytes() -> None:
    peak_bytes(4_000, LIMITS)  # loads the machine code
    few, many = peak_bytes(50_000, LIMITS), peak_bytes(150_000, LIMITS)
    assert (many - few) / 100_000 < BYTES_OF_A_REQUEST


def test_replicas_that_take_turns_cost_one_and_their_sums() -> None:
    peak_bytes(4_000, LIMITS)
    one, many = (peak_bytes(4_000, replace(LIMITS, replicas=replicas)) for replicas in (1, 300))
    assert many - one < 300 * 30 * KIB


@pytest.mark.parametrize("routing", [Routing.LEAST_OUTSTANDING, Routing.PREFIX_AWARE])
def test_fewer_slots_change_nothing_until_they_are_too_few(routing: Routing, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = demand(900)
    limits = replace(LIMITS, replicas=3, routing=routing)
    plenty = simulate_requests(TABLES, requests=requests, settings=limits)
    longest = int((requests.prompt_tokens + requests.output_tokens).max())
    size = state_size(limits, distinct_blocks=requests.distinct_blocks, longest_tokens=longest)
    for module in (simulation, traffic):
        monkeypatch.setattr(module, "LARGEST_STATE_BYTES", 3 * size.of(slots=30))
    scarce = simulate_requests(TABLES, requests=requests, settings=limits)
    for item in fields(plenty.records):
        np.testing.assert_array_equal(getattr(plenty.records, item.name), getattr(scarce.records, item.name))
    crowded = replace(requests, arrival_s=requests.arrival_s / 1000)
    with pytest.raises(RoofcastError, match="3 replicas of"):
        simulate_requests(TABLES, requests=crowded, settings=limits)


def test_requests_come_in_pieces_as_they_would_at_once() -> None:
    requests = demand(1000)
    run = simulate_requests(TABLES, requests=requests, settings=LIMITS)
    result = serve_result(requests, run, kv_blocks=LIMITS.kv_blocks)
    (whole,) = request_columns(result, rows_at_once=10_000)
    pieces = list(request_columns(result, rows_at_once=300))
    assert len(pieces) == 4
    for place, column in enumerate(whole):
        joined = np.concatenate([piece[place].values for piece in pieces])
        np.testing.assert_array_equal(joined, column.values, err_msg=column.name)
