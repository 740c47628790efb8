"""``capacity``: the highest rate that a deployment serves within objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from simulator.api.questions import Given, ScenarioFields, scenario_spec
from simulator.api.results import Answer, Document
from simulator.api.scenarios import Progress, objectives_of, only_served
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
from simulator.reports.answers.charts import lines_chart
from simulator.reports.charts.chart import Axis, Chart
from simulator.reports.tables.capacity import capacity_object, capacity_text
from simulator.reports.tables.serving import pools_setup_text, setup_text
from simulator.specs.question.plan import ObjectiveSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec


@dataclass(frozen=True, slots=True)
class CapacityAnswer(Answer):
    """The highest rate that holds the objectives, and every rate that was tried."""

    scenario: ScenarioSpec
    objectives: tuple[ObjectiveSpec, ...]
    capacity: SimulatedCapacity
    interval: CapacityInterval
    setup: str
    assumptions: tuple[str, ...]

    def to_dict(self) -> Document:
        """The document of ``roofcast capacity --json``."""
        return capacity_object(
            self.capacity,
            identifier=self.scenario.id,
            objectives=self.objectives,
            interval=self.interval,
            assumptions=self.assumptions,
        )

    def to_text(self, *, assumptions: bool = False) -> str:
        """What ``roofcast capacity`` prints."""
        return capacity_text(
            self.capacity,
            interval=self.interval,
            setup=self.setup,
            assumptions=self.assumptions,
            listed=assumptions,
            of_pools=self.scenario.disaggregation is not None,
        )

    def rows(self) -> list[Document]:
        """One row a rate that was tried."""
        return list(self.to_dict()["points"])

    def chart(self) -> Chart:
        """TTFT and TPOT over the rates that were tried."""
        points = self.rows()
        lines = {name: [point.get(field) for point in points] for name, field in _POINT_LINES.items()}
        return lines_chart(
            key="capacity",
            title=f"{self.capacity.rate_per_s:.4g} requests/s within the objectives",
            x=Axis(title="Rate", unit="requests/s"),
            y=Axis(title="p95", unit="s", log=True),
            at=[float(point["rate_per_s"]) for point in points],
            lines=lines,
        )


_POINT_LINES = {"TTFT": "ttft_p95_s", "TPOT": "tpot_p95_s", "E2E": "e2e_p95_s"}


def capacity(
    scenario: ScenarioSpec | Given | None = None,
    /,
    *,
    seeds: int = 5,
    requests: int | None = None,
    profiles: str | None = None,
    progress: Progress | None = None,
    **fields: Unpack[ScenarioFields],
) -> CapacityAnswer:
    """The highest request rate that a deployment serves within objectives, by simulation: ``roofcast capacity``.

    Stages keep their proportions; their rates are what is searched, so that ``rate_per_s`` is a start and no bound.

    seeds : independent runs at every rate; requests : of one run, None takes enough for the batch at capacity
    """
    objectives = objectives_of(fields)
    spec = scenario_spec(scenario, fields, kind="serve")
    only_served(spec, "capacity")
    options = scenario_options(spec, ServeOptions(objectives=objectives))
    if not options.objectives:
        raise RoofcastError(
            "at least one objective is needed", field="--slo", hint="such as --slo ttft-p95=2s, or slo in the scenario"
        )
    searched = _pools_capacity if spec.disaggregation is not None else _replicas_capacity
    found = searched(spec, options, _RateSearch(seeds=seeds, requests=requests, profiles=profiles, progress=progress))
    return CapacityAnswer(spec, options.objectives, *found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RateSearch:
    """How to search, for both shapes of serving."""

    seeds: int
    requests: int | None
    profiles: str | None
    progress: Progress | None


_Found = tuple[SimulatedCapacity, CapacityInterval, str, tuple[str, ...]]


def _replicas_capacity(spec: ScenarioSpec, options: ServeOptions, search: _RateSearch) -> _Found:

    workload = spec.workload or WorkloadSpec()
    deployment = deployment_of(spec, profiles=search.profiles)
    source = workload_source(workload, block_size_tokens=deployment.engine.block_size_tokens)
    found = capacity_by_simulation(
        deployment,
        source=source,
        objectives=options.objectives,
        replicas=spec.replicas,
        routing=options.routing,
        seeds=search.seeds,
        first_seed=workload.seed,
        requests=search.requests,
        timeout_s=workload.timeout_s,
        progress=search.progress,
    )
    interval = capacity_interval(
        deployment,
        source=source,
        objectives=options.objectives,
        capacity=found,
        replicas=spec.replicas,
        routing=options.routing,
    )
    return found, interval, setup_text(deployment, replicas=spec.replicas), deployment.assumptions


def _pools_capacity(spec: ScenarioSpec, options: ServeOptions, search: _RateSearch) -> _Found:

    assert spec.disaggregation is not None, "pools are given"
    workload = spec.workload or WorkloadSpec()
    prefill, decode = pool_deployments(spec, spec.disaggregation, profiles=search.profiles)
    source = workload_source(workload, block_size_tokens=prefill.engine.block_size_tokens)
    pools = pools_server(
        prefill,
        decode,
        spec=spec.disaggregation,
        server=server_of(decode, profiles=search.profiles),
        timeout_s=workload.timeout_s,
        routing=options.routing,
    )
    found = pools_capacity(
        pools,
        source=source,
        objectives=options.objectives,
        seeds=search.seeds,
        first_seed=workload.seed,
        requests=search.requests,
        progress=search.progress,
    )
    interval = pools_capacity_interval(pools, source=source, objectives=options.objectives, capacity=found)
    return found, interval, pools_setup_text(pools.prefill, pools.decode), decode.assumptions
