"""What holds for every run, whatever the demand and the limits (hypothesis draws both)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.engine.events import simulation
from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.compilation import WORTH_COMPILING_REQUESTS
from simulator.engine.events.simulation import event_loop, simulate_requests
from simulator.engine.events.state import (
    SEQUENCE_S,
    TRACE_DECODES,
    TRACE_END_S,
    TRACE_FREE,
    TRACE_PREFILLS,
    TRACE_START_S,
    TRACE_TOKENS,
    TRACE_USED,
    TRACE_WAITING,
)
from simulator.engine.events.warm_up import warm_up
from simulator.engine.runs.serving import scheduler_settings
from simulator.engine.settings import (
    Batching,
    CacheTier,
    QueueOrder,
    Routing,
    SchedulerPolicy,
    SchedulerSettings,
    SpeculativeSteps,
)
from simulator.phases.compiled import uniform_tables
from simulator.phases.deployment import deploy
from simulator.phases.tabulate import compile_steps
from simulator.specs.engine.engine import EngineName, EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.requests import Outcome, Requests, grouped_prompts, make_requests
from simulator.traffic.workload_requests import build_requests

TRACE_STEPS = 20_000
TABLES = uniform_tables(
    step_s=0.01, max_tokens=48, max_sequences=6, per_token_s=1e-4, per_context_token_s=1e-6, max_context=256
)
TIERS = (
    (),
    (CacheTier(blocks=40, block_load_s=1e-3),),
    (CacheTier(blocks=5, block_load_s=1e-3), CacheTier(blocks=40, block_load_s=5e-3, latency_s=2e-3)),
)
PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def demands(draw: st.DrawFn) -> Requests:
    """Up to 60 requests, some at the same moment, of two groups of three prompts or of their own."""
    count = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    lengths = rng.integers(5, 80, size=6)
    lists = grouped_prompts(groups=2, prompts_per_group=3, system_tokens=4, prompt_tokens=lengths, block_size_tokens=4)
    chosen = rng.integers(-1, 6, size=count)
    gaps_s = rng.exponential(draw(st.sampled_from([0.0, 0.02, 0.2])), size=count) * rng.integers(0, 2, size=count)
    return make_requests(
        arrival_s=np.cumsum(gaps_s),
        prompt_tokens=np.where(chosen < 0, rng.integers(1, 90, size=count), lengths[chosen]),
        output_tokens=rng.integers(1, draw(st.sampled_from([2, 50])), size=count),
        prefix_list=chosen,
        list_start=lists.list_start,
        block_ids=lists.block_ids,
    )


@st.composite
def limits(draw: st.DrawFn) -> SchedulerSettings:
    static = draw(st.integers(0, 5)) == 0
    replicas = draw(st.integers(1, 3))
    speculation = None if static or draw(st.booleans()) else SpeculativeSteps(verify_tokens=3, acceptance=(0.7, 0.4))
    return SchedulerSettings(
        max_num_batched_tokens=48 if speculation else draw(st.sampled_from([6, 16, 48])),
        max_num_seqs=draw(st.integers(1, 6)),
        max_model_len=draw(st.sampled_from([60, 200])),
        kv_blocks=draw(st.integers(20, 120)),
        block_size_tokens=4,
        watermark_fraction=draw(st.sampled_from([0.0, 0.1])),
        prefix_caching=(prefix_caching := draw(st.booleans())),
        chunked_prefill=draw(st.integers(0, 3)) > 0,
        async_scheduling=not static and draw(st.booleans()),
        batching=Batching.STATIC if static else Batching.CONTINUOUS,
        replicas=replicas,
        ranks=1 if static else draw(st.sampled_from([1, replicas])),
        routing=draw(st.sampled_from(list(Routing))),
        timeout_s=draw(st.sampled_from([None, None, 0.3])),
        policy=SchedulerPolicy.CHUNKED_MIXED if static else draw(st.sampled_from(list(SchedulerPolicy))),
        queue_order=draw(st.sampled_from(list(QueueOrder))) if prefix_caching and not static else QueueOrder.ARRIVAL,
        tiers=() if static else draw(st.sampled_from(TIERS)),
        speculation=speculation,
    )


def run(requests: Requests, chosen: SchedulerSettings, *, trace_steps: int = TRACE_STEPS) -> SimulationRun:
    return simulate_requests(TABLES, requests=requests, settings=chosen, trace_steps=trace_steps)


@PROPERTY
@given(demands(), limits())
def test_requests_are_conserved(requests: Requests, chosen: SchedulerSettings) -> None:
    """INV-1: every request ends in exactly one way: finished, given up, or rejected for its size."""
    records = run(requests, chosen).records
    total = requests.prompt_tokens + requests.output_tokens
    final = {int(outcome) for outcome in (Outcome.FINISHED, Outcome.TIMED_OUT, Outcome.TOO_LONG, Outcome.TOO_LARGE)}
    assert set(records.outcome.tolist()) <= final
    too_long = total > chosen.max_model_len
    if not chosen.chunked_prefill:
        too_long |= total > chosen.max_num_batched_tokens
    np.testing.assert_array_equal(records.outcome == int(Outcome.TOO_LONG), too_long)
    if chosen.timeout_s is None:
        assert not (records.outcome == int(Outcome.TIMED_OUT)).any()


@PROPERTY
@given(demands(), limits())
def test_a_run_takes_no_more_steps_than_it_is_refused_for(requests: Requests, chosen: SchedulerSettings) -> None:
    """What is checked before a run bounds its steps, as long as nothing is computed twice."""
    bounds: list[float] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(simulation, "check_steps", bounds.append)
        patched.setattr(simulation, "_SEQUENCES_A_STEP", 1)
        served = run(requests, chosen)
    assert served.records.preemptions.any() or served.steps <= bounds[0]


@PROPERTY
@given(demands(), limits())
def test_lifecycle_and_causality(requests: Requests, chosen: SchedulerSettings) -> None:
    """INV-2, INV-5: arrival <= admission < first token <= last token, and at least a step per token."""
    records = run(requests, chosen).records
    done = records.outcome == int(Outcome.FINISHED)
    assert (records.admitted_s[done] >= requests.arrival_s[done]).all()
    assert (records.first_token_s[done] > records.admitted_s[done]).all()
    verified = 1 if chosen.speculation is None else chosen.speculation.verify_tokens
    steps = np.ceil((requests.output_tokens[done] - 1) / verified)
    assert (records.finish_s[done] - records.first_token_s[done] >= steps * TABLES.step_s - 1e-9).all()
    assert (records.cached_tokens <= requests.prompt_tokens - 1).all()
    rejected = records.outcome >= int(Outcome.TOO_LONG)
    assert np.isnan(records.admitted_s[rejected]).all()


@PROPERTY
@given(demands(), limits())
def test_clock_is_monotone_and_steps_do_not_overlap(requests: Requests, chosen: SchedulerSettings) -> None:
    """INV-3."""
    for steps in run(requests, chosen).trace:
        assert (steps[:, TRACE_END_S] > steps[:, TRACE_START_S]).all()
        assert (steps[1:, TRACE_START_S] >= steps[:-1, TRACE_END_S]).all()


@PROPERTY
@given(demands(), limits())
def test_kv_blocks_are_conserved_and_limits_hold(requests: Requests, chosen: SchedulerSettings) -> None:
    """INV-4: used + free = all at every step, none is lost at the end; no step exceeds its budget or its seats."""
    outcome = run(requests, chosen)
    assert outcome.free_blocks == chosen.kv_blocks * chosen.replicas
    for steps in outcome.trace:
        # The plan of a step is older than the pool where the next step is scheduled ahead.
        if not chosen.async_scheduling:
            np.testing.assert_array_equal(steps[:, TRACE_USED] + steps[:, TRACE_FREE], chosen.kv_blocks)
        assert (steps[:, TRACE_USED] <= chosen.kv_blocks).all()
        assert (steps[:, TRACE_TOKENS] <= chosen.max_num_batched_tokens).all()
        assert (steps[:, TRACE_DECODES] + steps[:, TRACE_PREFILLS] <= chosen.max_num_seqs).all()


@contextmanager
def python_alone() -> Iterator[None]:
    """The loop is run by Python, however much it has run."""
    loop = event_loop()
    machine, requests = loop.machine, loop.interpreted_requests
    loop.machine, loop.interpreted_requests = None, -WORTH_COMPILING_REQUESTS
    yield
    loop.machine, loop.interpreted_requests = machine, requests


RECORDED = ("outcome", "admitted_s", "first_token_s", "finish_s", "cached_tokens", "preemptions", "replica")


def bytes_of(done: SimulationRun) -> dict[str, bytes]:
    """Everything that a run recorded, to the last bit."""
    series = {name: getattr(done.series, name).tobytes() for name in ("batch", "kv_utilization", "busy", "waiting")}
    return {name: getattr(done.records, name).tobytes() for name in RECORDED} | {"usage": done.usage.tobytes()} | series


@PROPERTY
@given(demands(), limits())
def test_determinism(requests: Requests, chosen: SchedulerSettings) -> None:
    """INV-6: the same demand gives the same bytes, as machine code and in Python."""
    event_loop().compile()
    with python_alone():
        # Without a trace, so that it goes through runs of decodes at once.
        interpreted = run(requests, chosen, trace_steps=0)
    assert bytes_of(run(requests, chosen, trace_steps=0)) == bytes_of(interpreted)
    assert bytes_of(run(requests, chosen)) == bytes_of(interpreted)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_real_step_tables_are_read_alike(engine: EngineName) -> None:
    """Machine code and Python round a logarithm and an interpolation in the same way."""
    made = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"), engine=EngineSpec(name=engine))
    load = WorkloadSpec(
        arrival="poisson",
        stages=(StageSpec(rate_per_s=12, duration_s=20),),
        isl_tokens=1155, osl_tokens=90, isl_cv=1.0, osl_cv=0.8,
    )  # fmt: skip
    tables, chosen = compile_steps(made), scheduler_settings(made, kv_blocks=8_000)
    requests = build_requests(load, block_size_tokens=chosen.block_size_tokens)
    warm_up()
    first = simulate_requests(tables, requests=requests, settings=chosen)
    with python_alone():
        interpreted = simulate_requests(tables, requests=requests, settings=chosen)
    assert bytes_of(first) == bytes_of(interpreted)


@PROPERTY
@given(demands(), limits())
def test_the_engine_never_idles_while_somebody_waits(requests: Requests, chosen: SchedulerSettings) -> None:
    """INV-7: work conserving. Between two steps with a gap nobody is in the system of that replica.

    Unless all that it has to do is to wait for blocks from the host.
    """
    if chosen.tiers:
        return
    outcome = run(requests, chosen)
    records = outcome.records
    for replica, steps in enumerate(outcome.trace):
        own = (records.replica == replica) & (records.outcome == int(Outcome.FINISHED))
        gaps = np.flatnonzero(steps[1:, TRACE_START_S] > steps[:-1, TRACE_END_S] + 1e-9)
        for gap in gaps:
            middle_s = (steps[gap, TRACE_END_S] + steps[gap + 1, TRACE_START_S]) / 2
            assert not (own & (requests.arrival_s < middle_s) & (records.finish_s > middle_s)).any()


@PROPERTY
@given(demands(), limits())
def test_tokens_are_conserved(requests: Requests, chosen: SchedulerSettings) -> None:
    """Without preemption and abort, steps compute every prompt token that was not cached and every answer token once.

    The last token of an answer is never fed back.
    """
    if chosen.timeout_s is not None or chosen.batching is Batching.STATIC or chosen.speculation is not None:
        return
    outcome = run(requests, chosen)
    records = outcome.records
    done = records.outcome == int(Outcome.FINISHED)
    needed = (requests.prompt_tokens + requests.output_tokens - 1 - records.cached_tokens)[done].sum()
    computed = sum(steps[:, TRACE_TOKENS].sum() for steps in outcome.trace)
    if records.preemptions.sum() == 0:
        assert computed == needed
    else:
        assert computed >= needed - records.preemptions.sum() * chosen.max_model_len


@PROPERTY
@given(demands(), limits())
def test_littles_law(requests: Requests, chosen: SchedulerSettings) -> None:
    """INV-8: sequence-seconds counted by the engine step by step = residence counted request by request.

    Held for a scheduler that is not ahead of its steps, where a sequence is in every step from admission to its end.
    """
    if chosen.async_scheduling or chosen.timeout_s is not None or chosen.batching is Batching.STATIC:
        return
    if chosen.policy is SchedulerPolicy.PREFILL_FIRST or chosen.tiers:
        return
    outcome = run(requests, chosen)
    records = outcome.records
    if records.preemptions.sum():
        return
    done = records.outcome == int(Outcome.FINISHED)
    by_request = (records.finish_s - records.admitted_s)[done].sum()
    # A prompt in progress sits out steps whose whole budget goes to decodes.
    by_step = outcome.usage[:, SEQUENCE_S].sum()
    verified = 1 if chosen.speculation is None else chosen.speculation.verify_tokens
    sat_out = chosen.max_num_batched_tokens <= chosen.max_num_seqs * verified
    assert by_step <= by_request * (1 + 1e-9)
    if not sat_out:
        np.testing.assert_allclose(by_step, by_request, rtol=1e-9)
    assert all((steps[:, TRACE_WAITING] >= 0).all() for steps in outcome.trace)
