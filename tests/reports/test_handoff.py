"""The files that are handed over say what the plan says: limits, formats, checkpoint, pools, benchmark."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

import pytest
import yaml

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.replica_load import PERCENTILES, knee_index, replica_load
from simulator.planner.plan import plan_capacity
from simulator.reports.handoff.launch import Handoff, launch_handoff, service_name
from simulator.specs.question.plan import plan_spec

QUESTION = {"rps": 5.0, "hardware": ("h100",), "ttft_p95": "5s"}


@cache
def planned(**question: Any) -> CapacityPlan:
    return plan_capacity(plan_spec({**QUESTION, **question}))


def handoff(plan: CapacityPlan) -> Handoff:
    model = plan.best.replica.deployment.model
    return launch_handoff(
        plan.best,
        model_id=model.checkpoint or model.name,
        scheme=plan.best.scheme,
        demand=plan.demand,
        objectives=plan.objectives,
    )


def texts(**question: Any) -> dict[str, str]:
    return {file.name: file.text for file in handoff(planned(**question)).files}


def flag(command: str, name: str) -> str:
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    return words[words.index(name) + 1]


def options_of(command: str) -> dict[str, Any]:
    return dict(yaml.safe_load(command.partition("<<'YAML'\n")[2].partition("\nYAML\n")[0]))


@pytest.mark.parametrize(
    ("engine", "tp", "seqs", "length"),
    [
        ("vllm", "--tensor-parallel-size", "--max-num-seqs", "--max-model-len"),
        ("sglang", "--tp-size", "--max-running-requests", "--context-length"),
        ("tensorrt-llm", "--tp_size", "--max_batch_size", "--max_seq_len"),
    ],
)
def test_the_planned_engine_alone_gets_the_planned_limits(engine: str, tp: str, seqs: str, length: str) -> None:
    question = {"model": "llama-3.1-70b", "tp": (4,), "engine": engine}
    replica, files = planned(**question).best.replica, texts(**question)
    assert [name for name in files if name.startswith("launch")] == [f"launch-{engine}.sh"]
    command = files[f"launch-{engine}.sh"]
    assert flag(command, tp) == "4"
    assert flag(command, seqs) == str(replica.deployment.engine.max_num_seqs)
    assert int(flag(command, length)) <= replica.memory.kv_capacity_tokens


def test_formats_of_the_cache_become_flags() -> None:
    plain = {"model": "llama-3.1-8b", "weights": ("bf16",), "tp": (1,)}
    assert "--kv-cache-dtype" not in texts(**plain)["launch-vllm.sh"]
    assert flag(texts(**plain, kv_cache=("fp8",))["launch-vllm.sh"], "--kv-cache-dtype") == "fp8"
    assert (
        flag(texts(**plain, kv_cache=("fp8",), engine="sglang")["launch-sglang.sh"], "--kv-cache-dtype") == "fp8_e4m3"
    )
    options = options_of(texts(**plain, kv_cache=("fp8",), engine="tensorrt-llm")["launch-tensorrt-llm.sh"])
    assert options["kv_cache_config"]["dtype"] == "fp8"
    # A published checkpoint may bring an 8-bit cache that nobody planned.
    published = texts(model="llama-3.1-70b", weights=("fp8",), kv_cache=("bf16",), tp=(4,))
    assert flag(published["launch-vllm.sh"], "--kv-cache-dtype") == "bfloat16"


def test_shares_of_memory_are_those_of_the_memory_plan_in_each_engines_words() -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        question = {"model": "llama-3.1-70b", "tp": (4,), "engine": engine}
        replica, command = planned(**question).best.replica, texts(**question)[f"launch-{engine}.sh"]
        memory, visible = replica.memory, replica.deployment.hardware.memory_visible_bytes
        weights, cache_bytes = memory.weights_bytes, memory.kv_capacity_bytes
        match engine:
            case "vllm":
                share = float(flag(command, "--gpu-memory-utilization"))
                assert share == replica.deployment.engine.gpu_memory_utilization
            case "sglang":
                static = float(flag(command, "--mem-fraction-static"))
                assert static == pytest.approx((weights + cache_bytes) / visible, abs=1e-3)
            case _:
                free = visible - weights - memory.activation_bytes - memory.reserve_bytes
                found = options_of(command)["kv_cache_config"]["free_gpu_memory_fraction"]
                assert found == pytest.approx(cache_bytes / free, abs=1e-3)


def test_every_rank_of_attention_gets_the_planned_sequences_where_an_engine_divides_them() -> None:
    """SGLang divides running requests and chunks by the ranks; the others count by rank."""
    question = {"model": "deepseek-ai/DeepSeek-R1", "hardware": ("h200",), "tp": (1,), "dp": (8,), "ep": (8,)}
    limits = {"max_num_seqs": (309,), "max_num_batched_tokens": 4096, "tpot_p95": "100ms"}
    asked = {**question, **limits}
    sglang = texts(**asked, engine="sglang")["launch-sglang.sh"]
    assert int(flag(sglang, "--max-running-requests")) // int(flag(sglang, "--dp-size")) == 309
    assert int(flag(sglang, "--chunked-prefill-size")) // int(flag(sglang, "--dp-size")) == 4096
    assert flag(sglang, "--tp-size") == "8"
    vllm = texts(**asked, engine="vllm")["launch-vllm.sh"]
    assert (flag(vllm, "--max-num-seqs"), flag(vllm, "--tensor-parallel-size")) == ("309", "1")
    assert flag(vllm, "--data-parallel-size") == "8"
    assert "--enable-expert-parallel" in vllm
    tensorrt = texts(**asked, engine="tensorrt-llm")["launch-tensorrt-llm.sh"]
    assert (flag(tensorrt, "--max_batch_size"), flag(tensorrt, "--tp_size")) == ("309", "8")
    assert options_of(tensorrt)["enable_attention_dp"] is True


def test_the_name_that_clients_use_is_the_model_that_was_asked_for() -> None:
    question = {"model": "deepseek-ai/DeepSeek-R1", "hardware": ("h200",), "tp": (8,)}
    command = texts(**question)["launch-vllm.sh"]
    assert "vllm serve deepseek-ai/DeepSeek-R1 " in command
    assert flag(command, "--served-model-name") == "deepseek-ai/DeepSeek-R1"
    assert "--quantization" not in command


# Checkpoints


def test_a_published_checkpoint_is_served_in_the_planned_format_by_every_engine_that_loads_it() -> None:
    question = {"model": "meta-llama/Llama-3.1-70B-Instruct", "weights": ("fp8",), "tp": (2,)}
    for engine, name in (("vllm", "vllm serve"), ("tensorrt-llm", "trtllm-serve")):
        files = texts(**question, engine=engine)
        assert f"{name} nvidia/Llama-3.1-70B-Instruct-FP8 " in files[f"launch-{engine}.sh"]
        assert "--quantization" not in files[f"launch-{engine}.sh"]
        assert "checkpoint.sh" not in files


def test_a_format_that_the_engine_makes_while_loading_needs_room_for_sixteen_bits() -> None:
    """Llama 2 13B has no published checkpoint in the list: 26 GB fit an H100 and do not fit an L4."""
    roomy = texts(model="llama-2-13b", weights=("fp8",), tp=(1,))
    assert flag(roomy["launch-vllm.sh"], "--quantization") == "fp8"
    tight = texts(model="llama-2-13b", weights=("fp8",), tp=(1,), hardware=("l4",), ttft_p95="60s", rps=0.05)
    assert "--quantization" not in tight["launch-vllm.sh"]
    assert "FP8_DYNAMIC" in tight["checkpoint.sh"]


def test_an_engine_that_quantizes_nothing_gets_commands_that_make_the_checkpoint() -> None:
    question = {"model": "qwen2.5-32b", "weights": ("fp8",), "tp": (1,), "engine": "tensorrt-llm"}
    files, notes = texts(**question), handoff(planned(**question)).notes
    assert "trtllm-serve ./Qwen2.5-32B-Instruct-FP8 " in files["launch-tensorrt-llm.sh"]
    made = files["checkpoint.sh"]
    assert flag(made, "--qformat") == "fp8"
    assert flag(made, "--export_path") == "Qwen2.5-32B-Instruct-FP8"
    assert flag(made, "--pyt_ckpt_path") == "Qwen/Qwen2.5-32B-Instruct"
    assert any("checkpoint.sh makes" in note for note in notes)


def test_a_checkpoint_that_is_published_in_its_format_is_served_as_it_is() -> None:
    files = texts(model="gpt-oss-20b", tp=(1,))
    assert planned(model="gpt-oss-20b", tp=(1,)).best.replica.deployment.plan.weights.value == "fp4"
    assert "vllm serve openai/gpt-oss-20b " in files["launch-vllm.sh"]
    assert "checkpoint.sh" not in files


def test_llama_cpp_gets_files_of_its_own_kind() -> None:
    files = texts(model="llama-3.1-8b", engine="llama.cpp", weights=("int4",), tp=(1,), ttft_p95="60s", rps=0.5)
    path = flag(files["launch-llama.cpp.sh"], "--model")
    assert path.endswith("Q4_K_M.gguf")
    assert f"{path.removeprefix('./')} Q4_K_M" in files["checkpoint.sh"]


# Speculation


def speculative(command: str) -> tuple[str, ...]:
    """Method, guesses and drafter of vLLM's command."""
    return tuple(
        flag(command, f"--speculative-config.{name}") for name in ("method", "num_speculative_tokens", "model")
    )


