"""What every engine is told about one replica of a plan, before it is put into an engine's words."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from simulator.operators.formats.plan import PrecisionPlan
from simulator.phases.deployment import Deployment
from simulator.planner.fleet.records import Fleet, FleetPool, Role
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.model.precision import Dtype

_METHODS = (
    ("gptq", "gptq_marlin"),
    ("awq", "awq_marlin"),
    ("llm.int8", "bitsandbytes"),
    ("nf4", "bitsandbytes"),
    ("fp8", "fp8"),
)
_NATIVE = frozenset({Dtype.BF16, Dtype.FP16, Dtype.FP32, Dtype.TF32})


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """One replica by meaning, in no engine's words.

    max_model_len : no longer than the cache holds; quantization : --quantization of vLLM and SGLang, empty for none
    static_share : weights and cache over the memory of a device (SGLang's word for it)
    cache_share : cache over what weights, activations and the runtime leave free (TensorRT-LLM's)
    servers, devices_per_server : that one replica spans, and its devices in each
    role : prefill or decode where the fleet has a pool for each, else empty
    replicas, spares : that are started
    """

    model_id: str
    deployment: Deployment
    max_model_len: int
    quantization: str
    static_share: float
    cache_share: float
    servers: int
    devices_per_server: int
    role: Role
    replicas: int
    spares: int
    server: ServerSpec | None

    @property
    def devices(self) -> int:
        """Accelerators of the replica."""
        return self.deployment.parallelism.devices

    @property
    def has_fp8_cache(self) -> bool:
        """Whether keys and values are cached in 8 bits."""
        return self.deployment.plan.kv_dtype is Dtype.FP8

    @property
    def needs_checkpoint(self) -> bool:
        """Whether the weights' format has to come with the checkpoint, since no flag makes it at load time."""
        if self.quantization in ("fp8", "bitsandbytes"):
            return False
        own = self.deployment.model.quantization
        if own is not None and own.weights is self.deployment.plan.weights:
            return False
        return self.deployment.plan.weights not in _NATIVE


def _quantization(plan: PrecisionPlan, scheme: str | None) -> str:
    """vLLM's --quantization for these weights, empty where the checkpoint's own format is served."""
    found = next((flag for name, flag in _METHODS if scheme and scheme.startswith(name)), "")
    return found or ("fp8" if plan.weights is Dtype.FP8 and not scheme else "")


def launch_settings(pool: FleetPool, *, model_id: str, scheme: str | None, server: ServerSpec | None) -> LaunchSettings:
    """Settings of a replica of a pool in its servers; the shares of memory are those of its memory plan."""
    deployment, memory = pool.replica.deployment, pool.replica.memory
    engine, parallelism = deployment.engine, deployment.parallelism
    visible_bytes = deployment.hardware.memory_visible_bytes
    left_bytes = visible_bytes - memory.weights_bytes - memory.activation_bytes - memory.reserve_bytes
    in_server = server.accelerators_per_server if server is not None else parallelism.devices
    servers = ceil(parallelism.devices / in_server)
    return LaunchSettings(
        model_id=model_id,
        deployment=deployment,
        # Engines refuse to start where the cache cannot hold one request of the full length.
        max_model_len=min(engine.max_model_len, memory.kv_capacity_tokens or engine.max_model_len),
        quantization=_quantization(deployment.plan, scheme),
        static_share=(memory.weights_bytes + memory.kv_capacity_bytes) / visible_bytes,
        cache_share=memory.kv_capacity_bytes / left_bytes if left_bytes > 0 else 0.0,
        servers=servers,
        devices_per_server=ceil(parallelism.devices / servers),
        role=pool.role,
        replicas=pool.replicas,
        spares=pool.spares,
        server=server,
    )


def fleet_settings(fleet: Fleet, *, model_id: str, scheme: str | None) -> tuple[LaunchSettings, ...]:
    """What the engines of each pool are told, in the order of a request's way."""
    servers = {item.hardware: item.server if item.servers is not None else None for item in fleet.housing}
    return tuple(
        launch_settings(pool, model_id=model_id, scheme=scheme, server=servers[pool.hardware]) for pool in fleet.pools
    )
