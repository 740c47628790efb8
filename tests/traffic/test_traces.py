"""Recorded demand in every format, lengths drawn from it, and conversations that are made up."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.specs.question.workload import ConversationSpec, StageSpec, WorkloadSpec
from simulator.traffic.arrivals import turn_counts
from simulator.traffic.recorded.trace_formats import trace_rows
from simulator.traffic.recorded.traces import read_trace, resampled_requests
from simulator.traffic.requests import Requests
from simulator.traffic.workload_requests import build_requests

BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n118,ChatGPT,417,0,417,Conversation log\n"
)
VLLM = {"start_times": [100.5, 100.0, 101.0], "input_lens": [10, 20, 30], "output_lens": [5, 6, 0], "duration": 3.0}


def mooncake(*rows: tuple[int, int, int, list[int]]) -> str:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows)


MOONCAKE = mooncake((0, 1200, 10, [7, 8, 9]), (500, 1100, 5, [7, 8, 30]), (1500, 600, 7, [50, 51]))


def written(folder: Path, text: str) -> str:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return str(path)


def requests(*, block_size_tokens: int = 16, **fields: object) -> Requests:
    return build_requests(WorkloadSpec.model_validate(fields), block_size_tokens=block_size_tokens)


def test_burstgpt_leaves_out_what_failed(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, BURST))
    np.testing.assert_allclose(trace.arrival_s, [0.0, 40.5])
    np.testing.assert_array_equal(trace.isl_tokens, [472, 1087])
    np.testing.assert_array_equal(trace.osl_tokens, [18, 230])


@pytest.mark.parametrize("indent", [None, 1])
def test_a_vllm_benchmark_is_replayed_in_order_of_sending(tmp_path: Path, indent: int | None) -> None:
    trace = read_trace(written(tmp_path, json.dumps(VLLM, indent=indent)))
    np.testing.assert_allclose(trace.arrival_s, [0.0, 0.5])
    np.testing.assert_array_equal(trace.isl_tokens, [20, 10])


def test_hashes_become_shared_blocks(tmp_path: Path) -> None:
    """Two hashes of 512 tokens in common: 64 blocks of 16."""
    found = requests(arrival="trace", trace=written(tmp_path, MOONCAKE))
    lists = [found.block_ids[found.list_start[i] : found.list_start[i + 1]] for i in found.prefix_list]
    np.testing.assert_array_equal(lists[0][:64], lists[1][:64])
    assert not set(lists[0][64:]) & set(lists[1][64:])
    assert not set(lists[0]) & set(lists[2])


def test_a_repeated_trace_repeats_its_prompts(tmp_path: Path) -> None:
    stage = {"rate_per_s": 3.0, "duration_s": 10.0}
    found = requests(arrival="trace", trace=written(tmp_path, MOONCAKE), stages=[stage])
    assert len(found) == 30
    np.testing.assert_array_equal(found.prefix_list[:6], [0, 1, 2, 0, 1, 2])
    with pytest.raises(RoofcastError) as caught:
        requests(arrival="trace", trace=written(tmp_path, MOONCAKE), block_size_tokens=48)
    assert caught.value.field == "engine.block_size_tokens"


@pytest.mark.parametrize(
    ("text", "where", "reason"),
    [
        (BURST + "x,ChatGPT,5,5,10,API log\n", "line 5", "Timestamp must be a number"),
        (BURST + "-1,ChatGPT,5,5,10,API log\n", "line 5", "Timestamp must be a number"),
        (BURST + "9,ChatGPT,0,5,5,API log\n", "line 5", "Request tokens must be"),
        (BURST + "9,ChatGPT,5,-5,5,API log\n", "line 5", "Response tokens must be"),
        (BURST.replace("Timestamp", "Time"), "line 1", "lacks Timestamp"),
        (mooncake((0, 600, 5, [1, 2, 3]), (1, 5, 5, [1])), "line 1", "at most 2 whole numbers"),
        (mooncake((0, 600, 5, [1]), (1, 600, 5, [-1])), "line 2", "hash_ids must be"),
        (
            mooncake((0, 600, 5, [1])) + '\n{"timestamp": 1, "input_length": 5, "output_length": 5}',
            "line 2",
            "all lines",
        ),
        (json.dumps({**VLLM, "start_times": None}), "result", "start_times is missing"),
        (json.dumps({**VLLM, "input_lens": [1]}), "result", "differ in length"),
        (json.dumps({**VLLM, "input_lens": [10, 0, 30]}), "request 1", "input_lens must be"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, where: str, reason: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        read_trace(written(tmp_path, text))
    assert f", {where}: " in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empirical_lengths_are_those_of_the_file_in_pairs(tmp_path: Path) -> None:
    stages = (StageSpec(rate_per_s=10, duration_s=300),)
    found = requests(lengths_trace=written(tmp_path, MOONCAKE), stages=stages)
    pairs, counts = np.unique(np.stack([found.prompt_tokens, found.output_tokens]), axis=1, return_counts=True)
    assert {tuple(pair) for pair in pairs.T} == {(1200, 10), (1100, 5), (600, 7)}
    assert (np.abs(counts / len(found) - 1 / 3) < 0.05).all()


def test_turns_grow_by_what_was_said() -> None:
    found = requests(
        stages=[{"rate_per_s": 1, "duration_s": 200}],
        system_prompt_tokens=64,
        question_tokens=30,
        osl_tokens=50,
        conversation={"turns_mean": 4, "think_s": 10},
    )
    later = np.flatnonzero(found.previous >= 0)
    before = found.previous[later]
    grown = found.prompt_tokens[before] + found.output_tokens[before] + 30
    np.testing.assert_array_equal(found.prompt_tokens[later], grown)
    np.testing.assert_array_equal(found.prefix_list[later], found.prefix_list[before])
    assert (found.prompt_tokens[found.previous < 0] == 94).all()
    assert found.think_s[later].mean() == pytest.approx(10, rel=0.2)
    starts, ids = found.list_start, found.block_ids
    assert all((ids[start : start + 4] == np.arange(4)).all() for start in starts[:-1])
    own = np.concatenate([ids[low + 4 : high] for low, high in itertools.pairwise(starts)])
    assert len(np.unique(own)) == len(own)


def test_the_number_of_turns_is_geometric() -> None:
    turns = turn_counts(ConversationSpec(turns_mean=4.0), count=20_000, rng=np.random.default_rng(1))
    assert turns.mean() == pytest.approx(4, rel=0.03)
    assert (turns == 1).mean() == pytest.approx(0.25, abs=0.02)
    capped = turn_counts(ConversationSpec(turns_mean=4.0, max_turns=3), count=100, rng=np.random.default_rng(1))
    assert capped.max() == 3


CHAT = {"stages": [{"rate_per_s": 1, "duration_s": 9}], "question_tokens": 9, "osl_tokens": 9}


def test_nobody_thinks_for_longer_than_a_clock_in_seconds_can_tell() -> None:
    with pytest.raises(ValueError, match="think_s"):
        ConversationSpec(turns_mean=2, think_s=1e15)


TURNS = {"turns_mean": 2}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({**CHAT, "conversation": TURNS, "isl_tokens": 9}, "workload.isl_tokens"),
        ({**CHAT, "conversation": TURNS, "prompts_per_group": 2}, "workload.prompts_per_group"),
        ({**CHAT, "conversation": TURNS, "question_tokens": None}, "workload.question_tokens"),
        ({**CHAT, "lengths_trace": "x"}, "workload.question_tokens"),
        ({"arrival": "trace", "trace": "x", "lengths_trace": "y"}, "workload.lengths_trace"),
        ({"arrival": "trace", "trace": "x", "conversation": TURNS}, "workload.conversation"),
    ],
)
def test_options_that_would_change_nothing_are_refused(fields: dict[str, object], field: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        requests(**fields)
    assert caught.value.field == field


def agents(*rows: dict[str, object]) -> str:
    return "\n".join(json.dumps({"output_length": 10, **row}) for row in rows)


TOOLS = agents(
    {"session_id": "a", "timestamp": 0, "input_length": 1024, "hash_ids": [1, 2]},
    {"session_id": "b", "timestamp": 100, "input_length": 512, "hash_ids": [1]},
    {"session_id": "a", "delay": 400, "input_length": 2048, "hash_ids": [1, 2, 3, 4]},
    {"session_id": "a", "delay": 50.5, "input_length": 2560, "hash_ids": [1, 2, 3, 4, 5]},
    {"session_id": "b", "delay": 0, "input_length": 1024, "hash_ids": [1, 7]},
)


def test_turns_of_agents_wait_for_their_tools(tmp_path: Path) -> None:
    assert [row.previous for row in trace_rows(TOOLS, path="trace")] == [None, None, 0, 2, 1]
    trace = read_trace(written(tmp_path, TOOLS))
    assert trace.previous is not None
    assert trace.wait_s is not None
    # Sorted by the earliest time: a at 0, b and its second turn at 100 ms, a's second and third at 400 and 450.5 ms.
    assert trace.isl_tokens.tolist() == [1024, 512, 1024, 2048, 2560]
    assert trace.previous.tolist() == [-1, -1, 1, 0, 3]
    assert trace.wait_s.tolist() == pytest.approx([0, 0, 0, 0.4, 0.0505])
    sent = build_requests(WorkloadSpec(arrival="trace", trace=trace.source), block_size_tokens=16)
    assert sent.previous.tolist() == trace.previous.tolist()
    assert sent.think_s.tolist() == trace.wait_s.tolist()


def test_a_trace_whose_turns_carry_times_waits_for_nothing(tmp_path: Path) -> None:
    rows = ({"session_id": 1, "timestamp": at, "input_length": 600, "hash_ids": [1]} for at in (0, 900))
    assert read_trace(written(tmp_path, agents(*rows))).previous is None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"session_id": "b", "delay": 5}, "earlier line"),
        ({"delay": 5}, "earlier line"),
        ({"session_id": "a", "delay": -1}, "delay must be"),
        ({"session_id": "a", "delay": 5, "timestamp": 7}, "in place of timestamp"),
        ({"session_id": ["a"], "delay": 5}, "a word or a number"),
        ({"session_id": "a"}, "timestamp is missing"),
    ],
)
def test_a_turn_that_waits_for_nothing_known_is_refused(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    first = {"session_id": "a", "timestamp": 0, "input_length": 600, "hash_ids": [1]}
    text = agents(first, {"input_length": 700, "hash_ids": [1], **row})
    with pytest.raises(RoofcastError, match=f"line 2.*{reason}"):
        read_trace(written(tmp_path, text))


def test_turns_that_wait_come_at_no_other_rate(tmp_path: Path) -> None:
    path = written(tmp_path, TOOLS)
    workload = WorkloadSpec(arrival="trace", trace=path, stages=(StageSpec(rate_per_s=2, duration_s=5),))
    with pytest.raises(RoofcastError, match="no rate but"):
        build_requests(workload, block_size_tokens=16)
    with pytest.raises(RoofcastError, match="no rate but"):
        resampled_requests(read_trace(path), times=1.0, seed=0)


def test_a_trace_that_is_named_is_replayed() -> None:
    assert WorkloadSpec.model_validate({"trace": "requests.csv"}).arrival == "trace"
    assert WorkloadSpec.model_validate({"trace": None}).arrival == "poisson"
