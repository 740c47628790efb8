"""Pictures encoded on accelerators of their own, and a fleet that no longer does, against replicas that do both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, sqrt
from typing import ClassVar

from simulator.engine.encoders import EncoderPool, encoder_pool, wait_percentile_s
from simulator.engine.pools import Pool, unlike_vendors
from simulator.engine.runs.scenario_setup import server_between
from simulator.errors import InfeasibleError
from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import Sized, spare_replicas
from simulator.planner.fleet.records import Housing, housing_of
from simulator.planner.gap.limits import Overrun, fleet_limits, within
from simulator.planner.money.facilities import racked
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import Platform, Study, total_of
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.search import try_platforms
from simulator.planner.verification.fleet_check import check_fleet
from simulator.planner.verification.records import Verdict
from simulator.records import dataclass
from simulator.specs.engine.deployment import EncoderPoolSpec
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.units import KILO, plain_text

WAIT_PERCENTILE = 95.0
"""Of requests that wait for an encoder no longer than encoding takes."""
MOST_ENCODERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPossible:
    """A kind of encoders with which objectives or limits do not hold; ``code`` is that of an error, ``over_budget``
    where a limit of the fleet is broken."""

    hardware: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEncoders(Study):
    """None of the kinds that were named can serve: the plan stays the one without."""

    key: ClassVar[str] = "encoder_pool"

    not_possible: tuple[NotPossible, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFleet(Study):
    """Encoders with the fleet behind them, both within the limits of the plan; saved is negative where both together
    take more than the plan.

    replicas, spares, devices, cost_per_hour : of the pool, None without a price; busy_fraction : with the spares down
    request_s, wait_p95_s, transfer_s : what a request takes there, its wait in closed form [s]
    fleet_* : the replicas that read the embeddings, within what is left of the objectives
    power_max_w : nameplate of both [W]; not_possible : the other kinds that were named
    """

    key: ClassVar[str] = "encoder_pool"

    hardware: str
    replicas: int
    spares: int
    devices: int
    cost_per_hour: float | None
    busy_fraction: float
    request_s: float
    wait_p95_s: float
    transfer_s: float
    link: str
    fleet_hardware: str
    fleet_label: str
    fleet_replicas: int
    fleet_spares: int
    fleet_devices: int
    fleet_cost_per_hour: float | None
    saved_devices: int
    saved_per_hour: float | None
    power_max_w: float
    not_possible: tuple[NotPossible, ...] = ()

    @property
    def total_per_hour(self) -> float | None:
        """Cost of encoders and fleet; None where one has no price."""
        return total_of((self.cost_per_hour, self.fleet_cost_per_hour))

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Known prices by cost, then fewer devices, as fleets are ranked."""
        return self.total_per_hour is None, self.total_per_hour or 0.0, self.devices + self.fleet_devices


def _encoders(question: Question, platform: Platform, *, shown: Sequence[Sized]) -> EncoderPool:
    """Pool of one replica on such accelerators, in front of the best fleet that it can send to.

    Raises InfeasibleError: nothing is left beside the encoder; it reaches no fleet.
    """
    hardware = platform.hardware
    deployments = [item.evaluated.parts[0].replica.deployment for item in shown]
    reached = (item for item in deployments if item.hardware.vendor == hardware.vendor)
    deployment = next(reached, deployments[0])
    reason = unlike_vendors(hardware, deployment.hardware, sent="embeddings")
    if reason:
        raise InfeasibleError(reason, code="unsupported_option")
    return encoder_pool(
        EncoderPoolSpec(replicas=1, hardware=hardware.name, link="nic"),
        hardware=hardware,
        model=question.model,
        prompt_tokens=question.demand.mix.isl.mean_tokens,
        behind=Pool(deployment=deployment, replicas=1),
        server=server_between(deployment, deployment, profiles=question.spec.profiles),
        profiles=question.spec.profiles,
    )


def _over_budget(part: str, taken: float | None, *, of: str) -> InfeasibleError:
    takes = "an unknown part" if taken is None else plain_text(taken)
    return InfeasibleError(f"{part} take {takes} of the {of}", code="over_budget")


