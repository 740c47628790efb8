"""Serve a workload on a deployment: requests in, percentiles out."""

from __future__ import annotations

from simulator.engine.demand import build_requests
from simulator.engine.metrics import ServeResult, serve_result
from simulator.engine.settings import Routing, SchedulerSettings
from simulator.engine.simulation import Progress, simulate_requests
from simulator.errors import InfeasibleError, RoofcastError
from simulator.phases.compiled import StepTables
from simulator.phases.deployment import Deployment, EngineSettings
from simulator.phases.memory import memory_plan
from simulator.phases.tabulate import compile_steps
from simulator.specs.workload import SloSpec, WorkloadSpec

# Engines whose scheduler overlaps the running step by default, in the versions of their profiles; the others are taken
# to put a step together when the one before has ended. A property of the engine that belongs into its profile.
ASYNCHRONOUS_ENGINES = ("vllm", "sglang", "tensorrt-llm")


def scheduler_settings(
    engine: EngineSettings,
    *,
    kv_blocks: int,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
    timeout_s: float | None = None,
) -> SchedulerSettings:
    """The event loop's limits from the engine's, or a refusal of what it does not model."""
    if engine.cpu_kv_offload:
        raise RoofcastError(
            "offload to CPU memory is not modelled in the event simulation",
            field="engine.cpu_kv_offload",
            code="unsupported_option",
            hint="leave it out",
        )
    return SchedulerSettings(
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_model_len=engine.max_model_len,
        kv_blocks=kv_blocks,
        block_size_tokens=engine.block_size_tokens,
        prefix_caching=engine.prefix_caching,
        chunked_prefill=engine.chunked_prefill,
        async_scheduling=engine.name in ASYNCHRONOUS_ENGINES,
        replicas=replicas,
        routing=routing,
        request_delay_s=engine.overheads.request_s,
        prompt_token_delay_s=engine.overheads.prompt_token_s,
        timeout_s=timeout_s,
    )


def simulate_serving(
    tables: StepTables,
    *,
    workload: WorkloadSpec,
    settings: SchedulerSettings,
    slo: SloSpec | None = None,
    trace_steps: int = 0,
    progress: Progress | None = None,
) -> ServeResult:
    """Send ``workload`` to replicas whose steps take what ``tables`` say, and sum up what its clients see."""
    requests = build_requests(workload, block_size_tokens=settings.block_size_tokens)
    run = simulate_requests(tables, requests=requests, settings=settings, trace_steps=trace_steps, progress=progress)
    return serve_result(
        requests,
        run,
        kv_blocks=settings.kv_blocks,
        replicas=settings.replicas,
        timeout_s=settings.timeout_s,
        slo=slo,
    )


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


def serve_workload(
    deployment: Deployment,
    *,
    workload: WorkloadSpec,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
    kv_blocks: int | None = None,
    slo: SloSpec | None = None,
    trace_steps: int = 0,
    progress: Progress | None = None,
) -> ServeResult:
    """Send ``workload`` to ``replicas`` copies of ``deployment``.

    Attention-data-parallel ranks of a replica schedule for themselves and count as replicas here. kv_blocks : of each,
    if it is known better than from the memory plan.
    """
    if deployment.parallelism.pp_size > 1:
        raise RoofcastError(
            "pipeline stages are not modelled in the event simulation; allowed: 1",
            field="pp_size",
            code="unsupported_option",
            hint="use tensor parallelism",
        )
    settings = scheduler_settings(
        deployment.engine,
        kv_blocks=kv_blocks_of(deployment) if kv_blocks is None else kv_blocks,
        replicas=replicas * deployment.parallelism.dp_size,
        routing=routing,
        timeout_s=workload.timeout_s,
    )
    return simulate_serving(
        compile_steps(deployment),
        workload=workload,
        settings=settings,
        slo=slo,
        trace_steps=trace_steps,
        progress=progress,
    )
