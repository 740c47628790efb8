"""What a fleet does when replicas or servers fail, are restarted, or come too late for a ramp.

Failures in a fleet of two pools: a request needs a replica of each, so that either pool's loss is everybody's.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

import numpy as np

from simulator.planner.fleet.availability import (
    DEFAULT_MTTR_HOURS,
    DEVICE_MTBF_HOURS,
    MTBF_SOURCE,
    MTTR_SOURCE,
    availability_text,
    enough_up,
    replica_unavailability,
    spares_for,
)
from simulator.planner.fleet.disaggregated_fleet import pack_pools
from simulator.planner.fleet.fleet import PoolSize, Sized
from simulator.planner.fleet.resizing import resizer
from simulator.planner.records import Fleet, Objective
from simulator.planner.search.question import Question
from simulator.planner.serving.disaggregated import pool_latencies
from simulator.planner.studies.risk_records import Availability, LoadTarget, LossCase, Maintenance, Resilience, Startup
from simulator.units import SECONDS_PER_HOUR

# From process start to the first step beside loading weights: imports, compilation, CUDA graph capture.
START_FIXED_S = 60.0
# Two periods of 15 s, the default of the Kubernetes horizontal autoscaler and of its metrics.
AUTOSCALER_LAG_S = 30.0
_START_SOURCE = "weights over the host link (storage assumed to keep up), 60 s assumed for start and graph capture"
_LAG_SOURCE = "30 s for an autoscaler that looks every 15 s"
DEFAULT_RAMP_PER_S = 0.05 / 60
_LOADS = 24
_HIGHEST_LOAD = 0.98


def loss_case(sized: Sized, *, name: str, lost: int, rate_per_s: float, objectives: tuple[Objective, ...]) -> LossCase:
    """The planned peak on what is left of replicas and spares after ``lost`` went away."""
    left = sized.replicas + sized.spares - lost
    replica = sized.evaluated.replica
    load = rate_per_s / (left * replica.saturation_per_s) if left > 0 else inf
    if load >= 1:
        return LossCase(
            name=name,
            replicas_lost=lost,
            replicas_left=max(left, 0),
            load=load,
            ttft_p95_s=inf,
            tpot_p95_s=inf,
            e2e_p95_s=inf,
            holds=False,
        )
    (at,) = sized.evaluated.latencies(rate_per_s / left, objectives=objectives)
    return LossCase(
        name=name,
        replicas_lost=lost,
        replicas_left=left,
        load=load,
        ttft_p95_s=at.ttft_p95_s,
        tpot_p95_s=at.tpot_p95_s,
        e2e_p95_s=at.e2e_p95_s,
        holds=all(value <= item.bound_s for value, item in zip(at.objectives_s, objectives, strict=True)),
    )


def availability_of(question: Question, sized: Sized, *, fleet: Fleet) -> Availability | None:
    """Spares for the availability that was asked for, None where none was."""
    spec = question.spec
    if spec.availability is None:
        return None
    mtbf_hours, mttr_hours = spec.mtbf_hours or DEVICE_MTBF_HOURS, spec.mttr_hours or DEFAULT_MTTR_HOURS
    sources = ("given" if spec.mtbf_hours else MTBF_SOURCE, "given" if spec.mttr_hours else MTTR_SOURCE)
    source = f"MTBF: {sources[0]}; MTTR: {sources[1]}"
    if sized.prefill is not None:
        target = spec.availability / 100
        found = pool_availability(sized, fleet, target=target, mtbf_hours=mtbf_hours, mttr_hours=mttr_hours)
        return replace(found, source=source)
    devices = sized.evaluated.replica.devices
    down = replica_unavailability(devices=devices, mtbf_hours=mtbf_hours, mttr_hours=mttr_hours)
    target = spec.availability / 100
    spares = spares_for(replicas=sized.replicas, unavailability=down, target=target)
    return Availability(
        target=target,
        mtbf_s=mtbf_hours / devices * SECONDS_PER_HOUR,
        mttr_s=mttr_hours * SECONDS_PER_HOUR,
        source=source,
        unavailability=down,
        replicas=sized.replicas,
        spares=spares,
        devices=int(resizer(sized).devices(sized.replicas, spares=spares)),
        achieved=enough_up(replicas=sized.replicas, spares=spares, unavailability=down),
        present_spares=sized.spares,
        present_achieved=enough_up(replicas=sized.replicas, spares=sized.spares, unavailability=down),
    )


def availability_warnings(found: Resilience) -> tuple[str, ...]:
    """A target that the spares which were asked for do not reach."""
    item = found.availability
    if item is None or item.present_achieved >= item.target:
        return ()
    planned = f"{item.present_spares} spares" if item.present_spares != 1 else "1 spare"
    flag = f"--spares {item.spares}" if item.spares_each is None else f"--spares {item.spares_each} (of each pool)"
    return (
        f"{planned} give an availability of {availability_text(item.present_achieved)}, below "
        f"{availability_text(item.target)}: that takes {flag}",
    )


def startup_of(question: Question, sized: Sized) -> Startup:
    """How late a new replica comes, and how many must run ahead of a ramp for the objectives to hold meanwhile."""
    spec = question.spec
    pools = [part.replica for part in (sized.evaluated, sized.evaluated.prefill) if part is not None]
    link = pools[0].deployment.hardware.host_link.bytes_per_s_per_direction
    load_s, fixed_s = max(replica.memory.weights_bytes for replica in pools) / link, START_FIXED_S
    if spec.startup is not None:
        load_s, fixed_s = 0.0, spec.startup
    lag_s = AUTOSCALER_LAG_S if spec.autoscaler_lag is None else spec.autoscaler_lag
    ramp = (DEFAULT_RAMP_PER_S if spec.ramp is None else spec.ramp) * question.demand.planned_rate_per_s
    sources = (
        _START_SOURCE if spec.startup is None else "start given",
        _LAG_SOURCE if spec.autoscaler_lag is None else "lag of the autoscaler given",
    )
    shown = "5 % of the peak a minute, assumed" if spec.ramp is None else "given"
    return Startup(
        load_s=load_s,
        fixed_s=fixed_s,
        lag_s=lag_s,
        ramp_per_s2=ramp,
        headroom_replicas=sum(ceil(ramp * (load_s + fixed_s + lag_s) / replica.capacity_per_s) for replica in pools),
        source=f"{', '.join(sources)}; ramp {shown}",
    )


def maintenance_of(sized: Sized, startup: Startup, *, cases: tuple[LossCase, ...]) -> Maintenance:
    """A restart of every replica, as many at a time as there are spares; a round drains, starts and loads.

    cases : what is lost and whether that holds, the restart among them; pools are restarted one after the other
    """
    own = PoolSize(replicas=sized.replicas, spares=sized.spares)
    pools = [own] if sized.prefill is None else [sized.prefill, own]
    at_once = max(1, min(pool.spares for pool in pools))
    drain_s = sized.evaluated.replica.at_capacity.e2e_p95_s
    return Maintenance(
        at_once=at_once,
        rounds=sum(ceil((pool.replicas + pool.spares) / at_once) for pool in pools),
        round_s=drain_s + startup.load_s + startup.fixed_s,
        holds=all(case.holds for case in cases),
    )


def _restarting(question: Question, sized: Sized) -> tuple[LossCase, ...]:
    """The fleet at its planned peak while as many replicas as there are spares, at least one, are down on purpose."""
    rate, objectives = question.demand.planned_rate_per_s, question.objectives
    if sized.prefill is None:
        lost = max(1, sized.spares)
        return (loss_case(sized, name="restart", lost=lost, rate_per_s=rate, objectives=objectives),)

    gone = max(1, min(sized.prefill.spares, sized.spares))
    return tuple(
        pool_loss(sized, name="restart", lost=lost, rate_per_s=rate, objectives=objectives)
        for lost in ((gone, 0), (0, gone))
    )


def _cases(question: Question, sized: Sized, fleet: Fleet, *, per_server: int) -> tuple[LossCase, ...]:
    rate, objectives = question.demand.planned_rate_per_s, question.objectives
    if sized.prefill is None:
        return tuple(
            loss_case(sized, name=name, lost=lost, rate_per_s=rate, objectives=objectives)
            for name, lost in _losses(sized, fleet, per_server=per_server)
        )

    return tuple(
        pool_loss(sized, name=name, lost=both, rate_per_s=rate, objectives=objectives)
        for name, both in pool_losses(sized, fleet)
    )


def load_target(question: Question, sized: Sized) -> LoadTarget:
    """How much load the objectives allow one replica, whatever the plan's own limit."""
    replica, objectives = sized.evaluated.replica, question.objectives
    loads = np.linspace(_HIGHEST_LOAD / _LOADS, _HIGHEST_LOAD, _LOADS)
    seen = sized.evaluated.latencies(*(loads * replica.saturation_per_s), objectives=objectives)
    bounds = np.array([item.bound_s for item in objectives])
    excess = np.array([np.array(at.objectives_s) / bounds for at in seen]).reshape(_LOADS, len(objectives))
    worst = excess.max(axis=1) if len(objectives) else np.zeros(_LOADS)
    failing = np.flatnonzero(worst > 1)
    allowed, binding = 1.0, "no objective fails below saturation"
    if len(failing):
        first = int(failing[0])
        binding = objectives[int(excess[first].argmax())].name
        low = (0.0, 0.0) if first == 0 else (loads[first - 1], worst[first - 1])
        # Between two loads the excess is taken as linear.
        allowed = float(low[0] + (1 - low[1]) / (worst[first] - low[1]) * (loads[first] - low[0]))
    return LoadTarget(
        by_objectives=allowed,
        planned=replica.utilization,
        binding=binding,
        curve=tuple((float(load), float(value)) for load, value in zip(loads, worst, strict=True)),
    )


