"""Launch commands say what the plan says."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache

import pytest
import yaml

from simulator.planner.handoff import Handoff, launch_handoff, service_name
from simulator.planner.plan import plan_capacity
from simulator.planner.records import CapacityPlan
from simulator.planner.replica_load import PERCENTILES, knee_index, replica_load
from simulator.specs.plan import plan_spec

MODEL = "meta-llama/Llama-3.1-70B-Instruct"


@lru_cache(maxsize=2)
def plan(kv_cache: str = "bf16") -> CapacityPlan:
    question = {"rps": 40.0, "hardware": ("h100",), "kv_cache": (kv_cache,), "ttft_p95": "2s", "tp": (4,)}
    return plan_capacity(plan_spec(question))


def handoff(kv_cache: str = "bf16", scheme: str | None = None) -> Handoff:
    found = plan(kv_cache)
    return launch_handoff(found.best, model_id=MODEL, scheme=scheme, demand=found.demand, objectives=found.objectives)


def text(name: str, kv_cache: str = "bf16", scheme: str | None = None) -> str:
    return next(file.text for file in handoff(kv_cache, scheme).files if file.name == name)


def flag(command: str, name: str) -> str:
    words = shlex.split(command.replace("\\\n", " "))
    return words[words.index(name) + 1]


@pytest.mark.parametrize(
    ("name", "tp", "seqs", "length"),
    [
        ("launch-vllm.sh", "--tensor-parallel-size", "--max-num-seqs", "--max-model-len"),
        ("launch-sglang.sh", "--tp-size", "--max-running-requests", "--context-length"),
        ("launch-tensorrt-llm.sh", "--tp_size", "--max_batch_size", "--max_seq_len"),
    ],
)
def test_every_engine_gets_the_planned_limits(name: str, tp: str, seqs: str, length: str) -> None:
    engine = plan().best.replica.deployment.engine
    command = text(name)
    assert flag(command, tp) == "4"
    assert flag(command, seqs) == str(engine.max_num_seqs)
    assert int(flag(command, length)) <= plan().best.replica.memory.kv_capacity_tokens


def test_formats_become_flags() -> None:
    assert flag(text("launch-vllm.sh"), "--kv-cache-dtype") == "auto"
    assert flag(text("launch-vllm.sh", "fp8"), "--kv-cache-dtype") == "fp8"
    assert flag(text("launch-vllm.sh", scheme="awq"), "--quantization") == "awq_marlin"


def test_kubernetes_manifest_is_yaml_with_all_replicas_and_devices() -> None:
    manifest = yaml.safe_load(text("kubernetes.yaml"))
    fleet = plan().best
    assert manifest["kind"] == "Deployment"
    assert manifest["spec"]["replicas"] == fleet.replicas + fleet.spares
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert container["args"][:2] == ["--model", MODEL]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"] == labels


def test_benchmark_sends_one_replicas_share_for_five_minutes() -> None:
    command, fleet = text("verify.sh"), plan().best
    rate = float(flag(command, "--request-rate"))
    assert rate == pytest.approx(plan().demand.planned_rate_per_s / fleet.replicas, rel=1e-3)
    assert int(flag(command, "--num-prompts")) >= max(200, rate * 300 * 0.99)
    assert flag(command, "--goodput") == "ttft:2000"


def test_the_engine_of_the_plan_comes_first_and_is_the_only_one_marked() -> None:
    files = handoff().files
    assert files[0].name == "launch-vllm.sh"
    assert [file.name for file in files if file.planned] == ["launch-vllm.sh", "kubernetes.yaml", "verify.sh"]


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-70B", "x/" + "y" * 80, "Ünï/¿?"])
def test_service_names_are_valid_for_kubernetes(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", service_name(name))


# Load of a replica


def test_latency_rises_with_load_and_meets_the_plan_at_the_planned_rate() -> None:
    fleet = plan().best
    load = replica_load(fleet.replica, mix=plan().demand.mix, rates_per_s=(fleet.degraded.rate_per_s,))
    assert list(load.loads) == sorted(load.loads)
    assert load.ttft_p95_s[-1] > 2 * load.ttft_p95_s[0]
    assert 0.5 < load.knee_load < 1
    ttft = next(point for point in load.at if point.metric.value == "ttft")
    assert ttft.values_s[PERCENTILES.index(95.0)] == pytest.approx(fleet.degraded.ttft_p95_s)
    assert list(ttft.values_s) == sorted(ttft.values_s)


def test_knee_of_a_corner_is_the_corner() -> None:
    import numpy as np

    x = np.linspace(0.0, 1.0, 101)
    assert x[knee_index(x, np.maximum(0.0, x - 0.7))] == pytest.approx(0.7)
