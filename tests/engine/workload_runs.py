"""A workload on copies of one deployment, as the tests ask for it."""

from __future__ import annotations

from simulator.engine.runs.metrics import ServeResult
from simulator.engine.runs.serving import ServedDeployment, requests_of
from simulator.phases.compiled import StepTables
from simulator.phases.deployment import Deployment
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.requests import Requests


def serve_workload(
    deployment: Deployment,
    *,
    workload: WorkloadSpec,
    replicas: int = 1,
    objectives: tuple[ObjectiveSpec, ...] = (),
    tables: tuple[StepTables, ...] = (),
    step_scale: float = 1.0,
    requests: Requests | None = None,
) -> ServeResult:
    served = ServedDeployment(
        deployment=deployment,
        replicas=replicas,
        tables=tables,
        timeout_s=workload.timeout_s,
        step_scale=step_scale,
        seed=workload.seed,
    )
    return served.run(requests_of(workload, deployment) if requests is None else requests, objectives=objectives)