def _losses(sized: Sized, fleet: Fleet, *, per_server: int) -> tuple[tuple[str, int], ...]:
    """What may go away, and the replicas that go with it; where two mean the same replicas, the larger one's name."""
    there = sized.replicas + sized.spares
    losses = [("one replica", 1), ("two replicas", 2)]
    losses += [("one server", per_server)] if fleet.servers else []
    losses += [("two servers", 2 * per_server)] if fleet.servers and fleet.servers > 1 else []
    named = {min(lost, there): name for name, lost in losses}
    return tuple((name, lost) for lost, name in sorted(named.items()))


def resilience_of(question: Question, sized: Sized, *, fleet: Fleet) -> Resilience:
    """Loss cases, availability, maintenance, start-up and the load that the objectives allow, for the chosen fleet."""
    pools = [fleet.replica] if fleet.prefill is None else [fleet.replica, fleet.prefill.replica]
    in_server = fleet.server.accelerators_per_server if fleet.server is not None and fleet.servers is not None else 1
    per_server, *others = (max(1, in_server // replica.devices) for replica in pools)
    startup = startup_of(question, sized)
    return Resilience(
        cases=_cases(question, sized, fleet, per_server=per_server),
        spares=sized.spares + (sized.prefill.spares if sized.prefill else 0),
        replicas_per_server=per_server,
        spares_for_one_server=per_server + sum(others),
        maintenance=maintenance_of(sized, startup, cases=_restarting(question, sized)),
        startup=startup,
        load_target=load_target(question, sized),
        availability=availability_of(question, sized, fleet=fleet),
    )


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
