"""``roofcast capacity``: the highest rate that one deployment serves within objectives."""

from __future__ import annotations

import json
from dataclasses import dataclass

from simulator.cli.output import write_text
from simulator.cli.progress import progress_bar
from simulator.cli.serve import check_target
from simulator.engine.runs.capacity_interval import (
    CapacityInterval,
    capacity_interval,
    pools_capacity,
    pools_capacity_interval,
    pools_server,
)
from simulator.engine.runs.capacity_search import SimulatedCapacity, capacity_by_simulation, workload_source
from simulator.engine.runs.scenario_setup import (
    ServeOptions,
    deployment_of,
    pool_deployments,
    scenario_options,
    server_of,
)
from simulator.errors import RoofcastError
from simulator.reports.tables.capacity import capacity_object, capacity_text
from simulator.reports.tables.serving import pools_setup_text, setup_text
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.question.plan import parse_objectives
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import ScenarioChanges, read_scenario
from simulator.specs.question.workload import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityQuestion:
    """What the command line asks for."""

    source: str
    changes: ScenarioChanges
    objectives: tuple[str, ...]
    seeds: int
    requests: int | None
    output: str
    as_json: bool
    assumptions: bool
    force: bool
    profiles: str | None


def _options(question: CapacityQuestion, scenario: ScenarioSpec) -> ServeOptions:
    """Objectives and routing; refused where there is nothing to hold or where the search is not made for it."""
    objectives = parse_objectives(question.objectives, flag="--slo")
    options = scenario_options(scenario, ServeOptions(objectives=objectives))
    if not options.objectives:
        raise RoofcastError(
            "at least one objective is needed", field="--slo", hint="such as --slo ttft-p95=2s, or slo in the scenario"
        )
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What was found, and of what."""

    capacity: SimulatedCapacity
    interval: CapacityInterval
    setup: str
    assumptions: tuple[str, ...]


def _of_replicas(question: CapacityQuestion, scenario: ScenarioSpec, options: ServeOptions) -> _Answer:
    workload = scenario.workload or WorkloadSpec()
    deployment = deployment_of(scenario, profiles=question.profiles)
    source = workload_source(workload, block_size_tokens=deployment.engine.block_size_tokens)
    with progress_bar("searching") as report:
        capacity = capacity_by_simulation(
            deployment,
            source=source,
            objectives=options.objectives,
            replicas=scenario.replicas,
            routing=options.routing,
            seeds=question.seeds,
            first_seed=workload.seed,
            requests=question.requests,
            timeout_s=workload.timeout_s,
            progress=report,
        )
        interval = capacity_interval(
            deployment,
            source=source,
            objectives=options.objectives,
            capacity=capacity,
            replicas=scenario.replicas,
            routing=options.routing,
        )
    setup = setup_text(deployment, replicas=scenario.replicas)
    return _Answer(capacity=capacity, interval=interval, setup=setup, assumptions=deployment.assumptions)


def _of_pools(
    question: CapacityQuestion, scenario: ScenarioSpec, options: ServeOptions, spec: DisaggregationSpec
) -> _Answer:
    workload = scenario.workload or WorkloadSpec()
    prefill, decode = pool_deployments(scenario, spec, profiles=question.profiles)
    source = workload_source(workload, block_size_tokens=prefill.engine.block_size_tokens)
    pools = pools_server(
        prefill,
        decode,
        spec=spec,
        server=server_of(decode, profiles=question.profiles),
        timeout_s=workload.timeout_s,
        routing=options.routing,
    )
    with progress_bar("searching") as report:
        capacity = pools_capacity(
            pools,
            source=source,
            objectives=options.objectives,
            seeds=question.seeds,
            first_seed=workload.seed,
            requests=question.requests,
            progress=report,
        )
        interval = pools_capacity_interval(pools, source=source, objectives=options.objectives, capacity=capacity)
    setup = pools_setup_text(pools.prefill, pools.decode)
    return _Answer(capacity=capacity, interval=interval, setup=setup, assumptions=decode.assumptions)


def run_capacity(question: CapacityQuestion) -> None:
    """Search, then print or write the answer."""
    check_target(question.output, flag="--output", force=question.force)
    scenario = read_scenario(question.source, changes=question.changes, command="roofcast capacity")
    options = _options(question, scenario)
    spec = scenario.disaggregation
    found = _of_replicas(question, scenario, options) if spec is None else _of_pools(question, scenario, options, spec)
    if question.as_json:
        document = capacity_object(
            found.capacity,
            identifier=scenario.id,
            objectives=options.objectives,
            interval=found.interval,
            assumptions=found.assumptions,
        )
        write_text(json.dumps(document, allow_nan=False) + "\n", question.output, force=question.force)
        return
    text = capacity_text(
        found.capacity,
        interval=found.interval,
        setup=found.setup,
        assumptions=found.assumptions,
        listed=question.assumptions,
        of_pools=spec is not None,
    )
    write_text(text, question.output, force=question.force)
