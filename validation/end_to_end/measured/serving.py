"""Real vLLM runs under load as scenarios: measured percentiles beside those of the event simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulator.engine.runs.metrics import StageResult
from simulator.engine.runs.serving import ServedDeployment, requests_of
from simulator.errors import FileError
from simulator.phases.deployment import Deployment, deploy
from simulator.specs.base import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.fits import EngineOverheads, EngineSpread
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import ScenarioSpec

METRICS = ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s", "ttft_p99_s", "e2e_p99_s")
# A stage whose first tokens took this long was in overload: it measures the client's patience, not the engine.
OVERLOAD_TTFT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRun:
    """One run: its scenario and the measured metrics of each stage [s]."""

    scenario: ScenarioSpec
    stages: tuple[Mapping[str, float], ...]

    @property
    def is_overload(self) -> bool:
        """Whether any stage was overloaded."""
        return any(stage["ttft_mean_s"] > OVERLOAD_TTFT_S for stage in self.stages)


def load_serving(data: Path) -> tuple[ServingRun, ...]:
    """All runs of ``serving/vllm_h100.jsonl`` below ``data``."""
    path = data / "serving" / "vllm_h100.jsonl"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}", field="--data") from error
    runs = []
    for line in lines:
        record: dict[str, Any] = json.loads(line)
        measured = record["measured"]
        stages = tuple(measured[key] for key in sorted(measured) if key.startswith("stage_"))
        runs.append(ServingRun(scenario=validate(ScenarioSpec, record["scenario"], where=str(path)), stages=stages))
    return tuple(runs)


def deployment_of(run: ServingRun) -> Deployment:
    """The run's replica."""
    scenario = run.scenario
    return deploy(
        model=load_model(scenario.model),
        hardware=load_hardware(scenario.hardware),
        parallelism=ParallelismSpec(tp_size=scenario.tp_size),
        precision=scenario.precision,
        engine=scenario.engine,
        techniques=scenario.techniques,
    )


def with_overheads(deployment: Deployment, overheads: EngineOverheads) -> Deployment:
    """The replica under an engine with other overheads."""
    return replace(deployment, engine=replace(deployment.engine, overheads=overheads))


def with_spread(deployment: Deployment, spread: EngineSpread) -> Deployment:
    """The replica under an engine whose requests scatter otherwise."""
    return replace(deployment, engine=replace(deployment.engine, spread=spread))


def stage_metric(stage: StageResult, metric: str) -> float:
    """A metric such as ``ttft_mean_s`` of one stage [s]."""
    name, statistic = metric.split("_", 1)
    return float(getattr(getattr(stage, name), statistic))


def predicted_stages(run: ServingRun, deployment: Deployment) -> tuple[StageResult, ...]:
    """Results of the event simulation for each stage of the run."""
    assert run.scenario.workload is not None
    workload = run.scenario.workload
    served = ServedDeployment(deployment=deployment, timeout_s=workload.timeout_s, seed=workload.seed)
    return served.run(requests_of(workload, deployment)).stages
