"""A planned fleet as Kubernetes objects: what they ask for is what the plan counted."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.handoff import LaunchSettings, fleet_settings
from simulator.planner.plan import plan_capacity
from simulator.reports.handoff.kubernetes import image, pool_objects, service_name
from simulator.reports.handoff.launch import launch_handoff
from simulator.reports.handoff.notes import handoff_notes
from simulator.specs.hardware.accelerator import OWN_LABEL, cluster, load_hardware
from simulator.specs.profiles import list_profiles
from simulator.specs.question.plan import plan_spec
from tests.for_every import for_every

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""A DNS label that starts with a letter (RFC 1035), which services need."""
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@cache
def planned(**asked: Any) -> CapacityPlan:
    return plan_capacity(plan_spec({"model": "llama-3.1-8b", "hardware": "h100", "rps": 60.0, **asked}))


def settings_of(plan: CapacityPlan) -> tuple[LaunchSettings, ...]:
    return fleet_settings(plan.best, model_id=MODEL, scheme=plan.best.scheme)


def manifest(plan: CapacityPlan, name: str = "kubernetes.yaml", *, model_id: str = MODEL) -> list[dict[str, Any]]:
    found = launch_handoff(
        plan.best, model_id=model_id, scheme=plan.best.scheme, demand=plan.demand, objectives=plan.objectives
    )
    return list(yaml.safe_load_all(next(file.text for file in found.files if file.name == name)))


def pods(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pod templates of the engine's replicas."""
    templates = [item["spec"]["template"] for item in objects if item["kind"] == "Deployment"]
    for item in objects:
        if item["kind"] == "LeaderWorkerSet":
            template = item["spec"]["leaderWorkerTemplate"]
            templates += [template["leaderTemplate"], template["workerTemplate"]]
    return [item for item in templates if item["spec"]["containers"][0]["name"] == "engine"]


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=80))
def test_every_model_id_makes_a_valid_name(model_id: str) -> None:
    name = service_name(model_id + "/x" + model_id)
    assert NAME.fullmatch(name), name
    assert len(name) <= 50


QUESTIONS = {
    "tp1": {},
    "tp2": {"tp": (2,)},
    "pools": {"serving": ("disaggregated",)},
    "sglang": {"engine": "sglang", "prefix_hit": 0.4},
    "tensorrt-llm": {"engine": "tensorrt-llm"},
    "servers": {"model": "llama-3.1-405b", "tp": (8,), "pp": (2,), "weights": ("bf16",), "rps": 1.0, "ttft_p95": "9s"},
}


@for_every(QUESTIONS)
def test_the_objects_hold_the_devices_of_the_plan(name: str) -> None:
    plan = planned(**QUESTIONS[name])
    devices = 0
    for item in settings_of(plan):
        objects = pool_objects(item, drain_s=1.0)
        replicas = next(part for part in objects if part["kind"] in ("Deployment", "LeaderWorkerSet"))
        spec: Any = replicas["spec"]
        inside = pods([replicas])
        each = sum(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for pod in inside[:1])
        size = spec["leaderWorkerTemplate"]["size"] if "leaderWorkerTemplate" in spec else 1
        devices += spec["replicas"] * each * size
        assert spec["replicas"] == item.replicas + item.spares
    assert devices == plan.best.devices - plan.best.idle_devices


@for_every(QUESTIONS)
def test_every_name_that_an_object_refers_to_is_there(name: str) -> None:
    objects = manifest(planned(**QUESTIONS[name]))
    names = {(item["kind"], item["metadata"]["name"]) for item in objects}
    assert len(names) == len(objects)
    assert all(NAME.fullmatch(known) for _, known in names)
    labels = {pod["metadata"]["labels"]["app"] for pod in pods(objects) if "metadata" in pod}
    labels |= {
        item["spec"]["template"]["metadata"]["labels"]["app"] for item in objects if item["kind"] == "Deployment"
    }
    for item in objects:
        if item["kind"] == "Service":
            assert item["spec"]["selector"]["app"] in labels
        if item["kind"] == "PodDisruptionBudget":
            assert item["spec"]["selector"]["matchLabels"]["app"] in labels
        if item["kind"] == "RoleBinding":
            assert ("ServiceAccount", item["subjects"][0]["name"]) in names
            assert ("Role", item["roleRef"]["name"]) in names
    for pod in pods(objects):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
        assert ("PersistentVolumeClaim", claim) in names
        if "options" in volumes:
            assert ("ConfigMap", volumes["options"]["configMap"]["name"]) in names


