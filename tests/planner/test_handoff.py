"""Launch commands say what the plan says."""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache
from typing import Any

import pytest
import yaml

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.handoff.launch import Handoff, launch_handoff, service_name
from simulator.planner.plan import plan_capacity
from simulator.planner.serving.replica_load import PERCENTILES, knee_index, replica_load
from simulator.specs.question.plan import plan_spec

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


def manifest(found: Handoff) -> dict[str, dict[str, Any]]:
    text = next(file.text for file in found.files if file.name == "kubernetes.yaml")
    return {item["kind"]: item for item in yaml.safe_load_all(text)}


def test_kubernetes_manifest_is_yaml_with_all_replicas_and_devices() -> None:
    objects, fleet = manifest(handoff()), plan().best
    deployment = objects["Deployment"]
    assert deployment["spec"]["replicas"] == fleet.replicas + fleet.spares
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert container["command"] == ["vllm", "serve", MODEL]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selected in (deployment["spec"]["selector"], objects["PodDisruptionBudget"]["spec"]["selector"]):
        assert selected["matchLabels"] == labels
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget"]["spec"]["minAvailable"] == fleet.replicas


def asked(**question: object) -> tuple[Handoff, CapacityPlan]:
    found = plan_capacity(plan_spec({"rps": 5.0, "hardware": ("h100",), "ttft_p95": "5s", **question}))
    made = launch_handoff(
        found.best, model_id=MODEL, scheme=found.best.scheme, demand=found.demand, objectives=found.objectives
    )
    return made, found


def of(found: Handoff, name: str) -> str:
    return next(file.text for file in found.files if file.name == name)


def test_shares_of_memory_are_those_of_the_memory_plan_in_each_engines_words() -> None:
    memory, hardware = plan().best.replica.memory, plan().best.replica.deployment.hardware
    visible, weights, cache = hardware.memory_visible_bytes, memory.weights_bytes, memory.kv_capacity_bytes
    assert flag(text("launch-vllm.sh"), "--gpu-memory-utilization") == "0.9"
    static = float(flag(text("launch-sglang.sh"), "--mem-fraction-static"))
    assert static == pytest.approx((weights + cache) / visible, abs=1e-3)
    assert static < 0.9
    options = options_of(handoff())
    free = visible - weights - memory.activation_bytes - memory.reserve_bytes
    assert options["kv_cache_config"]["free_gpu_memory_fraction"] == pytest.approx(cache / free, abs=1e-3)
    assert "dtype" not in options["kv_cache_config"]
    assert options_of(handoff("fp8"))["kv_cache_config"]["dtype"] == "fp8"
    assert flag(text("launch-sglang.sh", "fp8"), "--kv-cache-dtype") == "fp8_e4m3"


def options_of(found: Handoff) -> dict[str, Any]:
    inner = of(found, "launch-tensorrt-llm.sh").partition("<<'YAML'\n")[2].partition("\nYAML\n")[0]
    return dict(yaml.safe_load(inner))


def test_eagle_is_spelled_as_each_engine_reads_it() -> None:
    found, made = asked(model="llama-3.1-8b", speculation=("eagle:k=3",), tp=(1,))
    assert made.best.replica.deployment.speculation is not None
    config = json.loads(flag(of(found, "launch-vllm.sh"), "--speculative-config"))
    assert config == {"method": "eagle", "num_speculative_tokens": 3, "model": "PATH_OF_THE_DRAFTER"}
    command = of(found, "launch-sglang.sh")
    # SGLang 0.5.5 compares the top-k before it has a default, so that a launch without one stops with a TypeError.
    assert flag(command, "--speculative-eagle-topk") == "1"
    assert flag(command, "--speculative-num-draft-tokens") == "4"
    assert options_of(found)["speculative_config"] == {
        "decoding_type": "Eagle",
        "max_draft_len": 3,
        "speculative_model_dir": "PATH_OF_THE_DRAFTER",
    }
    assert any("PATH_OF_THE_DRAFTER stands for" in note for note in found.notes)


def test_a_named_drafter_needs_its_method_named_too() -> None:
    found, _ = asked(model="llama-3.1-70b", speculation=("draft:k=3,acceptance=0.7,draft_model=llama-3.1-8b",), tp=(8,))
    config = json.loads(flag(of(found, "launch-vllm.sh"), "--speculative-config"))
    assert config == {"method": "draft_model", "num_speculative_tokens": 3, "model": "llama-3.1-8b"}
    assert flag(of(found, "launch-sglang.sh"), "--speculative-algorithm") == "STANDALONE"


def test_lookup_in_the_prompt_has_no_drafter() -> None:
    found, _ = asked(model="llama-3.1-8b", speculation=("ngram:k=4",), tp=(1,))
    assert "PATH_OF_THE_DRAFTER" not in "".join((*(file.text for file in found.files), *found.notes))
    assert flag(of(found, "launch-sglang.sh"), "--speculative-num-draft-tokens") == "5"


