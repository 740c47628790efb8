"""A planned fleet as Kubernetes objects: what they ask for is what the plan counted."""

from __future__ import annotations

import re
from functools import cache

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.handoff.engines import vllm_flags
from simulator.planner.handoff.kubernetes import kubernetes, service_name
from simulator.planner.handoff.pools import router
from simulator.planner.handoff.settings import LaunchSettings, fleet_settings
from simulator.planner.plan import plan_capacity
from simulator.specs.question.plan import plan_spec

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""A DNS label that starts with a letter (RFC 1035), which services need."""


@cache
def planned(**asked: object) -> CapacityPlan:
    return plan_capacity(plan_spec({"model": "llama-3.1-8b", "hardware": "h100", "rps": 60.0, **asked}))


def settings_of(plan: CapacityPlan) -> tuple[LaunchSettings, ...]:
    return fleet_settings(plan.best, model_id="meta-llama/Llama-3.1-8B-Instruct", scheme=plan.best.scheme)


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=80))
def test_every_model_id_makes_a_valid_name(model_id: str) -> None:
    name = service_name(model_id + "/x" + model_id)
    assert NAME.fullmatch(name), name
    assert len(name) <= 50


@pytest.mark.parametrize("asked", [{}, {"tp": (2,)}, {"serving": ("disaggregated",)}], ids=["tp1", "tp2", "pools"])
def test_the_objects_hold_the_devices_of_the_plan(asked: dict[str, object]) -> None:
    plan = planned(**asked)
    devices = 0
    for item in settings_of(plan):
        replicas, service, budget = yaml.safe_load_all(kubernetes(item))
        spec = replicas["spec"]
        container = spec["template"]["spec"]["containers"][0]
        devices += spec["replicas"] * int(container["resources"]["limits"]["nvidia.com/gpu"])
        assert spec["replicas"] == item.replicas + item.spares
        assert budget["spec"]["minAvailable"] == item.replicas
        assert (
            service["spec"]["selector"] == spec["selector"]["matchLabels"] == budget["spec"]["selector"]["matchLabels"]
        )
        assert container["readinessProbe"]["httpGet"]["port"] == service["spec"]["ports"][0]["port"]
    assert devices == plan.best.devices - plan.best.idle_devices


def test_the_container_gets_the_flags_of_the_launch_command() -> None:
    (item,) = settings_of(planned(tp=(2,)))
    container = next(yaml.safe_load_all(kubernetes(item)))["spec"]["template"]["spec"]["containers"][0]
    words = [word for flag in vllm_flags(item) for word in flag.split()]
    assert container["args"] == words
    assert container["args"][container["args"].index("--tensor-parallel-size") + 1] == "2"
    assert container["command"] == ["vllm", "serve", item.model_id]


def test_the_shares_of_memory_are_those_of_the_memory_plan() -> None:
    (item,) = settings_of(planned())
    memory = planned().best.replica.memory
    visible = item.deployment.hardware.memory_visible_bytes
    assert item.static_share * visible == pytest.approx(memory.weights_bytes + memory.kv_capacity_bytes)
    assert 0 < item.cache_share <= 1
    assert item.max_model_len <= memory.kv_capacity_tokens
    assert (item.servers, item.devices_per_server) == (1, 1)


def test_pools_name_their_role() -> None:
    first, second = settings_of(planned(serving=("disaggregated",)))
    assert (first.role, second.role) == ("prefill", "decode")
    names = {next(yaml.safe_load_all(kubernetes(item)))["metadata"]["name"] for item in (first, second)}
    assert len(names) == 2


def test_every_replica_of_both_pools_has_an_address_of_its_own() -> None:
    items = settings_of(planned(serving=("disaggregated",)))
    text = router("tensorrt-llm", items)
    config = yaml.safe_load(text.split("<<'YAML'\n")[1].split("YAML\n")[0])
    for item, servers in zip(items, (config["context_servers"], config["generation_servers"]), strict=True):
        assert servers["num_instances"] == len(set(servers["urls"])) == item.replicas + item.spares
