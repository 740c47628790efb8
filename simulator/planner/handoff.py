"""What an engine is told about one replica of a plan, by meaning, which checkpoint it serves, and the load that would
verify it: its share of the peak, with the planned lengths, long enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np

from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan
from simulator.planner.fleet.records import Fleet, FleetPool
from simulator.planner.records import Demand
from simulator.planner.serving.capacity import Role
from simulator.planner.studies.resilience import START_FIXED_S
from simulator.records import dataclass
from simulator.specs.engine.deployment import Medium, ParallelismSpec
from simulator.specs.engine.launch import Condition, LaunchSpec, load_launch
from simulator.specs.hardware.accelerator import ServerSpec, cluster
from simulator.specs.model.checkpoints import published_checkpoint
from simulator.specs.model.precision import BITS, Dtype
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.units import GIB, GIGA

PROBE_PERIOD_S = 10
DRAFT_PLACEHOLDER = "PATH_OF_THE_DRAFTER"
"""Where nobody named the drafter's weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """One replica of a pool and how its engine is started.

    max_model_len : no longer than the cache holds
    memory_share : of a device, as the engine counts it; static_share : weights and cache over all memory (SGLang)
    cache_share : cache over what weights, activations and the runtime leave free (TensorRT-LLM)
    cache_tokens : that the cache holds, no more than all sequences at their longest
    servers, devices_per_server : that one replica spans, and its devices in each
    role : prefill or decode where the fleet has a pool for each, else empty; other : degrees of the other pool
    replicas, spares : that are started; weights_bytes : of the whole checkpoint, at most
    """

    launch: LaunchSpec
    model_id: str
    checkpoint: Checkpoint
    deployment: Deployment
    max_model_len: int
    static_share: float
    cache_share: float
    cache_tokens: int
    weights_bytes: float
    servers: int
    devices_per_server: int
    role: Role
    other: ParallelismSpec | None
    replicas: int
    spares: int
    server: ServerSpec | None

    @property
    def release(self) -> str:
        """Release of the engine that is started: the profile's, or what a question gave, a model or a feature needs."""
        return self.deployment.engine.version.removeprefix("v")

    @property
    def devices(self) -> int:
        """Accelerators of the replica."""
        return self.deployment.parallelism.devices

    @property
    def server_weights_bytes(self) -> float:
        """Weights that each of its servers reads."""
        return self.weights_bytes / self.servers

    @property
    def start_s(self) -> float:
        """Time from the start of a replica to its first answer, its weights being on the volume [s]."""
        return START_FIXED_S + self.server_weights_bytes / cluster().volume_bytes_per_s

    @property
    def probes_to_start(self) -> int:
        """Probes that may fail until it answers, which takes up to twice as long as expected."""
        return ceil(2 * self.start_s / PROBE_PERIOD_S)

    @property
    def host_cores(self) -> int:
        """Cores of a server that its accelerators take."""
        return cluster().cores_per_accelerator * self.devices_per_server

    @property
    def host_memory_gib(self) -> int:
        """Memory of a server that its accelerators take [GiB]."""
        return cluster().host_memory_gib_per_accelerator * self.devices_per_server

    @property
    def draft_model(self) -> str:
        """The drafter's weights, or what stands for them."""
        found = self.deployment.speculation
        if found is None:
            return DRAFT_PLACEHOLDER
        named = found.draft.model.name if found.plan.method == "draft" and found.draft else ""
        return found.spec.draft_model or named or DRAFT_PLACEHOLDER

    def values(self) -> Mapping[str, str]:
        """Settings by the names that launch profiles use. Limits are those of each rank of attention, except
        ``all_ranks_``, which hold for all of them together; ``tensor_ranks`` counts ranks of attention too."""
        engine, parallelism, found = self.deployment.engine, self.deployment.parallelism, self.deployment.speculation
        other = self.other or parallelism
        return {
            "model_id": self.model_id,
            "checkpoint": self.checkpoint.path,
            "quantization": self.checkpoint.quantization,
            "port": str(self.launch.port),
            **{name: str(size) for name, size in parallelism},
            "tensor_ranks": str(parallelism.tp_size * parallelism.dp_size),
            "other_tensor_ranks": str(other.tp_size * other.dp_size),
            "other_dp_size": str(other.dp_size),
            "max_model_len": str(self.max_model_len),
            "max_num_seqs": str(engine.max_num_seqs),
            "all_ranks_seqs": str(engine.max_num_seqs * parallelism.dp_size),
            "max_num_batched_tokens": str(engine.max_num_batched_tokens),
            "all_ranks_batched_tokens": str(engine.max_num_batched_tokens * parallelism.dp_size),
            "block_size_tokens": str(engine.block_size_tokens),
            "memory_share": f"{engine.gpu_memory_utilization:g}",
            "static_share": f"{self.static_share:.3f}",
            "cache_share": f"{self.cache_share:.3f}",
            "cache_tokens": str(self.cache_tokens),
            "options_file": self.launch.options_file,
            "servers": str(self.servers),
            "devices_per_server": str(self.devices_per_server),
            "draft_model": self.draft_model,
            "k": "" if found is None else str(found.plan.k),
            # A chain of guesses is verified with the token before it.
            "verify_tokens": "" if found is None else str(found.plan.k + 1),
            "host_tier_attention_rank_gib": f"{self.tier_bytes('host') / parallelism.dp_size / GIB:.0f}",
            "host_tier_rank_gb": f"{self.tier_bytes('host') / self.devices / GIGA:.0f}",
            "host_tier_rank_bytes": f"{self.tier_bytes('host') / self.devices:.0f}",
            "nvme_tier_rank_gib": f"{self.tier_bytes('nvme') / self.devices / GIB:.0f}",
        }

    def tier_bytes(self, medium: Medium) -> float:
        """Size of a replica's tier; 0 without it, or where the engine has no flag for it."""
        tiers = self.deployment.engine.kv_tiers
        behind_host = medium == "host" or any(tier.medium == "host" for tier in tiers)
        flagged = medium in self.launch.tiers and behind_host
        return sum(tier.capacity_bytes for tier in tiers if tier.medium == medium) if flagged else 0.0

    def conditions(self) -> Mapping[Condition, bool]:
        """Whether each condition of a launch profile holds."""
        engine, parallelism = self.deployment.engine, self.deployment.parallelism
        hardware, model = self.deployment.hardware, self.deployment.model
        host, nvme, remote = (self.tier_bytes(medium) > 0 for medium in get_args(Medium))
        return {
            "pipeline": parallelism.pp_size > 1,
            "one_stage": parallelism.pp_size == 1,
            "attention_ranks": parallelism.dp_size > 1,
            "one_attention_rank": parallelism.dp_size == 1,
            "expert_parallel": parallelism.ep_size > 1,
            "context_ranks": parallelism.cp_size > 1,
            "two_batches": bool(self.deployment.techniques.spec.two_batch_overlap),
            "several_devices": self.devices > 1,
            "several_servers": self.servers > 1,
            "fp8_cache": self.deployment.plan.kv_dtype is Dtype.FP8,
            # Of others' checkpoints some say that keys and values are cached in 8 bits.
            "bf16_cache": self.deployment.plan.kv_dtype is Dtype.BF16 and self.checkpoint.origin == "published",
            "prefix_caching": engine.prefix_caching,
            "no_prefix_caching": not engine.prefix_caching,
            "chunked_prefill": engine.chunked_prefill,
            "no_chunked_prefill": not engine.chunked_prefill,
            "quantized_at_load": bool(self.checkpoint.quantization),
            "pools": bool(self.role),
            "prefill_pool": self.role == "prefill",
            "decode_pool": self.role == "decode",
            "amd": hardware.vendor == "amd",
            "blackwell": hardware.architecture in ("blackwell", "blackwell-ultra"),
            "attention_sinks": any(getattr(layer.mixer, "sinks", False) for layer in model.layers),
            "mxfp4_experts": self.deployment.plan.format_for("experts").name == "mxfp4",
            "host_tier": host,
            "host_tier_alone": host and not (nvme or remote),
            "lower_tiers": nvme or remote,
            "nvme_tier": nvme,
            "remote_tier": remote,
        }