def test_eagle_is_spelled_as_each_engine_reads_it() -> None:
    question = {"model": "llama-3.1-8b", "speculation": ("eagle:k=3",), "tp": (1,)}
    assert speculative(texts(**question)["launch-vllm.sh"]) == ("eagle", "3", "PATH_OF_THE_DRAFTER")
    command = texts(**question, engine="sglang")["launch-sglang.sh"]
    # SGLang compares the top-k before it has a default, so that a launch without one stops with a TypeError.
    assert flag(command, "--speculative-eagle-topk") == "1"
    assert flag(command, "--speculative-num-draft-tokens") == "4"
    assert options_of(texts(**question, engine="tensorrt-llm")["launch-tensorrt-llm.sh"])["speculative_config"] == {
        "decoding_type": "Eagle",
        "max_draft_len": 3,
        "speculative_model_dir": "PATH_OF_THE_DRAFTER",
    }
    assert any("PATH_OF_THE_DRAFTER stands for" in note for note in handoff(planned(**question)).notes)


def test_a_named_drafter_needs_its_method_named_too() -> None:
    named = "draft:k=3,acceptance=0.7,draft_model=llama-3.1-8b"
    question = {"model": "llama-3.1-70b", "speculation": (named,), "tp": (8,)}
    assert speculative(texts(**question)["launch-vllm.sh"]) == ("draft_model", "3", "llama-3.1-8b")
    sglang = texts(**question, engine="sglang")["launch-sglang.sh"]
    assert flag(sglang, "--speculative-algorithm") == "STANDALONE"


