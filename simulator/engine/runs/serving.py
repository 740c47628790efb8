"""Serve a workload on a deployment: requests in, percentiles out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.engine.encoders import EncoderPool, at_scale
from simulator.engine.events.simulation import Progress, simulate_requests
from simulator.engine.pools import Pool
from simulator.engine.runs.kv_tiers import TierUse, cache_tiers, prompt_seconds, tier_uses
from simulator.engine.runs.metrics import ServeResult, serve_result
from simulator.engine.settings import (
    Batching,
    QueueOrder,
    Routing,
    SchedulerPolicy,
    SchedulerSettings,
    SpeculativeSteps,
)
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.errors import InfeasibleError, ignored_option
from simulator.operators.work import mixed_step
from simulator.phases.compiled import StepTables, scale_tables
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import decode_round, with_drafts
from simulator.phases.memory import kept_bytes, memory_plan, token_cache_bytes
from simulator.phases.step import estimate_step
from simulator.phases.tabulate import compile_stages, compile_steps
from simulator.records import dataclass
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.techniques.applied import check_budget
from simulator.traffic.lengths import check_tokens
from simulator.traffic.requests import Requests
from simulator.traffic.workload_requests import build_requests
from simulator.units import format_si

LARGEST_PROMPT_SHARE = 0.999
"""Of the busy time: prompts of a full step cost less than each alone, and would leave answers nothing."""
HISTORY_POINTS = 9
"""Points of each request's growth at which its cache is measured."""


def bounded_blocks(deployment: Deployment, requests: Requests, *, blocks: int) -> int:
    """Blocks that hold as many of these sequences in full as ``blocks`` hold of their bounded caches.

    The event loop counts a sequence's blocks by its length. Its mean share of kept bytes over a life from prompt to
    last token, weighted by length, says how many more sequences the same memory holds: exact for equal requests, a
    mean for mixed ones. A budget that no request reaches is refused.
    """
    first = requests.prompt_tokens.astype(np.float64)
    last = first + requests.output_tokens
    check_budget(deployment.techniques.spec.kv_policy, longest_tokens=int(last.max()))
    lengths = np.linspace(first, last, HISTORY_POINTS).ravel()
    kept = kept_bytes(deployment, tokens=lengths) - kept_bytes(deployment, tokens=np.zeros(1))
    return int(blocks * token_cache_bytes(deployment) * lengths.sum() / kept.sum())


def simulate_serving(
    tables: StepTables | tuple[StepTables, ...],
    requests: Requests,
    *,
    settings: SchedulerSettings,
    objectives: tuple[ObjectiveSpec, ...] = (),
    trace_steps: int = 0,
    progress: Progress | None = None,
) -> ServeResult:
    """Send ``requests`` to replicas that step as ``tables`` say; what clients see."""
    run = simulate_requests(tables, requests=requests, settings=settings, trace_steps=trace_steps, progress=progress)
    return serve_result(
        # Later turns of conversations were sent when the answers before them had come.
        replace(requests, arrival_s=run.records.sent_s),
        run,
        kv_blocks=settings.kv_blocks,
        replicas=settings.replicas,
        timeout_s=settings.timeout_s,
        objectives=objectives,
    )