def test_a_replica_of_two_servers_is_started_on_both() -> None:
    found, made = asked(model="llama-3.1-405b", tp=(8,), pp=(2,), rps=1.0, weights=("bf16",))
    assert made.best.replica.devices == 16
    vllm, sglang = of(found, "launch-vllm.sh"), of(found, "launch-sglang.sh")
    assert '--nnodes 2 --node-rank "$RANK" --master-addr "$HEAD"' in vllm
    assert "--headless" in vllm
    assert "--nnodes 2" in sglang
    assert "--dist-init-addr" in sglang
    assert "srun --nodes 2 --ntasks-per-node 8" in of(found, "launch-tensorrt-llm.sh")
    objects = manifest(found)
    template = objects["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    leader, worker = (template[name]["spec"]["containers"][0] for name in ("leaderTemplate", "workerTemplate"))
    assert leader["resources"]["limits"] == worker["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert leader["args"][-2:] == ["--node-rank", "0"]
    assert worker["args"][-3:] == ["--node-rank", "$(LWS_WORKER_INDEX)", "--headless"]
    assert "readinessProbe" not in worker


def test_ranks_of_attention_are_counted_as_each_engine_counts() -> None:
    found, made = asked(model="mixtral-8x7b", tp=(2,), dp=(2,))
    assert made.best.replica.devices == 4
    assert flag(of(found, "launch-vllm.sh"), "--tensor-parallel-size") == "2"
    assert flag(of(found, "launch-vllm.sh"), "--data-parallel-size") == "2"
    assert flag(of(found, "launch-sglang.sh"), "--tp-size") == "4"
    assert flag(of(found, "launch-tensorrt-llm.sh"), "--tp_size") == "4"
    assert options_of(found)["enable_attention_dp"] is True


def test_other_makers_get_their_image_and_no_engine_that_cannot_run() -> None:
    found, made = asked(model="llama-3.1-8b", hardware=("mi300x",), tp=(1,))
    assert "launch-tensorrt-llm.sh" not in [file.name for file in found.files]
    container = manifest(found)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"].startswith("rocm/vllm")
    assert container["resources"]["limits"] == {"amd.com/gpu": made.best.replica.devices}


def test_weights_that_no_flag_makes_are_asked_for() -> None:
    found, _ = asked(model="llama-3.1-8b", weights=("int4",), tp=(1,))
    assert any("checkpoint whose weights are int4" in note for note in found.notes)
    eight, _ = asked(model="llama-3.1-8b", weights=("fp8",), tp=(1,))
    assert flag(of(eight, "launch-vllm.sh"), "--quantization") == "fp8"
    assert any("quantize at load time" in note for note in eight.notes)


def test_the_benchmark_repeats_a_prefix_and_spreads_lengths_as_far_as_it_can() -> None:
    found, _ = asked(model="llama-3.1-8b", tp=(1,), isl=1000, osl=100, prefix_hit=0.6, isl_cv=0.3, osl_cv=0.4)
    command = of(found, "verify.sh")
    assert (flag(command, "--random-prefix-len"), flag(command, "--random-input-len")) == ("600", "400")
    assert flag(command, "--random-range-ratio") == "0.52"  # sqrt(3) x 0.3
    plain = of(asked(model="llama-3.1-8b", tp=(1,), isl=1000, isl_cv=0, osl_cv=0)[0], "verify.sh")
    assert "--random-range-ratio" not in plain
    assert "--random-prefix-len" not in plain


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
    load = replica_load(fleet, rates_per_s=(fleet.degraded.rate_per_s,))
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


def test_weights_that_no_flag_makes_are_asked_for_in_the_files_themselves() -> None:
    found, _ = asked(model="llama-3.1-8b", scheme="gptq-g128")
    for name in ("launch-vllm.sh", "launch-sglang.sh", "kubernetes.yaml"):
        first = of(found, name).splitlines()[0]
        assert first.startswith("# Name a checkpoint whose weights are int4 by gptq-g128 in place of")
    assert manifest(found)["Deployment"]["kind"] == "Deployment"


def test_a_checkpoint_that_is_published_in_its_format_is_not_asked_for() -> None:
    found, plan_ = asked(model="gpt-oss-20b")
    assert plan_.best.replica.deployment.plan.weights.value == "fp4"
    assert not any("Name a checkpoint" in note for note in found.notes)
    assert of(found, "launch-vllm.sh").startswith("vllm serve")


def test_every_replica_of_each_pool_has_an_address() -> None:
    found, plan_ = asked(model="llama-3.1-8b", serving="disaggregated", rps=100.0)
    script = of(found, "launch-tensorrt-llm.sh").split("disaggregated.yaml <<'YAML'\n")[1].split("YAML\n")[0]
    servers = yaml.safe_load(script)
    fleet = plan_.best
    assert fleet.prefill is not None
    for name, pool in (("context_servers", fleet.prefill), ("generation_servers", fleet)):
        assert servers[name]["num_instances"] == len(set(servers[name]["urls"])) == pool.replicas + pool.spares
