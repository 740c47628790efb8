"""What an engine is told about one replica of a plan, by meaning: the names that launch profiles put into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import get_args

from simulator.phases.deployment import Deployment
from simulator.planner.fleet.records import Fleet, FleetPool
from simulator.planner.handoff.checkpoint import Checkpoint, served_checkpoint
from simulator.planner.serving.capacity import Role
from simulator.records import dataclass
from simulator.specs.engine.deployment import Medium, ParallelismSpec
from simulator.specs.engine.launch import Condition, LaunchSpec, load_launch
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.model.precision import Dtype
from simulator.units import GIB, GIGA

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
        """Of the engine that is started: the profile's own, or what a question gave, a model or a feature needs."""
        return self.deployment.engine.version.removeprefix("v")

    @property
    def devices(self) -> int:
        """Accelerators of the replica."""
        return self.deployment.parallelism.devices

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
            "tp_size": str(parallelism.tp_size),
            "pp_size": str(parallelism.pp_size),
            "dp_size": str(parallelism.dp_size),
            "ep_size": str(parallelism.ep_size),
            "cp_size": str(parallelism.cp_size),
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
        """Of a replica's tier; 0 without it, or where the engine has no flag for it."""
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


# From process start to the first step beside loading weights: imports, compilation, CUDA graph capture.
START_FIXED_S = 60.0
