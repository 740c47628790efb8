"""A workload served under load, with the typical steps that explain it.

What a run under load is asked for beside its workload: objectives, routing, intervals, traces.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.events.simulation import Progress
from simulator.engine.runs.disaggregation import DisaggregatedResult
from simulator.engine.runs.intervals import ServeInterval, workload_interval
from simulator.engine.runs.metrics import ServeResult
from simulator.engine.runs.scheduling import kv_blocks_of, step_tables
from simulator.engine.runs.serving import serve_workload
from simulator.engine.settings import Routing
from simulator.engine.uniform.speculative_steps import speculation_notes
from simulator.engine.uniform.static_batch import PhaseEstimate
from simulator.errors import RoofcastError
from simulator.operators.step_shape import mixed_step
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import decode_round
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.step import estimate_step
from simulator.specs.question.plan import ObjectiveSpec, parse_objectives
from simulator.specs.question.scenario import RoutingName, ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec

_ROUTINGS: dict[RoutingName, Routing] = {
    "round_robin": Routing.ROUND_ROBIN,
    "least_outstanding": Routing.LEAST_OUTSTANDING,
    "prefix_aware": Routing.PREFIX_AWARE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What else to find out about a served workload.

    objectives : bounds whose percentiles and goodput are reported; intervals : whether to work them out
    trace_steps : steps of each replica to keep; progress : called with (requests brought in, of how many)
    routing : how requests are spread over replicas
    """

    objectives: tuple[ObjectiveSpec, ...] = ()
    intervals: bool = True
    trace_steps: int = 0
    progress: Progress | None = None
    routing: Routing = Routing.ROUND_ROBIN


def routing_of(scenario: ScenarioSpec) -> Routing:
    """The scenario's routing; refused where there is nothing to choose between."""
    if scenario.routing is None:
        return Routing.ROUND_ROBIN
    pools = scenario.disaggregation
    most = scenario.replicas if pools is None else max(pools.prefill_replicas, pools.decode_replicas)
    if most * scenario.dp_size == 1:
        raise RoofcastError(
            f"{scenario.routing!r} has nothing to choose from: there is one replica",
            field="routing",
            code="ignored_option",
            hint="leave it out or add replicas",
        )
    return _ROUTINGS[scenario.routing]


def scenario_options(scenario: ScenarioSpec, options: ServeOptions) -> ServeOptions:
    """``options`` with what the scenario itself asks for; objectives of the caller go before the scenario's."""
    if scenario.kind != "serve":
        return options
    return replace(
        options,
        routing=routing_of(scenario),
        objectives=options.objectives or parse_objectives(scenario.slo or (), flag="slo"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """What clients see under load: percentiles by stage, and throughput per replica.

    result : the event simulation; prefill, decode : a typical step of each phase (one case)
    interval : 80 % intervals by stage, None where they were not asked for
    pools : where prefill and decode have replicas of their own, what each does; then there is one "replica" of both
    """

    result: ServeResult
    replicas: int
    prefill: PhaseEstimate
    decode: PhaseEstimate | None
    memory: MemoryPlan
    notes: tuple[str, ...]
    interval: ServeInterval | None = None
    pools: DisaggregatedResult | None = None

    @property
    def ttft_s(self) -> float:
        """Mean time to first token over the whole run [s]."""
        return self.result.overall.ttft.mean_s

    @property
    def tpot_s(self) -> float:
        """Mean time per output token after the first [s]."""
        return self.result.overall.tpot.mean_s

    @property
    def e2e_s(self) -> float:
        """Mean time to the last token [s]."""
        return self.result.overall.e2e.mean_s

    @property
    def requests_per_s(self) -> float:
        """Finished requests per second and replica."""
        return self.result.overall.requests_per_s / self.replicas

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second and replica."""
        return self.result.overall.output_tokens_per_s / self.replicas

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and generated tokens per second and replica."""
        prompts = float(np.mean(self.result.requests.prompt_tokens)) * self.requests_per_s
        return self.output_tokens_per_s + prompts

    @property
    def busy_fraction(self) -> float:
        """Share of the time in which a step runs."""
        return self.result.overall.busy_fraction


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


def serve_notes(result: ServeResult) -> tuple[str, ...]:
    """What a reader should know about the run before using its numbers."""
    overall = result.overall
    notes = []
    for index, stage in enumerate(result.stages):
        if stage.saturated:
            notes.append(f"stage {index} is saturated: the queue grows as long as it lasts")
    if overall.timed_out:
        notes.append(f"{overall.timed_out} of {overall.requests} requests were given up by their clients")
    if overall.rejected:
        notes.append(f"{overall.rejected} of {overall.requests} requests were rejected: longer than the engine takes")
    return tuple(notes)


def check_workload(workload: WorkloadSpec) -> None:
    """Refuse a workload that sends nothing."""
    if workload.arrival != "trace" and not workload.stages:
        raise RoofcastError(
            "a workload without a trace needs at least one stage",
            field="workload.stages",
            code="missing_field",
            hint='such as [{"rate_per_s": 8, "duration_s": 600}]',
        )


def check_finished(result: ServeResult) -> None:
    """Refuse a run of which no request finishes."""
    if result.overall.finished == 0:
        raise RoofcastError(
            "no request finishes: " + "; ".join(serve_notes(result)),
            field="workload",
            code="nothing_finished",
            hint="lower the rate, shorten the requests or lengthen the stages",
        )


def served_run(
    deployment: Deployment, *, workload: WorkloadSpec, replicas: int, options: ServeOptions | None = None
) -> ServedRun:
    """Simulate ``workload`` on ``replicas`` copies of ``deployment``."""
    options = options or ServeOptions()
    check_workload(workload)
    kv_blocks_of(deployment)  # refuses a deployment without room for a cache before any work
    tables = step_tables(deployment)
    result = serve_workload(
        deployment,
        workload=workload,
        replicas=replicas,
        routing=options.routing,
        objectives=options.objectives,
        tables=tables,
        trace_steps=options.trace_steps,
        progress=options.progress,
    )
    check_finished(result)
    prefill, decode = typical_steps(deployment, result)
    memory = memory_plan(deployment)
    interval = None
    if options.intervals:
        interval = workload_interval(
            deployment,
            workload=workload,
            replicas=replicas,
            routing=options.routing,
            tables=tables,
            result=result,
            prefill=prefill,
            decode=decode,
        )
    return ServedRun(
        result=result,
        replicas=replicas,
        prefill=prefill,
        decode=decode,
        memory=memory,
        notes=(*serve_notes(result), *speculation_notes(deployment, decode, memory)),
        interval=interval,
    )
