"""``simulator.engine.events.steps``: what a step counts, when it runs, and sums over steps that nothing is lost in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.events import state as at
from simulator.engine.events import steps
from simulator.engine.events.arrays import stacked_tables
from simulator.phases.compiled import uniform_tables
from tests.engine.events.one_replica import Parts, lengths, parts

STEP_S, TOKEN_S = 0.01, 0.001
TABLES = uniform_tables(step_s=STEP_S, max_tokens=64, max_sequences=4, per_token_s=TOKEN_S, max_context=128)


def launch(one: Parts, *, now_s: float, chunks: dict[int, int], decodes: int = 0, stages: int = 1) -> int:
    """Form a step of ``chunks`` tokens by slot beside ``decodes`` sequences and send it off. Returns its row."""
    state = one.state
    number = steps.begin_step(state, one.limits)
    state.count[at.DECODING] = decodes
    for slot, chunk in chunks.items():
        steps.add_chunk(state, slot, chunk)
    steps.launch(state, one.limits, stacked_tables((TABLES,) * stages), now_s)
    return number & one.limits.step_mask


def test_pieces_of_a_prompt_count_the_query_key_pairs_of_the_whole() -> None:
    one = parts(lengths([60]))
    steps.begin_step(one.state, one.limits)
    pairs = []
    for chunk in (10, 20, 30):
        steps.begin_step(one.state, one.limits)
        steps.add_chunk(one.state, 0, chunk)
        pairs.append(int(one.state.count[at.PREFILL_WORK2]))
    # Twice the pairs of q tokens after c is q (2 c + q): 60 x 60 in one piece.
    assert pairs == [100, 20 * 40, 30 * 90]
    assert sum(pairs) == 3600
    assert one.state.slots[0, at.SLOT_COMPUTED] == 60


def test_a_step_being_formed_is_empty_and_forgets_the_last() -> None:
    one = parts(lengths([8, 8]))
    steps.begin_step(one.state, one.limits)
    steps.add_chunk(one.state, 0, 8)
    steps.add_first_token(one.state, one.limits, 0)
    assert one.state.count[[at.PREFILL_SEQUENCES, at.PREFILL_TOKENS, at.PREFILL_DONE]].tolist() == [1, 8, 1]
    assert steps.begin_step(one.state, one.limits) == 0, "it was not launched"
    assert one.state.count[[at.PREFILL_SEQUENCES, at.PREFILL_TOKENS, at.PREFILL_DONE]].tolist() == [0, 0, 0]
    assert one.state.plan[0, at.PLAN_FIRSTS] == 0


def test_whose_prompt_a_step_completes() -> None:
    one = parts(lengths([8, 8, 8]))
    one.state.slots[[2, 0], at.SLOT_REQUEST] = [1, 2]
    steps.begin_step(one.state, one.limits)
    for slot in (2, 0):
        steps.add_first_token(one.state, one.limits, slot)
    assert one.state.marked[0, :2, at.FIRST_REQUEST].tolist() == [1, 2]


class TestLaunch:
    def test_time_of_a_step_by_hand(self) -> None:
        one = parts(lengths([60]))
        row = launch(one, now_s=2.0, chunks={0: 20}, decodes=3)
        # 10 ms of the host and 23 tokens of 1 ms.
        assert one.state.span_s[row].tolist() == pytest.approx([2.0, 2.033, 0.033, 0.033])
        assert one.state.plan[row, [at.PLAN_DECODES, at.PLAN_PREFILLS, at.PLAN_TOKENS]].tolist() == [3, 1, 23]

    def test_a_step_waits_for_the_one_before(self) -> None:
        one = parts(lengths([60]))
        launch(one, now_s=0.0, chunks={0: 30})
        row = launch(one, now_s=0.01, chunks={0: 30})
        assert one.state.span_s[row, [at.STEP_START_S, at.STEP_END_S]].tolist() == pytest.approx([0.04, 0.08])

    def test_stages_of_a_pipeline_overlap_steps_and_pay_the_host_once(self) -> None:
        one = parts(lengths([60]), stages=2)
        first = launch(one, now_s=0.0, chunks={0: 30}, stages=2)
        second = launch(one, now_s=0.0, chunks={0: 30}, stages=2)
        # 40 ms of the first stage with the host's 10, then 30 ms of the second; the next begins behind stage one.
        assert one.state.span_s[first].tolist() == pytest.approx([0.0, 0.07, 0.07, 0.07])
        assert one.state.span_s[second].tolist() == pytest.approx([0.04, 0.04 + 0.08 - 0.01, 0.07, 0.07])

    def test_a_pipeline_is_as_fast_as_its_slowest_stage(self) -> None:
        one = parts(lengths([60]), stages=3)
        ends = []
        for _ in range(12):
            row = launch(one, now_s=0.0, chunks={0: 4}, stages=3)
            ends.append(float(one.state.span_s[row, at.STEP_END_S]))
        assert np.diff(ends)[-5:] == pytest.approx(STEP_S + 4 * TOKEN_S)


class TestSums:
    @settings(max_examples=30, deadline=None)
    @given(
        chunks=st.lists(st.integers(1, 20), min_size=1, max_size=25),
        gap_s=st.sampled_from([0.0, 0.005, 0.3]),
        stages=st.sampled_from([1, 2]),
    )
    def test_nothing_is_lost_between_steps_sums_and_buckets(self, chunks: list[int], gap_s: float, stages: int) -> None:
        one = parts(lengths([60]), stages=stages, trace_steps=50)
        state, covered_s, until_s = one.state, 0.0, 0.0
        for place, chunk in enumerate(chunks):
            row = launch(one, now_s=gap_s * place, chunks={0: chunk}, decodes=1, stages=stages)
            start_s, end_s, length_s, work_s = state.span_s[row]
            assert end_s - start_s == pytest.approx(length_s)
            assert work_s <= length_s + 1e-12
            covered_s += end_s - max(start_s, until_s)
            until_s = end_s
            steps.account(state, one.demand, one.limits)
        usage, series = state.usage.sum(axis=0), state.series[: at.SERIES_BUCKETS].sum(axis=0)
        assert usage[at.STEPS] == len(chunks) == state.count[at.ACCOUNTED]
        assert usage[at.TOKENS] == sum(chunks) + len(chunks)
        assert usage[at.BUSY_S] == pytest.approx(covered_s)
        assert covered_s <= until_s + 1e-12
        assert series[at.SERIES_BUSY_S] == pytest.approx(covered_s)
        assert series[at.SERIES_TOKENS] == pytest.approx(usage[at.TOKENS])
        assert series[at.SERIES_SEQUENCE_S] == pytest.approx(usage[at.SEQUENCE_S])
        trace = state.trace[: len(chunks)]
        assert trace[:, at.TRACE_TOKENS].tolist() == [chunk + 1 for chunk in chunks]
        assert (trace[1:, at.TRACE_START_S] >= trace[:-1, at.TRACE_START_S]).all()

    def test_buckets_widen_and_keep_what_they_hold(self) -> None:
        one = parts(lengths([60]))
        state = one.state
        width_s = float(state.series[-1, at.SERIES_WIDTH_S])
        for now_s in (0.0, 3 * width_s * at.SERIES_BUCKETS):
            launch(one, now_s=now_s, chunks={0: 10})
            steps.account(state, one.demand, one.limits)
        assert state.series[-1, at.SERIES_WIDTH_S] == 4 * width_s
        assert state.series[:-1, at.SERIES_TOKENS].sum() == pytest.approx(20)
        assert state.series[0, at.SERIES_TOKENS] == pytest.approx(10 * 4 * width_s / 0.02)

    def test_steps_count_for_the_stage_of_the_demand_in_which_they_begin(self) -> None:
        requests = lengths([20, 20, 20], arrival_s=[0.0, 0.0, 1.0], stage_end_s=np.array([0.5, 1.0]))
        one = parts(requests)
        for now_s in (0.0, 0.495, 0.6, 2.0):
            launch(one, now_s=now_s, chunks={0: 10})
            steps.account(one.state, one.demand, one.limits)
        assert one.state.usage[:, at.STEPS].tolist() == [2, 1, 1]

    def test_who_waits_is_counted_while_a_step_runs(self) -> None:
        one = parts(lengths([20]))
        one.state.count[[at.OUTSTANDING, at.RUNNING]] = [5, 2]
        launch(one, now_s=0.0, chunks={0: 10})
        steps.account(one.state, one.demand, one.limits)
        assert one.state.usage[:, at.WAITING_S].sum() == pytest.approx(3 * 0.02)