def test_lookup_in_the_prompt_has_no_drafter() -> None:
    question = {"model": "llama-3.1-8b", "speculation": ("ngram:k=4",), "tp": (1,), "engine": "sglang"}
    found = handoff(planned(**question))
    assert "PATH_OF_THE_DRAFTER" not in "".join((*(file.text for file in found.files), *found.notes))
    assert flag(texts(**question)["launch-sglang.sh"], "--speculative-num-draft-tokens") == "5"


def test_a_method_that_the_engine_lacks_is_said_and_left_out() -> None:
    question = {"model": "llama-3.1-8b", "speculation": ("lookahead:k=4",), "tp": (1,)}
    assert "--speculative-config" not in texts(**question)["launch-vllm.sh"]
    assert any("No flag of vLLM speculates by lookahead here" in note for note in handoff(planned(**question)).notes)


def test_a_start_that_the_engine_refuses_is_not_handed_over() -> None:
    """SGLang stops at its start with lookup over ranks of attention."""
    ranks = {
        "model": "mixtral-8x7b",
        "tp": (1,),
        "dp": (4,),
        "ep": (4,),
        "speculation": ("ngram:k=4",),
        "engine": "sglang",
    }
    assert "--speculative" not in texts(**ranks)["launch-sglang.sh"]
    assert any("speculates by ngram here" in note for note in handoff(planned(**ranks)).notes)


