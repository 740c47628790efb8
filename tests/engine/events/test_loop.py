"""The event loop against a naive scheduler, against queueing theory, and on cases small enough to work by hand."""

from __future__ import annotations

import numpy as np
import pytest
from naive_scheduler import NaiveEngine

from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.simulation import simulate_requests
from simulator.engine.settings import Batching, Routing, SchedulerSettings
from simulator.errors import RoofcastError
from simulator.phases.compiled import StepTables, uniform_tables
from simulator.traffic.requests import Outcome, Requests, grouped_prompts, make_requests

STEP_S = 0.01


def tables(*, max_tokens: int = 64, max_sequences: int = 8) -> StepTables:
    return uniform_tables(
        step_s=STEP_S,
        max_tokens=max_tokens,
        max_sequences=max_sequences,
        per_token_s=1e-4,
        per_context_token_s=1e-6,
        max_context=512,
    )


def settings(
    *,
    kv_blocks: int = 200,
    async_scheduling: bool = False,
    prefix_caching: bool = False,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    block_size_tokens: int = 4,
    chunked_prefill: bool = True,
    watermark_fraction: float = 0.0,
    request_delay_s: float = 0.0,
    timeout_s: float | None = None,
    batching: Batching = Batching.CONTINUOUS,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
) -> SchedulerSettings:
    return SchedulerSettings(
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=512,
        kv_blocks=kv_blocks,
        block_size_tokens=block_size_tokens,
        prefix_caching=prefix_caching,
        chunked_prefill=chunked_prefill,
        watermark_fraction=watermark_fraction,
        async_scheduling=async_scheduling,
        request_delay_s=request_delay_s,
        timeout_s=timeout_s,
        batching=batching,
        replicas=replicas,
        routing=routing,
    )


def random_requests(seed: int, *, count: int, rate_per_s: float, groups: int = 2) -> Requests:
    """Short prompts of a few groups, some of which repeat in full, some with part of the answer (a second turn)."""
    rng = np.random.default_rng(seed)
    per_group = 3
    lengths = rng.integers(9, 90, size=groups * per_group)
    lists = grouped_prompts(
        groups=groups, prompts_per_group=per_group, system_tokens=8, prompt_tokens=lengths + 40, block_size_tokens=4
    )
    chosen = rng.integers(0, groups * per_group, size=count)
    alone = rng.random(count) < 0.3
    return make_requests(
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, size=count)),
        prompt_tokens=np.where(
            alone, rng.integers(1, 100, size=count), lengths[chosen] + 20 * rng.integers(0, 3, size=count)
        ),
        output_tokens=rng.integers(1, 60, size=count),
        prefix_list=np.where(alone, -1, chosen),
        list_start=lists.list_start,
        block_ids=lists.block_ids,
    )


def serve(requests: Requests, limits: SchedulerSettings, *, trace_steps: int = 0) -> SimulationRun:
    return simulate_requests(tables(), requests=requests, settings=limits, trace_steps=trace_steps)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize(("kv_blocks", "watermark_fraction"), [(300, 0.0), (60, 0.0), (56, 0.05)])
def test_every_request_fares_as_under_the_naive_scheduler(
    seed: int, async_scheduling: bool, prefix_caching: bool, kv_blocks: int, watermark_fraction: float
) -> None:
    """Roomy, tight (preemptions) and very tight caches; shared prompts; chunks; any seed."""
    requests = random_requests(seed, count=120, rate_per_s=10.0)
    limits = settings(
        kv_blocks=kv_blocks,
        async_scheduling=async_scheduling,
        prefix_caching=prefix_caching,
        watermark_fraction=watermark_fraction,
        request_delay_s=0.003,
    )
    records = serve(requests, limits).records
    naive = NaiveEngine(tables(), requests, limits)
    naive.run()
    everyone = range(len(requests))
    assert (records.outcome == int(Outcome.FINISHED)).all()
    np.testing.assert_array_equal(records.preemptions, [naive.preemptions.get(i, 0) for i in everyone])
    np.testing.assert_array_equal(records.cached_tokens, [naive.cached[i] for i in everyone])
    np.testing.assert_allclose(records.admitted_s, [naive.admitted_s[i] for i in everyone], rtol=1e-9)
    np.testing.assert_allclose(records.first_token_s, [naive.first_s[i] for i in everyone], rtol=1e-9)
    np.testing.assert_allclose(records.finish_s, [naive.finish_s[i] for i in everyone], rtol=1e-9)
    if kv_blocks == 60:
        assert records.preemptions.sum() > 0, "the case is meant to preempt"


