"""A prefill pool and a decode pool sized for a demand: replicas and spares of each, common servers, one bill."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp

import numpy as np

from simulator.engine.lanes.load_curve import lanes
from simulator.kernels.timing import Provenance
from simulator.planner.fleet.fleet import (
    Packing,
    PoolSize,
    Sized,
    changed_answers,
    fill_servers,
    fleet_power,
    pack,
    replicas_for,
    spare_replicas,
)
from simulator.planner.money.cost import choose_offer, fleet_cost
from simulator.planner.records import Demand, Fleet, Limit, Objective, PrefillPool
from simulator.planner.serving.disaggregated import pool_latencies
from simulator.planner.serving.feasibility import Evaluated
from simulator.planner.serving.limits import DEVIATE_80, RESOURCES, OperatingSteps, limiting_resource, operating_steps
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.money.prices import PriceProfile
from simulator.specs.question.plan import PlanSpec
from simulator.units import percent_text


def _both(evaluated: Evaluated) -> tuple[Evaluated, Evaluated]:
    if evaluated.prefill is None:
        raise ValueError("a candidate with two pools is needed")
    return evaluated.prefill, evaluated


def pack_pools(counts: tuple[int, int], *, devices: tuple[int, int], devices_per_server: int) -> Packing:
    """Fewest servers that hold ``counts`` replicas of ``devices`` each, none split where one server can hold it.

    Sizes that divide one another and the server fill it without gaps, whatever the mix; others get servers of their
    own.
    """
    total = sum(count * each for count, each in zip(counts, devices, strict=True))
    if fill_servers(devices, devices_per_server=devices_per_server):
        servers = ceil(total / devices_per_server)
    else:
        apart = (
            pack(replicas=count, devices_per_replica=each, devices_per_server=devices_per_server)
            for count, each in zip(counts, devices, strict=True)
        )
        servers = sum(packing.servers or 0 for packing in apart)
    return Packing(servers=servers, idle_devices=servers * devices_per_server - total)


def _packing(evaluated: Evaluated, counts: tuple[int, int], *, round_to: str) -> Packing:
    server: ServerSpec | None = evaluated.candidate.platform.server
    if server is None or round_to == "device":
        return Packing(servers=None, idle_devices=0)
    first, second = _both(evaluated)
    return pack_pools(
        counts,
        devices=(first.replica.devices, second.replica.devices),
        devices_per_server=server.accelerators_per_server,
    )


def pool_counts(evaluated: Evaluated, *, rate_per_s: float, replicas: int | None = None) -> tuple[int, int]:
    """Prefill and decode replicas for a rate; with ``replicas`` that decode, as many times more prefill replicas."""
    first, second = (replicas_for(rate_per_s, capacity_per_s=part.replica.capacity_per_s) for part in _both(evaluated))
    return (first, second) if replicas is None else (ceil(first * replicas / second), replicas)


def size_pools(
    evaluated: Evaluated, *, demand: Demand, spec: PlanSpec, prices: PriceProfile, replicas: int | None = None
) -> Sized:
    """Replicas and spares of each pool, their servers and their cost for a demand; see ``pool_counts``.

    Money is split between prompts and answers by the devices of the pools.
    """
    needed = pool_counts(evaluated, rate_per_s=demand.planned_rate_per_s, replicas=replicas)
    pools = [
        PoolSize(replicas=count, spares=spare_replicas(part, replicas=count, spec=spec, pools=len(needed)))
        for count, part in zip(needed, _both(evaluated), strict=True)
    ]
    counts = (pools[0].replicas + pools[0].spares, pools[1].replicas + pools[1].spares)
    packing = _packing(evaluated, counts, round_to=spec.round_to)
    busy = [count * part.replica.devices for count, part in zip(counts, _both(evaluated), strict=True)]
    platform = evaluated.candidate.platform
    return Sized(
        evaluated=evaluated,
        server=platform.server,
        replicas=pools[1].replicas,
        spares=pools[1].spares,
        packing=packing,
        cost=fleet_cost(
            prices=prices,
            offer=choose_offer(prices, hardware=platform.hardware.name, kind=spec.price_kind),
            devices=sum(busy) + packing.idle_devices,
            demand=demand,
            prompt_share=busy[0] / sum(busy),
        ),
        prefill=pools[0],
    )


def _devices_at(sized: Sized, steps: tuple[OperatingSteps, OperatingSteps], *, rate: float, sign: int, to: str) -> int:
    """Devices where the steps of both pools take as much less or more as their 80 % interval says."""
    spares = (0 if sized.prefill is None else sized.prefill.spares, sized.spares)
    parts = _both(sized.evaluated)
    counts = [
        replicas_for(rate, capacity_per_s=part.replica.capacity_per_s * exp(sign * DEVIATE_80 * own.log_sigma)) + spare
        for part, own, spare in zip(parts, steps, spares, strict=True)
    ]
    packing = _packing(sized.evaluated, (counts[0], counts[1]), round_to=to)
    return sum(count * part.replica.devices for count, part in zip(counts, parts, strict=True)) + packing.idle_devices


def _prefill_limit(first: Evaluated, steps: OperatingSteps, *, objectives: tuple[Objective, ...]) -> Limit:
    """What holds a prefill replica back: an objective, or what its full steps wait for."""
    if first.replica.binding is not None:
        found = limiting_resource(first, steps, objectives=objectives)
        return replace(found, detail=f"{found.detail} (requests at random moments)")
    busy = percent_text(first.replica.utilization)
    detail = f"prompts keep a replica busy for {busy} of the time, mostly with {steps.bound}"
    return Limit(resource=RESOURCES[steps.bound], detail=detail)


def _limit(limits: tuple[Limit, Limit], parts: tuple[Evaluated, Evaluated]) -> Limit:
    """Of both pools; in one word where they share it."""
    if limits[0].resource == limits[1].resource:
        return limits[1]
    return Limit(
        resource=f"prefill: {limits[0].resource}; decode: {limits[1].resource}",
        detail=f"prefill: {limits[0].detail}; decode: {limits[1].detail}",
    )


def _prefill_pool(sized: Sized, size: PoolSize, *, rate: float, limit: Limit) -> PrefillPool:
    first, second = _both(sized.evaluated)
    transfer = second.transfer
    if transfer is None:
        raise ValueError("a candidate with two pools is needed")
    mix, each = first.curve.mix, rate / size.replicas
    count = lanes(first.replica.deployment)
    busy = transfer.load(np.array([each / count]), mix=mix)
    return PrefillPool(
        replica=first.replica,
        label=first.candidate.label,
        replicas=size.replicas,
        spares=size.spares,
        limit=limit,
        load=each / first.replica.saturation_per_s,
        link=transfer.link,
        transfer_s=transfer.prompt_s(mix),
        transfer_token_s=transfer.token_s,
        link_busy_fraction=float(busy[0]),
    )


def complete_pools(sized: Sized, *, demand: Demand, objectives: tuple[Objective, ...], spec: PlanSpec) -> Fleet:
    """Latencies at the planned rate, limits, interval and power of a sized pair of pools; see ``fleet.complete``."""
    size, evaluated, rate = sized.prefill, sized.evaluated, demand.planned_rate_per_s
    if size is None:
        raise ValueError("a candidate with two pools is needed")
    parts = _both(evaluated)
    steps = (operating_steps(parts[0]), operating_steps(parts[1]))
    limits = (
        _prefill_limit(parts[0], steps[0], objectives=objectives),
        limiting_resource(parts[1], steps[1], objectives=objectives),
    )
    low, high = (_devices_at(sized, steps, rate=rate, sign=sign, to=spec.round_to) for sign in (1, -1))
    at_peak, degraded = pool_latencies(
        evaluated,
        (rate / (sized.replicas + sized.spares), rate / sized.replicas),
        (rate / (size.replicas + size.spares), rate / size.replicas),
        objectives=objectives,
        prefill_replicas=(size.replicas + size.spares, size.replicas),
    )
    power, candidate = fleet_power(sized), evaluated.candidate
    servers = sized.packing.servers
    return Fleet(
        replica=evaluated.replica,
        label=candidate.label,
        replicas=sized.replicas,
        spares=sized.spares,
        idle_devices=sized.packing.idle_devices,
        server=sized.server if servers is not None else None,
        servers=servers,
        typical_w=power.typical_w,
        maximum_w=power.maximum_w,
        power_of=power.of,
        cost=sized.cost,
        limit=_limit(limits, parts),
        at_peak=at_peak,
        degraded=degraded,
        devices_low=low,
        devices_high=high,
        provenance=max(Provenance[step.provenance.upper()] for step in steps).label,
        log_sigma=max(step.log_sigma for step in steps),
        scheme=candidate.precision.scheme,
        quality=changed_answers(evaluated),
        prefill=_prefill_pool(sized, size, rate=rate, limit=limits[0]),
    )