def _wait_s(pool: EncoderPool, question: Question, *, replicas: int, percentile: float = WAIT_PERCENTILE) -> float:
    """What requests at the planned rate wait for one of so many encoders [s]."""
    return wait_percentile_s(
        rate_per_s=question.demand.planned_rate_per_s, service_s=pool.request_s, servers=replicas, percentile=percentile
    )


def _replicas(pool: EncoderPool, question: Question) -> int:
    """The fewest below the plan's highest load for which few wait longer than encoding takes."""
    least = ceil(question.demand.planned_rate_per_s * pool.request_s / question.policy.utilization)
    tried = range(max(least, 1), least + MOST_ENCODERS)
    return next(replicas for replicas in tried if _wait_s(pool, question, replicas=replicas) <= pool.request_s)


def _left(question: Question, pool: EncoderPool, *, replicas: int) -> tuple[ObjectiveSpec, ...]:
    """The objectives less what encoding takes of them, its percentile and the fleet's added up.

    Raises InfeasibleError: nothing is left of one.
    """
    found = []
    for item in question.objectives:
        wait_s = _wait_s(pool, question, replicas=replicas, percentile=item.percentile)
        taken_s = 0.0 if item.metric is LatencyMetric.TPOT else pool.request_s + wait_s + pool.transfer_s
        if taken_s >= item.bound_s:
            raise InfeasibleError(f"encoding takes {taken_s:.3g} s of {item.name}, which allows {item.bound_s:.3g} s")
        found.append(item.within(item.bound_s - taken_s))
    return tuple(found)