def _pool_settings(
    pool: FleetPool, *, launch: LaunchSpec, model_id: str, scheme: str | None, server: ServerSpec | None
) -> LaunchSettings:
    """Settings of a replica of a pool in its servers; the shares of memory are those of its memory plan."""
    deployment, memory = pool.replica.deployment, pool.replica.memory
    engine, parallelism = deployment.engine, deployment.parallelism
    visible_bytes = deployment.hardware.memory_visible_bytes
    left_bytes = visible_bytes - memory.weights_bytes - memory.activation_bytes - memory.reserve_bytes
    in_server = server.accelerators_per_server if server is not None else parallelism.devices
    servers = ceil(parallelism.devices / in_server)
    # Engines refuse to start where the cache cannot hold one request of the full length.
    max_model_len = min(engine.max_model_len, memory.kv_capacity_tokens or engine.max_model_len)
    all_at_longest = engine.max_num_seqs * max_model_len
    return LaunchSettings(
        launch=launch,
        model_id=model_id,
        checkpoint=served_checkpoint(deployment, model_id=model_id, scheme=scheme, memory=memory, launch=launch),
        deployment=deployment,
        max_model_len=max_model_len,
        static_share=(memory.weights_bytes + memory.kv_capacity_bytes) / visible_bytes,
        cache_share=memory.kv_capacity_bytes / left_bytes if left_bytes > 0 else 0.0,
        cache_tokens=min(all_at_longest, memory.kv_capacity_tokens or all_at_longest),
        weights_bytes=memory.weights_bytes * parallelism.devices,
        servers=servers,
        devices_per_server=ceil(parallelism.devices / servers),
        role=pool.role,
        other=None,
        replicas=pool.replicas,
        spares=pool.spares,
        server=server,
    )


