"""Pictures encoded on accelerators of their own, and a fleet that no longer does, against replicas that do both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import ClassVar

from simulator.engine.encoders import EncoderPool, encoder_pool, wait_percentile_s
from simulator.engine.lanes.steady_state import LatencyMetric, Objective
from simulator.engine.pools import Pool, unlike_vendors
from simulator.engine.runs.scenario_setup import server_between
from simulator.errors import InfeasibleError, Option, RoofcastError
from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import Sized, spare_replicas
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import Study
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.search import try_platforms
from simulator.planner.verification.finalists import check_fleet
from simulator.records import dataclass
from simulator.specs.engine.deployment import EncoderPoolSpec
from simulator.specs.hardware.accelerator import default_server_for

WAIT_PERCENTILE = 95.0
"""Of requests that wait for an encoder no longer than encoding takes."""
MOST_ENCODERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFleet(Study):
    """Encoders with the fleet behind them; saved is negative where both together take more than the plan.

    replicas, spares, devices, cost_per_hour : of the pool, None without a price; busy_fraction : with the spares down
    request_s, wait_p95_s, transfer_s : what a request takes there, its wait in closed form [s]
    fleet_* : the replicas that read the embeddings, within what is left of the objectives
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

    @property
    def total_per_hour(self) -> float | None:
        """Of both; None where one has no price."""
        costs = (self.cost_per_hour, self.fleet_cost_per_hour)
        return None if None in costs else sum(cost or 0.0 for cost in costs)

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Known prices by cost, then fewer devices, as fleets are ranked."""
        return self.total_per_hour is None, self.total_per_hour or 0.0, self.devices + self.fleet_devices


def _encoders(question: Question, name: str, *, shown: Sequence[Sized]) -> EncoderPool:
    """Pool of one replica on accelerators of that name, in front of the best fleet that it can send to."""
    hardware = next(iter(platforms(question.spec.model_copy(update={"hardware": (name,)})))).hardware
    deployments = [item.evaluated.parts[0].replica.deployment for item in shown]
    reached = (item for item in deployments if item.hardware.vendor == hardware.vendor)
    deployment = next(reached, deployments[0])
    reason = unlike_vendors(hardware, deployment.hardware, sent="embeddings")
    if reason:
        raise RoofcastError(
            reason,
            field=Option("encoder_hardware"),
            code="unsupported_option",
            hint="a server accelerator of the same vendor",
        )
    return encoder_pool(
        EncoderPoolSpec(replicas=1, hardware=name, link="nic"),
        hardware=hardware,
        model=question.model,
        prompt_tokens=question.demand.mix.isl.mean_tokens,
        behind=Pool(deployment=deployment, replicas=1),
        server=server_between(deployment, deployment, profiles=question.spec.profiles),
        profiles=question.spec.profiles,
    )


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


def _left(question: Question, pool: EncoderPool, *, replicas: int) -> tuple[Objective, ...]:
    """The objectives less what encoding takes of them, its percentile and the fleet's added up.

    Raises InfeasibleError: nothing is left of one.
    """
    found = []
    for item in question.objectives:
        wait_s = _wait_s(pool, question, replicas=replicas, percentile=item.percentile)
        taken_s = 0.0 if item.metric is LatencyMetric.TPOT else pool.request_s + wait_s + pool.transfer_s
        if taken_s >= item.bound_s:
            raise InfeasibleError(
                f"encoding takes {taken_s:.3g} s of {item.name}, which allows {item.bound_s:.3g} s",
                field=Option("encoder_hardware"),
                hint="a faster accelerator, or leave it out",
            )
        found.append(replace(item, bound_s=item.bound_s - taken_s))
    return tuple(found)


def _spares(pool: EncoderPool, question: Question, *, replicas: int) -> int:
    """As many as the plan's rule asks for: a number, whole servers or an availability."""
    server = default_server_for(pool.deployment.hardware.name, profiles=question.spec.profiles)
    devices = pool.deployment.parallelism.devices
    return spare_replicas(devices, server=server, replicas=replicas, spec=question.spec)


def _devices(pool: EncoderPool, replicas: int, question: Question) -> int:
    """Whole servers of them where the plan counts in servers."""
    devices = replicas * pool.deployment.parallelism.devices
    if question.spec.round_to == "device":
        return devices
    each = default_server_for(pool.deployment.hardware.name, profiles=question.spec.profiles).accelerators_per_server
    return ceil(devices / each) * each


def _fleet(context: StudyContext, name: str) -> EncoderFleet | None:
    """Encoders of one kind; None where no replicas keep what is left of the objectives."""
    question, plan = context.question, context.plan
    pool = _encoders(question, name, shown=context.shown)
    replicas = _replicas(pool, question)
    reading = question.model.model_copy(update={"vision": None})
    own = replace(question, model=reading, objectives=_left(question, pool, replicas=replicas))
    vendor = pool.deployment.hardware.vendor
    tried = tuple(item for item in platforms(question.spec) if item.hardware.vendor == vendor)
    found = sorted(try_platforms(own, tried).trial.sized, key=lambda item: item.rank)
    if not found:
        return None
    sized = check_fleet(own, found[0]).sized
    spares = _spares(pool, question, replicas=replicas)
    devices = _devices(pool, replicas + spares, question)
    price = market_price(question.prices, hardware=pool.deployment.hardware.name, rule=plan_rule(question.spec))
    made = EncoderFleet(
        hardware=pool.deployment.hardware.name,
        replicas=replicas,
        spares=spares,
        devices=devices,
        cost_per_hour=None if price is None else devices * price.per_hour,
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
        saved_devices=plan.best.devices - devices - sized.devices,
        saved_per_hour=None,
    )
    whole, total = plan.best.cost.per_hour, made.total_per_hour
    return made if whole is None or total is None else replace(made, saved_per_hour=whole - total)


def _fleets(context: StudyContext) -> Iterator[EncoderFleet]:
    for name in context.question.spec.encoder_hardware:
        found = _fleet(context, name)
        if found is not None:
            yield found


def study(context: StudyContext) -> EncoderFleet:
    """The cheapest of the kinds of encoders that were named.

    Raises InfeasibleError: with none of them the objectives hold.
    """
    found = min(_fleets(context), key=lambda item: item.rank, default=None)
    if found is None:
        raise InfeasibleError(
            "no replicas keep what encoding leaves of the objectives",
            field=Option("encoder_hardware"),
            hint="a faster accelerator, or leave it out",
        )
    return found
