"""One replica of a plan in the words of vLLM, SGLang and TensorRT-LLM.

Flags were checked against the argument parsers of vLLM 0.14.1 and 0.16.0 [VllmTeam2026] and SGLang 0.5.5
[SglangTeam2025]; those of TensorRT-LLM 1.0 follow its documentation [TrtllmTeam2025] and were not run.

Techniques of a planned replica that no flag can say.
"""

from __future__ import annotations

import json
import shlex

from simulator.phases.deployment import Deployment, Speculation
from simulator.planner.handoff.settings import LaunchSettings
from simulator.units import percent_text

DRAFT_PLACEHOLDER = "PATH_OF_THE_DRAFTER"
"""Where nobody named the drafter's weights."""
NGRAM_METHODS = ("ngram", "lookup")
VLLM_METHODS = {"eagle": "eagle", "eagle2": "eagle", "medusa": "medusa", "draft": "draft_model"} | dict.fromkeys(
    NGRAM_METHODS, "ngram"
)
SGLANG_METHODS = {"eagle": "EAGLE", "eagle2": "EAGLE", "draft": "STANDALONE"} | dict.fromkeys(NGRAM_METHODS, "NGRAM")
TENSORRT_METHODS = {"eagle": "Eagle", "draft": "DraftTarget"} | dict.fromkeys(NGRAM_METHODS, "NGram")
_VLLM_TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
# Longest run of tokens that is looked up in the prompt, as in vLLM's own example.
_LOOKUP_TOKENS = 4
_RENDEZVOUS_PORT = 5000


def drafter(found: Speculation) -> str:
    """The drafter's weights, or what stands for them."""
    named = found.draft.model.name if found.plan.method == "draft" and found.draft else ""
    return found.spec.draft_model or named or DRAFT_PLACEHOLDER


def _command(name: str, flags: list[str]) -> str:
    return " \\\n  ".join([name, *flags]) + "\n"


def _vllm_speculation(found: Speculation) -> list[str]:
    method = VLLM_METHODS.get(found.plan.method)
    if method is None:
        return []
    config: dict[str, object] = {"method": method, "num_speculative_tokens": found.plan.k}
    if method == "ngram":
        config["prompt_lookup_max"] = _LOOKUP_TOKENS
    else:
        config["model"] = drafter(found)
    return [f"--speculative-config {shlex.quote(json.dumps(config, separators=(',', ':')))}"]


def vllm_flags(item: LaunchSettings) -> list[str]:
    """Flags of ``vllm serve``, without those of several servers."""
    deployment = item.deployment
    engine, parallelism = deployment.engine, deployment.parallelism
    return [
        f"--tensor-parallel-size {parallelism.tp_size}",
        *([f"--pipeline-parallel-size {parallelism.pp_size}"] if parallelism.pp_size > 1 else []),
        *([f"--data-parallel-size {parallelism.dp_size}"] if parallelism.dp_size > 1 else []),
        *(["--enable-expert-parallel"] if parallelism.ep_size > 1 else []),
        f"--max-model-len {item.max_model_len}",
        f"--max-num-seqs {engine.max_num_seqs}",
        f"--max-num-batched-tokens {engine.max_num_batched_tokens}",
        f"--gpu-memory-utilization {engine.gpu_memory_utilization:g}",
        f"--block-size {engine.block_size_tokens}",
        f"--kv-cache-dtype {'fp8' if item.has_fp8_cache else 'auto'}",
        *([f"--quantization {item.quantization}"] if item.quantization else []),
        "--enable-prefix-caching" if engine.prefix_caching else "--no-enable-prefix-caching",
        *(_vllm_speculation(deployment.speculation) if deployment.speculation else []),
        *([f"--kv-transfer-config '{_VLLM_TRANSFER}'"] if item.role else []),
    ]


def _several(item: LaunchSettings) -> str:
    """What to set on each server before the command, empty where a replica stays in one."""
    if item.servers == 1:
        return ""
    return f"# On each of {item.servers} servers: export HEAD=address of the first, RANK=0 on it, 1 and up elsewhere.\n"


def vllm_launch(item: LaunchSettings) -> str:
    """``vllm serve`` of one replica; on several servers the others than the first answer no clients."""
    flags = vllm_flags(item)
    if item.servers > 1:
        flags.append(f'--nnodes {item.servers} --node-rank "$RANK" --master-addr "$HEAD"')
        flags.append('$([ "$RANK" = 0 ] || echo --headless)')
    return _several(item) + _command(f"vllm serve {shlex.quote(item.model_id)}", flags)


