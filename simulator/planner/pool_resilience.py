"""Failures in a fleet of two pools: a request needs a replica of each, so that either pool's loss is everybody's."""

from __future__ import annotations

from math import inf

from simulator.planner.availability import enough_up, replica_unavailability, spares_for
from simulator.planner.disaggregated import pool_latencies
from simulator.planner.disaggregated_fleet import pack_pools
from simulator.planner.fleet import PoolSize, Sized
from simulator.planner.records import Fleet, Objective
from simulator.planner.risk_records import Availability, LossCase
from simulator.units import SECONDS_PER_HOUR

POOLS = ("prefill", "decode")


def pool_sizes(sized: Sized) -> tuple[PoolSize, PoolSize]:
    """Replicas and spares of each pool, in the order of a request's way."""
    if sized.prefill is None:
        raise ValueError("a fleet with two pools is needed")
    return sized.prefill, PoolSize(replicas=sized.replicas, spares=sized.spares)


def pool_loss(
    sized: Sized, *, name: str, lost: tuple[int, int], rate_per_s: float, objectives: tuple[Objective, ...]
) -> LossCase:
    """The planned peak on what is left of both pools after ``lost`` prefill and decode replicas went away."""
    first, evaluated, sizes = sized.evaluated.prefill, sized.evaluated, pool_sizes(sized)
    if first is None:
        raise ValueError("a fleet with two pools is needed")
    left = tuple(max(0, size.replicas + size.spares - gone) for size, gone in zip(sizes, lost, strict=True))
    saturation = (first.replica.saturation_per_s, evaluated.replica.saturation_per_s)
    loads = tuple(rate_per_s / (up * most) if up else inf for up, most in zip(left, saturation, strict=True))
    ttft_p95_s = tpot_p95_s = e2e_p95_s = inf
    holds = False
    if max(loads) < 1:
        each = [[rate_per_s / up] for up in left]
        (at,) = pool_latencies(evaluated, each[1], each[0], objectives=objectives, prefill_replicas=left[:1])
        ttft_p95_s, tpot_p95_s, e2e_p95_s = at.ttft_p95_s, at.tpot_p95_s, at.e2e_p95_s
        holds = all(value <= item.bound_s for value, item in zip(at.objectives_s, objectives, strict=True))
    return LossCase(
        name=name,
        replicas_lost=sum(lost),
        replicas_left=sum(left),
        load=max(loads),
        ttft_p95_s=ttft_p95_s,
        tpot_p95_s=tpot_p95_s,
        e2e_p95_s=e2e_p95_s,
        holds=holds,
    )


def pool_losses(sized: Sized, fleet: Fleet) -> tuple[tuple[str, tuple[int, int]], ...]:
    """A replica of either pool, and a server that holds nothing but replicas of it, which is the worst it can hold."""
    losses: list[tuple[str, tuple[int, int]]] = []
    devices = (fleet.prefill.replica.devices if fleet.prefill else 0, fleet.replica.devices)
    for place, (pool, size, each) in enumerate(zip(POOLS, pool_sizes(sized), devices, strict=True)):
        there = size.replicas + size.spares
        named = {1: f"one {pool} replica"}
        if fleet.server is not None and fleet.servers:
            in_server = max(1, fleet.server.accelerators_per_server // max(1, each))
            named[min(in_server, there)] = f"one server of {pool}"
        losses += [(name, (gone, 0) if place == 0 else (0, gone)) for gone, name in sorted(named.items())]
    return tuple(losses)


def pool_availability(
    sized: Sized, fleet: Fleet, *, target: float, mtbf_hours: float, mttr_hours: float
) -> Availability:
    """Spares of both pools for the target, each pool up as often as the other, and both at once.

    References
    ----------
    [Trivedi2002], k-out-of-n systems in series.
    """
    first, evaluated = sized.evaluated.prefill, sized.evaluated
    if first is None:
        raise ValueError("a fleet with two pools is needed")
    counts, downs, reached, present = [], [], 1.0, 1.0
    for part, size in zip((first, evaluated), pool_sizes(sized), strict=True):
        down = replica_unavailability(devices=part.replica.devices, mtbf_hours=mtbf_hours, mttr_hours=mttr_hours)
        needed = spares_for(replicas=size.replicas, unavailability=down, target=target ** (1 / len(POOLS)))
        counts.append(size.replicas + needed)
        downs.append(down)
        reached *= enough_up(replicas=size.replicas, spares=needed, unavailability=down)
        present *= enough_up(replicas=size.replicas, spares=size.spares, unavailability=down)
    devices = (first.replica.devices, evaluated.replica.devices)
    idle = 0
    if fleet.server is not None and fleet.servers is not None:
        in_server = fleet.server.accelerators_per_server
        idle = pack_pools((counts[0], counts[1]), devices=devices, devices_per_server=in_server).idle_devices
    replicas, spares = (
        sum(size.replicas for size in pool_sizes(sized)),
        sum(size.spares for size in pool_sizes(sized)),
    )
    return Availability(
        target=target,
        mtbf_s=mtbf_hours / max(devices) * SECONDS_PER_HOUR,
        mttr_s=mttr_hours * SECONDS_PER_HOUR,
        source="",
        unavailability=max(downs),
        replicas=replicas,
        spares=sum(counts) - replicas,
        devices=sum(count * each for count, each in zip(counts, devices, strict=True)) + idle,
        achieved=reached,
        present_spares=spares,
        present_achieved=present,
        spares_each=max(count - size.replicas for count, size in zip(counts, pool_sizes(sized), strict=True)),
    )
