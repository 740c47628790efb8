"""From a planned fleet to what runs it: launch commands, a Kubernetes manifest and the benchmark that would verify it.

Flags as documented for vLLM 0.15, SGLang 0.5 and TensorRT-LLM 1.0 [VllmTeam2025]; check them against your versions.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from math import ceil

from simulator.engine.steady_state import LatencyMetric
from simulator.operators.formats import PrecisionPlan
from simulator.planner.handoff_techniques import sglang_flags, technique_notes, vllm_flags
from simulator.planner.records import Demand, Fleet, Objective
from simulator.specs.precision import Dtype
from simulator.units import KILO

_BENCH_SECONDS = 300.0
_LEAST_PROMPTS = 200
_VLLM_SCHEMES = (
    ("gptq", "gptq_marlin"),
    ("awq", "awq_marlin"),
    ("llm.int8", "bitsandbytes"),
    ("nf4", "bitsandbytes"),
    ("fp8", "fp8"),
)
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "habana.ai/gaudi"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFile:
    """One text to hand over. ``name`` is a file name, ``planned`` whether the plan was made for this engine."""

    name: str
    title: str
    text: str
    planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """Everything to start the fleet, to check it, and what the commands cannot say."""

    files: tuple[HandoffFile, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What all engines are told, by its meaning."""

    model_id: str
    tp_size: int
    pp_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    memory_share: float
    block_size_tokens: int
    prefix_caching: bool
    weights_flag: str
    kv_flag: str
    devices: int
    vllm: tuple[str, ...] = ()
    sglang: tuple[str, ...] = ()


def _weights_flag(plan: PrecisionPlan, scheme: str | None) -> str:
    """vLLM's --quantization for these weights, empty where the checkpoint's own format is served."""
    found = next((flag for name, flag in _VLLM_SCHEMES if scheme and scheme.startswith(name)), "")
    return found or ("fp8" if plan.weights is Dtype.FP8 and not scheme else "")


def _settings(fleet: Fleet, *, model_id: str, scheme: str | None) -> _Settings:
    deployment = fleet.replica.deployment
    engine, parallelism = deployment.engine, deployment.parallelism
    # Engines refuse to start where the cache cannot hold one request of the full length.
    longest = min(engine.max_model_len, fleet.replica.memory.kv_capacity_tokens or engine.max_model_len)
    return _Settings(
        model_id=model_id,
        tp_size=parallelism.tp_size,
        pp_size=parallelism.pp_size,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=longest,
        memory_share=engine.gpu_memory_utilization,
        block_size_tokens=engine.block_size_tokens,
        prefix_caching=engine.prefix_caching,
        weights_flag=_weights_flag(deployment.plan, scheme),
        kv_flag="fp8" if deployment.plan.kv_dtype is Dtype.FP8 else "auto",
        devices=parallelism.devices,
        vllm=tuple(vllm_flags(deployment)),
        sglang=tuple(sglang_flags(deployment)),
    )


def _joined(command: str, flags: list[str]) -> str:
    return " \\\n  ".join([command, *flags]) + "\n"


def _vllm_flags(item: _Settings) -> list[str]:
    flags = [
        f"--tensor-parallel-size {item.tp_size}",
        *([f"--pipeline-parallel-size {item.pp_size}"] if item.pp_size > 1 else []),
        f"--max-model-len {item.max_model_len}",
        f"--max-num-seqs {item.max_num_seqs}",
        f"--max-num-batched-tokens {item.max_num_batched_tokens}",
        f"--gpu-memory-utilization {item.memory_share:g}",
        f"--block-size {item.block_size_tokens}",
        f"--kv-cache-dtype {item.kv_flag}",
        *([f"--quantization {item.weights_flag}"] if item.weights_flag else []),
        "--enable-prefix-caching" if item.prefix_caching else "--no-enable-prefix-caching",
        *item.vllm,
    ]
    return flags


def _vllm(item: _Settings) -> str:
    return _joined(f"vllm serve {shlex.quote(item.model_id)}", _vllm_flags(item))


def _sglang(item: _Settings) -> str:
    flags = [
        f"--model-path {shlex.quote(item.model_id)}",
        f"--tp-size {item.devices // item.pp_size}",
        *([f"--pp-size {item.pp_size}"] if item.pp_size > 1 else []),
        f"--context-length {item.max_model_len}",
        f"--max-running-requests {item.max_num_seqs}",
        f"--chunked-prefill-size {item.max_num_batched_tokens}",
        f"--mem-fraction-static {item.memory_share:g}",
        f"--kv-cache-dtype {'fp8_e5m2' if item.kv_flag == 'fp8' else 'auto'}",
        *([f"--quantization {item.weights_flag}"] if item.weights_flag else []),
        *([] if item.prefix_caching else ["--disable-radix-cache"]),
        *item.sglang,
    ]
    return _joined("python -m sglang.launch_server", flags)


def _tensorrt_llm(item: _Settings) -> str:
    flags = [
        f"--tp_size {item.tp_size}",
        *([f"--pp_size {item.pp_size}"] if item.pp_size > 1 else []),
        f"--max_seq_len {item.max_model_len}",
        f"--max_batch_size {item.max_num_seqs}",
        f"--max_num_tokens {item.max_num_batched_tokens}",
        f"--kv_cache_free_gpu_memory_fraction {item.memory_share:g}",
    ]
    return _joined(f"trtllm-serve {shlex.quote(item.model_id)}", flags)


def service_name(model_id: str) -> str:
    """A Kubernetes name of the model: lower case, digits and hyphens, at most 50 characters."""
    bare = re.sub(r"[^a-z0-9]+", "-", model_id.rsplit("/", 1)[-1].lower()).strip("-")
    return bare[:50].strip("-") or "model"


