"""Arrivals, prompts and lengths: counts, laws, sharing, seeds, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.arrivals import constant_arrivals, gamma_arrivals, stage_arrivals, trace_arrivals
from simulator.traffic.requests import grouped_prompts, hashed_prompts, make_requests
from simulator.traffic.workload_requests import build_requests

STAGES = (StageSpec(rate_per_s=5, duration_s=600), StageSpec(rate_per_s=20, duration_s=300))


def workload(**fields: object) -> WorkloadSpec:
    return WorkloadSpec.model_validate(
        {"stages": STAGES, "system_prompt_tokens": 100, "question_tokens": 447, "osl_tokens": 248, **fields}
    )


def test_constant_arrivals_are_evenly_spaced_and_fill_every_stage() -> None:
    requests = build_requests(workload(arrival="constant", spacing="even"), block_size_tokens=16)
    assert len(requests) == 3000 + 6000
    np.testing.assert_allclose(np.diff(requests.arrival_s[:3000]), 0.2)
    np.testing.assert_allclose(np.diff(requests.arrival_s[3000:]), 0.05)
    assert requests.arrival_s[3000] == 600.0
    np.testing.assert_array_equal(np.bincount(requests.stage), [3000, 6000])
    np.testing.assert_array_equal(requests.stage_end_s, [600.0, 900.0])


def test_fractional_rates_send_the_rounded_number() -> None:
    assert len(constant_arrivals(StageSpec(rate_per_s=2.5, duration_s=600))) == 1500
    assert len(constant_arrivals(StageSpec(rate_per_s=0.1, duration_s=30))) == 3


def test_random_spacing_keeps_the_count_and_scatters_the_gaps() -> None:
    requests = build_requests(workload(arrival="constant"), block_size_tokens=16)
    np.testing.assert_array_equal(np.bincount(requests.stage), [3000, 6000])
    gaps = np.diff(requests.arrival_s[3000:])
    # Exponential gaps: cv 1, with a standard error of about 1 / sqrt(n).
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=5 / np.sqrt(6000))


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 2.0])
def test_gamma_gaps_have_the_asked_mean_and_variation(burstiness: float) -> None:
    stage = StageSpec(rate_per_s=50, duration_s=4000)
    times = gamma_arrivals(stage, burstiness=burstiness, rng=np.random.default_rng(3))
    gaps = np.diff(times)
    assert (times < 4000).all()
    assert times[-1] > 3990
    # 200,000 gaps: the standard error of the mean is cv / sqrt(n), about 0.2 %; that of the cv about 1 % at cv 2.
    assert gaps.mean() == pytest.approx(1 / 50, rel=5 * burstiness / np.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.03)


def test_a_poisson_stage_has_a_poisson_count() -> None:
    counts = [
        len(gamma_arrivals(StageSpec(rate_per_s=2, duration_s=50), burstiness=1.0, rng=np.random.default_rng(seed)))
        for seed in range(2000)
    ]
    assert np.mean(counts) == pytest.approx(100, abs=4 * np.sqrt(100 / 2000))
    assert np.var(counts) == pytest.approx(100, rel=0.13)


def test_seeds_decide_and_stages_draw_independently() -> None:
    first, again, other = (stage_arrivals(workload(arrival="poisson", seed=seed))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert len(first) != len(other) or (first != other).any()
    shorter = workload(arrival="poisson", seed=1, stages=(StageSpec(rate_per_s=7, duration_s=600), STAGES[1]))
    second = [times[times >= 600] for times in (first, stage_arrivals(shorter)[0])]
    np.testing.assert_array_equal(second[0], second[1])


def test_a_trace_scaled_to_a_rate_keeps_its_pattern() -> None:
    recorded = np.array([0.0, 1.0, 4.0, 6.0])
    times, source = trace_arrivals(StageSpec(rate_per_s=1.0, duration_s=8.0), recorded_s=recorded)
    # Mean gap 2 s, so that a rate of 1/s halves every gap; the second round starts a mean gap after the last.
    np.testing.assert_allclose(times, [0.0, 0.5, 2.0, 3.0, 4.0, 4.5, 6.0, 7.0])
    np.testing.assert_array_equal(source, [0, 1, 2, 3, 0, 1, 2, 3])


def test_trace_replay_takes_times_and_lengths_from_the_file(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00.0,374,44\n2023-11-16 18:00:05.5,396,109\n2023-11-16 18:00:06.0,20,1\n"
    )
    replayed = build_requests(WorkloadSpec(arrival="trace", trace=str(trace)), block_size_tokens=16)
    np.testing.assert_allclose(replayed.arrival_s, [0.0, 5.5, 6.0])
    assert replayed.prompt_tokens.tolist() == [374, 396, 20]
    assert replayed.output_tokens.tolist() == [44, 109, 1]
    scaled = WorkloadSpec(arrival="trace", trace=str(trace), stages=(StageSpec(rate_per_s=2, duration_s=9),))
    assert len(build_requests(scaled, block_size_tokens=16)) == 18


def test_lengths_vary_around_their_mean() -> None:
    varied = build_requests(
        workload(arrival="constant", isl_cv=0.5, osl_cv=1.0, stages=(StageSpec(rate_per_s=100, duration_s=400),)),
        block_size_tokens=16,
    )
    questions = varied.prompt_tokens - 100
    assert questions.mean() == pytest.approx(447, rel=0.015)
    assert questions.std() / questions.mean() == pytest.approx(0.5, rel=0.04)
    assert varied.output_tokens.mean() == pytest.approx(248, rel=0.03)
    assert varied.output_tokens.min() >= 1
    fixed = build_requests(workload(arrival="constant"), block_size_tokens=16)
    assert set(fixed.prompt_tokens.tolist()) == {547}


def test_cycled_prompts_share_their_groups_system_prompt_and_repeat() -> None:
    """2 groups x 3 prompts of 50 tokens, 20 of them shared, blocks of 8: 2 shared blocks, 4 of one's own."""
    requests = build_requests(
        workload(arrival="constant", system_prompt_tokens=20, question_tokens=30, prompt_groups=2, prompts_per_group=3),
        block_size_tokens=8,
    )

    def ids(request: int) -> list[int]:
        low, high = requests.list_start[requests.prefix_list[request] : requests.prefix_list[request] + 2]
        return requests.block_ids[low:high].tolist()

    assert len(ids(0)) == 6
    assert ids(0) == ids(6)
    assert ids(0)[:2] == ids(1)[:2] == ids(2)[:2]
    assert not set(ids(0)[2:]) & set(ids(1))
    assert not set(ids(0)) & set(ids(3))
    assert requests.distinct_blocks == 2 * 2 + 6 * 4