def test_prompts_are_not_split_without_chunked_prefill() -> None:
    requests = random_requests(3, count=80, rate_per_s=5.0)
    kept = requests.prompt_tokens + requests.output_tokens <= 128
    whole = make_requests(
        arrival_s=requests.arrival_s[kept],
        prompt_tokens=requests.prompt_tokens[kept],
        output_tokens=requests.output_tokens[kept],
    )
    limits = settings(chunked_prefill=False, max_num_batched_tokens=128)
    step_tables = tables(max_tokens=128)
    records = simulate_requests(step_tables, requests=whole, settings=limits).records
    naive = NaiveEngine(step_tables, whole, limits)
    naive.run()
    np.testing.assert_allclose(records.finish_s, [naive.finish_s[i] for i in range(len(whole))], rtol=1e-9)


def one_request(*, prompt: int, output: int, at_s: float = 1.0) -> Requests:
    return make_requests(arrival_s=np.array([at_s]), prompt_tokens=np.array([prompt]), output_tokens=np.array([output]))


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_lone_request_takes_its_prefill_and_one_step_per_further_token(async_scheduling: bool) -> None:
    """Prompt 10, output 3: STEP + 10 tokens; then two steps of one token at contexts 11 and 12."""
    records = serve(one_request(prompt=10, output=3), settings(async_scheduling=async_scheduling)).records
    prefill_s = STEP_S + 10e-4
    assert records.first_token_s[0] == pytest.approx(1.0 + prefill_s)
    assert records.finish_s[0] == pytest.approx(1.0 + prefill_s + 2 * (STEP_S + 1e-4) + (11 + 12) * 1e-6)


def test_a_long_prompt_takes_one_step_per_chunk() -> None:
    """150 tokens under a budget of 64: 64 + 64 + 22."""
    records = serve(one_request(prompt=150, output=1), settings()).records
    assert records.first_token_s[0] == pytest.approx(1.0 + 3 * STEP_S + 150e-4)


def test_asynchronous_scheduling_makes_a_newcomer_wait_for_the_step_scheduled_ahead() -> None:
    """One sequence decodes. A request that arrives during step n starts with n + 1, or with n + 2 if that is formed."""
    requests = make_requests(
        arrival_s=np.array([0.0, 0.055]), prompt_tokens=np.array([4, 4]), output_tokens=np.array([40, 1])
    )
    synchronous = serve(requests, settings(), trace_steps=60)
    ahead = serve(requests, settings(async_scheduling=True), trace_steps=60)
    starts = synchronous.trace[0][:, 0]
    waits_for = np.searchsorted(starts, 0.055)
    assert synchronous.records.admitted_s[1] == pytest.approx(starts[waits_for])
    assert synchronous.records.first_token_s[1] == pytest.approx(synchronous.trace[0][waits_for, 1])
    assert ahead.records.first_token_s[1] == pytest.approx(ahead.trace[0][waits_for + 1, 1])


def test_a_repeated_prompt_computes_only_its_last_block() -> None:
    """16 tokens in blocks of 4: at least one token is always computed, so that three blocks of four can be reused."""
    lists = grouped_prompts(
        groups=1, prompts_per_group=1, system_tokens=8, prompt_tokens=np.array([16]), block_size_tokens=4
    )
    requests = make_requests(
        arrival_s=np.array([0.0, 1.0]),
        prompt_tokens=np.array([16, 16]),
        output_tokens=np.array([2, 2]),
        prefix_list=np.array([0, 0]),
        list_start=lists.list_start,
        block_ids=lists.block_ids,
    )
    records = serve(requests, settings(prefix_caching=True)).records
    np.testing.assert_array_equal(records.cached_tokens, [0, 12])
    assert records.first_token_s[1] - 1.0 == pytest.approx(STEP_S + 4e-4)
    assert serve(requests, settings(prefix_caching=False)).records.cached_tokens.sum() == 0