def _halved(spec: PlanSpec) -> PlanSpec:
    """For each of encoders and replicas, which have to be up together: the root of what both are to be."""
    if spec.availability is None:
        return spec
    return spec.model_copy(update={"availability": 100 * sqrt(spec.availability / 100)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoders:
    """Sized for the planned rate: of it the limits of the fleet behind are what it leaves."""

    pool: EncoderPool
    replicas: int
    spares: int
    housing: Housing
    cost_per_hour: float | None
    racks: int | None

    def rest(self, question: Question) -> PlanSpec:
        """The plan with the limits that are left. Raises InfeasibleError: nothing is left of one."""
        taken = {
            "max_gpus": self.housing.devices,
            "max_cost_per_hour": self.cost_per_hour,
            "max_power_kw": self.housing.maximum_w / KILO,
            "max_racks": self.racks,
        }
        left = {}
        for limit in fleet_limits(question):
            own, allowed = taken[limit.field], getattr(question.spec, limit.field)
            if own is None or own >= allowed:
                raise _over_budget("encoders alone", own, of=f"{plain_text(allowed)} {limit.unit} allowed")
            left[limit.field] = allowed - own
        return question.spec.model_copy(update=left)


def _sized_pool(pool: EncoderPool, platform: Platform, *, question: Question) -> _Encoders:
    """With the plan's rule for spares, in whole servers where the plan counts in servers."""
    spec, server, devices = question.spec, platform.server, pool.deployment.parallelism.devices
    replicas = _replicas(pool, question)
    spares = spare_replicas(devices, server=server, replicas=replicas, spec=_halved(spec))
    housing = housing_of(platform, (replicas + spares,), devices=(devices,), round_to=spec.round_to)
    price = market_price(question.prices, hardware=platform.hardware.name, rule=plan_rule(spec))
    racks = None
    if spec.max_racks is not None and server is not None and housing.servers is not None:
        racks = racked(server, platform.hardware, servers=housing.servers, ownership=question.ownership).racks
    return _Encoders(
        pool=pool,
        replicas=replicas,
        spares=spares,
        housing=housing,
        cost_per_hour=None if price is None else housing.devices * price.per_hour,
        racks=racks,
    )


def _behind(question: Question, encoders: _Encoders) -> Sized:
    """The best fleet for what encoding leaves of objectives and limits. Raises InfeasibleError: there is none."""
    objectives = _left(question, encoders.pool, replicas=encoders.replicas)
    own = replace(
        question,
        spec=_halved(encoders.rest(question)),
        model=question.model.model_copy(update={"vision": None}),
        objectives=objectives,
    )
    vendor = encoders.pool.deployment.hardware.vendor
    tried = tuple(item for item in platforms(question.spec) if item.hardware.vendor == vendor)
    found = sorted(try_platforms(own, tried).trial.sized, key=lambda item: item.rank)
    if not found:
        raise InfeasibleError("no replica meets the objectives in the time that encoding leaves")
    allowed = within(fleet_limits(own), found)
    if not allowed:
        least = min(found, key=Overrun(limits=fleet_limits(own)).order)
        broken = next(limit for limit in fleet_limits(own) if not limit.holds(least))
        left = f"{plain_text(broken.allowed)} {broken.unit} that encoders leave"
        raise _over_budget("replicas", broken.taken(least), of=left)
    checked = check_fleet(own, allowed[0])
    if checked.verdict is Verdict.BEYOND_LIMITS:
        left = " and ".join(f"{plain_text(limit.allowed)} {limit.unit}" for limit in fleet_limits(own))
        raise InfeasibleError(f"replicas need more, simulated, than the {left} that encoders leave", code="over_budget")
    return checked.sized


def _fleet(question: Question, platform: Platform, *, shown: Sequence[Sized]) -> EncoderFleet:
    """Encoders of one kind, against the first of the fleets ``shown``.

    Raises InfeasibleError: they, or no replicas behind them, keep objectives and limits.
    """
    pool = _encoders(question, platform, shown=shown)
    encoders = _sized_pool(pool, platform, question=question)
    sized, replicas = _behind(question, encoders), encoders.replicas
    devices = encoders.housing.devices
    made = EncoderFleet(
        hardware=platform.hardware.name,
        replicas=replicas,
        spares=encoders.spares,
        devices=devices,
        cost_per_hour=encoders.cost_per_hour,
        busy_fraction=question.demand.planned_rate_per_s * pool.request_s / replicas,
        request_s=pool.request_s,
        wait_p95_s=_wait_s(pool, question, replicas=replicas),
        transfer_s=pool.transfer_s,
        link=pool.link,
        fleet_hardware=sized.evaluated.candidate.hardware,
        fleet_label=sized.evaluated.candidate.label,
        fleet_replicas=sum(sized.counts),
        fleet_spares=sum(sized.spare),
        fleet_devices=sized.devices,
        fleet_cost_per_hour=sized.cost.per_hour,
        saved_devices=shown[0].devices - devices - sized.devices,
        saved_per_hour=None,
        power_max_w=encoders.housing.maximum_w + sized.maximum_w,
    )
    whole, total = shown[0].cost.per_hour, made.total_per_hour
    return made if whole is None or total is None else replace(made, saved_per_hour=whole - total)


def best_encoders(question: Question, shown: Sequence[Sized]) -> EncoderFleet | NoEncoders:
    """The cheapest of the kinds of encoders that were named, against the first of the fleets ``shown``, and why others
    keep no objectives and limits."""
    spec, found, refused = question.spec, list[EncoderFleet](), list[NotPossible]()
    for platform in platforms(spec.model_copy(update={"hardware": spec.encoder_hardware})):
        try:
            found.append(_fleet(question, platform, shown=shown))
        except InfeasibleError as error:
            refused.append(NotPossible(hardware=platform.hardware.name, code=error.code, reason=error.message))
    if not found:
        return NoEncoders(not_possible=tuple(refused))
    return replace(min(found, key=lambda item: item.rank), not_possible=tuple(refused))


def study(context: StudyContext) -> EncoderFleet | NoEncoders:
    """``best_encoders`` beside the plan."""
    return best_encoders(context.question, context.shown)


def closing_encoders(question: Question, ranked: Sequence[Sized]) -> str:
    """What keeps the limits with encoders of their own where no fleet does without; empty where nothing does."""
    found = best_encoders(question, ranked)
    if isinstance(found, NoEncoders):
        return ""
    cost = "" if found.total_per_hour is None else f", {plain_text(found.total_per_hour)} {question.prices.currency}/h"
    return (
        f"encoders of their own hold them: {found.devices} x {found.hardware} in front of {found.fleet_devices} x "
        f"{found.fleet_hardware} {found.fleet_label}{cost}, which a plan within larger limits shows in full"
    )
