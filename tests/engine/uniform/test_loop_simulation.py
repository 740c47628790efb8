"""Closed loops event by event: conservation, hand-made schedules, policies of engines, ranks and pools."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.uniform import simulation
from simulator.engine.uniform.clock import StepClock
from simulator.engine.uniform.loop_requests import LoopDemand, LoopLengths, LoopRecords
from simulator.engine.uniform.loops import loop_work
from simulator.engine.uniform.scheduler import LoopPolicy, Pipeline
from simulator.engine.uniform.simulation import Engine, simulate_loop
from simulator.errors import RoofcastError
from simulator.phases.compiled import uniform_tables

# One second per step whatever it holds: schedules can be counted by hand.
TABLES = uniform_tables(step_s=1.0, max_tokens=4096, max_sequences=512)
PER_TOKEN = uniform_tables(step_s=1.0, max_tokens=4096, max_sequences=512, per_token_s=0.01)


def demand(*, requests: int = 6, at_once: int = 2, isl: int = 10, osl: int = 4, delay_s: float = 0.0) -> LoopDemand:
    return LoopDemand(
        isl_tokens=np.full(requests, isl), osl_tokens=np.full(requests, osl), at_once=at_once, delay_s=delay_s
    )


def run(
    asked: LoopDemand, policy: LoopPolicy, *, tables: object = TABLES, ranks: int = 1, rooms: tuple[int, ...] = ()
) -> LoopRecords:
    clock = StepClock(tables)  # type: ignore[arg-type]
    engine = Engine(clock, policy=policy, work=replace(loop_work(asked), rooms=rooms), ranks=ranks)
    return simulate_loop(asked, engines=[engine])


def test_a_batch_that_fits_takes_one_pass_and_a_step_per_further_token() -> None:
    records = run(demand(requests=4, at_once=4), LoopPolicy(resident=8, step_tokens=64))
    np.testing.assert_array_equal(records.first_token_s, 1.0)
    np.testing.assert_array_equal(records.finish_s, 4.0)


def test_prompts_beyond_the_budget_go_in_chunks() -> None:
    # 25 prompt tokens, 10 a step: chunks of 10, 10, 5; the second prompt starts in the rest of the third step.
    asked = demand(requests=2, at_once=2, isl=25, osl=1)
    records = run(asked, LoopPolicy(resident=2, step_tokens=10))
    np.testing.assert_array_equal(records.first_token_s, [3.0, 5.0])


def test_whole_prompts_wait_until_they_fit() -> None:
    asked = demand(requests=3, at_once=3, isl=25, osl=1)
    records = run(asked, LoopPolicy(resident=3, step_tokens=60, chunked=False))
    np.testing.assert_array_equal(records.first_token_s, [1.0, 1.0, 2.0])


def test_clients_send_the_next_request_when_one_is_answered() -> None:
    records = run(demand(), LoopPolicy(resident=2, step_tokens=64))
    np.testing.assert_array_equal(records.sent_s, [0, 0, 4, 4, 8, 8])
    np.testing.assert_array_equal(records.finish_s, [4, 4, 8, 8, 12, 12])


def test_a_step_put_together_ahead_costs_a_newcomer_one_step() -> None:
    asked = LoopDemand(isl_tokens=np.full(3, 10), osl_tokens=np.array([4, 20, 4]), at_once=2)
    plain, ahead = (run(asked, LoopPolicy(resident=2, step_tokens=64, ahead=ahead)) for ahead in (False, True))
    # The third request is sent with the first answer, while the second goes on.
    assert plain.first_token_s[2] - plain.sent_s[2] == 1.0
    assert ahead.first_token_s[2] - ahead.sent_s[2] == 2.0


def test_beyond_the_resident_number_requests_wait() -> None:
    records = run(demand(requests=4, at_once=4), LoopPolicy(resident=2, step_tokens=64))
    np.testing.assert_array_equal(np.sort(records.first_token_s), [1.0, 1.0, 5.0, 5.0])


def test_prompts_with_steps_of_their_own_stop_decodes() -> None:
    asked = LoopDemand(isl_tokens=np.full(3, 10), osl_tokens=np.array([4, 20, 4]), at_once=2)
    mixed = run(asked, LoopPolicy(resident=2, step_tokens=64))
    alone = run(asked, LoopPolicy(resident=2, step_tokens=64, decodes_beside=False))
    assert alone.finish_s[1] == mixed.finish_s[1] + 1.0


def test_the_slowest_rank_sets_the_pace() -> None:
    # A prompt on one of two ranks makes the other's decode step as long.
    asked = LoopDemand(isl_tokens=np.array([10, 10, 100]), osl_tokens=np.array([4, 20, 4]), at_once=2)
    policy = LoopPolicy(resident=2, step_tokens=512)
    together = run(asked, policy, tables=PER_TOKEN, ranks=2)
    clock = StepClock(PER_TOKEN)
    apart = simulate_loop(asked, engines=[Engine(clock, policy=policy, work=loop_work(asked)) for _ in range(2)])
    assert together.finish_s[1] > apart.finish_s[1] + 0.9


def test_prompts_of_ranks_wait_for_each_other() -> None:
    # The third request is sent at 4, when its rank has nobody else and the other rank decodes to the end.
    asked = LoopDemand(isl_tokens=np.full(3, 10), osl_tokens=np.array([4, 40, 4]), at_once=2)
    first_s = [
        run(asked, LoopPolicy(resident=2, step_tokens=64, gather_steps=steps), ranks=2).first_token_s[2]
        for steps in (0, 5, 1000)
    ]
    assert first_s[:2] == [5.0, 10.0]
    # Nobody waits for a rank that will never have a prompt.
    assert first_s[2] == 41.0


def test_a_request_goes_to_the_rank_of_its_room() -> None:
    # Steps take one prompt a rank: of three that one rank has to compute, the others wait for none.
    asked = demand(requests=4, at_once=4, osl=1)
    policy = LoopPolicy(resident=4, step_tokens=10)
    emptiest, drawn = (run(asked, policy, ranks=2, rooms=rooms).first_token_s for rooms in ((), (0, 2, 5, 4)))
    np.testing.assert_array_equal(emptiest, [1.0, 1.0, 2.0, 2.0])
    np.testing.assert_array_equal(drawn, [1.0, 2.0, 1.0, 3.0])


def test_pools_pass_prompts_over_the_link() -> None:
    asked = demand(requests=2, at_once=2, isl=10, osl=4)
    clock, policy = StepClock(TABLES), LoopPolicy(resident=4, step_tokens=64)
    first = Engine(clock, policy=policy, work=loop_work(asked, answers=False))
    second = Engine(clock, policy=policy, work=loop_work(asked, computes=False))
    records = simulate_loop(asked, engines=[first], decode=[second], transfer_s=[0.5, 0.5])
    # Both prompts in one step; their caches leave one after the other, and the second waits for a step to end.
    np.testing.assert_array_equal(records.first_token_s, [1.5, 2.5])
    np.testing.assert_array_equal(records.finish_s, [4.5, 5.5])


def test_a_hand_over_holds_up_its_request_and_not_the_link() -> None:
    def finish_s(hand_over_s: float) -> list[float]:
        asked, clock = demand(requests=2, at_once=2, isl=10, osl=4), StepClock(TABLES)
        policy = LoopPolicy(resident=4, step_tokens=64)
        first = Engine(clock, policy=policy, work=loop_work(asked, answers=False))
        second = Engine(clock, policy=policy, work=loop_work(asked, computes=False))
        halves = [0.5, 0.5]
        records = simulate_loop(asked, engines=[first], decode=[second], transfer_s=halves, hand_over_s=hand_over_s)
        return [float(end_s) for end_s in records.finish_s]

    assert finish_s(2.0) == [end_s + 2.0 for end_s in finish_s(0.0)]


def test_who_waits_for_a_seat_of_the_decode_pool_has_no_first_token_yet() -> None:
    asked = demand(requests=6, at_once=6, isl=10, osl=4)
    clock, work = StepClock(TABLES), loop_work(asked, computes=False)
    first = Engine(clock, policy=LoopPolicy(resident=6, step_tokens=64), work=loop_work(asked, answers=False))
    second = Engine(clock, policy=LoopPolicy(resident=1, step_tokens=64), work=work)
    records = simulate_loop(asked, engines=[first], decode=[second], transfer_s=[0.0] * 6)
    pace_s = records.finish_s - records.first_token_s
    np.testing.assert_array_equal(pace_s, np.full(6, pace_s[0]))
    np.testing.assert_array_equal(records.first_token_s[1:], records.finish_s[:-1])


def test_runs_of_too_many_steps_are_refused_before_they_begin_or_where_they_turn_out_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = LoopPolicy(resident=8, step_tokens=10)
    with pytest.raises(RoofcastError, match="6,000,000,000 prompt tokens in steps of 10 take more"):
        run(demand(requests=6000, at_once=8, isl=1_000_000), policy)
    monkeypatch.setattr(simulation, "MAX_EVENTS", 7)
    run(demand(requests=6, at_once=6, isl=10, osl=1), policy)
    with pytest.raises(RoofcastError, match="6 requests take more .* up to 7"):
        run(demand(requests=6, at_once=2, isl=10, osl=4), policy)


def test_answers_of_one_token_never_leave_the_prefill_pool() -> None:
    asked = demand(requests=2, at_once=1, isl=10, osl=1)
    clock, policy = StepClock(TABLES), LoopPolicy(resident=4, step_tokens=64)
    first = Engine(clock, policy=policy, work=loop_work(asked, answers=False))
    second = Engine(clock, policy=policy, work=loop_work(asked, computes=False))
    records = simulate_loop(asked, engines=[first], decode=[second], transfer_s=[inf, inf])
    np.testing.assert_array_equal(records.finish_s, [1.0, 2.0])
    assert second.steps == 0


@settings(max_examples=60, deadline=None)
@given(
    requests=st.integers(1, 60),
    at_once=st.integers(1, 60),
    isl=st.integers(1, 200),
    osl=st.integers(1, 20),
    resident=st.integers(1, 40),
    extra=st.integers(1, 100),
    ratio=st.floats(0.1, 1.0),
    ranks=st.integers(1, 3),
    ahead=st.booleans(),
)
def test_nothing_is_lost_and_time_only_moves_forward(
    requests: int, at_once: int, isl: int, osl: int, resident: int, extra: int, ratio: float, ranks: int, ahead: bool
) -> None:
    prompts, answers = LoopLengths(isl_tokens=isl, osl_tokens=osl, range_ratio=ratio).drawn(requests)
    asked = LoopDemand(isl_tokens=prompts, osl_tokens=answers, at_once=min(at_once, requests), delay_s=0.25)
    policy = LoopPolicy(resident=resident, step_tokens=resident + extra, ahead=ahead)
    records = run(asked, policy, ranks=ranks)
    assert np.all(records.finish_s > 0)
    assert np.all(records.sent_s < records.first_token_s)
    # Every token after the first takes a step of its own, and a step one second.
    np.testing.assert_array_equal(np.round(records.finish_s - records.first_token_s, 6), answers - 1)
    assert records.steps >= answers.max()


@pytest.mark.parametrize("pools", [False, True])
def test_many_engines_take_turns_as_few_do(pools: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranked in a heap or looked through, the same engine is the next and the emptiest."""
    prompts, answers = LoopLengths(isl_tokens=40, osl_tokens=12, range_ratio=0.3).drawn(300)
    asked = LoopDemand(isl_tokens=prompts, osl_tokens=answers, at_once=60, delay_s=0.25)

    def records() -> LoopRecords:
        policy, clock = LoopPolicy(resident=4, step_tokens=50), StepClock(PER_TOKEN)
        first = [Engine(clock, policy=policy, work=loop_work(asked, answers=not pools)) for _ in range(5)]
        work = loop_work(asked, computes=False)
        second = [Engine(clock, policy=policy, work=work) for _ in range(9)] if pools else []
        return simulate_loop(asked, engines=first, decode=second, transfer_s=[0.1] * 300 if pools else [])

    looked_through = records()
    monkeypatch.setattr(simulation, "_FEW_ENGINES", 1)
    ranked = records()
    for name in ("sent_s", "first_token_s", "finish_s"):
        np.testing.assert_array_equal(getattr(ranked, name), getattr(looked_through, name))


