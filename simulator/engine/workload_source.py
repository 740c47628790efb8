"""Requests of a workload in any number, for searches over rates."""

from __future__ import annotations

from simulator.engine.capacity_search import RequestSource
from simulator.engine.demand import build_requests
from simulator.engine.request import Requests
from simulator.errors import RoofcastError
from simulator.specs.workload import StageSpec, WorkloadSpec

_ANY_RATE_PER_S = 1.0


def _stages(workload: WorkloadSpec, count: int) -> tuple[StageSpec, ...]:
    """The workload's stages in the same proportions, as long as it takes to send about ``count`` requests."""
    if not workload.stages:
        return (StageSpec(rate_per_s=_ANY_RATE_PER_S, duration_s=count / _ANY_RATE_PER_S),)
    factor = count / sum(stage.rate_per_s * stage.duration_s for stage in workload.stages)
    return tuple(
        StageSpec(rate_per_s=stage.rate_per_s, duration_s=stage.duration_s * factor) for stage in workload.stages
    )


def workload_source(workload: WorkloadSpec, *, block_size_tokens: int) -> RequestSource:
    """A function from (count, seed) to about ``count`` requests; those of a trace do not depend on the seed."""
    if workload.arrival == "trace" and workload.trace is None:
        raise RoofcastError("arrival trace needs the file", field="workload.trace", code="missing_field")

    def source(count: int, seed: int) -> Requests:
        staged = workload.model_copy(update={"stages": _stages(workload, count), "seed": seed})
        return build_requests(staged, block_size_tokens=block_size_tokens)

    return source