def test_the_least_recently_released_prompt_is_evicted_first() -> None:
    """Three prompts of 4 blocks in a cache of 11: the third evicts the first, and leaves the second."""
    lists = grouped_prompts(
        groups=3, prompts_per_group=1, system_tokens=0, prompt_tokens=np.full(3, 16), block_size_tokens=4
    )

    def cached(order: list[int]) -> list[int]:
        requests = make_requests(
            arrival_s=np.arange(len(order)) * 1.0,
            prompt_tokens=np.full(len(order), 16),
            output_tokens=np.full(len(order), 1),
            prefix_list=np.array(order),
            list_start=lists.list_start,
            block_ids=lists.block_ids,
        )
        return serve(requests, settings(prefix_caching=True, kv_blocks=11)).records.cached_tokens.tolist()

    assert cached([0, 1, 2, 1]) == [0, 0, 0, 12]
    # One block of the first prompt is gone, its last, because a sequence releases its last block first.
    assert cached([0, 1, 2, 0]) == [0, 0, 0, 12]
    assert cached([0, 1, 2, 2, 1, 0]) == [0, 0, 0, 12, 12, 4]


def test_what_can_never_run_is_rejected_and_counted() -> None:
    requests = make_requests(
        arrival_s=np.array([0.0, 1.0, 2.0]), prompt_tokens=np.array([600, 300, 8]), output_tokens=np.array([5, 5, 5])
    )
    records = serve(requests, settings(kv_blocks=60)).records
    assert records.outcome.tolist() == [int(Outcome.TOO_LONG), int(Outcome.TOO_LARGE), int(Outcome.FINISHED)]
    assert np.isnan(records.finish_s[:2]).all()


def test_a_client_that_waits_too_long_gives_up_and_frees_its_place() -> None:
    """One sequence at a time, ten steps each: of five requests at once, those behind the deadline go."""
    requests = make_requests(
        arrival_s=np.zeros(5), prompt_tokens=np.full(5, 4), output_tokens=np.array([10, 10, 100, 10, 10])
    )
    run = serve(requests, settings(max_num_seqs=1, timeout_s=0.5, kv_blocks=50))
    assert run.records.outcome.tolist() == [int(Outcome.FINISHED)] * 2 + [int(Outcome.TIMED_OUT)] * 3
    assert run.free_blocks == 50


def test_a_static_batch_admits_nobody_before_its_longest_answer_ends() -> None:
    requests = make_requests(
        arrival_s=np.array([0.0, 0.0, 0.05]), prompt_tokens=np.full(3, 4), output_tokens=np.array([3, 30, 3])
    )
    run = serve(requests, settings(batching=Batching.STATIC), trace_steps=100)
    records = run.records
    assert records.admitted_s[2] == records.finish_s[1]
    assert records.finish_s[0] < records.finish_s[1]
    # The finished sequence is padded: the batch stays at two.
    decoding = run.trace[0][:, 2]
    assert set(decoding[1:30]) == {2.0}


def test_routing_spreads_requests() -> None:
    """Round robin in turn; the shorter queue beats it where seats are scarce; prefixes pull requests to their cache."""
    requests = random_requests(1, count=900, rate_per_s=12.0)
    scarce = [
        serve(requests, settings(replicas=3, max_num_seqs=2, routing=routing)).records
        for routing in (Routing.ROUND_ROBIN, Routing.LEAST_OUTSTANDING)
    ]
    np.testing.assert_array_equal(scarce[0].replica, np.arange(900) % 3)
    assert (np.bincount(scarce[1].replica) > 200).all()
    waits = [np.mean(kept.first_token_s - requests.arrival_s) for kept in scarce]
    assert waits[1] < 0.8 * waits[0]
    hits = [
        serve(requests, settings(replicas=3, prefix_caching=True, kv_blocks=60, routing=routing)).records.cached_tokens
        for routing in (Routing.ROUND_ROBIN, Routing.PREFIX_AWARE)
    ]
    assert hits[1].sum() > hits[0].sum()