def fleet_settings(
    fleet: Fleet, *, model_id: str, scheme: str | None, profiles: str | None = None
) -> tuple[LaunchSettings, ...]:
    """What the engine of each pool is told, in the order of a request's way; nothing where nobody described how the
    engine is started."""
    launch = load_launch(fleet.replica.deployment.engine.name, profiles=profiles)
    if launch is None:
        return ()
    servers = {item.hardware: item.server if item.servers is not None else None for item in fleet.housing}
    found = [
        _pool_settings(pool, launch=launch, model_id=model_id, scheme=scheme, server=servers[pool.hardware])
        for pool in fleet.pools
    ]
    if len(found) == 1:
        return tuple(found)
    return tuple(
        replace(item, other=partner.deployment.parallelism)
        for item, partner in zip(found, reversed(found), strict=True)
    )


_NATIVE = frozenset({Dtype.BF16, Dtype.FP16, Dtype.FP32, Dtype.TF32})
_GGUF = {Dtype.FP8: "Q8_0", Dtype.INT8: "Q8_0", Dtype.INT4: "Q4_K_M", Dtype.FP4: "MXFP4_MOE"}

Origin = Literal["own", "published", "quantized_at_load", "made"]
Tool = Literal["compressed-tensors", "modelopt", "gguf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is served.

    path : a Hub id or a folder; base : the model that it is made of
    quantization : the engine's name of a format that it makes while loading, else empty
    tool : whose files the engine loads, which makes it; empty where it is there already
    kind : of a file of llama.cpp that is narrower than 16 bits
    source : of a published one, as the list of published checkpoints names it
    """

    origin: Origin
    path: str
    base: str
    quantization: str = ""
    tool: Tool | None = None
    kind: str = ""
    source: str = ""


def _is_own(deployment: Deployment) -> bool:
    """Whether the model's own checkpoint has the planned weights."""
    own = deployment.model.quantization
    planned = deployment.plan.weights
    return planned in _NATIVE if own is None else own.weights is planned


def _fits_unquantized(deployment: Deployment, memory: MemoryPlan) -> bool:
    """Whether the 16-bit weights fit a device, where engines put them before they narrow them."""
    wide_bytes = memory.weights_bytes * BITS[Dtype.BF16] / BITS[deployment.plan.weights]
    return wide_bytes + memory.reserve_bytes <= deployment.hardware.memory_visible_bytes


def served_checkpoint(
    deployment: Deployment, *, model_id: str, scheme: str | None, memory: MemoryPlan, launch: LaunchSpec
) -> Checkpoint:
    """The model's own checkpoint where its weights are the planned ones; else a published one that the engine loads;
    else the format that the engine makes while loading, where the 16-bit weights fit; else one that a tool makes."""
    weights = deployment.plan.weights
    if launch.checkpoints == ("gguf",):
        return _gguf(model_id, weights=weights)
    if scheme is None and _is_own(deployment):
        return Checkpoint(origin="own", path=model_id, base=model_id)
    known = published_checkpoint(
        model_id, weights=weights, activations=deployment.plan.activations, scheme=scheme, kinds=launch.checkpoints
    )
    if known is not None:
        return Checkpoint(origin="published", path=known.id, base=model_id, source=known.source)
    at_load = launch.quantizes.get(scheme or weights.value)
    if at_load and _fits_unquantized(deployment, memory):
        return Checkpoint(origin="quantized_at_load", path=model_id, base=model_id, quantization=at_load)
    tool: Tool = "compressed-tensors" if "compressed-tensors" in launch.checkpoints else "modelopt"
    folder = f"./{model_id.rsplit('/', 1)[-1]}-{weights.value.upper()}"
    return Checkpoint(origin="made", path=folder, base=model_id, tool=tool)


def _gguf(model_id: str, *, weights: Dtype) -> Checkpoint:
    """llama.cpp reads its own files: converted, and quantized where the plan says so."""
    kind = "" if weights in _NATIVE else _GGUF.get(weights, weights.value)
    path = f"./{model_id.rsplit('/', 1)[-1]}-{kind or 'BF16'}.gguf"
    return Checkpoint(origin="made", path=path, base=model_id, tool="gguf", kind=kind)


_STAYS = 5
"""Stays of a request, at its 95th percentile, that a measurement lasts; its warm-up lasts one."""
_LEAST_PROMPTS = 200
_QUANTILES = 200


def shared_tokens(mix: RequestMix) -> int:
    """Tokens of one prefix that all prompts begin with, which makes the planned share of hits."""
    prompt = max(1, round(mix.isl.mean_tokens))
    return min(prompt - 1, round(mix.prefix_hit_fraction * mix.isl.mean_tokens))


def sent_rate_per_s(fleet: Fleet, demand: Demand) -> float:
    """Rate of a load test: one replica's share of the peak, all of it where two pools are loaded together [1/s]."""
    return demand.planned_rate_per_s / (1 if len(fleet.pools) > 1 else fleet.replicas)


def measured_s(fleet: Fleet) -> float:
    """How long the measurement lasts [s]."""
    return _STAYS * fleet.degraded.e2e_p95_s


def sent_requests(fleet: Fleet, demand: Demand) -> tuple[int, int]:
    """Requests of the warm-up and of the measurement, of several answers to a prompt those to whole prompts."""
    rate, each = sent_rate_per_s(fleet, demand), demand.answers_per_request
    warm_up, measured = rate * fleet.degraded.e2e_p95_s, max(_LEAST_PROMPTS, ceil(rate * measured_s(fleet)))
    return max(1, ceil(warm_up / each)) * each, ceil(measured / each) * each


def sent_mix(demand: Demand) -> RequestMix:
    """What the client sends: prompts that several answers share are found by all but the first of these."""
    hit = demand.mix.prefix_hit_fraction
    return replace(demand.mix, prefix_hit_fraction=max(0.0, 1 - (1 - hit) * demand.answers_per_request))


def new_tokens(mix: RequestMix) -> list[int]:
    """Lengths of what is new of a prompt, each as likely as the others."""
    return sent_tokens(mix.isl, share=1 - shared_tokens(mix) / mix.isl.mean_tokens)


def sent_tokens(lengths: LengthDistribution, *, share: float = 1.0) -> list[int]:
    """Lengths at evenly spaced probabilities, each multiplied by ``share`` and at least 1; one where all are alike."""
    deviates = [NormalDist().inv_cdf((place + 1 / 2) / _QUANTILES) for place in range(_QUANTILES)]
    values = np.maximum(1, np.rint(share * lengths.at(np.array(deviates)))).astype(int)
    found: list[int] = (values if lengths.cv else values[:1]).tolist()
    return found