def test_new_questions_share_only_the_system_prompt() -> None:
    requests = build_requests(workload(arrival="constant"), block_size_tokens=16)
    assert set(requests.prefix_list.tolist()) == {0}
    assert requests.distinct_blocks == 100 // 16
    grouped = build_requests(workload(arrival="constant", prompt_groups=4), block_size_tokens=16)
    assert grouped.prefix_list[:5].tolist() == [0, 1, 2, 3, 0]


def test_a_system_prompt_shorter_than_a_block_is_not_shared() -> None:
    lists = grouped_prompts(
        groups=1, prompts_per_group=2, system_tokens=7, prompt_tokens=np.array([20, 20]), block_size_tokens=8
    )
    assert lists.block_ids.tolist() == [0, 1, 2, 3]


def test_trace_hashes_expand_to_engine_blocks() -> None:
    lists = hashed_prompts([[7, 9], [7, 11]], hash_block_tokens=32, block_size_tokens=16)
    assert lists.list_start.tolist() == [0, 4, 8]
    first, second = lists.block_ids[:4].tolist(), lists.block_ids[4:].tolist()
    assert first[:2] == second[:2]
    assert len(set(first + second)) == 6
    with pytest.raises(RoofcastError, match="does not divide"):
        hashed_prompts([[1]], hash_block_tokens=32, block_size_tokens=24)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"osl_tokens": None}, "workload.osl_tokens"),
        ({"question_tokens": None}, "workload.isl_tokens"),
        ({"isl_tokens": 300}, "workload.isl_tokens"),
        ({"question_tokens": None, "isl_tokens": 100}, "workload.isl_tokens"),
        ({"stages": ()}, "workload.stages"),
        ({"burstiness": 2.0}, "workload.burstiness"),
        ({"arrival": "gamma", "spacing": "random"}, "workload.spacing"),
        ({"arrival": "trace"}, "workload.trace"),
        ({"arrival": "trace", "trace": "t.csv"}, "workload.question_tokens"),
    ],
)
def test_incomplete_or_idle_options_are_refused(fields: dict[str, object], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        build_requests(workload(**fields), block_size_tokens=16)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("times", "prompts", "outputs"),
    [
        ([0.0, 2.0, 1.0], [1, 1, 1], [1, 1, 1]),
        ([-1.0, 2.0, 3.0], [1, 1, 1], [1, 1, 1]),
        ([0.0, 1.0, np.nan], [1, 1, 1], [1, 1, 1]),
        ([0.0, 1.0, 2.0], [1, 0, 1], [1, 1, 1]),
        ([0.0, 1.0, 2.0], [1, 1, 1], [1, 1, -5]),
        ([0.0, 1.0, 2.0], [1, 1], [1, 1, 1]),
        ([], [], []),
    ],
)
def test_bad_traces_are_refused(times: list[float], prompts: list[int], outputs: list[int]) -> None:
    with pytest.raises(RoofcastError):
        make_requests(
            arrival_s=np.array(times, dtype=np.float64),
            prompt_tokens=np.array(prompts, dtype=np.int64),
            output_tokens=np.array(outputs, dtype=np.int64),
        )
