"""Serve a workload on a deployment: requests in, percentiles out.

KV blocks under a policy that bounds what each sequence keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.events.simulation import Progress, simulate_requests
from simulator.engine.pools import Pool
from simulator.engine.runs.metrics import ServeResult, serve_result
from simulator.engine.runs.scheduling import (
    host_offload,
    kv_blocks_of,
    scheduler_settings,
    speculating,
    step_tables,
)
from simulator.engine.settings import Routing, SchedulerSettings
from simulator.operators.kv_layout import kv_bytes_per_sequence, kv_bytes_per_token
from simulator.operators.step_shape import Array
from simulator.phases.compiled import StepTables
from simulator.phases.deployment import Deployment
from simulator.specs.question.plan import ObjectiveSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.techniques.kv_compression import check_budget
from simulator.traffic.demand import build_requests
from simulator.traffic.requests import Requests

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
    parallelism = deployment.parallelism
    per_token = kv_bytes_per_token(
        deployment.model, plan=deployment.plan, tp_size=parallelism.tp_size, pp_size=parallelism.pp_size
    )
    kept = _cache_bytes(deployment, lengths) - _cache_bytes(deployment, np.zeros(1))
    return int(blocks * per_token * lengths.sum() / kept.sum())


def _cache_bytes(deployment: Deployment, lengths: Array) -> Array:
    """Bytes that sequences of these lengths keep on a device, recurrent states included [bytes]."""
    parallelism = deployment.parallelism
    return kv_bytes_per_sequence(
        deployment.model,
        plan=deployment.plan,
        tp_size=parallelism.tp_size,
        pp_size=parallelism.pp_size,
        context_tokens=lengths,
    )


def simulate_serving(
    tables: StepTables | tuple[StepTables, ...],
    *,
    workload: WorkloadSpec,
    settings: SchedulerSettings,
    objectives: tuple[ObjectiveSpec, ...] = (),
    requests: Requests | None = None,
    trace_steps: int = 0,
    progress: Progress | None = None,
) -> ServeResult:
    """Send ``workload`` to replicas whose steps take what ``tables`` say, and sum up what its clients see.

    requests : the workload's, where the caller has built them already
    """
    if requests is None:
        requests = build_requests(
            workload, block_size_tokens=settings.block_size_tokens, context_tokens=settings.max_model_len
        )
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


def serve_workload(
    deployment: Deployment,
    *,
    workload: WorkloadSpec,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
    kv_blocks: int | None = None,
    objectives: tuple[ObjectiveSpec, ...] = (),
    tables: StepTables | tuple[StepTables, ...] | None = None,
    step_scale: float = 1.0,
    requests: Requests | None = None,
    trace_steps: int = 0,
    progress: Progress | None = None,
) -> ServeResult:
    """Send ``workload`` to ``replicas`` copies of ``deployment``.

    Attention-data-parallel ranks of a replica schedule for themselves and count as replicas here. kv_blocks : of each,
    if it is known better than from the memory plan. tables, requests : those of the deployment (``step_tables``) and of
    the workload, where the caller has them already. step_scale : makes every part of every step that many times as long
    (for intervals).
    """
    if kv_blocks is None and deployment.techniques.spec.kv_policy is not None:
        requests = requests or requests_of(workload, deployment)
        kv_blocks = bounded_blocks(deployment, requests, blocks=kv_blocks_of(deployment))
    blocks = kv_blocks_of(deployment) if kv_blocks is None else kv_blocks
    settings = scheduler_settings(
        deployment,
        kv_blocks=blocks,
        replicas=replicas * deployment.parallelism.dp_size,
        routing=routing,
        timeout_s=workload.timeout_s,
        offload=host_offload(deployment, kv_blocks=blocks),
    )
    if deployment.speculation is not None:
        requests = requests or requests_of(workload, deployment)
        settings = speculating(settings, deployment, requests, seed=workload.seed, scale=step_scale)
    if tables is None:
        tables = step_tables(deployment, scale=step_scale)
    return simulate_serving(
        tables,
        workload=workload,
        settings=settings,
        objectives=objectives,
        requests=requests,
        trace_steps=trace_steps,
        progress=progress,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDeployment:
    """Replicas of a deployment whose step tables are there already, for many runs.

    timeout_s : as in a workload; step_scale : what the tables were made longer by, so that drafts take it too
    """

    deployment: Deployment
    replicas: int
    tables: tuple[StepTables, ...]
    timeout_s: float | None
    step_scale: float = 1.0
    routing: Routing = Routing.ROUND_ROBIN

    @property
    def prefill(self) -> Pool:
        """What computes prompts: every replica."""
        return Pool(deployment=self.deployment, replicas=self.replicas, tables=self.tables)

    @property
    def decode(self) -> Pool:
        """What generates: the same replicas."""
        return self.prefill

    def at_scale(self, scale: float) -> ServedDeployment:
        """The same replicas with all steps that many times as long."""
        return served_deployment(
            self.deployment,
            replicas=self.replicas,
            routing=self.routing,
            timeout_s=self.timeout_s,
            step_scale=scale,
        )

    def run(self, requests: Requests) -> ServeResult:
        """Serve requests."""
        return serve_workload(
            self.deployment,
            workload=WorkloadSpec(timeout_s=self.timeout_s),
            replicas=self.replicas,
            routing=self.routing,
            tables=self.tables,
            step_scale=self.step_scale,
            requests=requests,
        )


def served_deployment(
    deployment: Deployment,
    *,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
    timeout_s: float | None = None,
    step_scale: float = 1.0,
) -> ServedDeployment:
    """Compile a deployment once; ``step_scale`` makes all its steps that many times as long."""
    tables = step_tables(deployment, scale=step_scale)
    return ServedDeployment(
        deployment=deployment,
        replicas=replicas,
        tables=tables,
        timeout_s=timeout_s,
        step_scale=step_scale,
        routing=routing,
    )
