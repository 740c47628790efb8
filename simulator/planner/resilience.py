"""What a fleet does when replicas or servers fail, are restarted, or come too late for a ramp."""

from __future__ import annotations

from math import ceil, inf

import numpy as np

from simulator.planner.availability import (
    DEFAULT_MTTR_HOURS,
    DEVICE_MTBF_HOURS,
    MTBF_SOURCE,
    MTTR_SOURCE,
    enough_up,
    replica_unavailability,
    spares_for,
)
from simulator.planner.fleet import Sized
from simulator.planner.records import Fleet, Objective
from simulator.planner.resizing import resizer
from simulator.planner.risk_records import Availability, LoadTarget, LossCase, Maintenance, Resilience, Startup
from simulator.planner.search import Question
from simulator.units import SECONDS_PER_HOUR

# From process start to the first step beside loading weights: imports, compilation, CUDA graph capture.
START_FIXED_S = 60.0
# Two periods of 15 s, the default of the Kubernetes horizontal autoscaler and of its metrics.
AUTOSCALER_LAG_S = 30.0
STARTUP_SOURCE = (
    "weights over the host link (storage assumed to keep up), 60 s assumed for start and graph capture, "
    "30 s for an autoscaler that looks every 15 s"
)
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


def availability_of(question: Question, sized: Sized) -> Availability | None:
    """Spares for the availability that was asked for, None where none was."""
    spec = question.spec
    if spec.availability is None:
        return None
    mtbf_hours, mttr_hours = spec.mtbf_hours or DEVICE_MTBF_HOURS, spec.mttr_hours or DEFAULT_MTTR_HOURS
    devices = sized.evaluated.replica.devices
    down = replica_unavailability(devices=devices, mtbf_hours=mtbf_hours, mttr_hours=mttr_hours)
    target = spec.availability / 100
    spares = spares_for(replicas=sized.replicas, unavailability=down, target=target)
    sources = ("given" if spec.mtbf_hours else MTBF_SOURCE, "given" if spec.mttr_hours else MTTR_SOURCE)
    return Availability(
        target=target,
        mtbf_s=mtbf_hours / devices * SECONDS_PER_HOUR,
        mttr_s=mttr_hours * SECONDS_PER_HOUR,
        source=f"MTBF: {sources[0]}; MTTR: {sources[1]}",
        unavailability=down,
        replicas=sized.replicas,
        spares=spares,
        devices=int(resizer(sized).devices(sized.replicas, spares=spares)),
        achieved=enough_up(replicas=sized.replicas, spares=spares, unavailability=down),
        present_spares=sized.spares,
        present_achieved=enough_up(replicas=sized.replicas, spares=sized.spares, unavailability=down),
    )


def startup_of(question: Question, sized: Sized) -> Startup:
    """How late a new replica comes, and how many must run ahead of a ramp for the objectives to hold meanwhile."""
    replica = sized.evaluated.replica
    link = replica.deployment.hardware.host_link.bytes_per_s_per_direction
    load_s = replica.memory.weights_bytes / link
    share_per_s = DEFAULT_RAMP_PER_S if question.spec.ramp is None else question.spec.ramp
    ramp = share_per_s * question.demand.planned_rate_per_s
    delay_s = load_s + START_FIXED_S + AUTOSCALER_LAG_S
    shown = "5 % of the peak a minute, assumed" if question.spec.ramp is None else "given"
    return Startup(
        load_s=load_s,
        fixed_s=START_FIXED_S,
        lag_s=AUTOSCALER_LAG_S,
        ramp_per_s2=ramp,
        headroom_replicas=ceil(ramp * delay_s / replica.capacity_per_s),
        source=f"{STARTUP_SOURCE}; ramp {shown}",
    )


def maintenance_of(sized: Sized, startup: Startup) -> Maintenance:
    """A restart of every replica, as many at a time as there are spares; a round drains, starts and loads."""
    at_once = max(1, sized.spares)
    drain_s = sized.evaluated.replica.at_capacity.e2e_p95_s
    return Maintenance(
        at_once=at_once,
        rounds=ceil((sized.replicas + sized.spares) / at_once),
        round_s=drain_s + startup.load_s + startup.fixed_s,
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


def resilience_of(question: Question, sized: Sized, *, fleet: Fleet) -> Resilience:
    """Loss cases, availability, maintenance, start-up and the load that the objectives allow, for the chosen fleet."""
    per_server = 1
    if fleet.server is not None and fleet.servers is not None:
        per_server = max(1, fleet.server.accelerators_per_server // fleet.replica.devices)
    rate, objectives = question.demand.planned_rate_per_s, question.objectives
    names = [("one replica", 1), ("two replicas", 2)]
    if fleet.servers is not None and per_server > 2:
        names.append(("one server", per_server))
    elif fleet.servers is not None:
        names[per_server - 1] = ("one server", per_server)
    startup = startup_of(question, sized)
    return Resilience(
        cases=tuple(
            loss_case(sized, name=name, lost=lost, rate_per_s=rate, objectives=objectives) for name, lost in names
        ),
        replicas_per_server=per_server,
        spares_for_one_server=per_server,
        maintenance=maintenance_of(sized, startup),
        startup=startup,
        load_target=load_target(question, sized),
        availability=availability_of(question, sized),
    )
