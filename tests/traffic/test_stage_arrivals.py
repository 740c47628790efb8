"""``simulator.traffic.arrivals``: counts, rates and gaps of every kind of arrival, and turns of conversations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.specs.question.workload import ConversationSpec, StageSpec, WorkloadSpec
from simulator.traffic.arrivals import (
    constant_arrivals,
    gamma_arrivals,
    scattered_arrivals,
    stage_arrivals,
    trace_arrivals,
    turn_counts,
)
from simulator.traffic.workload_requests import build_requests

FEW = settings(max_examples=25, deadline=None)
RATE, DURATION = st.floats(0.1, 50), st.floats(1, 100)


def stage(rate: float, duration: float) -> StageSpec:
    return StageSpec(rate_per_s=rate, duration_s=duration)


@FEW
@given(rate=RATE, duration=DURATION)
def test_constant_arrivals_are_rate_times_duration_and_evenly_spaced(rate: float, duration: float) -> None:
    times = constant_arrivals(stage(rate, duration))
    assert abs(len(times) - rate * duration) <= 0.5 + 1e-9
    assert np.diff(times) == pytest.approx(1 / rate)
    assert len(times) == 0 or times[0] == 0


@FEW
@given(rate=RATE, duration=DURATION, seed=st.integers(0, 99))
def test_scattered_arrivals_are_as_many_within_the_stage(rate: float, duration: float, seed: int) -> None:
    times = scattered_arrivals(stage(rate, duration), rng=np.random.default_rng(seed))
    assert len(times) == len(constant_arrivals(stage(rate, duration)))
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < duration))


@pytest.mark.parametrize("burstiness", [0.3, 0.7, 1.0, 1.5, 3.0])
def test_gamma_gaps_have_their_mean_and_variation(burstiness: float) -> None:
    times = gamma_arrivals(stage(20.0, 2000.0), burstiness=burstiness, rng=np.random.default_rng(0))
    gaps = np.diff(times)
    assert 1 / gaps.mean() == pytest.approx(20.0, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.05)
    assert times[-1] < 2000.0


@FEW
@given(gaps=st.lists(st.floats(0.01, 10), min_size=1, max_size=30), rate=st.floats(0.1, 20), duration=st.floats(1, 60))
def test_a_replayed_trace_keeps_its_pattern_at_the_asked_rate(gaps: list[float], rate: float, duration: float) -> None:
    recorded = np.concatenate([[0.0], np.cumsum(gaps)])
    times, source = trace_arrivals(stage(rate, duration), recorded_s=recorded)
    assert np.all(np.diff(times) >= -1e-9)
    assert np.all(times < duration)
    count = len(recorded)
    assert source.tolist() == (np.arange(len(times)) % count).tolist()
    scaled = recorded / (recorded[-1] / (count - 1)) / rate
    first = times[: min(count, len(times))]
    assert first == pytest.approx(scaled[: len(first)], abs=1e-9)


def test_a_trace_without_time_has_no_rate() -> None:
    with pytest.raises(RoofcastError) as refused:
        trace_arrivals(stage(1.0, 10.0), recorded_s=np.zeros(5))
    assert refused.value.field == "workload.trace"


def workload(**changes: object) -> WorkloadSpec:
    plain = {
        "arrival": "poisson",
        "stages": (stage(10.0, 30.0), stage(2.0, 50.0), stage(20.0, 10.0)),
        "question_tokens": 100,
        "osl_tokens": 20,
    }
    return WorkloadSpec(**{**plain, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("arrival", ["constant", "poisson", "gamma"])
def test_stages_follow_each_other(arrival: str) -> None:
    times, stages, ends = stage_arrivals(workload(arrival=arrival))
    assert ends.tolist() == [30, 80, 90]
    assert np.all(np.diff(times) >= 0)
    assert np.all(np.diff(stages) >= 0)
    for index, (start, end) in enumerate(zip([0, 30, 80], ends, strict=True)):
        mine = times[stages == index]
        assert np.all((mine >= start) & (mine < end))
        assert len(mine) / (end - start) == pytest.approx([10, 2, 20][index], rel=0.4)


def test_a_stage_draws_the_same_whatever_follows_it() -> None:
    alone, _, _ = stage_arrivals(workload(stages=(stage(10.0, 30.0),)))
    among, stages, _ = stage_arrivals(workload())
    assert np.array_equal(alone, among[stages == 0])


def test_no_stages_are_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        stage_arrivals(workload(stages=()))
    assert refused.value.field == "workload.stages"


@pytest.mark.parametrize("mean", [1.0, 2.0, 5.0])
def test_turns_are_geometric_with_the_asked_mean(mean: float) -> None:
    spec = ConversationSpec(turns_mean=mean, max_turns=1000)
    turns = turn_counts(spec, count=40_000, rng=np.random.default_rng(0))
    assert turns.min() == 1
    assert turns.mean() == pytest.approx(mean, rel=0.02)
    # Every turn ends its conversation with the same chance.
    for passed in (1, 2):
        left = turns[turns > passed]
        if len(left):
            assert np.mean(left == passed + 1) == pytest.approx(1 / mean, abs=0.02)


def test_turns_are_bounded() -> None:
    spec = ConversationSpec(turns_mean=5.0, max_turns=3)
    assert turn_counts(spec, count=1000, rng=np.random.default_rng(0)).max() == 3


def test_each_turns_prompt_holds_what_was_said_before() -> None:
    spec = workload(conversation=ConversationSpec(turns_mean=3.0), stages=(stage(5.0, 20.0),), system_prompt_tokens=64)
    requests = build_requests(spec, block_size_tokens=16)
    follows = requests.previous >= 0
    assert follows.any()
    before = requests.previous[follows]
    grown = requests.prompt_tokens[follows] - requests.prompt_tokens[before] - requests.output_tokens[before]
    assert set(grown.tolist()) == {100}  # the new question
    assert set(requests.prompt_tokens[~follows].tolist()) == {164}


@pytest.mark.parametrize("arrival", ["constant", "poisson", "gamma"])
def test_the_same_seed_sends_the_same_requests(arrival: str) -> None:
    first, second = (build_requests(workload(arrival=arrival, seed=7), block_size_tokens=16) for _ in range(2))
    assert np.array_equal(first.arrival_s, second.arrival_s)
    assert np.array_equal(first.prompt_tokens, second.prompt_tokens)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"burstiness": 2.0}, "workload.burstiness"),
        ({"spacing": "even"}, "workload.spacing"),
        ({"arrival": "trace"}, "workload.trace"),
        ({"isl_tokens": 500}, "workload.isl_tokens"),
        ({"question_tokens": None}, "workload.isl_tokens"),
    ],
)
def test_what_would_change_nothing_or_is_missing_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        build_requests(workload(**changes), block_size_tokens=16)
    assert refused.value.field == field


def test_questions_cycle_through_the_distinct_prompts() -> None:
    spec = workload(system_prompt_tokens=64, prompt_groups=2, prompts_per_group=3, isl_cv=0.5)
    requests = build_requests(spec, block_size_tokens=16)
    lengths = requests.prompt_tokens
    assert np.array_equal(lengths[6:], lengths[:-6])
    assert len(np.unique(requests.prefix_list)) == 6