def test_littles_law() -> None:
    records = run(demand(requests=400, at_once=8), LoopPolicy(resident=8, step_tokens=4096))
    rate = 400 / records.finish_s.max()
    assert rate * np.mean(records.finish_s - records.sent_s) == pytest.approx(8)


def test_uneven_requests_drift_apart() -> None:
    """Identical ones prefill together for ever; uneven ones meet a running batch and get their first token sooner."""
    policy = LoopPolicy(resident=8, step_tokens=4096)
    first_s = []
    for ratio in (1.0, 0.8):
        prompts, answers = LoopLengths(isl_tokens=200, osl_tokens=100, range_ratio=ratio).drawn(160)
        asked = LoopDemand(isl_tokens=prompts, osl_tokens=answers, at_once=8)
        records = run(asked, policy, tables=PER_TOKEN)
        first_s.append(np.median(records.first_token_s - records.sent_s))
    assert first_s[1] < 0.5 * first_s[0]


def test_lengths_are_those_of_the_benchmark_client() -> None:
    """vLLM's client seeds numpy's global generator with 0 and calls randint, for all prompts and then all answers."""
    prompts, answers = LoopLengths(isl_tokens=1024, osl_tokens=1024, range_ratio=0.8).drawn(40)
    np.random.seed(0)
    np.testing.assert_array_equal(prompts, np.random.randint(819, 1025, size=40))
    np.testing.assert_array_equal(answers, np.random.randint(819, 1025, size=40))


