"""``roofcast capacity``: the highest rate that one deployment serves within objectives."""

from __future__ import annotations

import json
from dataclasses import dataclass

from simulator.cli.output import write_text
from simulator.cli.progress import progress_bar
from simulator.cli.serve import check_target
from simulator.engine.answers import deployment_of
from simulator.engine.capacity_interval import capacity_interval
from simulator.engine.capacity_search import capacity_by_simulation
from simulator.engine.serve_options import ServeOptions, scenario_options
from simulator.engine.workload_source import workload_source
from simulator.errors import RoofcastError
from simulator.reports.capacity_tables import capacity_object, capacity_text
from simulator.specs.objectives_text import parse_objectives
from simulator.specs.scenario import ScenarioSpec
from simulator.specs.scenario_file import ScenarioChanges, read_scenario
from simulator.specs.workload import WorkloadSpec


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
    if scenario.disaggregation is not None:
        raise RoofcastError(
            "a capacity search over separate pools is not modelled",
            field="disaggregation",
            code="unsupported_option",
            hint="roofcast serve --rate answers one rate at a time",
        )
    return options


def run_capacity(question: CapacityQuestion) -> None:
    """Search, then print or write the answer."""
    check_target(question.output, flag="--output", force=question.force)
    scenario = read_scenario(question.source, changes=question.changes, command="roofcast capacity")
    options = _options(question, scenario)
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
    if question.as_json:
        document = capacity_object(
            capacity,
            identifier=scenario.id,
            objectives=options.objectives,
            interval=interval,
            assumptions=deployment.assumptions,
        )
        write_text(json.dumps(document, allow_nan=False) + "\n", question.output, force=question.force)
        return
    text = capacity_text(
        capacity,
        interval=interval,
        deployment=deployment,
        replicas=scenario.replicas,
        assumptions=deployment.assumptions,
        listed=question.assumptions,
    )
    write_text(text, question.output, force=question.force)
