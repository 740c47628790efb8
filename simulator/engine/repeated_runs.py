"""Intervals of a run under load, from the same run with slower and faster steps and with other seeds."""

from __future__ import annotations

from dataclasses import replace

from simulator.engine.demand import build_requests
from simulator.engine.disaggregation import DisaggregatedResult, serve_disaggregated
from simulator.engine.metrics import ServeResult
from simulator.engine.scheduling import step_tables
from simulator.engine.serve_interval import SeedRun, ServeInterval, StepRun, serve_interval, step_sigma
from simulator.engine.serving import serve_workload
from simulator.engine.settings import Routing
from simulator.engine.static_batch import PhaseEstimate
from simulator.kernels.timing import Provenance
from simulator.phases.compiled import StepTables, scale_tables
from simulator.phases.deployment import Deployment
from simulator.specs.disaggregation import DisaggregationSpec
from simulator.specs.engine import EngineSpread
from simulator.specs.hardware import ServerSpec
from simulator.specs.workload import WorkloadSpec

RERUN_REQUESTS = 20_000
"""Runs up to this size are repeated with slower and faster steps for their intervals; longer ones are scaled."""
RESEED_REQUESTS = 5_000
"""Runs up to this size are also repeated with other seeds, because the scatter of a short run is worth knowing."""
FURTHER_SEEDS = 3


def is_calibrated(*, prefill: PhaseEstimate, decode: PhaseEstimate | None) -> bool:
    """Whether the steps that generate are known as well as those of the runs that an engine's spread was fitted on."""
    return float((decode or prefill).estimate.provenance.max()) <= Provenance.CALIBRATED


def phase_sigmas(*, prefill: PhaseEstimate, decode: PhaseEstimate | None, spread: EngineSpread) -> tuple[float, float]:
    """Log-sigma of the steps of either phase; less where the engine's overheads were fitted on steps like these."""
    share = spread.steps if is_calibrated(prefill=prefill, decode=decode) else 1.0
    ahead, after = (phase.mean(phase.estimate.log_sigma) for phase in (prefill, decode or prefill))
    return share * ahead, share * after


def _repeated(
    result: ServeResult,
    *,
    log_sigma: float,
    spread: EngineSpread,
    rerun: StepRun,
    reseed: SeedRun,
    workload: WorkloadSpec,
) -> ServeInterval:
    """Repeat the run where that is cheap, and say what was done."""
    count = len(result.requests)
    if count > RERUN_REQUESTS:
        return serve_interval(result, step_log_sigma=log_sigma, spread=spread)
    draws = workload.trace is None and count <= RESEED_REQUESTS
    return serve_interval(
        result,
        step_log_sigma=log_sigma,
        spread=spread,
        rerun=rerun,
        reseed=reseed if draws else None,
        seeds=FURTHER_SEEDS if draws else 0,
    )


def _scaled(tables: tuple[StepTables, ...], factor: float) -> tuple[StepTables, ...]:
    return tuple(scale_tables(part, factor=factor) for part in tables)


def _reseeded(workload: WorkloadSpec, number: int) -> WorkloadSpec:
    return workload.model_copy(update={"seed": workload.seed + number})


def workload_interval(
    deployment: Deployment,
    *,
    workload: WorkloadSpec,
    replicas: int,
    routing: Routing,
    tables: tuple[StepTables, ...],
    result: ServeResult,
    prefill: PhaseEstimate,
    decode: PhaseEstimate | None,
) -> ServeInterval:
    """80 % interval of a workload's ``result`` on copies of one deployment; errors of all its steps as common."""
    spread, overall = deployment.engine.spread, result.overall
    prefill_sigma, decode_sigma = phase_sigmas(prefill=prefill, decode=decode, spread=spread)
    busy = overall.busy_fraction * replicas * deployment.parallelism.dp_size
    share = overall.requests_per_s * prefill.total_s / busy if decode is not None and busy > 0 else 1.0

    def rerun(factor: float) -> ServeResult:
        return serve_workload(
            deployment,
            workload=workload,
            replicas=replicas,
            routing=routing,
            tables=_scaled(tables, factor),
            step_scale=factor,
            requests=result.requests,
        )

    def reseed(number: int) -> ServeResult:
        other = _reseeded(workload, number)
        return serve_workload(deployment, workload=other, replicas=replicas, routing=routing, tables=tables)

    return _repeated(
        result,
        log_sigma=step_sigma(prefill_sigma=prefill_sigma, decode_sigma=decode_sigma, prompt_share=share),
        spread=spread,
        rerun=rerun,
        reseed=reseed,
        workload=workload,
    )


def pools_interval(
    pools: DisaggregatedResult,
    *,
    workload: WorkloadSpec,
    spec: DisaggregationSpec,
    server: ServerSpec | None,
    routing: Routing,
    prefill: PhaseEstimate,
    decode: PhaseEstimate | None,
) -> ServeInterval:
    """80 % interval of a workload on two pools, whose steps are known to different degrees but err together.

    Left out: errors of the link between the pools, which is taken at its datasheet bandwidth.
    """
    spread = pools.prefill.deployment.engine.spread
    sigmas = phase_sigmas(prefill=prefill, decode=decode, spread=spread)
    larger = max(sigmas)
    tables = [step_tables(pool.deployment) for pool in (pools.prefill, pools.decode)]

    def served(load: WorkloadSpec, *, factor: float = 1.0) -> ServeResult:
        ahead, after = (
            _scaled(part, factor ** (sigma / larger) if larger > 0 else factor)
            for part, sigma in zip(tables, sigmas, strict=True)
        )
        return serve_disaggregated(
            build_requests(load, block_size_tokens=pools.prefill.deployment.engine.block_size_tokens),
            prefill=replace(pools.prefill, tables=ahead),
            decode=replace(pools.decode, tables=after),
            spec=spec,
            server=server,
            timeout_s=load.timeout_s,
            routing=routing,
        ).result

    return _repeated(
        pools.result,
        log_sigma=larger,
        spread=spread,
        rerun=lambda factor: served(workload, factor=factor),
        reseed=lambda number: served(_reseeded(workload, number)),
        workload=workload,
    )
