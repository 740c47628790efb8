"""``simulator.engine.uniform.pools_loop``: bottlenecks of two pools, limits of the link, conservation and refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from simulator.engine.pools import HAND_OVER_S
from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop
from simulator.engine.uniform.pools_loop import disaggregated_loop
from simulator.engine.uniform.record import UniformRun
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.specs.engine.deployment import DisaggregationSpec, ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware, load_server
from simulator.specs.model.loading import load_model

ISL, OSL = 1024, 32
KV_BYTES_PER_TOKEN = 2 * 32 * 8 * 128 * 2
"""Keys and values of 32 layers, 8 heads of 128 numbers of 2 bytes."""
NVLINK_BYTES_PER_S = 450e9
"""One direction of an H100 SXM's NVLink."""


@cache
def replica(**engine: int) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec(max_num_batched_tokens=4096, **engine),
    )


@cache
def loop(
    clients: int,
    *,
    prefills: int = 1,
    decodes: int = 1,
    osl: int = OSL,
    link: str | None = None,
    transfer: str = "after_prefill",
    requests: int | None = None,
) -> UniformRun:
    return disaggregated_loop(
        replica(),
        replica(),
        spec=DisaggregationSpec.model_validate(
            {"prefill_replicas": prefills, "decode_replicas": decodes, "link": link, "transfer": transfer}
        ),
        server=load_server("hgx-h100"),
        concurrency=clients,
        lengths=LoopLengths(isl_tokens=ISL, osl_tokens=osl),
        num_requests=requests,
    )


def test_one_client_sees_its_prompt_the_transfer_and_steps_of_its_own() -> None:
    pools, alone = loop(1), closed_loop(replica(), concurrency=1, lengths=LoopLengths(isl_tokens=ISL, osl_tokens=OSL))
    assert pools.pools is not None
    moved_s = ISL * KV_BYTES_PER_TOKEN / NVLINK_BYTES_PER_S
    assert pools.pools.transfer_s == pytest.approx(moved_s)
    assert pools.ttft_s == pytest.approx(alone.ttft_s + moved_s + HAND_OVER_S, rel=0.01)
    assert pools.tpot_s == pytest.approx(alone.tpot_s, rel=0.01)


def test_as_many_clients_wait_as_there_are() -> None:
    """Little's law over a whole run: clients = rate x time of an answer."""
    found = loop(16, requests=400)
    assert found.requests_per_s * found.e2e_s == pytest.approx(16, rel=0.06)
    assert found.requests_per_s * found.e2e_s <= 16


def test_the_busier_pool_sets_the_rate() -> None:
    few, more_prompts, more_answers = loop(64), loop(64, prefills=2), loop(64, decodes=2)
    assert few.pools is not None
    # 1,024 prompt tokens take longer than 64 clients' share of 31 steps: prompts are the bottleneck here.
    assert few.pools.prefill_busy_fraction > 0.95
    assert more_prompts.requests_per_s == pytest.approx(2 * few.requests_per_s, rel=0.05)
    assert more_answers.requests_per_s == pytest.approx(few.requests_per_s, rel=0.03)


def test_tokens_of_long_answers_move_the_bottleneck() -> None:
    found = loop(16, osl=256)
    assert found.pools is not None
    assert found.pools.decode_busy_fraction > 0.9 > found.pools.prefill_busy_fraction


def test_ranks_that_are_drawn_for_prompts_lose_where_some_have_none() -> None:
    """SGLang: a rank without a prompt waits for one that has two; where all have some nothing is lost."""
    drawn = deploy(
        model=load_model("gpt-oss-20b"),
        hardware=load_hardware("h100"),
        parallelism=ParallelismSpec(dp_size=4, ep_size=4),
        engine=EngineSpec(name="sglang", max_num_batched_tokens=4096),
    )
    assert drawn.engine.prompt_ranks_drawn
    emptiest = replace(drawn, engine=replace(drawn.engine, prompt_ranks_drawn=False))

    def rate_per_s(prefill: Deployment, *, clients: int) -> float:
        return disaggregated_loop(
            prefill,
            replica(),
            spec=DisaggregationSpec(prefill_replicas=1, decode_replicas=1),
            server=load_server("hgx-h100"),
            concurrency=clients,
            lengths=LoopLengths(isl_tokens=4096, osl_tokens=2, range_ratio=0.8),
            num_requests=400,
        ).requests_per_s

    assert rate_per_s(drawn, clients=8) < 0.95 * rate_per_s(emptiest, clients=8)
    assert rate_per_s(drawn, clients=100) == pytest.approx(rate_per_s(emptiest, clients=100), rel=0.05)


def test_a_slower_link_costs_the_ratio_of_bandwidths_and_layers_hide_it() -> None:
    nvlink, network, hidden = loop(1), loop(1, link="nic"), loop(1, link="nic", transfer="layer_wise")
    assert nvlink.pools is not None
    assert network.pools is not None
    assert hidden.pools is not None
    # One 400 Gbit/s card for each GPU: 50 GB/s, a ninth.
    assert network.pools.transfer_s == pytest.approx(9 * nvlink.pools.transfer_s)
    assert network.ttft_s - nvlink.ttft_s == pytest.approx(8 * nvlink.pools.transfer_s, rel=0.01)
    assert hidden.pools.transfer_s < network.pools.transfer_s / 8
    assert hidden.tpot_s == pytest.approx(network.tpot_s)


def test_an_answer_of_one_token_ends_in_the_prefill_pool() -> None:
    found = loop(4, osl=1)
    assert found.pools is not None
    assert found.pools.decode_busy_fraction == 0
    assert found.ttft_s == found.e2e_s


def test_power_lies_between_idle_and_the_limit_of_all_devices_and_grows_with_work() -> None:
    found = loop(64, prefills=2)
    assert found.pools is not None
    prefill_w, decode_w = found.pools.powers_w(found.prefill, found.decode or found.prefill)
    idle_w, tdp_w = load_hardware("h100").idle_w, load_hardware("h100").tdp_w
    assert 2 * idle_w < prefill_w <= 2 * tdp_w
    assert idle_w < decode_w <= tdp_w
    quiet = loop(1, prefills=2)
    assert quiet.pools is not None
    assert quiet.pools.powers_w(quiet.prefill, quiet.decode or quiet.prefill)[0] < prefill_w


def test_pools_beyond_one_domain_are_refused_on_its_link() -> None:
    with pytest.raises(RoofcastError, match="9 devices do not fit a nvlink domain of 8") as caught:
        loop(1, prefills=8, link="scale_up")
    assert caught.value.field == "disaggregation.link"
