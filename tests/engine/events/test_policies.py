"""Policies of schedulers: against theory, and what each promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_loop import random_requests, settings, tables

from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.simulation import simulate_requests
from simulator.engine.events.state import BUSY_S, TRACE_DECODES, TRACE_PREFILLS, TRACE_START_S, TRACE_TOKENS, WAITING_S
from simulator.engine.settings import (
    Batching,
    CacheTier,
    QueueOrder,
    SchedulerPolicy,
    SchedulerSettings,
    SpeculativeSteps,
)
from simulator.errors import RoofcastError
from simulator.phases.compiled import uniform_tables
from simulator.traffic.requests import Outcome, Requests, make_requests

FIELDS = ("outcome", "admitted_s", "first_token_s", "finish_s", "cached_tokens", "preemptions", "replica")
STEP_S = 0.01


def serve(
    requests: Requests, limits: SchedulerSettings, *, max_tokens: int = 64, trace_steps: int = 0
) -> SimulationRun:
    return simulate_requests(tables(max_tokens=max_tokens), requests=requests, settings=limits, trace_steps=trace_steps)


def equal_requests(count: int, *, prompt: int, output: int, gap_s: float = 0.0) -> Requests:
    return make_requests(
        arrival_s=np.arange(count) * gap_s, prompt_tokens=np.full(count, prompt), output_tokens=np.full(count, output)
    )


@pytest.mark.parametrize("policy", list(SchedulerPolicy))
@pytest.mark.parametrize(("answer", "outcome"), [(3, Outcome.FINISHED), (4, Outcome.TIMED_OUT)])
def test_who_gives_up_when_the_last_step_is_formed_still_gets_it(
    policy: SchedulerPolicy, answer: int, outcome: Outcome
) -> None:
    """Under every engine: steps are formed one ahead, and patience ends during the second."""
    limits = replace(settings(timeout_s=1.5 * STEP_S), async_scheduling=True, policy=policy)
    plain = uniform_tables(step_s=STEP_S, max_tokens=64, max_sequences=16)
    run = simulate_requests(plain, requests=equal_requests(1, prompt=8, output=answer), settings=limits)
    assert run.records.outcome.tolist() == [int(outcome)]


class TestSeries:
    @pytest.mark.parametrize("policy", [SchedulerPolicy.CHUNKED_MIXED, SchedulerPolicy.GUARANTEED_NO_EVICT])
    def test_buckets_add_up_to_the_whole_run(self, policy: SchedulerPolicy) -> None:
        limits = replace(settings(replicas=2, kv_blocks=150), policy=policy)
        run = serve(random_requests(1, count=300, rate_per_s=10.0), limits)
        series = run.series
        assert 0 < len(series.batch) <= 512
        assert series.busy.sum() * 2 * series.width_s == pytest.approx(run.usage[:, BUSY_S].sum())
        assert series.waiting.sum() * series.width_s == pytest.approx(run.usage[:, WAITING_S].sum())
        assert series.busy.max() <= 1 + 1e-9
        assert series.kv_utilization.max() <= 1 + 1e-9

    def test_memory_stays_bounded_when_a_run_outlasts_its_arrivals(self) -> None:
        """200 requests at one moment: buckets of a millisecond widen until minutes fit."""
        series = serve(equal_requests(200, prompt=8, output=50), settings()).series
        assert len(series.batch) <= 512
        assert series.width_s == pytest.approx(1e-3 * 2 ** round(np.log2(series.width_s / 1e-3)))
        assert series.waiting[0] > 100
        assert series.waiting[-1] == 0


class TestPipeline:
    STAGES = tuple(
        uniform_tables(step_s=0.0, max_tokens=64, max_sequences=8, per_token_s=s) for s in (1e-3, 2e-3, 1e-3)
    )

    def run(self, requests: Requests, *, trace_steps: int = 500) -> SimulationRun:
        return simulate_requests(self.STAGES, requests=requests, settings=settings(), trace_steps=trace_steps)

    def test_a_lone_request_passes_all_stages_for_every_token(self) -> None:
        records = self.run(equal_requests(1, prompt=10, output=4)).records
        assert records.first_token_s[0] == pytest.approx(10 * 4e-3)
        assert records.finish_s[0] == pytest.approx(13 * 4e-3)

    def test_a_full_pipeline_runs_at_the_pace_of_its_slowest_stage(self) -> None:
        """Chunks of 64 prompt tokens follow each other: n chunks take n slowest stages and the others once."""
        chunks = 20
        requests = make_requests(
            arrival_s=np.zeros(5), prompt_tokens=np.full(5, 64 * chunks // 5), output_tokens=np.ones(5, dtype=int)
        )
        records = self.run(requests).records
        assert records.finish_s[-1] == pytest.approx(64 * (chunks * 2e-3 + 2e-3))

    def test_a_sequence_is_in_one_step_at_a_time(self) -> None:
        """Decoding alone, a sequence gains one token per passage of the pipeline however many steps could be under way.

        Three sequences that start apart fill it: the slowest stage never rests, and one more stage ends it.
        """
        three = self.run(equal_requests(3, prompt=1, output=30, gap_s=1.1e-3)).records
        own_s = (three.finish_s - three.first_token_s) / 29
        assert (own_s >= 4e-3 - 1e-12).all()
        assert three.finish_s.max() == pytest.approx(3 * 30 * 2e-3 + 2e-3)

    def test_steps_overlap_but_busy_time_does_not(self) -> None:
        run = self.run(random_requests(4, count=100, rate_per_s=20.0))
        starts = run.trace[0][:, TRACE_START_S]
        assert (np.diff(starts) >= 0).all()
        assert run.usage[:, BUSY_S].sum() <= np.nanmax(run.records.finish_s) + 1e-9
        assert run.free_blocks == 200
        assert (run.records.outcome == int(Outcome.FINISHED)).all()

    def test_stages_of_no_length_change_nothing(self) -> None:
        requests = random_requests(5, count=80, rate_per_s=10.0)
        nothing = uniform_tables(step_s=0.0, max_tokens=64, max_sequences=8)
        one = simulate_requests(self.STAGES[0], requests=requests, settings=settings(max_num_seqs=1)).records
        two = simulate_requests((self.STAGES[0], nothing), requests=requests, settings=settings(max_num_seqs=1)).records
        np.testing.assert_allclose(two.finish_s, one.finish_s, rtol=1e-9)


class TestSpeculation:
    ACCEPTANCE = (0.8, 0.6, 0.5)
    TABLES = uniform_tables(step_s=STEP_S, max_tokens=256, max_sequences=8, max_context=2048)

    def settings(self, **fields: object) -> SchedulerSettings:
        steps = SpeculativeSteps(verify_tokens=4, acceptance=self.ACCEPTANCE)
        chosen = replace(settings(max_num_batched_tokens=256), max_model_len=2048, speculation=steps)
        return replace(chosen, **fields)  # type: ignore[arg-type]

    def run(self, requests: Requests, **fields: object) -> SimulationRun:
        return simulate_requests(self.TABLES, requests=requests, settings=self.settings(**fields), trace_steps=10_000)

    def test_mean_tokens_per_step_follow_the_acceptance(self) -> None:
        """1 + 0.8 + 0.8 0.6 + 0.8 0.6 0.5 = 2.52, within four standard errors."""
        expected = 1 + 0.8 + 0.48 + 0.24
        chosen = self.settings()
        assert chosen.speculation is not None
        assert chosen.speculation.mean_tokens == pytest.approx(expected)
        requests = equal_requests(40, prompt=8, output=1000, gap_s=10.0)
        records = simulate_requests(self.TABLES, requests=requests, settings=replace(chosen, kv_blocks=2000)).records
        steps = (records.finish_s - records.first_token_s) / STEP_S
        variance = (1 * 0.2 + 4 * 0.32 + 9 * 0.24 + 16 * 0.24) - expected**2
        error = 4 * np.sqrt(variance / steps.sum()) + 1.5 / steps.mean()
        assert 999 * 40 / steps.sum() == pytest.approx(expected, abs=error)

    def test_certain_acceptance_takes_the_fewest_steps_and_none_takes_one_per_token(self) -> None:
        requests = equal_requests(1, prompt=8, output=41)
        for chance, steps in ((1.0, 10), (0.0, 40)):
            speculation = SpeculativeSteps(verify_tokens=4, acceptance=(chance,) * 3)
            records = self.run(requests, speculation=speculation).records
            assert records.finish_s[0] - records.first_token_s[0] == pytest.approx(steps * STEP_S)

    def test_drafting_time_is_part_of_every_decode_step(self) -> None:
        chosen = self.settings(speculation=SpeculativeSteps(verify_tokens=4, acceptance=(1.0,) * 3))
        drafts = self.TABLES._replace(draft_s=0.002 * np.arange(self.TABLES.max_sequences + 1), draft_token_s=0.001)
        records = simulate_requests(drafts, requests=equal_requests(1, prompt=8, output=41), settings=chosen).records
        assert records.finish_s[0] - records.first_token_s[0] == pytest.approx(10 * (STEP_S + 0.002))
        # The drafter computes the prompt too.
        assert records.first_token_s[0] - records.sent_s[0] == pytest.approx(STEP_S + 8 * 0.001)

    def test_no_answer_grows_beyond_its_length_and_seeds_decide(self) -> None:
        requests = random_requests(2, count=100, rate_per_s=30.0)
        first, again, other = (self.run(requests, seed=seed, kv_blocks=70).records for seed in (1, 1, 2))
        assert (first.outcome == int(Outcome.FINISHED)).all()
        assert first.finish_s.tobytes() == again.finish_s.tobytes()
        assert first.finish_s.tobytes() != other.finish_s.tobytes()
        fewest = np.ceil((requests.output_tokens - 1) / 4)
        assert (first.finish_s - first.first_token_s >= fewest * STEP_S - 1e-9).all()

    def test_every_decoding_sequence_takes_its_verified_tokens_out_of_the_budget(self) -> None:
        for steps in self.run(random_requests(3, count=100, rate_per_s=30.0)).trace:
            assert (steps[:, TRACE_TOKENS] >= 4 * steps[:, TRACE_DECODES]).all()
            assert (steps[:, TRACE_TOKENS] <= 256).all()

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"verify_tokens": 1, "acceptance": (0.5,)}, "verify_tokens"),
            ({"verify_tokens": 3, "acceptance": (0.5, 0.5, 0.5)}, "acceptance"),
            ({"verify_tokens": 3, "acceptance": (1.5,)}, "acceptance"),
        ],
    )
    def test_impossible_drafts_are_refused(self, fields: dict[str, object], field: str) -> None:
        with pytest.raises(RoofcastError) as caught:
            SpeculativeSteps(**fields)  # type: ignore[arg-type]
        assert caught.value.field == field


class TestPolicies:
    def test_a_reserved_length_never_preempts(self) -> None:
        requests = random_requests(6, count=150, rate_per_s=15.0)
        tight = settings(kv_blocks=60)
        assert serve(requests, tight).records.preemptions.sum() > 0
        run = serve(requests, replace(tight, policy=SchedulerPolicy.GUARANTEED_NO_EVICT))
        assert run.records.preemptions.sum() == 0
        assert (run.records.outcome == int(Outcome.FINISHED)).all()
        assert run.free_blocks == 60

    def test_a_reserved_length_limits_how_many_run(self) -> None:
        """20 + 21 - 1 tokens of each in blocks of 4: ten blocks; 40 blocks hold four sequences."""
        limits = replace(settings(kv_blocks=40), policy=SchedulerPolicy.GUARANTEED_NO_EVICT)
        steps = serve(equal_requests(12, prompt=20, output=21), limits, trace_steps=500).trace[0]
        assert (steps[:, TRACE_DECODES] + steps[:, TRACE_PREFILLS]).max() == 4

    def test_maximal_utilization_is_the_mixed_policy_by_another_name(self) -> None:
        requests = random_requests(6, count=150, rate_per_s=15.0)
        mixed = serve(requests, settings(kv_blocks=60)).records
        other = serve(requests, replace(settings(kv_blocks=60), policy=SchedulerPolicy.MAX_UTILIZATION)).records
        np.testing.assert_array_equal(mixed.finish_s, other.finish_s)

    def test_prompts_first_computes_prompts_or_decodes_never_both(self) -> None:
        requests = random_requests(7, count=150, rate_per_s=15.0)
        run = serve(requests, replace(settings(), policy=SchedulerPolicy.PREFILL_FIRST), trace_steps=5000)
        steps = run.trace[0]
        assert not ((steps[:, TRACE_DECODES] > 0) & (steps[:, TRACE_PREFILLS] > 0)).any()
        mixed = serve(
            requests, replace(settings(), policy=SchedulerPolicy.PREFILL_FIRST_MIXED), trace_steps=5000
        ).trace[0]
        assert ((mixed[:, TRACE_DECODES] > 0) & (mixed[:, TRACE_PREFILLS] > 0)).any()

    def test_prompts_first_serves_a_newcomer_at_once_and_lets_the_others_wait(self) -> None:
        """One decodes (10 ms a step); a prompt of 50 arrives in the middle of a step and takes the whole next one."""
        requests = make_requests(
            arrival_s=np.array([0.0, 0.055]), prompt_tokens=np.array([4, 50]), output_tokens=np.array([20, 1])
        )
        run = serve(requests, replace(settings(), policy=SchedulerPolicy.PREFILL_FIRST), trace_steps=50)
        prompt_step = run.trace[0][run.trace[0][:, TRACE_TOKENS] == 50][0]
        assert prompt_step[TRACE_DECODES] == 0
        assert run.records.admitted_s[1] == pytest.approx(prompt_step[TRACE_START_S])

    @pytest.mark.parametrize("policy", [SchedulerPolicy.PREFILL_FIRST, SchedulerPolicy.PREFILL_FIRST_MIXED])
    def test_the_token_ratio_keeps_room_for_answers(self, policy: SchedulerPolicy) -> None:
        """Long answers in a small cache: counting on them preempts less than looking at prompts alone."""
        requests = equal_requests(40, prompt=16, output=120, gap_s=0.02)
        by_prompt = serve(requests, settings(kv_blocks=100)).records
        by_ratio = serve(requests, replace(settings(kv_blocks=100), policy=policy)).records
        assert (by_ratio.outcome == int(Outcome.FINISHED)).all()
        assert by_ratio.preemptions.sum() < by_prompt.preemptions.sum()

    def test_the_longest_cached_prefix_goes_first(self) -> None:
        """One seat. While a stranger runs, a stranger and a repeat of the first prompt wait: the repeat overtakes."""
        requests = make_requests(
            arrival_s=np.array([0.0, 1.0, 1.01, 1.02]),
            prompt_tokens=np.full(4, 32),
            output_tokens=np.array([1, 30, 1, 1]),
            prefix_list=np.array([0, -1, -1, 0]),
            list_start=np.array([0, 8]),
            block_ids=np.arange(8),
        )
        limits = settings(prefix_caching=True, max_num_seqs=1)
        in_turn = serve(requests, limits).records
        assert in_turn.finish_s[2] < in_turn.finish_s[3]
        ordered = serve(requests, replace(limits, queue_order=QueueOrder.LONGEST_PREFIX)).records
        assert ordered.finish_s[3] < ordered.finish_s[2]
        with pytest.raises(RoofcastError, match="prefix caching"):
            replace(settings(), queue_order=QueueOrder.LONGEST_PREFIX)

    def test_static_batches_do_not_mix_with_other_policies(self) -> None:
        with pytest.raises(RoofcastError, match="static batching"):
            replace(settings(batching=Batching.STATIC), policy=SchedulerPolicy.PREFILL_FIRST)
        with pytest.raises(RoofcastError, match="pipelines"):
            simulate_requests(
                TestPipeline.STAGES,
                requests=equal_requests(1, prompt=1, output=1),
                settings=settings(batching=Batching.STATIC),
            )


class TestOffload:
    def test_an_evicted_prompt_comes_back_over_the_link(self) -> None:
        """Prompts of 4 blocks in a device cache of 5: the second leaves one block of the first, two return in 2 x 5 ms.

        The fourth block is computed, because at least one token always is.
        """
        requests = make_requests(
            arrival_s=np.array([0.0, 1.0, 2.0]),
            prompt_tokens=np.full(3, 16),
            output_tokens=np.ones(3, dtype=int),
            prefix_list=np.array([0, 1, 0]),
            list_start=np.array([0, 4, 8]),
            block_ids=np.arange(8),
        )
        limits = settings(prefix_caching=True, kv_blocks=5)
        device = serve(requests, limits).records
        host = serve(requests, replace(limits, tiers=(CacheTier(blocks=20, block_load_s=0.005),))).records
        assert device.cached_tokens.tolist() == [0, 0, 4]
        assert host.cached_tokens.tolist() == [0, 0, 12]
        assert host.first_token_s[2] - 2.0 == pytest.approx(2 * 0.005 + STEP_S + 4e-4)

    def test_a_preempted_sequence_returns_with_its_blocks(self) -> None:
        """Nothing is computed twice but the part of a block, where host memory has room; with a slow link it waits."""
        requests = equal_requests(12, prompt=20, output=60)
        limits = settings(kv_blocks=60)
        recomputed = serve(requests, limits, trace_steps=20_000)
        swapped = serve(
            requests, replace(limits, tiers=(CacheTier(blocks=400, block_load_s=1e-5),)), trace_steps=20_000
        )
        slow = serve(requests, replace(limits, tiers=(CacheTier(blocks=400, block_load_s=0.5),)), trace_steps=20_000)
        assert swapped.records.preemptions.sum() > 0
        needed = (requests.prompt_tokens + requests.output_tokens - 1).sum()
        computed = [run.trace[0][:, TRACE_TOKENS].sum() for run in (recomputed, swapped)]
        assert computed[0] > 1.2 * needed
        assert needed <= computed[1] <= needed + 4 * swapped.records.preemptions.sum()
        assert slow.records.finish_s.max() > swapped.records.finish_s.max()

    @pytest.mark.parametrize("blocks", [1, 30, 500])
    @pytest.mark.parametrize("prefix_caching", [False, True])
    def test_no_block_and_no_request_is_lost(self, blocks: int, prefix_caching: bool) -> None:
        requests = random_requests(8, count=200, rate_per_s=15.0)
        limits = settings(kv_blocks=60, prefix_caching=prefix_caching, timeout_s=3.0)
        run = serve(requests, replace(limits, tiers=(CacheTier(blocks=blocks, block_load_s=1e-3),)))
        assert run.free_blocks == 60
        assert set(run.records.outcome.tolist()) <= {int(Outcome.FINISHED), int(Outcome.TIMED_OUT)}

    def test_host_memory_never_lowers_prefix_hits(self) -> None:
        requests = random_requests(9, count=200, rate_per_s=8.0, groups=6)
        limits = settings(kv_blocks=70, prefix_caching=True)
        hits = [
            serve(requests, chosen).records.cached_tokens.sum()
            for chosen in (limits, replace(limits, tiers=(CacheTier(blocks=1000, block_load_s=1e-6),)))
        ]
        assert hits[1] > hits[0]


class TestConversations:
    def requests(self, *, turns: int = 3, think_s: float = 0.5, conversations: int = 4, output: int = 11) -> Requests:
        count = turns * conversations
        first = np.arange(count) % turns == 0
        turn = np.arange(count) % turns
        return make_requests(
            arrival_s=np.repeat(np.arange(conversations) * 0.01, turns),
            prompt_tokens=10 + turn * (10 + output),
            output_tokens=np.full(count, output),
            previous=np.where(first, -1, np.arange(count) - 1),
            think_s=np.where(first, 0.0, think_s),
            prefix_list=np.repeat(np.arange(conversations), turns),
            list_start=np.arange(conversations + 1) * 20,
            block_ids=np.arange(conversations * 20),
        )

    @pytest.mark.parametrize("replicas", [1, 2])
    def test_a_turn_is_sent_when_the_answer_before_has_been_read(self, replicas: int) -> None:
        requests = self.requests()
        run = serve(requests, replace(settings(prefix_caching=True, replicas=replicas), request_delay_s=0.002))
        records = run.records
        assert (records.outcome == int(Outcome.FINISHED)).all()
        later = np.flatnonzero(requests.previous >= 0)
        np.testing.assert_allclose(records.sent_s[later], records.finish_s[requests.previous[later]] + 0.5)
        assert (records.admitted_s >= records.sent_s).all()

    def test_a_turn_finds_what_was_said_before(self) -> None:
        """Turn 1 computes 10 + 10 tokens, turn 2 31 + 10: what lies in blocks of 4 that were left behind is found."""
        records = serve(self.requests(conversations=1), settings(prefix_caching=True)).records
        assert records.cached_tokens.tolist() == [0, 16, 40]

    def test_a_client_that_gives_up_goes_on_to_its_next_turn(self) -> None:
        requests = self.requests(output=60)
        records = serve(requests, settings(timeout_s=0.3)).records
        assert (records.outcome == int(Outcome.TIMED_OUT)).all()
        assert not np.isnan(records.sent_s).any()
        later = np.flatnonzero(requests.previous >= 0)
        assert (records.sent_s[later] >= records.sent_s[requests.previous[later]] + 0.3 + 0.5 - 1e-9).all()

    def test_a_turn_too_long_is_counted_and_the_others_go_on(self) -> None:
        records = serve(self.requests(turns=40, output=11, conversations=1), settings()).records
        assert (records.outcome[-10:] == int(Outcome.TOO_LONG)).all()
        assert (records.outcome[:10] == int(Outcome.FINISHED)).all()
        assert not np.isnan(records.sent_s).any()