# Several servers, pools, routers


def test_a_replica_of_two_servers_is_started_on_both() -> None:
    question = {"model": "llama-3.1-405b", "tp": (8,), "pp": (2,), "rps": 1.0, "weights": ("bf16",)}
    assert planned(**question).best.replica.devices == 16
    vllm = texts(**question)["launch-vllm.sh"]
    assert '--nnodes 2 --node-rank "$RANK" --master-addr "$HEAD"' in vllm
    assert "|| echo --headless)" in vllm
    sglang = texts(**question, engine="sglang")["launch-sglang.sh"]
    assert '--nnodes 2 --node-rank "$RANK" --dist-init-addr "$HEAD":5000' in sglang
    tensorrt = texts(**question, engine="tensorrt-llm")
    assert "srun --nodes 2 --ntasks-per-node 8" in tensorrt["launch-tensorrt-llm.sh"]
    assert "kubernetes.yaml" not in tensorrt


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_every_replica_of_each_pool_has_an_address_in_the_router(engine: str) -> None:
    question = {"model": "llama-3.1-8b", "serving": ("disaggregated",), "rps": 100.0, "engine": engine}
    fleet, files = planned(**question).best, texts(**question)
    assert fleet.prefill is not None
    assert {f"launch-{engine}-prefill.sh", f"launch-{engine}-decode.sh", "router.sh"} <= set(files)
    for role, pool in (("PREFILL", fleet.prefill), ("DECODE", fleet)):
        named = set(re.findall(rf"{role}-\d+:\d+", files["router.sh"]))
        assert len(named) == pool.replicas + pool.spares


def test_sglang_pools_know_each_other() -> None:
    files = texts(model="llama-3.1-8b", serving=("disaggregated",), rps=100.0, engine="sglang")
    prefill, decode = files["launch-sglang-prefill.sh"], files["launch-sglang-decode.sh"]
    assert flag(prefill, "--disaggregation-decode-tp") == flag(decode, "--tp-size")
    assert flag(decode, "--disaggregation-mode") == "decode"


def test_hits_that_are_planned_are_routed_for() -> None:
    question = {"model": "llama-3.1-8b", "rps": 200.0, "tp": (1,)}
    plain, shared = texts(**question), texts(**question, prefix_hit=0.5)
    assert not {"router.sh", "gateway.yaml"} & set(plain)
    assert flag(shared["router.sh"], "--policy") == "cache_aware"
    assert any("route by prefix" in note for note in handoff(planned(**question, prefix_hit=0.5)).notes)


def test_an_engine_that_nobody_described_has_a_note_and_no_files() -> None:
    found = handoff(planned(model="llama-3.1-8b", engine="tgi", tp=(1,)))
    assert found.files == ()
    assert found.notes == ("Nobody described how tgi 3.3 is started: no launch files.",)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-70B", "x/" + "y" * 80, "Ünï/¿?"])
def test_service_names_are_valid_for_kubernetes(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", service_name(name))


# Load of a replica


def test_latency_rises_with_load_and_meets_the_plan_at_the_planned_rate() -> None:
    fleet = planned(model="llama-3.1-70b", tp=(4,), rps=40.0, ttft_p95="2s").best
    load = replica_load(fleet, rates_per_s=(fleet.degraded.rate_per_s,))
    assert list(load.loads) == sorted(load.loads)
    assert load.ttft_slow_s[-1] > 2 * load.ttft_slow_s[0]
    assert 0.5 < load.knee_load < 1
    ttft = next(point for point in load.at[0] if point.metric.value == "ttft")
    assert ttft.values_s[PERCENTILES.index(95.0)] == pytest.approx(fleet.degraded.ttft_p95_s)
    assert list(ttft.values_s) == sorted(ttft.values_s)


def test_knee_of_a_corner_is_the_corner() -> None:
    import numpy as np

    x = np.linspace(0.0, 1.0, 101)
    assert x[knee_index(x, np.maximum(0.0, x - 0.7))] == pytest.approx(0.7)