@for_every(QUESTIONS)
def test_an_engine_is_started_watched_and_found_on_its_port(name: str) -> None:
    objects = manifest(planned(**QUESTIONS[name]))
    services = {item["spec"]["selector"]["app"]: item for item in objects if item["kind"] == "Service"}
    for item in settings_of(planned(**QUESTIONS[name])):
        serving = [pod for pod in pods(objects) if "ports" in pod["spec"]["containers"][0]]
        for pod in serving:
            container = pod["spec"]["containers"][0]
            port = container["ports"][0]["containerPort"]
            assert port == item.launch.port
            assert str(port) in container["command"]
            assert services[pod["metadata"]["labels"]["app"]]["spec"]["ports"][0]["targetPort"] == port
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
            probe = container["startupProbe"]
            assert probe["periodSeconds"] * probe["failureThreshold"] >= 2 * item.start_s
            assert container["image"] == image(item)
            assert item.release in container["image"]
            variables = {entry["name"]: entry for entry in container["env"]}
            assert variables["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "hf-token", "key": "token"}
            assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
            assert pod["spec"]["tolerations"][0]["key"] in container["resources"]["limits"]


def test_larger_weights_take_longer_to_start_and_more_of_the_volume() -> None:
    small, large = planned(), planned(model="llama-3.1-70b", tp=(4,))
    assert settings_of(large)[0].start_s > settings_of(small)[0].start_s > 60.0

    def gib(plan: CapacityPlan) -> int:
        claim = next(item for item in manifest(plan) if item["kind"] == "PersistentVolumeClaim")
        return int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))

    assert gib(small) * 2**30 > 16e9
    assert gib(large) * 2**30 > 141e9


def test_only_the_first_server_of_a_replica_answers() -> None:
    objects = manifest(planned(**QUESTIONS["servers"]))
    template = next(item for item in objects if item["kind"] == "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    leader, worker = (template[name]["spec"]["containers"][0] for name in ("leaderTemplate", "workerTemplate"))
    rank = leader["command"].index("--node-rank") + 1
    assert (leader["command"][rank], worker["command"][rank]) == ("0", "$(LWS_WORKER_INDEX)")
    assert "--headless" in worker["command"]
    assert "--headless" not in leader["command"]
    assert "readinessProbe" not in worker
    assert "app" not in template["workerTemplate"].get("metadata", {}).get("labels", {})


def test_the_checkpoint_is_on_the_volume_before_the_engine_starts() -> None:
    (pod,) = pods(manifest(planned(weights=("bf16",))))
    (download,) = pod["spec"]["initContainers"]
    assert f"snapshot_download('{MODEL}')" in download["command"][-1]
    made = planned(model="llama-2-13b", weights=("fp8",), engine="tensorrt-llm", tp=(1,), rps=5.0)
    (pod,) = pods(manifest(made, model_id="meta-llama/Llama-2-13b-hf"))
    assert "initContainers" not in pod["spec"]
    assert any(word.startswith("/models/") for word in pod["spec"]["containers"][0]["command"])


def test_pools_are_told_apart_and_found_by_the_router() -> None:
    objects = manifest(planned(serving=("disaggregated",)))
    first, second = pods(objects)
    assert first["metadata"]["labels"]["app"].endswith("-prefill")
    assert second["metadata"]["labels"]["app"].endswith("-decode")
    for pod in (first, second):
        variables = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        # The engine's own default is the local host, which no other pod reaches.
        assert variables["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "$(POD_IP)"
    assert any(item["metadata"]["name"].endswith("-router") for item in objects)


def test_prefixes_are_routed_through_a_pool_of_the_gateway() -> None:
    plan = planned(prefix_hit=0.5)
    objects = {item["kind"]: item for item in manifest(plan, "gateway.yaml")}
    pool, route = objects["InferencePool"]["spec"], objects["HTTPRoute"]["spec"]
    (pod,) = pods(manifest(plan))
    assert pool["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert pool["targetPorts"] == [{"number": pod["spec"]["containers"][0]["ports"][0]["containerPort"]}]
    assert route["rules"][0]["backendRefs"][0]["name"] == objects["InferencePool"]["metadata"]["name"]
    assert pool["endpointPickerRef"]["name"] == objects["Service"]["metadata"]["name"]
    config = yaml.safe_load(objects["ConfigMap"]["data"]["config.yaml"])
    scorers = {plugin["type"] for plugin in config["plugins"]}
    assert "prefix-cache-scorer" in scorers
    assert {entry["pluginRef"] for entry in config["schedulingProfiles"][0]["plugins"]} <= scorers


def test_other_makers_get_their_image_resource_and_label() -> None:
    for engine, hardware, start in (
        ("vllm", "mi300x", "vllm/vllm-openai-rocm:v"),
        ("sglang", "mi300x", "lmsysorg/sglang:v"),
        ("sglang", "mi355x", "lmsysorg/sglang:v"),
        ("atom", "mi355x", "your-atom-image"),
    ):
        plan = planned(hardware=(hardware,), engine=engine, tp=(1,), rps=5.0)
        (pod,) = pods(manifest(plan))
        container = pod["spec"]["containers"][0]
        assert container["image"].startswith(start)
        assert container["resources"]["limits"] == {"amd.com/gpu": plan.best.replica.devices}
        assert pod["spec"]["nodeSelector"] == {OWN_LABEL: plan.best.hardware}


def test_a_model_that_came_later_gets_the_image_of_the_release_that_knows_it() -> None:
    plan = planned(model="qwen3.5-9b", hardware=("h100",), engine="vllm", tp=(1,), rps=5.0)
    (pod,) = pods(manifest(plan))
    assert pod["spec"]["containers"][0]["image"] == "vllm/vllm-openai:v0.17.0"
    (item,) = settings_of(plan)
    assert "The plan runs 0.17.0" in handoff_notes([item], plan.best, demand=plan.demand)[0]


def test_labels_are_of_accelerators_that_there_are() -> None:
    names = cluster()
    assert set(names.products) <= set(list_profiles("hardware"))
    for name in names.products:
        assert load_hardware(name).vendor in names.product_labels