@pytest.mark.parametrize("timeout_s", [None, 0.3])
def test_round_robin_replicas_are_independent_engines(timeout_s: float | None) -> None:
    requests = random_requests(2, count=60, rate_per_s=20.0)
    together = serve(requests, settings(replicas=2, prefix_caching=True, timeout_s=timeout_s)).records
    assert (together.outcome == int(Outcome.TIMED_OUT)).any() == (timeout_s is not None)
    for replica in range(2):
        own = np.arange(replica, 60, 2)
        alone = serve(
            make_requests(
                arrival_s=requests.arrival_s[own],
                prompt_tokens=requests.prompt_tokens[own],
                output_tokens=requests.output_tokens[own],
                prefix_list=requests.prefix_list[own],
                list_start=requests.list_start,
                block_ids=requests.block_ids,
            ),
            settings(prefix_caching=True, timeout_s=timeout_s),
        ).records
        np.testing.assert_array_equal(together.finish_s[own], alone.finish_s)
        np.testing.assert_array_equal(together.outcome[own], alone.outcome)


def test_progress_is_reported_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    simulate_requests(
        tables(),
        requests=random_requests(4, count=50, rate_per_s=10.0),
        settings=settings(),
        progress=lambda done, whole: seen.append((done, whole)),
    )
    assert seen[-1] == (50, 50)


def test_impossible_limits_are_refused_before_work_starts() -> None:
    with pytest.raises(RoofcastError, match="max_num_seqs"):
        settings(max_num_batched_tokens=4)
    with pytest.raises(RoofcastError, match="KV blocks"):
        settings(kv_blocks=0)
    with pytest.raises(RoofcastError, match="tables go to"):
        serve(one_request(prompt=4, output=1), settings(max_num_batched_tokens=128))
    still = uniform_tables(step_s=0.0, max_tokens=64, max_sequences=8)
    with pytest.raises(RoofcastError, match="no time"):
        simulate_requests(still, requests=one_request(prompt=4, output=1), settings=settings())


def waiting_s(*, outputs: np.ndarray, load: float, seed: int) -> np.ndarray:
    """Times in the queue of a server that takes one request at a time, STEP_S per token, Poisson arrivals."""
    rng = np.random.default_rng(seed)
    rate_per_s = load / (STEP_S * outputs.mean())
    requests = make_requests(
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, size=len(outputs))),
        prompt_tokens=np.ones(len(outputs), dtype=np.int64),
        output_tokens=outputs,
    )
    limits = SchedulerSettings(
        max_num_batched_tokens=1,
        max_num_seqs=1,
        max_model_len=int(outputs.max()) + 1,
        kv_blocks=int(outputs.max()) + 1,
        prefix_caching=False,
        async_scheduling=False,
    )
    fixed = uniform_tables(step_s=STEP_S, max_tokens=1, max_sequences=1)
    records = simulate_requests(fixed, requests=requests, settings=limits).records
    service_s = outputs * STEP_S
    np.testing.assert_allclose(records.finish_s - records.admitted_s, service_s, rtol=1e-6)
    waits: np.ndarray = records.admitted_s - requests.arrival_s
    return waits


def interval_of_mean(samples: np.ndarray, *, batches: int = 40) -> tuple[float, float]:
    """99.99 % interval from the means of long batches, which are nearly independent."""
    means = samples[: len(samples) // batches * batches].reshape(batches, -1).mean(axis=1)
    half = 4.5 * means.std(ddof=1) / np.sqrt(batches)
    return means.mean() - half, means.mean() + half


@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
def test_md1_waiting_time(load: float) -> None:
    """M/D/1: W = rho s / (2 (1 - rho))."""
    waits = waiting_s(outputs=np.ones(200_000, dtype=np.int64), load=load, seed=7)
    low, high = interval_of_mean(waits[2000:])
    expected = load * STEP_S / (2 * (1 - load))
    assert low < expected < high
    assert high - low < 0.35 * expected


@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
def test_mm1_waiting_time(load: float) -> None:
    """Geometric answers of mean 20: W = lambda E[S^2] / (2 (1 - rho)), M/M/1's rho s / (1 - rho) less 2.5 %."""
    mean_tokens = 20.0
    rng = np.random.default_rng(11)
    outputs = rng.geometric(1 / mean_tokens, size=100_000)
    waits = waiting_s(outputs=outputs, load=load, seed=13)
    low, high = interval_of_mean(waits[2000:])
    service_s = mean_tokens * STEP_S
    assert low < load * service_s / (1 - load) * (1 - 1 / (2 * mean_tokens)) < high
    assert high - low < 0.6 * load * service_s / (1 - load)
