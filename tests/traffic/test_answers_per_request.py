"""Several answers to a request: the prompt once, the answer as often as it was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import plan, serve
from simulator.errors import RoofcastError
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.workload_requests import build_requests

STAGE = {"rate_per_s": 4.0, "duration_s": 50.0}
LENGTHS = {"question_tokens": 960, "system_prompt_tokens": 64, "osl_tokens": 100}


def workload(**given: object) -> WorkloadSpec:
    return WorkloadSpec.model_validate({"stages": [STAGE], **LENGTHS, **given})


def test_siblings_arrive_together_and_share_a_whole_prompt() -> None:
    one = build_requests(workload(), block_size_tokens=16)
    many = build_requests(workload(answers_per_request=3, prompt_groups=2), block_size_tokens=16)
    assert len(many) == 3 * len(one)
    assert (many.arrival_s.reshape(-1, 3) == one.arrival_s[:, None]).all()
    lists = many.prefix_list.reshape(-1, 3)
    assert (lists == lists[:, :1]).all()
    assert len(np.unique(lists[:, 0])) == len(one)
    blocks = [set(many.block_ids[many.list_start[k] : many.list_start[k + 1]]) for k in lists[:4, 0]]
    assert {len(own) for own in blocks} == {1024 // 16}
    # Of two groups in turn, every other prompt begins with the same system prompt.
    assert len(blocks[0] & blocks[2]) == 64 // 16
    assert not blocks[0] & blocks[1]


def test_a_served_prompt_is_computed_and_held_once() -> None:
    fields = {"model": "llama-3.1-8b", "hardware": "h100", "kind": "serve", "engine": {"name": "vllm"}}
    lone = serve({**fields, "workload": workload().model_dump(exclude_unset=True)})
    four = serve({**fields, "workload": workload(answers_per_request=4).model_dump(exclude_unset=True)})
    overall = four["overall"]
    assert overall["requests"] == 4 * lone["overall"]["requests"]
    # 3 of 4 prompts are found, but for the last block, of which a token is always computed.
    assert overall["prefix_hit_fraction"] == pytest.approx(1 - 1 / 4, abs=0.05)
    # Four answers hold less than four times the cache of one: the prompt is nine tenths of it.
    per_sequence = overall["kv_utilization"] / overall["mean_batch"]
    assert per_sequence < 0.5 * lone["overall"]["kv_utilization"] / lone["overall"]["mean_batch"]


def test_four_answers_cost_less_than_four_requests() -> None:
    fields = {"model": "llama-3.1-70b", "hardware": "h100", "round_to": "device", "spares": 0}
    four, single = (
        plan(fields, rate_per_s=rate, answers_per_request=answers).plan.best.devices
        for rate, answers in ((50.0, 4), (200.0, 1))
    )
    assert four < 0.8 * single


def test_recorded_requests_say_their_answers_themselves() -> None:
    with pytest.raises(RoofcastError, match="drawn lengths"):
        build_requests(
            workload(answers_per_request=2, conversation={"turns_mean": 2}, prompt_groups=1), block_size_tokens=16
        )
