"""From a deployment to what the event loop takes: limits and policy of its scheduler, and the times of its steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.engine.settings import Batching, HostOffload, Policy, QueueOrder, Routing, SchedulerSettings
from simulator.engine.uniform.steps import speculative_steps
from simulator.errors import InfeasibleError, RoofcastError
from simulator.phases.compiled import StepTables, scale_tables
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.phases.tabulate import compile_stages, compile_steps
from simulator.traffic.requests import Requests, check_tokens

HOST_CACHE_RATIO = 2.0
"""Host memory for KV blocks over the device's, where no size is given: SGLang's --hicache-ratio by default."""

_POLICIES = {
    "chunked_mixed": Policy.CHUNKED_MIXED,
    "max_utilization": Policy.MAX_UTILIZATION,
    "guaranteed_no_evict": Policy.GUARANTEED_NO_EVICT,
    "prefill_first": Policy.PREFILL_FIRST,
    "prefill_first_mixed": Policy.PREFILL_FIRST_MIXED,
    "static": Policy.CHUNKED_MIXED,
}
_ORDERS = {"arrival": QueueOrder.ARRIVAL, "longest_prefix": QueueOrder.LONGEST_PREFIX}


def kv_blocks_of(deployment: Deployment) -> int:
    """KV blocks of one replica by the memory plan; models without a growing cache have room for all sequences."""
    plan = memory_plan(deployment)
    if not plan.fits:
        raise InfeasibleError(
            f"{deployment.model.name} leaves no memory for a KV cache (short of {plan.shortfall_bytes:.3g} bytes)",
            field="tp_size",
            code="does_not_fit",
            hint="more devices per replica, narrower weights or a device with more memory",
        )
    if plan.kv_bytes_per_token == 0:
        engine = deployment.engine
        return engine.max_num_seqs * -(-engine.max_model_len // engine.block_size_tokens)
    return plan.kv_blocks


def host_offload(deployment: Deployment, *, kv_blocks: int) -> HostOffload | None:
    """Host memory behind the KV cache of one replica, None without ``engine.cpu_kv_offload``.

    Every device moves its own part of a block over its own host link, all at once.
    """
    engine = deployment.engine
    if not engine.cpu_kv_offload:
        return None
    block_bytes = memory_plan(deployment).kv_bytes_per_token * engine.block_size_tokens
    if block_bytes == 0:
        raise RoofcastError(
            f"{deployment.model.name} keeps no KV blocks that could be offloaded",
            field="engine.cpu_kv_offload",
            code="ignored_option",
            hint="leave it out",
        )
    blocks = int(HOST_CACHE_RATIO * kv_blocks)
    if engine.cpu_kv_offload_bytes is not None:
        blocks = int(engine.cpu_kv_offload_bytes // (block_bytes * deployment.parallelism.devices))
    link_bytes_per_s = deployment.hardware.host_link.bytes_per_s_per_direction
    return HostOffload(blocks=blocks, block_load_s=block_bytes / link_bytes_per_s)


def scheduler_settings(
    deployment: Deployment,
    *,
    kv_blocks: int,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
    timeout_s: float | None = None,
    offload: HostOffload | None = None,
) -> SchedulerSettings:
    """The event loop's limits and policy from the engine's. Engines without a scheduler serve one batch at a time."""
    engine = deployment.engine
    static = engine.scheduler == "static"
    if routing is Routing.PREFIX_AWARE and not engine.prefix_caching:
        raise RoofcastError(
            "'prefix_aware' looks for prompts in prefix caches, and prefix caching is off",
            field="routing",
            code="ignored_option",
            hint="turn engine.prefix_caching on or choose least_outstanding",
        )
    return SchedulerSettings(
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=memory_plan(deployment).running_sequences,
        max_model_len=engine.max_model_len,
        kv_blocks=kv_blocks,
        block_size_tokens=engine.block_size_tokens,
        prefix_caching=engine.prefix_caching,
        chunked_prefill=engine.chunked_prefill,
        async_scheduling=engine.async_scheduling and not static,
        batching=Batching.STATIC if static else Batching.CONTINUOUS,
        policy=_POLICIES[engine.scheduler],
        queue_order=_ORDERS[engine.queue_order],
        replicas=replicas,
        routing=routing,
        request_delay_s=engine.overheads.request_s,
        prompt_token_delay_s=engine.overheads.prompt_token_s,
        timeout_s=timeout_s,
        offload=offload,
    )


def step_tables(deployment: Deployment, *, scale: float = 1.0) -> tuple[StepTables, ...]:
    """Step times as the event loop takes them: one set per pipeline stage, for as many tokens per decoding sequence as
    the deployment verifies. ``scale`` makes every part that many times as long.

    A static batch has no other to overlap with, so that its steps take the sum of all stages.
    """
    for name in ("max_num_batched_tokens", "max_num_seqs", "max_model_len"):
        check_tokens(getattr(deployment.engine, name), field=f"engine.{name}")
    verified = 1 if deployment.speculation is None else deployment.speculation.plan.verify_tokens
    if deployment.engine.scheduler == "static":
        stages: tuple[StepTables, ...] = (compile_steps(deployment, decode_tokens=verified),)
    elif deployment.parallelism.pp_size > 1:
        stages = compile_stages(deployment, decode_tokens=verified)
    else:
        stages = (compile_steps(deployment, decode_tokens=verified),)
    return stages if scale == 1 else tuple(scale_tables(part, factor=scale) for part in stages)


def speculating(
    settings: SchedulerSettings, deployment: Deployment, requests: Requests, *, seed: int = 0, scale: float = 1.0
) -> SchedulerSettings:
    """Settings of replicas that speculate as ``deployment``; drafting is priced at the mean context of the requests."""
    context = float(np.mean(requests.prompt_tokens) + np.mean(requests.output_tokens) / 2)
    steps = speculative_steps(deployment, context_tokens=context)
    if steps is not None and scale != 1:
        steps = replace(steps, draft_s=tuple(scale * seconds for seconds in steps.draft_s))
    return replace(settings, speculation=steps, seed=seed)
