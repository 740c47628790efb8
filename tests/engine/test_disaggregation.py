"""Prefill and decode in pools of their own: what moves when, what clients see, and that nobody is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.runs.disaggregation import serve_disaggregated, transfer_ends_s, transfer_link
from simulator.engine.runs.scheduling import Pool
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.specs.engine.deployment import DisaggregationSpec, ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.loading import default_server_for, load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.requests import Outcome, Requests, make_requests


def deployment(tp_size: int = 1) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100-sxm-80gb"),
        parallelism=ParallelismSpec(tp_size=tp_size),
        engine=EngineSpec(max_num_batched_tokens=2048, max_num_seqs=64, max_model_len=4096),
    )


def pools(prefill: int = 1, decode: int = 1) -> tuple[Pool, Pool]:
    made = deployment()
    return Pool(deployment=made, replicas=prefill), Pool(deployment=made, replicas=decode)


def requests(count: int, *, gap_s: float, prompt: int = 1000, output: int = 50) -> Requests:
    return make_requests(
        arrival_s=np.arange(count) * gap_s, prompt_tokens=np.full(count, prompt), output_tokens=np.full(count, output)
    )


SPEC = DisaggregationSpec(prefill_replicas=1, decode_replicas=1)


def test_transfers_queue_per_sender() -> None:
    """Two of 2 s that are ready at 0 and 1 s end at 2 and 4; another sender's is not held up."""
    ends_s = transfer_ends_s(np.array([1.0, 0.0, 0.5]), np.array([2.0, 2.0, 3.0]), sender=np.array([0, 0, 1]))
    np.testing.assert_allclose(ends_s, [4.0, 2.0, 3.5])


def test_the_first_token_comes_with_the_cache() -> None:
    """Alone, TTFT is the prefill and prompt tokens x KV bytes per token over the link."""
    prefill, decode = pools()
    asked = requests(3, gap_s=5.0)
    found = serve_disaggregated(asked, prefill=prefill, decode=decode, link=None, server=None, timeout_s=None)
    moved_bytes = 1000 * memory_plan(prefill.deployment).kv_bytes_per_token
    link_s = moved_bytes / prefill.deployment.hardware.scale_up.bytes_per_s_per_direction
    assert found.transfer_mean_s == pytest.approx(link_s)
    nobody = serve_disaggregated(
        requests(3, gap_s=5.0, output=1), prefill=prefill, decode=decode, link=None, server=None, timeout_s=None
    )
    assert found.result.overall.ttft.mean_s == pytest.approx(nobody.result.overall.ttft.mean_s + link_s)
    assert nobody.transfer_mean_s == 0


def test_requests_are_conserved_and_times_are_in_order() -> None:
    prefill, decode = pools(2, 1)
    rng = np.random.default_rng(1)
    asked = make_requests(
        arrival_s=np.cumsum(rng.exponential(0.05, 300)),
        prompt_tokens=rng.integers(1, 5000, 300),
        output_tokens=rng.integers(1, 200, 300),
    )
    found = serve_disaggregated(asked, prefill=prefill, decode=decode, link=None, server=None, timeout_s=20.0)
    records = found.result.run.records
    final = {int(outcome) for outcome in (Outcome.FINISHED, Outcome.TIMED_OUT, Outcome.TOO_LONG, Outcome.TOO_LARGE)}
    assert set(records.outcome.tolist()) <= final
    too_long = asked.prompt_tokens + asked.output_tokens > 4096
    np.testing.assert_array_equal(records.outcome == int(Outcome.TOO_LONG), too_long)
    done = records.outcome == int(Outcome.FINISHED)
    assert (records.admitted_s[done] >= asked.arrival_s[done]).all()
    assert (records.first_token_s[done] > records.admitted_s[done]).all()
    assert (records.finish_s[done] >= records.first_token_s[done]).all()
    assert (
        records.finish_s[done & (asked.output_tokens > 1)] > records.first_token_s[done & (asked.output_tokens > 1)]
    ).all()
    blocks = 2 * memory_plan(prefill.deployment).kv_blocks + memory_plan(decode.deployment).kv_blocks
    assert found.result.run.free_blocks == blocks


def test_the_same_demand_gives_the_same_bytes() -> None:
    prefill, decode = pools()
    runs = [
        serve_disaggregated(
            requests(50, gap_s=0.03), prefill=prefill, decode=decode, link=None, server=None, timeout_s=None
        ).result.run.records
        for _ in range(2)
    ]
    assert runs[0].finish_s.tobytes() == runs[1].finish_s.tobytes()


def test_clients_wait_from_the_moment_they_sent() -> None:
    """Patience that ends in the decode pool ends there, counted from the arrival at the prefill pool."""
    prefill, decode = pools()
    asked = requests(2, gap_s=5.0, output=400)
    found = serve_disaggregated(asked, prefill=prefill, decode=decode, link=None, server=None, timeout_s=0.5)
    records = found.result.run.records
    assert (records.outcome == int(Outcome.TIMED_OUT)).all()
    assert not np.isnan(records.first_token_s).any()


def test_the_link_is_the_fastest_that_reaches_or_the_named_one() -> None:
    server = default_server_for("h100-sxm-80gb")
    nvlink = load_hardware("h100-sxm-80gb").scale_up
    inside, outside = pools(4, 4), pools(8, 4)
    assert transfer_link(*inside, link=None, server=server)[0] == nvlink.kind
    assert transfer_link(*outside, link=None, server=server)[0] == server.nic.kind
    kind, bandwidth = transfer_link(*inside, link="nic", server=server)
    assert (kind, bandwidth < nvlink.bytes_per_s_per_direction) == (server.nic.kind, True)
    with pytest.raises(RoofcastError) as caught:
        transfer_link(*outside, link="scale_up", server=server)
    assert caught.value.field == "disaggregation.link"


def scenario(**fields: Any) -> ScenarioSpec:
    return ScenarioSpec.model_validate(
        {
            "id": 1,
            "kind": "serve",
            "model": "llama-3.1-8b",
            "hardware": "h100",
            "engine": {"max_model_len": 4096},
            "disaggregation": {"prefill_replicas": 1, "decode_replicas": 2, "decode_tp_size": 2},
            "workload": {"stages": [{"rate_per_s": 4, "duration_s": 30}], "isl_tokens": 1000, "osl_tokens": 100},
            **fields,
        }
    )


def test_a_scenario_names_its_pools() -> None:
    result = answer(scenario())
    assert result.deployment.parallelism.tp_size == 2
    assert any("1 prefill replicas on 1 and 2 decode replicas on 4 devices" in note for note in result.notes)
    hardware = load_hardware("h100")
    assert 5 * hardware.idle_w < result.power_w < 5 * hardware.tdp_w


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"replicas": 2}, "replicas"),
        ({"kind": "offline", "workload": None, "isl_tokens": 10, "osl_tokens": 10}, "disaggregation"),
        ({"techniques": {"speculation": {"method": "eagle", "k": 3, "acceptance": 0.7}}}, "disaggregation"),
    ],
)
def test_what_pools_do_not_go_with_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        answer(scenario(**fields))
    assert caught.value.field == field
