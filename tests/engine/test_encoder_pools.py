"""``simulator.engine.encoders``: pictures encoded on accelerators of their own, in front of the replicas."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from simulator.engine.encoders import EncoderPool, pool_wait_mean_s
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.capacity import sustained_rate
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of, encoders_of
from simulator.errors import InfeasibleError, RoofcastError
from simulator.phases.memory import memory_plan
from simulator.reports.words.fields import note_texts
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import default_server_for
from simulator.specs.question.plan_values import parse_objectives
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.requests import Requests, make_requests

PICTURES: dict[str, Any] = {
    "id": "pictures",
    "kind": "serve",
    "model": "qwen2.5-vl-7b",
    "hardware": "h100",
    "images_per_request": 4,
    "image_pixels": 1024 * 1024,
    "workload": {"stages": [{"rate_per_s": 2, "duration_s": 60}], "isl_tokens": 6500, "osl_tokens": 50},
}
IMAGE_TOKENS = 4 * 1337
HIDDEN = 3584


def scenario(**fields: Any) -> ScenarioSpec:
    return validate(ScenarioSpec, {**PICTURES, **fields}, where="test")


@cache
def served(replicas: int, hardware: str | None = None, link: str | None = None) -> ScenarioResult:
    pool = {"replicas": replicas, "hardware": hardware, "link": link}
    return answer(scenario(encoder_pool=pool), options=ServeOptions(intervals=False))


@cache
def in_the_step() -> ScenarioResult:
    return answer(scenario(), options=ServeOptions(intervals=False))


@cache
def without_pictures() -> ScenarioResult:
    """As many tokens of text."""
    fields = {"images_per_request": None, "image_pixels": None, "encoder_pool": None}
    return answer(scenario(**fields), options=ServeOptions(intervals=False))


def pool(**fields: Any) -> EncoderPool:
    asked = scenario(encoder_pool={"replicas": 1, **fields})
    found = encoders_of(asked, deployment_of(asked), profiles=None)
    assert found is not None
    return found


def at_random(rate_per_s: float, count: int = 40_000) -> Requests:
    rng = np.random.default_rng(5)
    arrival_s = np.cumsum(rng.exponential(1 / rate_per_s, count))
    ones = np.ones(count, dtype=int)
    return make_requests(arrival_s=arrival_s, prompt_tokens=ones, output_tokens=ones)


class TestQueue:
    def test_requests_that_come_apart_wait_for_nobody(self) -> None:
        one = pool()
        far = make_requests(
            arrival_s=np.arange(5) * 10.0, prompt_tokens=np.ones(5, dtype=int), output_tokens=np.ones(5, dtype=int)
        )
        assert one.sent_on(far).ahead_s == pytest.approx(one.request_s + one.transfer_s)
        assert one.use(far).wait_mean_s == pytest.approx(0, abs=1e-12)

    def test_who_comes_together_waits_for_who_is_first(self) -> None:
        two = replace(pool(), replicas=2)
        together = make_requests(
            arrival_s=np.zeros(5), prompt_tokens=np.ones(5, dtype=int), output_tokens=np.ones(5, dtype=int)
        )
        ahead = np.array([1, 1, 2, 2, 3]) * two.request_s + two.transfer_s
        assert two.sent_on(together).ahead_s == pytest.approx(ahead)

    @pytest.mark.parametrize(("servers", "load", "within"), [(1, 0.5, 0.03), (1, 0.8, 0.08), (4, 0.7, 0.2)])
    def test_the_wait_is_that_of_theory(self, servers: int, load: float, within: float) -> None:
        several = replace(pool(), replicas=servers)
        rate = load * several.saturation_per_s
        use = several.use(at_random(rate))
        assert use.busy_fraction == pytest.approx(load, rel=0.02)
        assert use.wait_mean_s == pytest.approx(use.poisson_wait_mean_s, rel=within)

    def test_beyond_saturation_there_is_no_mean_wait(self) -> None:
        assert pool_wait_mean_s(rate_per_s=11, service_s=0.1, servers=1) == np.inf
        one = pool()
        use = one.use(at_random(2.5 * one.saturation_per_s, 500))
        assert use.busy_fraction == 1
        assert use.needed_replicas == 3
        assert use.wait_mean_s > 50 * one.request_s


class TestServed:
    def test_with_encoders_enough_ttft_is_that_of_text_after_encoding_and_transfer(self) -> None:
        use = served(200, link="nic").encoders
        assert use is not None
        after_s = use.request_s + use.transfer_s
        assert served(200, link="nic").ttft_s == pytest.approx(without_pictures().ttft_s + after_s, rel=0.02)
        assert served(200, link="nic").tpot_s == pytest.approx(without_pictures().tpot_s, rel=0.02)

    def test_answers_are_not_held_up_by_the_pictures_of_others(self) -> None:
        apart, together = served(2).tpot_s, in_the_step().tpot_s
        assert apart is not None
        assert together is not None
        assert apart < 0.9 * together

    def test_more_replicas_are_never_later(self) -> None:
        times = [served(replicas, "l4").ttft_s for replicas in (1, 2, 4, 16)]
        assert times == sorted(times, reverse=True)
        assert times[0] > 2 * times[-1]

    def test_the_pool_takes_as_long_as_its_accelerator(self) -> None:
        fast, slow = served(4).encoders, served(4, "l4").encoders
        assert fast is not None
        assert slow is not None
        assert slow.request_s > 5 * fast.request_s
        # Prefill steps of the replica spend as much on the pictures where it encodes them itself.
        spent = in_the_step().prefill.step_s - without_pictures().prefill.step_s
        assert fast.request_s == pytest.approx(spent, rel=0.1)

    def test_its_power_counts(self) -> None:
        use = served(4).encoders
        assert use is not None
        assert served(4).power_w > without_pictures().power_w + 0.5 * use.power_w
        assert use.power_w >= 4 * 0.9 * pool().deployment.hardware.idle_w

    def test_replicas_hold_no_encoder(self) -> None:
        apart = memory_plan(deployment_of(scenario(encoder_pool={"replicas": 1}))).weights_bytes
        whole = memory_plan(deployment_of(scenario())).weights_bytes
        assert 2 * 0.6e9 < whole - apart < 2 * 0.75e9

    def test_it_stands_before_a_prefill_pool_too(self) -> None:
        pools = {"prefill_replicas": 1, "decode_replicas": 1, "link": "nic"}
        plain = {"images_per_request": None, "image_pixels": None}
        options = ServeOptions(intervals=False)
        text = answer(scenario(disaggregation=pools, **plain), options=options)
        three = answer(scenario(disaggregation=pools, encoder_pool={"replicas": 50, "link": "nic"}), options=options)
        use = three.encoders
        assert use is not None
        assert three.ttft_s == pytest.approx(text.ttft_s + use.request_s + use.transfer_s, rel=0.03)

    def test_a_fleet_sustains_no_more_than_its_encoders(self) -> None:
        asked = scenario(encoder_pool={"replicas": 1, "hardware": "l4"})
        limit = pool(hardware="l4").saturation_per_s
        objectives = parse_objectives(("ttft-p95=20s",), flag="slo")
        found = sustained_rate(asked, objectives=objectives, seeds=2, requests=200)
        assert 0.5 * limit < found.rate_per_s < 1.3 * limit


def test_what_nobody_said_of_encoders_is_an_assumption() -> None:
    said = {item.key: item.value for item in served(1).assumptions if item.key.startswith("encoder_pool")}
    assert said == {"encoder_pool.tp_size": 1, "encoder_pool.hardware": "h100"}
    assert any("encoded by 1 replica on 1 h100" in note for note in note_texts(served(1).notes))


def test_a_cap_limits_encoders_too() -> None:
    asked = scenario(encoder_pool={"replicas": 1, "hardware": "l40s"}, power_cap_w=300)
    found = encoders_of(asked, deployment_of(asked), profiles=None)
    assert found is not None
    assert found.deployment.hardware.power_cap_w == 300


def test_an_encoder_that_does_not_fit_is_refused_in_gigabytes() -> None:
    asked = scenario(encoder_pool={"replicas": 1})
    behind = deployment_of(asked)
    small = behind.hardware.model_copy(update={"memory_visible_bytes": 1e9})
    with pytest.raises(InfeasibleError, match=r"takes 1\.\d+ GB, h100-sxm-80gb has 1 GB") as refused:
        encoders_of(asked, replace(behind, hardware=small), profiles=None)
    assert (refused.value.field, refused.value.code) == ("encoder_pool.hardware", "does_not_fit")


def test_embeddings_are_two_bytes_a_value_over_one_network_card() -> None:
    one = pool(link="nic")
    assert one.embedding_bytes == pytest.approx(IMAGE_TOKENS * HIDDEN * 2)
    assert one.transfer_s == pytest.approx(one.embedding_bytes / 50e9)
    assert pool().link.startswith("nvlink")


def test_the_slower_network_of_both_servers_carries_embeddings_and_is_named() -> None:
    far = pool(hardware="l40s")
    network = default_server_for("l40s").network
    assert far.link_bytes_per_s == network.bytes_per_s_per_direction < pool(link="nic").link_bytes_per_s
    assert far.link == network.kind != pool(link="nic").link


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"encoder_pool": {"replicas": 1}, "images_per_request": None, "image_pixels": None}, "encoder_pool"),
        ({"encoder_pool": {"replicas": 1, "hardware": "l4", "link": "scale_up"}}, "encoder_pool.link"),
        ({"encoder_pool": {"replicas": 1, "link": "carrier-pigeon"}}, "encoder_pool.link"),
        ({"encoder_pool": {"replicas": 0}}, "encoder_pool.replicas"),
        ({"encoder_pool": {"replicas": 1, "hardware": "l40x"}}, "encoder_pool.hardware"),
        ({"encoder_pool": {"replicas": 1, "hardware": "mi300x"}}, "encoder_pool.hardware"),
        ({"encoder_pool": {"replicas": 1, "tp_size": 3}}, "encoder_pool.tp_size"),
        ({"encoder_pool": {"replicas": 1}, "model": "llama-3.1-8b"}, "images_per_request"),
        ({"encoder_pool": {"replicas": 1}, "kind": "closed_loop", "concurrency": 2, "workload": None,
          "isl_tokens": 6500, "osl_tokens": 5}, "encoder_pool"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        answer(scenario(**fields))
    assert refused.value.field == field