def _kubernetes(item: _Settings, fleet: Fleet) -> str:
    name = service_name(item.model_id)
    vendor = fleet.replica.deployment.hardware.vendor
    resource = _RESOURCES.get(vendor, "nvidia.com/gpu")
    arguments = [word for flag in _vllm_flags(item) for word in shlex.split(flag)]
    listed = "\n".join(f"            - {json.dumps(word)}" for word in ["--model", item.model_id, *arguments])
    server = f"\n    roofcast/server: {fleet.server.name}" if fleet.server else ""
    return f"""apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  labels:
    roofcast/hardware: {fleet.hardware}{server}
spec:
  replicas: {fleet.replicas + fleet.spares}  # {fleet.replicas} for the load, {fleet.spares} spare
  selector:
    matchLabels: {{app: {name}}}
  strategy:
    rollingUpdate: {{maxUnavailable: {max(1, fleet.spares)}, maxSurge: 0}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
        - name: engine
          image: vllm/vllm-openai:v{fleet.replica.deployment.engine.version}
          args:
{listed}
          ports: [{{containerPort: 8000}}]
          resources:
            limits: {{"{resource}": {item.devices}}}
          readinessProbe:
            httpGet: {{path: /health, port: 8000}}
            periodSeconds: 5
          volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
      volumes:
        - name: shm
          emptyDir: {{medium: Memory, sizeLimit: 16Gi}}
"""


def _goodput(objectives: tuple[Objective, ...]) -> list[str]:
    names = {LatencyMetric.TTFT: "ttft", LatencyMetric.TPOT: "tpot", LatencyMetric.E2E: "e2el"}
    bounds = [f"{names[item.metric]}:{item.bound_s * KILO:g}" for item in objectives]
    return [f"--goodput {' '.join(bounds)}"] if bounds else []


def _benchmark(item: _Settings, fleet: Fleet, *, demand: Demand, objectives: tuple[Objective, ...]) -> str:
    """One replica at its planned share of the peak, long enough for a p95 to settle."""
    rate = demand.planned_rate_per_s / fleet.replicas
    mix = demand.mix
    percentiles = sorted({f"{objective.percentile:g}" for objective in objectives} | {"50", "95", "99"}, key=float)
    flags = [
        "--backend vllm --base-url http://REPLICA:8000",
        f"--model {shlex.quote(item.model_id)}",
        "--dataset-name random",
        f"--random-input-len {mix.isl.mean_tokens:.0f} --random-output-len {mix.osl.mean_tokens:.0f}",
        f"--request-rate {rate:.4g} --burstiness {1 / mix.arrival_cv**2:.3g}",
        f"--num-prompts {max(_LEAST_PROMPTS, ceil(rate * _BENCH_SECONDS))}",
        "--ignore-eos",
        f"--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles {','.join(percentiles)}",
        *_goodput(objectives),
        "--save-result --result-filename replica.json",
    ]
    return _joined("vllm bench serve", flags)


def launch_handoff(
    fleet: Fleet, *, model_id: str, scheme: str | None, demand: Demand, objectives: tuple[Objective, ...]
) -> Handoff:
    """Launch commands of the three engines, a Kubernetes Deployment and a benchmark for one replica of the fleet.

    ``model_id`` : what the engines load; ``scheme`` : the plan's quantization method, if one was asked for
    """
    item = _settings(fleet, model_id=model_id, scheme=scheme)
    planned = fleet.replica.deployment.engine.name
    commands = (
        ("vllm", "launch-vllm.sh", "vLLM", _vllm(item)),
        ("sglang", "launch-sglang.sh", "SGLang", _sglang(item)),
        ("tensorrt-llm", "launch-tensorrt-llm.sh", "TensorRT-LLM", _tensorrt_llm(item)),
    )
    files = [
        HandoffFile(name=name, title=f"One replica, {title}", text=text, planned=engine == planned)
        for engine, name, title, text in commands
    ]
    files.sort(key=lambda file: not file.planned)
    files.append(
        HandoffFile(
            name="kubernetes.yaml",
            title="The fleet on Kubernetes (vLLM)",
            text=_kubernetes(item, fleet),
            planned=planned == "vllm",
        )
    )
    bench = _benchmark(item, fleet, demand=demand, objectives=objectives)
    files.append(HandoffFile(name="verify.sh", title="Benchmark that would verify a replica", text=bench, planned=True))
    return Handoff(files=tuple(files), notes=_notes(item, fleet, demand=demand))


def _notes(item: _Settings, fleet: Fleet, *, demand: Demand) -> tuple[str, ...]:
    planned = fleet.replica.deployment.engine
    notes = [
        f"The plan was made for {planned.name} {planned.version}; the other commands say the same in another engine's "
        "words, and its latencies differ.",
        "`roofcast calibrate --from replica.json` fits the engine's overheads to the benchmark, so that the next plan "
        "rests on your own measurement.",
    ]
    if demand.mix.isl.cv > 0 or demand.mix.osl.cv > 0:
        notes.append(
            "The benchmark sends equal lengths; the plan's spread of lengths makes percentiles a little worse. For "
            "acceptance use a data set of your own."
        )
    if item.max_model_len < planned.max_model_len:
        notes.append(
            f"--max-model-len is {item.max_model_len}, not the model's {planned.max_model_len}: the KV cache of a "
            "replica holds no more, and an engine refuses to start otherwise."
        )
    notes += technique_notes(fleet.replica.deployment)
    if item.devices > (fleet.server.accelerators_per_server if fleet.server else item.devices):
        notes.append("A replica spans several servers: use a LeaderWorkerSet or Ray instead of the Deployment.")
    return tuple(notes)