def requests_of(workload: WorkloadSpec, deployment: Deployment) -> Requests:
    """The requests of a workload in the deployment's blocks and context."""
    engine = deployment.engine
    return build_requests(workload, block_size_tokens=engine.block_size_tokens, context_tokens=engine.max_model_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDeployment:
    """Replicas of a deployment whose steps are compiled once, for many runs.

    timeout_s, seed : as in a workload; step_scale : makes all steps that many times as long, drafts too
    tables : of the steps, made where nobody has them
    """

    deployment: Deployment
    replicas: int = 1
    tables: tuple[StepTables, ...] = ()
    timeout_s: float | None = None
    step_scale: float = 1.0
    routing: Routing = Routing.ROUND_ROBIN
    seed: int = 0
    encoders: EncoderPool | None = None

    def __post_init__(self) -> None:
        kv_blocks_of(self.deployment)  # refuses a deployment without room for a cache before any work
        if not self.tables:
            object.__setattr__(self, "tables", step_tables(self.deployment, scale=self.step_scale))

    @property
    def prefill(self) -> Pool:
        """What computes prompts: every replica."""
        return Pool(deployment=self.deployment, replicas=self.replicas, tables=self.tables, step_scale=self.step_scale)

    @property
    def decode(self) -> Pool:
        """What generates: the same replicas."""
        return self.prefill

    def at_scale(self, scale: float) -> ServedDeployment:
        """These replicas with all steps that many times as long."""
        return replace(self, tables=(), step_scale=scale, encoders=at_scale(self.encoders, scale))

    def run(
        self,
        requests: Requests,
        *,
        objectives: tuple[ObjectiveSpec, ...] = (),
        trace_steps: int = 0,
        progress: Progress | None = None,
    ) -> ServeResult:
        """Serve requests."""
        deployment, blocks = self.deployment, kv_blocks_of(self.deployment)
        if self.encoders is not None:
            requests = self.encoders.sent_on(requests)
        if deployment.techniques.spec.kv_policy is not None:
            blocks = bounded_blocks(deployment, requests, blocks=blocks)
        settings = scheduler_settings(
            deployment, kv_blocks=blocks, replicas=self.replicas, routing=self.routing, timeout_s=self.timeout_s
        )
        settings = tiered(settings, deployment, self.tables)
        if deployment.speculation is not None:
            settings = speculating(settings, deployment, seed=self.seed)
        tables = drafting(self.prefill, requests)
        return simulate_serving(
            tables, requests, settings=settings, objectives=objectives, trace_steps=trace_steps, progress=progress
        )


def kv_blocks_of(deployment: Deployment, *, pool: str = "") -> int:
    """KV blocks of one replica by the memory plan; models without a growing cache have room for all sequences.

    pool : whose replica it is, for a refusal; empty where replicas do both
    """
    plan = memory_plan(deployment)
    if not plan.fits:
        short = format_si(plan.shortfall_bytes, "B")
        raise InfeasibleError(
            f"{deployment.model.name} leaves no memory for a KV cache on {deployment.parallelism.devices} "
            f"{deployment.hardware.name}{f' of the {pool} pool' if pool else ''} (short of {short} on each)",
            field=f"disaggregation.{pool}_tp_size" if pool else "tp_size",
            code="does_not_fit",
            hint="more devices per replica, narrower weights or a device with more memory",
        )
    if plan.kv_bytes_per_token == 0:
        engine = deployment.engine
        return engine.max_num_seqs * -(-engine.max_model_len // engine.block_size_tokens)
    return plan.kv_blocks


def tiered(
    settings: SchedulerSettings, deployment: Deployment, tables: StepTables | tuple[StepTables, ...]
) -> SchedulerSettings:
    """Settings of replicas with the tiers below their device's cache that ``deployment`` has."""
    tiers = cache_tiers(deployment, kv_blocks=settings.kv_blocks)
    if not tiers or not deployment.engine.kv_tiers:
        return replace(settings, tiers=tiers)
    stages = (tables,) if isinstance(tables, StepTables) else tables
    return replace(settings, tiers=tiers, prompt_s=prompt_seconds(stages, settings))


def tiers_of_run(
    deployment: Deployment, result: ServeResult, *, tables: StepTables | tuple[StepTables, ...], replicas: int
) -> tuple[TierUse, ...]:
    """What the requests of ``result`` found on the device of ``deployment`` and in the tiers below it."""
    if not deployment.engine.kv_tiers:
        return ()
    settings = scheduler_settings(deployment, kv_blocks=kv_blocks_of(deployment), replicas=replicas)
    return tier_uses(deployment, tiered(settings, deployment, tables), result.requests, result.run)


def scheduler_settings(
    deployment: Deployment,
    *,
    kv_blocks: int,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
    timeout_s: float | None = None,
) -> SchedulerSettings:
    """The event loop's limits and policy from the engine's. Engines without a scheduler serve one batch at a time.
    Attention-data-parallel ranks schedule for themselves and count as replicas. Left out: that those which share
    experts wait for each other in pipelines too, and that TensorRT-LLM holds prompts until every rank has one."""
    engine, parallelism = deployment.engine, deployment.parallelism
    static = engine.scheduler == "static"
    if routing is Routing.PREFIX_AWARE and not engine.prefix_caching:
        raise ignored_option(
            "'prefix_aware' looks for prompts in prefix caches, and prefix caching is off",
            field="routing",
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
        policy=SchedulerPolicy["CHUNKED_MIXED" if static else engine.scheduler.upper()],
        queue_order=QueueOrder[engine.queue_order.upper()],
        replicas=replicas * parallelism.dp_size,
        ranks=1 if static or parallelism.pp_size > 1 else parallelism.ranks_in_step,
        routing=routing,
        request_delay_s=engine.overheads.request_s,
        prompt_token_delay_s=engine.overheads.prompt_token_s,
        timeout_s=timeout_s,
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


def speculating(settings: SchedulerSettings, deployment: Deployment, *, seed: int = 0) -> SchedulerSettings:
    """Settings of replicas that verify in every step what ``deployment`` guesses."""
    assert deployment.speculation is not None, "asked for a deployment that speculates"
    plan = deployment.speculation.plan
    steps = SpeculativeSteps(verify_tokens=plan.verify_tokens, acceptance=plan.acceptance)
    return replace(settings, speculation=steps, seed=seed)


def drafting(pool: Pool, requests: Requests) -> tuple[StepTables, ...]:
    """Tables of the pool's steps with what drafting for mean requests takes beside the first stage of each."""
    first, *others = pool.tables or step_tables(pool.deployment)
    prompt, answer = float(np.mean(requests.prompt_tokens)), float(np.mean(requests.output_tokens))
    drafts = with_drafts(first, pool.deployment, prompt_tokens=prompt, answer_tokens=answer, scale=pool.step_scale)
    return drafts, *others


def typical_steps(deployment: Deployment, result: ServeResult) -> tuple[PhaseEstimate, PhaseEstimate | None]:
    """A mean prompt with its mean cached part, and a decode step at the mean batch and context."""
    prompt = float(np.mean(result.requests.prompt_tokens))
    output = float(np.mean(result.requests.output_tokens))
    cached = np.floor(prompt * result.overall.prefix_hit_fraction)
    passes = mixed_step(prefill_sequences=1.0, prefill_tokens=max(1.0, prompt - cached), prefill_context=cached)
    one = np.ones(1)
    prefill = PhaseEstimate(estimate=estimate_step(deployment, passes), weights=one)
    if output <= 1:
        return prefill, None
    step = decode_round(deployment, sequences=max(1.0, result.overall.mean_batch), context=prompt + output / 2)
    return prefill, PhaseEstimate(estimate=step, weights=one)


def weighed_steps(served: ServedDeployment, result: ServeResult) -> tuple[PhaseEstimate, PhaseEstimate | None]:
    """Those, each as many as a request has of its own."""
    prefill, decode = typical_steps(served.deployment, result)
    if decode is None:
        return prefill, None
    share = min(prompt_share(served, result, prefill=prefill), LARGEST_PROMPT_SHARE)
    return prefill, replace(decode, weights=prefill.total_s * (1 / share - 1) / decode.estimate.step_s)


def prompt_share(served: ServedDeployment, result: ServeResult, *, prefill: PhaseEstimate) -> float:
    """Share of the busy time that prompts take; 1 where no step ran."""
    overall = result.overall
    busy = overall.busy_fraction * served.replicas * served.deployment.parallelism.dp_size
    return min(1.0, overall.requests_per_s * prefill.total_s / busy) if busy > 0 else 1.0