def _sglang_speculation(found: Speculation) -> list[str]:
    method = SGLANG_METHODS.get(found.plan.method)
    if method is None:
        return []
    # A chain of k guesses is verified with the token before it; without a top-k the server stops at its start.
    if method == "NGRAM":
        return [f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {found.plan.k + 1}"]
    return [
        f"--speculative-algorithm {method} --speculative-num-steps {found.plan.k}",
        f"--speculative-eagle-topk 1 --speculative-num-draft-tokens {found.plan.k + 1}",
        f"--speculative-draft-model-path {drafter(found)}",
    ]


def sglang_launch(item: LaunchSettings) -> str:
    """``sglang.launch_server`` of one replica; it counts the ranks of attention among the tensor-parallel ones."""
    deployment = item.deployment
    engine, parallelism = deployment.engine, deployment.parallelism
    flags = [
        f"--model-path {shlex.quote(item.model_id)}",
        f"--tp-size {item.devices // parallelism.pp_size}",
        *([f"--pp-size {parallelism.pp_size}"] if parallelism.pp_size > 1 else []),
        *([f"--dp-size {parallelism.dp_size} --enable-dp-attention"] if parallelism.dp_size > 1 else []),
        *([f"--ep-size {parallelism.ep_size}"] if parallelism.ep_size > 1 else []),
        f"--context-length {item.max_model_len}",
        f"--max-running-requests {engine.max_num_seqs}",
        f"--chunked-prefill-size {engine.max_num_batched_tokens}",
        f"--mem-fraction-static {item.static_share:.3f}",
        f"--kv-cache-dtype {'fp8_e4m3' if item.has_fp8_cache else 'auto'}",
        *([f"--quantization {item.quantization}"] if item.quantization else []),
        *([] if engine.prefix_caching else ["--disable-radix-cache"]),
        *(_sglang_speculation(deployment.speculation) if deployment.speculation else []),
        *([f"--disaggregation-mode {item.role} --disaggregation-transfer-backend nixl"] if item.role else []),
    ]
    if item.servers > 1:
        flags.append(f'--nnodes {item.servers} --node-rank "$RANK" --dist-init-addr "$HEAD:{_RENDEZVOUS_PORT}"')
    return _several(item) + _command("python -m sglang.launch_server", flags)


def _tensorrt_options(item: LaunchSettings) -> list[str]:
    """Lines of the options file, for what has no flag."""
    deployment, found = item.deployment, item.deployment.speculation
    lines = [
        "kv_cache_config:",
        f"  enable_block_reuse: {str(deployment.engine.prefix_caching).lower()}",
        f"  free_gpu_memory_fraction: {item.cache_share:.3f}",
        *(["  dtype: fp8"] if item.has_fp8_cache else []),
        f"enable_chunked_prefill: {str(deployment.engine.chunked_prefill).lower()}",
        *(["enable_attention_dp: true"] if deployment.parallelism.dp_size > 1 else []),
        *(["cache_transceiver_config:", "  backend: DEFAULT"] if item.role else []),
    ]
    method = TENSORRT_METHODS.get(found.plan.method) if found is not None else None
    if found is not None and method is not None:
        lines += ["speculative_config:", f"  decoding_type: {method}", f"  max_draft_len: {found.plan.k}"]
        if method != "NGram":
            lines.append(f"  speculative_model_dir: {drafter(found)}")
    return lines


def tensorrt_launch(item: LaunchSettings) -> str:
    """``trtllm-serve`` of one replica and the options file that it reads."""
    engine, parallelism = item.deployment.engine, item.deployment.parallelism
    flags = [
        f"--tp_size {item.devices // parallelism.pp_size}",
        *([f"--pp_size {parallelism.pp_size}"] if parallelism.pp_size > 1 else []),
        *([f"--ep_size {parallelism.ep_size}"] if parallelism.ep_size > 1 else []),
        f"--max_seq_len {item.max_model_len}",
        f"--max_batch_size {engine.max_num_seqs}",
        f"--max_num_tokens {engine.max_num_batched_tokens}",
        "--extra_llm_api_options tensorrt-llm.yaml",
    ]
    options = "\n".join(["cat > tensorrt-llm.yaml <<'YAML'", *_tensorrt_options(item), "YAML", ""])
    name = f"trtllm-serve {shlex.quote(item.model_id)}"
    if item.servers > 1:
        tasks = f"--ntasks-per-node {item.devices_per_server}"
        name = f"srun --nodes {item.servers} {tasks} --mpi pmix trtllm-llmapi-launch {name}"
    return options + _command(name, flags)


def _speculation_notes(deployment: Deployment) -> list[str]:
    found = deployment.speculation
    if found is None:
        return []
    method = found.plan.method
    notes = [
        f"The plan counts on {found.plan.mean_tokens:.2f} tokens per verify step of {method}: measure that on your own "
        "requests; of random tokens, as the benchmark sends them, almost no guess is accepted."
    ]
    engines = (("vLLM", VLLM_METHODS), ("SGLang", SGLANG_METHODS), ("TensorRT-LLM", TENSORRT_METHODS))
    without = [name for name, known in engines if method not in known]
    if without:
        notes.append(f"No flag of {' or '.join(without)} speculates by {method}: their commands leave it out.")
    if len(without) < len(engines) and method not in NGRAM_METHODS and drafter(found) == DRAFT_PLACEHOLDER:
        notes.append(f"{DRAFT_PLACEHOLDER} stands for a drafter trained for this model; without one, train it first.")
    return notes


def technique_notes(deployment: Deployment) -> tuple[str, ...]:
    """What has to be there before the commands give what was planned."""
    spec, notes = deployment.techniques.spec, _speculation_notes(deployment)
    if spec.sparsity is not None:
        notes.append(
            f"The checkpoint has to be pruned to {spec.sparsity.pattern} and stored compressed: no flag prunes it."
        )
    if spec.weight_offload is not None:
        notes.append(
            f"The plan keeps {percent_text(spec.weight_offload.fraction)} of the layers' weights in host memory: add "
            "--cpu-offload-gb (vLLM, SGLang) with that share of a device's weights; the commands leave it out."
        )
    if spec.kv_policy is not None:
        notes.append(f"No flag of these engines bounds the cache by {spec.kv_policy.method}: it needs their source.")
    return tuple(notes)