def test_lengths_are_drawn_within_their_range() -> None:
    prompts, answers = LoopLengths(isl_tokens=1000, osl_tokens=500, range_ratio=0.8).drawn(3200)
    assert (prompts.min(), prompts.max()) == (800, 1000)
    assert prompts.mean() == pytest.approx(900, abs=4)
    assert answers.mean() == pytest.approx(450, abs=2)
    assert abs(np.corrcoef(prompts, answers)[0, 1]) < 0.1
    again = LoopLengths(isl_tokens=1000, osl_tokens=500, range_ratio=0.8).drawn(3200)[0]
    np.testing.assert_array_equal(prompts, again)
    other = LoopLengths(isl_tokens=1000, osl_tokens=500, range_ratio=0.8, seed=1).drawn(3200)[0]
    assert np.any(prompts != other)
    assert set(LoopLengths(isl_tokens=3, osl_tokens=1, range_ratio=0.1).drawn(99)[1]) == {1}


def test_lengths_may_vary_around_the_nominal_ones() -> None:
    prompts, answers = LoopLengths(isl_tokens=1000, osl_tokens=500, isl_cv=0.5).drawn(1000)
    assert prompts.mean() == pytest.approx(1000, rel=0.01)
    assert prompts.std() == pytest.approx(500, rel=0.05)
    assert set(answers.tolist()) == {500}


def test_steps_pass_the_stages_of_a_pipeline_side_by_side_and_wait_behind_longer_ones() -> None:
    """Alone a step takes its own time; of equal ones each stage has one; a short one comes out behind a long one's last
    stage, however little it has to do in the others; and the host is between two steps of a stage."""
    alone = Pipeline([0.25] * 4, host=0.0)
    assert [alone.end_s(0.0, 8.0) for _ in range(3)] == pytest.approx([8.0, 10.0, 12.0])
    mixed = Pipeline([0.5, 0.5], host=0.0)
    assert [mixed.end_s(0.0, 10.0), mixed.end_s(0.0, 2.0)] == pytest.approx([10.0, 11.0])
    hosted = Pipeline([0.25, 0.25], host=0.5)
    assert [hosted.end_s(0.0, 4.0), hosted.end_s(0.0, 4.0)] == pytest.approx([4.0, 7.0])
