"""The engine of a replica, with every default filled in, and which of its limits nobody gave."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from simulator.errors import contradiction
from simulator.kernels.engine_traits import EngineTraits
from simulator.operators.formats.tensor_formats import PrecisionPlan, model_roles
from simulator.records import dataclass
from simulator.specs.base import Assumption, ValueOrigin
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import (
    FULL_LENGTH,
    EngineProfile,
    EngineSpec,
    MemoryRule,
    QueueOrderName,
    SchedulerName,
)
from simulator.specs.engine.fits import EngineOverheads, EngineSpread
from simulator.specs.engine.releases import EngineLimits, LimitField, SlowerExperts, SlowProducts, UndividedLatent
from simulator.specs.model.architecture import ModelSpec

if TYPE_CHECKING:
    from simulator.phases.kv_tiers import KvTier

DEFAULT_MAX_MODEL_LEN_TOKENS = 4096

KERNELS_NEVER_TIMED = MappingProxyType(
    {
        "engine.slower_experts": SlowerExperts,
        "engine.slow_products": SlowProducts,
        "engine.undivided_latent": UndividedLatent,
    }
)
"""Assumptions on how fast kernels are that no table holds, from whole runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """An engine's limits with every default filled in, and its fitted overheads."""

    name: str
    version: str
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    gpu_memory_utilization: float
    memory_rule: MemoryRule
    reserves_full_length: bool
    scheduler: SchedulerName
    queue_order: QueueOrderName
    async_scheduling: bool
    block_size_tokens: int
    prefix_caching: bool
    chunked_prefill: bool
    one_pass_batches: bool
    prompt_gather_steps: int
    prompt_ranks_drawn: bool
    cpu_kv_offload: bool
    cpu_kv_offload_bytes: float | None
    kv_tiers: tuple[KvTier, ...]
    cuda_graph_max_sequences: int
    round_graphs: tuple[tuple[int, int], ...]
    eager: bool
    runs_published_code: bool
    cache_logged_on: tuple[str, ...]
    overheads: EngineOverheads
    spread: EngineSpread
    sampled_logits: int

    @property
    def issues_kernels(self) -> bool:
        """Whether the host launches every kernel of a step as it comes, for want of CUDA graphs."""
        return self.eager or self.cuda_graph_max_sequences == 0


def engine_settings(
    spec: EngineSpec, *, profile: EngineProfile, limits: EngineLimits, model: ModelSpec
) -> EngineSettings:
    """What a replica's engine does: as ``spec`` asks, else by the limits of its release on this device."""
    max_model_len = spec.max_model_len or model.max_position_embeddings or DEFAULT_MAX_MODEL_LEN_TOKENS
    return EngineSettings(
        name=profile.name,
        version=spec.version or profile.version,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        max_model_len=max_model_len,
        gpu_memory_utilization=limits.gpu_memory_utilization,
        memory_rule=profile.memory_rule,
        reserves_full_length=(spec.scheduler or profile.scheduler) == FULL_LENGTH,
        scheduler=spec.scheduler or profile.scheduler,
        queue_order=spec.queue_order or profile.queue_order,
        async_scheduling=profile.async_scheduling,
        block_size_tokens=_block_size_tokens(spec, limits=limits, max_model_len=max_model_len),
        prefix_caching=profile.prefix_caching and not spec.kv_allocation
        if spec.prefix_caching is None
        else spec.prefix_caching,
        chunked_prefill=limits.chunked_prefill,
        one_pass_batches=profile.one_pass_batches,
        prompt_gather_steps=profile.prompt_gather_steps,
        prompt_ranks_drawn=profile.prompt_ranks_drawn,
        cpu_kv_offload=bool(spec.cpu_kv_offload),
        cpu_kv_offload_bytes=spec.cpu_kv_offload_bytes,
        kv_tiers=(),
        cuda_graph_max_sequences=limits.cuda_graph_max_sequences,
        round_graphs=profile.round_graphs,
        eager=profile.eager,
        runs_published_code=profile.runs_published_code,
        cache_logged_on=profile.cache_logged_on,
        overheads=profile.overheads,
        spread=profile.spread,
        # A server samples as the checkpoint recommends where a request does not say.
        sampled_logits=model.vocab_size
        if model.has_lm_head and model.top_p < 1 and profile.sorts_nucleus(spec.version)
        else 0,
    )


def _block_size_tokens(spec: EngineSpec, *, limits: EngineLimits, max_model_len: int) -> int:
    """Tokens of one piece of the cache: a block, or all that a request could ever need [Kwon2023]."""
    if spec.kv_allocation is None:
        return limits.block_size_tokens
    for field in ("block_size_tokens", "prefix_caching"):
        if getattr(spec, field):
            raise contradiction(
                f"max_length gives each request one piece of {max_model_len} tokens, which leaves nothing for {field}",
                field="engine.kv_allocation",
                hint=f"leave engine.{field} out, or engine.kv_allocation",
            )
    return max_model_len


_SAID_LIMITS: tuple[LimitField, ...] = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "gpu_memory_utilization",
    "block_size_tokens",
)


def engine_assumptions(
    spec: EngineSpec, settings: EngineSettings, limits: EngineLimits, *, profile: EngineProfile, vendor: str
) -> tuple[Assumption, ...]:
    """What of it nobody asked for, and where it comes from; what ``profile`` stands in for; which release it is, where
    later ones were measured apart on accelerators of ``vendor``."""
    details: dict[str, object] = {field: limits.source(field) for field in _SAID_LIMITS}
    details |= {"max_model_len": "the model", "prefix_caching": settings.name}
    found = [
        Assumption(key=f"engine.{field}", value=getattr(settings, field), detail=detail)
        for field, detail in details.items()
        if getattr(spec, field) is None
    ]
    if "name" not in spec.model_fields_set:
        found.insert(0, Assumption(key="engine.name", value=settings.name))
    if spec.name in profile.stands_in_for:
        found.append(Assumption(key="engine.name", value=settings.name, origin=ValueOrigin.RULE, detail=spec.name))
    if spec.version_for is not None:
        found.append(
            Assumption(key="engine.version", value=settings.version, origin=ValueOrigin.RULE, detail=spec.version_for)
        )
    elif spec.version is None and vendor in profile.vendors:
        later = profile.vendors[vendor].until(settings.version)
        found += [Assumption(key="engine.version", value=settings.version, detail=later)] if later else []
    return tuple(found)


def kernel_assumptions(
    traits: EngineTraits, *, model: ModelSpec, parallelism: ParallelismSpec, plan: PrecisionPlan
) -> tuple[Assumption, ...]:
    """Kernels of a replica that no table timed: how fast they are is inferred from whole runs."""
    used = model_roles(model) - {"experts"}
    products = {plan.format_for(role).name for role in used}
    experts = plan.format_for("experts").name
    return tuple(
        Assumption(
            key=next(key for key, kind in KERNELS_NEVER_TIMED.items() if isinstance(kernel, kind)),
            value=kernel,
            origin=ValueOrigin.FITTED,
        )
        for kernel in traits.never_timed(model, parallelism, experts=experts, products=products)
    )
