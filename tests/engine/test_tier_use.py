"""Tiers from text to what clients see: ``simulator.engine.runs.kv_tiers``, ``simulator.phases.kv_tiers`` and others."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from simulator.api.scenarios import serve
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.kv_tiers import TierUse, break_even_tokens, cache_tiers, prompt_seconds
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.engine.runs.serving import kv_blocks_of, scheduler_settings, step_tables, tiered
from simulator.errors import RoofcastError
from simulator.operators.work import prefill_step
from simulator.phases.step import estimate_step
from simulator.reports.answer import result_object
from simulator.specs.base import validate
from simulator.specs.engine.deployment import KvTierSpec, tiers_of_text
from simulator.specs.hardware.accelerator import default_server_for
from simulator.specs.question.scenario import ScenarioSpec

CHAT: dict[str, Any] = {
    "id": "chat",
    "kind": "serve",
    "model": "llama-3.1-8b",
    "hardware": "l4",
    "precision": {"weights": "fp8", "kv_cache": "bf16"},
    "workload": {
        "stages": [{"rate_per_s": 0.1, "duration_s": 600}],
        "question_tokens": 2000,
        "osl_tokens": 20,
        "conversation": {"turns_mean": 4, "think_s": 60},
    },
}
GB = 1e9


@cache
def served(tiers: str | None) -> ScenarioResult:
    engine = {} if tiers is None else {"engine": {"kv_tiers": tiers, "gpu_memory_utilization": 0.85}}
    fields = {**CHAT, "engine": {"gpu_memory_utilization": 0.85}, **engine}
    return answer(validate(ScenarioSpec, fields, where="test"), options=ServeOptions(intervals=False))


def uses(tiers: str) -> tuple[TierUse, ...]:
    return served(tiers).kv_tiers


def hits(tiers: str) -> float:
    return sum(item.hit_fraction for item in uses(tiers))


ENDLESS = "host:1e15"


class TestLaws:
    def test_an_endless_fast_tier_finds_what_the_requests_share(self) -> None:
        """Every turn finds all that was said before it but for the last block, as an endless LRU cache would."""
        device, host = uses(ENDLESS)
        shared = device.reuse_fraction + host.reuse_fraction
        assert device.hit_fraction < 0.7 * shared
        assert hits(ENDLESS) == pytest.approx(shared, abs=0.02)

    def test_a_larger_tier_never_lowers_the_hits_and_they_follow_the_distances(self) -> None:
        sizes = [f"host:{size:g}" for size in (1 * GB, 4 * GB, 16 * GB)]
        found = [hits(size) for size in (*sizes, ENDLESS)]
        assert found == sorted(found)
        assert found[-1] > found[0] + 0.2
        for size in sizes:
            device, host = uses(size)
            # The tier keeps copies of what came back to the device, so that both hold a little less than their sum.
            held = device.reuse_fraction + host.reuse_fraction
            assert held - 0.2 <= hits(size) <= held + 0.05

    def test_first_tokens_come_sooner_and_more_requests_are_served(self) -> None:
        plain, tiers = served(None), served(ENDLESS)
        assert tiers.ttft_s < 0.5 * plain.ttft_s
        assert tiers.tpot_s is not None
        assert plain.tpot_s is not None
        assert tiers.tpot_s < plain.tpot_s
        assert tiers.output_tokens_per_s >= plain.output_tokens_per_s

    def test_a_tier_that_is_slower_than_computing_changes_nothing(self) -> None:
        plain, slow = served(None), served("remote:1e15,bytes_per_s=1e7")
        assert slow.kv_tiers[1].break_even_tokens is None
        assert slow.kv_tiers[1].hit_fraction == 0
        assert slow.kv_tiers[1].reuse_fraction > 0.1
        assert (slow.ttft_s, slow.tpot_s, slow.requests_per_s) == (plain.ttft_s, plain.tpot_s, plain.requests_per_s)

    def test_a_slow_tier_is_worth_less_than_a_fast_one(self) -> None:
        times = [served(f"remote:1e15,bytes_per_s={rate:g}").ttft_s for rate in (10 * GB, 1 * GB, 0.2 * GB)]
        assert times == sorted(times)

    def test_what_the_first_tier_has_no_room_for_comes_from_the_second(self) -> None:
        _, host, nvme = uses("host:4e9|nvme:1e13,bytes_per_s=5e9")
        assert host.hit_fraction > 0.02
        assert nvme.hit_fraction > 0.1
        assert hits("host:4e9|nvme:1e13,bytes_per_s=5e9") == pytest.approx(hits(ENDLESS), abs=0.03)

    def test_without_tiers_nothing_is_said_of_them(self) -> None:
        assert "kv_tiers" not in result_object(served(None))
        assert [item["medium"] for item in result_object(served(ENDLESS))["kv_tiers"]] == ["device", "host"]


def test_replicas_in_turns_find_in_a_store_what_the_others_left() -> None:
    """Turns of a conversation go round: memory of its own finds what came to a replica before, a common store all."""
    workload = {**CHAT["workload"], "stages": [{"rate_per_s": 0.2, "duration_s": 300}]}
    found = {}
    for tiers in ("host:1e13", "remote:1e13"):
        fields = {**CHAT, "replicas": 2, "workload": workload, "engine": {"kv_tiers": tiers}}
        found[tiers] = answer(validate(ScenarioSpec, fields, where="test"), options=ServeOptions(intervals=False))
    own, common = (sum(use.hit_fraction for use in run.kv_tiers) for run in found.values())
    assert common > own + 0.1
    assert common == pytest.approx(sum(use.reuse_fraction for use in found["remote:1e13"].kv_tiers), abs=0.03)
    assert found["remote:1e13"].ttft_s < found["host:1e13"].ttft_s


def made(tiers: str, **fields: Any) -> Any:
    scenario = validate(ScenarioSpec, {**CHAT, "engine": {"kv_tiers": tiers}, **fields}, where="test")
    return deployment_of(scenario)


class TestTimes:
    def test_every_device_moves_its_part_over_its_own_link(self) -> None:
        """131,072 bytes a token: 16 tokens a block, from host memory over PCIe of 32 GB/s and from 4 GB/s of drives."""
        one = made("host:1e12|nvme:1e12,bytes_per_s=4e9,latency_s=1e-4")
        host, nvme = cache_tiers(one, kv_blocks=100)
        block = 131072 * 16
        assert host.blocks == int(1e12 // block)
        assert host.block_load_s == pytest.approx(block / one.hardware.host_link.bytes_per_s_per_direction)
        assert (nvme.block_load_s, nvme.latency_s) == (pytest.approx(block / 4e9), 1e-4)
        two = made("host:1e12|nvme:1e12,bytes_per_s=4e9", tp_size=2)
        halves = cache_tiers(two, kv_blocks=100)
        assert [tier.blocks for tier in halves] == [host.blocks, nvme.blocks]
        assert halves[0].block_load_s == pytest.approx(host.block_load_s / 2)
        assert halves[1].block_load_s == pytest.approx(nvme.block_load_s)

    def test_a_remote_store_has_the_network_cards_and_no_more_than_the_host_link(self) -> None:
        (tier,) = made("remote:1e15", hardware="h100").engine.kv_tiers
        assert tier.device_bytes_per_s == 50e9
        assert tier.link == default_server_for("h100-sxm-80gb").network.kind

    @pytest.mark.parametrize("medium", ["host", "nvme", "remote"])
    def test_no_tier_is_given_more_than_the_host_links_carry(self, medium: str) -> None:
        made(f"{medium}:1e15,bytes_per_s=64e9", hardware="h100")
        with pytest.raises(RoofcastError, match="into 1 device, whose host links") as refused:
            made(f"{medium}:1e15,bytes_per_s=65e9", hardware="h100")
        assert refused.value.hint.startswith("bytes_per_s of at most 6.4e+10")

    def test_computing_blocks_takes_the_steps_of_a_prompt_less_their_weights(self) -> None:
        one = made(ENDLESS, hardware="h100")
        settings = tiered(scheduler_settings(one, kv_blocks=kv_blocks_of(one)), one, step_tables(one))
        times = np.array(settings.prompt_s)
        assert times[0] == 0
        assert (np.diff(times) >= 0).all()
        whole = float(estimate_step(one, prefill_step(sequences=1, tokens=8192)).step_s[0])
        assert 0.7 * whole < times[8192 // 16] < whole
        assert prompt_seconds(step_tables(one), settings) == settings.prompt_s

    def test_the_break_even_length_is_where_loading_is_sooner(self) -> None:
        one = made("nvme:1e15,bytes_per_s=2e10,latency_s=0.05", hardware="h100")
        settings = tiered(scheduler_settings(one, kv_blocks=kv_blocks_of(one)), one, step_tables(one))
        (tier,) = settings.tiers
        tokens = break_even_tokens(tier, settings)
        assert tokens is not None
        place = tokens // 16
        assert 0.05 + place * tier.block_load_s <= settings.prompt_s[place]
        assert 0.05 + (place - 1) * tier.block_load_s > settings.prompt_s[place - 1]


def test_pools_keep_tiers_for_their_prompts() -> None:
    workload = {
        "stages": [{"rate_per_s": 0.5, "duration_s": 200}],
        "isl_tokens": 4000,
        "osl_tokens": 8,
        "prompt_groups": 20,
        "prompts_per_group": 1,
    }
    pools = {"disaggregation": {"prefill_replicas": 1, "decode_replicas": 1, "link": "nic"}, "workload": workload}
    fields = {**CHAT, **pools, "hardware": "h100", "engine": {"gpu_memory_utilization": 0.3}}
    options = ServeOptions(intervals=False)
    plain = answer(validate(ScenarioSpec, fields, where="test"), options=options)
    engine = {"engine": {"gpu_memory_utilization": 0.3, "kv_tiers": ENDLESS}}
    tiers = answer(validate(ScenarioSpec, {**fields, **engine}, where="test"), options=options)
    assert tiers.kv_tiers[1].hit_fraction > 0.5
    assert tiers.ttft_s < plain.ttft_s


@pytest.mark.parametrize(
    ("tiers", "said"),
    [
        ("disk:1e12", "medium"),
        ("host", "capacity_bytes"),
        ("host:many", "capacity_bytes"),
        ("nvme:1e12", "bytes_per_s"),
        ("nvme:1e12,bytes_per_s=1e9|host:1e12", "order"),
        ("host:1e12|host:1e12", "at most once"),
        ("host:1e12,speed=3", "speed"),
        ("host:1e12,2e12", "capacity_bytes of host is given twice"),
        ("host:1e12,latency_s=1,latency_s=2", "latency_s of host is given twice"),
    ],
)
def test_tiers_that_make_no_sense_are_refused(tiers: str, said: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        made(tiers)
    assert "kv_tiers" in refused.value.field + refused.value.message
    assert said in str(refused.value) + refused.value.field


@pytest.mark.parametrize(
    ("tiers", "left_out"), [("host:0", "engine.kv_tiers"), ("host:1e12,bytes_per_s=0", "engine.kv_tiers.0.bytes_per_s")]
)
def test_a_size_of_nothing_says_what_can_be_left_out(tiers: str, left_out: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        made(tiers)
    assert refused.value.hint == f"leave {left_out} out, or give more"


def test_what_contradicts_the_tiers_is_refused() -> None:
    for fields, field in (
        ({"engine": {"kv_tiers": ENDLESS, "cpu_kv_offload": True}}, "engine.cpu_kv_offload"),
        ({"engine": {"kv_tiers": "host:1e12,bytes_per_s=1e13"}}, "engine.kv_tiers"),
        ({"engine": {"kv_tiers": ENDLESS, "prefix_caching": False}}, "engine.kv_tiers"),
        ({"engine": {"cpu_kv_offload": True, "prefix_caching": False}}, "engine.cpu_kv_offload"),
        ({"model": "mamba-1.4b", "engine": {"kv_tiers": ENDLESS}, "precision": {}}, "engine.kv_tiers"),
    ):
        with pytest.raises(RoofcastError) as refused:
            answer(validate(ScenarioSpec, {**CHAT, **fields}, where="test"))
        assert refused.value.field == field
    batch = {"kind": "batch", "batch_size": 1, "isl_tokens": 8, "osl_tokens": 8, "workload": None}
    scenario = validate(ScenarioSpec, {**CHAT, **batch, "engine": {"kv_tiers": ENDLESS}}, where="test")
    with pytest.raises(RoofcastError, match="no effect under kind batch"):
        answer(scenario)


def test_a_list_of_words_says_what_one_text_says() -> None:
    one = made("host:1e12|nvme:1e13,bytes_per_s=1e10").engine.kv_tiers
    fields = {**CHAT, "engine": {"name": "vllm", "kv_tiers": ["host:1e12", "nvme:1e13,bytes_per_s=1e10"]}}
    assert deployment_of(validate(ScenarioSpec, fields, where="test")).engine.kv_tiers == one


def test_text_says_what_a_file_says() -> None:
    text = tiers_of_text("host:1e12|nvme:2e12,bytes_per_s=2.5e10,latency_s=1e-4")
    assert [KvTierSpec.model_validate(item) for item in text] == [
        KvTierSpec(medium="host", capacity_bytes=1e12),
        KvTierSpec(medium="nvme", capacity_bytes=2e12, bytes_per_s=2.5e10, latency_s=1e-4),
    ]
    assert tiers_of_text([1]) == [1]


def test_the_command_prints_each_level() -> None:
    shown = serve({**CHAT, "engine": {"kv_tiers": ENDLESS}}).to_text(assumptions=True)
    assert "worth loading from" in shown
    assert "engine.kv_tiers.host.bytes_per_s" in shown
