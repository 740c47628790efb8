"""What a fleet does when replicas or servers fail, are restarted, or come too late for a ramp."""

from __future__ import annotations

from dataclasses import field, replace
from math import ceil, inf
from typing import ClassVar

import numpy as np

from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.availability import (
    DEFAULT_MTTR_HOURS,
    DEVICE_MTBF_HOURS,
    enough_up,
    replica_unavailability,
    spares_for,
)
from simulator.planner.fleet.fleet import Sized, housed
from simulator.planner.fleet.records import Housing
from simulator.planner.money.facilities import racked
from simulator.planner.records import Study
from simulator.planner.search.question import Question
from simulator.planner.serving.replica import Part
from simulator.planner.serving.shapes import Counts
from simulator.records import INSIDE, dataclass
from simulator.specs.base import Note
from simulator.specs.money.ownership import OwnershipProfile
from simulator.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCase:
    """A fleet after something went away, at the planned peak.

    name : ``one replica``, ``one server``, ...; of_server : that is what one holds; replicas_lost, replicas_left
    load : share of saturation of those left; the latencies are infinite where they are overloaded
    holds : every objective is still met
    """

    name: str
    replicas_lost: int
    replicas_left: int
    load: float
    ttft_p95_s: float = inf
    tpot_p95_s: float = inf
    e2e_p95_s: float = inf
    objectives_s: tuple[float, ...] = ()
    holds: bool = False
    of_server: bool = field(default=False, metadata=INSIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Spares for a target: at least ``replicas`` of ``replicas + spares`` are up a share ``achieved`` of the time.

    mtbf_s, mttr_s : of one replica (of all its accelerators and its share of a server); source : where they come from
    unavailability : MTTR / (MTBF + MTTR) of one replica; spares, devices : needed for the target
    present_achieved : with the spares that the plan has
    spares_each : what --spares has to say with two pools, whose spares the others sum; None with one pool
    """

    target: float
    mtbf_s: float
    mttr_s: float
    source: Note
    unavailability: float
    replicas: int
    spares: int
    devices: int
    achieved: float
    present_spares: int
    present_achieved: float
    spares_each: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """From the decision to add a replica to its first answer, and what that asks of a ramp.

    load_s : weights over the host link; fixed_s : process, compilation, CUDA graphs; lag_s : of the autoscaler
    ramp_per_s2 : growth of the rate that is planned for [1/s^2]; headroom_replicas : running ahead of the demand
    """

    load_s: float
    fixed_s: float
    lag_s: float
    ramp_per_s2: float
    headroom_replicas: int
    source: Note

    @property
    def delay_s(self) -> float:
        """Decision to first answer [s]."""
        return self.load_s + self.fixed_s + self.lag_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Rolling restart of every replica: ``at_once`` of them down at a time, ``rounds`` of ``round_s`` each.

    holds : every objective is met meanwhile, even at the planned peak
    """

    at_once: int
    rounds: int
    round_s: float
    holds: bool

    @property
    def total_s(self) -> float:
        """The whole fleet [s]."""
        return self.rounds * self.round_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """How far a replica may be loaded: what the objectives allow, and what the plan took.

    by_objectives : share of the saturation rate at which the first objective fails (1 where none does)
    planned : share that the plan uses; binding : name of that objective, empty where none fails below saturation
    curve : (share of saturation, worst objective over its bound) pairs, for the load-latency chart
    """

    by_objectives: float
    planned: float
    binding: str
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resilience(Study):
    """What happens when replicas, servers or time go wrong. Parts that were not asked for are None.

    spares : that the plan has; spares_for_one_server : for N+1 by server; both count all pools, replicas_per_server the
    one that decodes; each_per_server, each_spares : of every pool
    """

    key: ClassVar[str] = "resilience"

    cases: tuple[LossCase, ...]
    spares: int
    replicas_per_server: int
    spares_for_one_server: int
    each_per_server: Counts
    each_spares: Counts
    maintenance: Maintenance
    startup: Startup
    load_target: LoadTarget
    availability: Availability | None

    @property
    def warnings(self) -> tuple[Note, ...]:
        """A target that the spares which were asked for do not reach."""
        item = self.availability
        if item is None or item.present_achieved >= item.target:
            return ()
        needed = item.spares if item.spares_each is None else item.spares_each
        return (Note("availability_missed", {"found": item, "needed": needed, "each": item.spares_each is not None}),)


# Two periods of 15 s, the default of the Kubernetes horizontal autoscaler and of its metrics.
AUTOSCALER_LAG_S = 30.0
# From process start to the first step beside loading weights: imports, compilation, CUDA graph capture.
START_FIXED_S = 60.0
DEFAULT_RAMP_PER_S = 0.05 / 60
_LOADS = 24
_HIGHEST_LOAD = 0.98


def loss_case(question: Question, sized: Sized, *, name: str, lost: Counts, of_server: bool = False) -> LossCase:
    """The planned peak on what is left of replicas and spares after ``lost`` of each part went away."""
    shape, rate, objectives = sized.evaluated, question.demand.planned_rate_per_s, question.objectives
    left = tuple(max(0, total - gone) for total, gone in zip(sized.totals, lost, strict=True))
    load = shape.load(rate, left)
    gone = sum(lost)
    case = LossCase(name=name, replicas_lost=gone, replicas_left=sum(left), load=load, of_server=of_server)
    if load >= 1:
        return replace(case, objectives_s=(inf,) * len(objectives))
    (at,) = shape.at_counts(rate, left, objectives=objectives)
    holds = all(value <= item.bound_s for value, item in zip(at.objectives_s, objectives, strict=True))
    names = ("ttft_p95_s", "tpot_p95_s", "e2e_p95_s", "objectives_s")
    return replace(case, holds=holds, **{name: getattr(at, name) for name in names})


def availability_of(question: Question, sized: Sized) -> Availability | None:
    """Spares for the availability that was asked for, None where none was.

    Of two pools each is up as often as the other, and both at once.

    Reference: [Trivedi2002], k-out-of-n systems in series.
    """
    spec, shape = question.spec, sized.evaluated
    if spec.availability is None:
        return None
    target = spec.availability / 100
    mtbf_hours, mttr_hours = spec.mtbf_hours or DEVICE_MTBF_HOURS, spec.mttr_hours or DEFAULT_MTTR_HOURS
    needed, downs, reached, present = [], [], 1.0, 1.0
    for part, count, spares in zip(shape.parts, sized.counts, sized.spare, strict=True):
        down = replica_unavailability(devices=part.replica.devices, mtbf_hours=mtbf_hours, mttr_hours=mttr_hours)
        wanted = spares_for(replicas=count, unavailability=down, target=target ** (1 / len(shape.parts)))
        needed.append(wanted)
        downs.append(down)
        reached *= enough_up(replicas=count, spares=wanted, unavailability=down)
        present *= enough_up(replicas=count, spares=spares, unavailability=down)
    totals = tuple(count + wanted for count, wanted in zip(sized.counts, needed, strict=True))
    return Availability(
        target=target,
        mtbf_s=mtbf_hours / max(part.replica.devices for part in shape.parts) * SECONDS_PER_HOUR,
        mttr_s=mttr_hours * SECONDS_PER_HOUR,
        source=Note("failures", {"mtbf": bool(spec.mtbf_hours), "mttr": bool(spec.mttr_hours)}),
        unavailability=max(downs),
        replicas=sum(sized.counts),
        spares=sum(needed),
        devices=sum(item.devices for item in housed(shape, totals, round_to=spec.round_to)),
        achieved=reached,
        present_spares=sum(sized.spare),
        present_achieved=present,
        spares_each=max(needed) if len(needed) > 1 else None,
    )


def startup_of(question: Question, sized: Sized) -> Startup:
    """How late a new replica comes, and how many must run ahead of a ramp for the objectives to hold meanwhile."""
    spec = question.spec
    pools = [part.replica for part in sized.evaluated.parts]
    loads_s = (
        replica.memory.weights_bytes / replica.deployment.hardware.host_link.bytes_per_s_per_direction
        for replica in pools
    )
    load_s, fixed_s = max(loads_s), START_FIXED_S
    if spec.startup is not None:
        load_s, fixed_s = 0.0, spec.startup
    lag_s = AUTOSCALER_LAG_S if spec.autoscaler_lag is None else spec.autoscaler_lag
    ramp = (DEFAULT_RAMP_PER_S if spec.ramp is None else spec.ramp) * question.demand.planned_rate_per_s
    given = {name: getattr(spec, name) is not None for name in ("startup", "autoscaler_lag", "ramp")}
    return Startup(
        load_s=load_s,
        fixed_s=fixed_s,
        lag_s=lag_s,
        ramp_per_s2=ramp,
        headroom_replicas=sum(ceil(ramp * (load_s + fixed_s + lag_s) / replica.capacity_per_s) for replica in pools),
        source=Note("startup", given),
    )


def maintenance_of(sized: Sized, startup: Startup, *, cases: tuple[LossCase, ...]) -> Maintenance:
    """A restart of every replica, as many at a time as there are spares; a round drains, starts and loads.

    cases : what is lost and whether that holds, the restart among them; pools are restarted one after the other
    """
    at_once = max(1, min(sized.spare))
    drain_s = sized.evaluated.replica.at_capacity.e2e_p95_s
    return Maintenance(
        at_once=at_once,
        rounds=sum(ceil(total / at_once) for total in sized.totals),
        round_s=drain_s + startup.load_s + startup.fixed_s,
        holds=all(case.holds for case in cases),
    )


def _only(sized: Sized, place: int, lost: int) -> Counts:
    """So many replicas of one part and none of the others."""
    return tuple(lost if part == place else 0 for part in range(len(sized.counts)))


def _restarting(question: Question, sized: Sized) -> tuple[LossCase, ...]:
    """The fleet at its planned peak while as many replicas as there are spares, at least one, are down on purpose."""
    gone = max(1, min(sized.spare))
    return tuple(
        loss_case(question, sized, name="restart", lost=_only(sized, place, gone)) for place in range(len(sized.counts))
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
    allowed, binding = 1.0, ""
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


def _losses(question: Question, sized: Sized) -> tuple[LossCase, ...]:
    """What may go away with its replicas; where two mean the same replicas, the larger one's name. Of the only kind of
    replica one or two, one or two servers, and a rack of several; of a pool one, and a server and a rack that hold
    nothing else, which is the worst they can hold."""
    parts, cases = sized.evaluated.parts, list[LossCase]()
    numbers = {1: "one", 2: "two"} if len(parts) == 1 else {1: "one"}
    for place, (part, there) in enumerate(zip(parts, sized.totals, strict=True)):
        named = {
            min(count, there): f"{number} {part.role} replica".replace("  ", " ") + "s" * (count > 1)
            for count, number in numbers.items()
        }
        in_servers = _in_server(sized, part)
        for count, number in numbers.items():
            if in_servers is not None and (sized.servers or 0) >= count:
                of = f" of {part.role}" if part.role else ""
                named[min(count * in_servers, there)] = f"{number} server{'s' * (count > 1)}{of}"
        in_rack = _in_rack(sized, part, question.ownership)
        if in_rack > 0:
            named[min(in_rack, there)] = f"one rack{f' of {part.role}' if part.role else ''}"
        whole = None if in_servers is None else min(in_servers, there)
        cases += [
            loss_case(question, sized, name=name, lost=_only(sized, place, gone), of_server=gone == whole)
            for gone, name in sorted(named.items())
        ]
    return tuple(cases)


def _housing(sized: Sized, part: Part) -> Housing:
    return next(item for item in sized.housing if item.hardware == part.candidate.hardware)


def _in_rack(sized: Sized, part: Part, ownership: OwnershipProfile) -> int:
    """Replicas of a part that have a device in a full rack of several servers, or in all where they are fewer; those of
    one replica stand side by side. None where a server fills a rack, or where single devices are bought."""
    own, accelerator, in_server = _housing(sized, part), part.replica.deployment.hardware, _in_server(sized, part)
    if own.server is None or own.servers is None or in_server is None:
        return 0
    fitting = racked(own.server, accelerator, servers=own.servers, ownership=ownership)
    servers, each = min(fitting.per_rack, own.servers), ceil(part.replica.devices / own.server.accelerators_per_server)
    return ceil(servers / each) * in_server if servers > 1 else 0


def _in_server(sized: Sized, part: Part) -> int | None:
    """Replicas of a part that share a server, at least one; None where single devices are bought."""
    own = _housing(sized, part)
    if own.server is None or own.servers is None:
        return None
    return max(1, own.server.accelerators_per_server // part.replica.devices)


def resilience_of(question: Question, sized: Sized) -> Resilience:
    """Loss cases, availability, maintenance, start-up and the load that the objectives allow, for the chosen fleet."""
    per_server = [_in_server(sized, part) or 1 for part in sized.evaluated.parts]
    startup = startup_of(question, sized)
    return Resilience(
        cases=_losses(question, sized),
        spares=sum(sized.spare),
        replicas_per_server=per_server[-1],
        spares_for_one_server=sum(per_server),
        each_per_server=tuple(per_server),
        each_spares=sized.spare,
        maintenance=maintenance_of(sized, startup, cases=_restarting(question, sized)),
        startup=startup,
        load_target=load_target(question, sized),
        availability=availability_of(question, sized),
    )


def study(context: StudyContext) -> Resilience:
    """What the recommended fleet does when parts of it go wrong."""
    return resilience_of(context.question, context.shown[0])
