"""A workload served by a prefill pool and a decode pool, as the contract wants it."""

from __future__ import annotations

from simulator.engine.runs.disaggregation import DisaggregatedResult, Pool, serve_disaggregated
from simulator.engine.runs.intervals import pools_interval
from simulator.engine.runs.served_run import (
    ServedRun,
    ServeOptions,
    check_finished,
    check_workload,
    serve_notes,
    typical_steps,
)
from simulator.errors import ProfileError, RoofcastError
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.phases.power import average_power_w
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.loading import default_server_for
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.demand import build_requests
from simulator.units import percent_text


def server_of(deployment: Deployment, *, profiles: str | None) -> ServerSpec | None:
    """The server that accelerators of this kind come in, where one is known."""
    try:
        return default_server_for(deployment.hardware.name, profiles=profiles)
    except ProfileError:
        return None


def _notes(pools: DisaggregatedResult) -> tuple[str, ...]:
    prefill, decode = pools.prefill, pools.decode
    return (
        f"{prefill.replicas} prefill replicas on {prefill.devices} and {decode.replicas} decode replicas on"
        f" {decode.devices} devices: prefill busy {percent_text(pools.prefill_busy_fraction)}, KV cache"
        f" over {pools.link} ({percent_text(pools.link_busy_fraction)} of its time)"
        f" takes {pools.transfer_mean_s:.3g} s on average",
        "batch, KV, busy time and memory are those of the decode pool",
    )


def disaggregated_run(
    prefill: Deployment,
    decode: Deployment,
    *,
    workload: WorkloadSpec,
    spec: DisaggregationSpec,
    options: ServeOptions,
    profiles: str | None = None,
) -> ServedRun:
    """Simulate ``workload`` on the pools of ``spec``, made of copies of ``prefill`` and ``decode``."""
    check_workload(workload)
    if prefill.speculation is not None:
        raise RoofcastError(
            "speculation is not modelled in a disaggregated deployment",
            field="disaggregation",
            code="unsupported_option",
        )
    server = server_of(decode, profiles=profiles)
    pools = serve_disaggregated(
        build_requests(workload, block_size_tokens=prefill.engine.block_size_tokens),
        prefill=Pool(deployment=prefill, replicas=spec.prefill_replicas),
        decode=Pool(deployment=decode, replicas=spec.decode_replicas),
        spec=spec,
        server=server,
        timeout_s=workload.timeout_s,
        routing=options.routing,
        objectives=options.objectives,
        trace_steps=options.trace_steps,
    )
    check_finished(pools.result)
    ahead, after = typical_steps(prefill, pools.result)[0], typical_steps(decode, pools.result)[1]
    interval = None
    if options.intervals:
        interval = pools_interval(
            pools, workload=workload, spec=spec, server=server, routing=options.routing, prefill=ahead, decode=after
        )
    return ServedRun(
        result=pools.result,
        replicas=1,
        prefill=ahead,
        decode=after,
        memory=memory_plan(decode),
        notes=(*serve_notes(pools.result), *_notes(pools)),
        interval=interval,
        pools=pools,
    )


def pools_power_w(run: ServedRun, pools: DisaggregatedResult) -> float:
    """Mean power of all devices of both pools [W]."""
    prefill_w = average_power_w(
        pools.prefill.deployment,
        phases=((run.prefill.weights, run.prefill.estimate),),
        busy_fraction=min(pools.prefill_busy_fraction, 1.0),
    )
    phase = run.decode or run.prefill
    decode_w = average_power_w(
        pools.decode.deployment, phases=((phase.weights, phase.estimate),), busy_fraction=run.busy_fraction
    )
    return pools.prefill.replicas * prefill_w + pools.decode.replicas * decode_w
