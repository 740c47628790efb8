"""What tiers below the cache of the chosen fleet's replicas hold, and what the fleet would take without them."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from simulator.engine.runs.kv_tiers import TierUse
from simulator.engine.runs.serving import tiers_of_run
from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import Sized
from simulator.planner.records import Study
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.search import try_platforms
from simulator.planner.verification.fleet_check import check_fleet
from simulator.planner.verification.traces import trace_check
from simulator.records import dataclass
from simulator.traffic.requests import Requests
from simulator.units import HOURS_PER_MONTH, TERA


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTiersFound(Study):
    """Tiers of a fleet, by the replayed share of one of its replicas.

    levels : the device and each tier below it; host_memory_bytes : of the servers, a replica's share, None where no
    profile knows it; replicas : spares included
    without_* : the same set-up as it is planned without tiers, prompts sent in turn; None where none holds or is priced
    stored_bytes : of all tiers of all replicas, which no price list has
    """

    key: ClassVar[str] = "kv_tiers"

    levels: tuple[TierUse, ...]
    host_memory_bytes: float | None
    replicas: int
    stored_bytes: float
    without_devices: int | None
    without_per_hour: float | None
    saved_devices: int | None
    saved_per_hour: float | None

    @property
    def worth_per_tb_month(self) -> float | None:
        """What a terabyte of them may cost a month before they save nothing; zero where they save nothing as it is."""
        if self.saved_per_hour is None:
            return None
        return max(self.saved_per_hour, 0.0) * HOURS_PER_MONTH / (self.stored_bytes / TERA)


def _share(question: Question, sized: Sized) -> tuple[TierUse, ...]:
    """Of what one of the planned replicas gets."""
    check = trace_check(question, sized.evaluated)
    requests: Requests = check.first_share(sized.replicas)
    result = check.served.run(requests)
    return tiers_of_run(check.served.deployment, result, tables=check.served.tables, replicas=1)


def _without(question: Question, sized: Sized) -> Sized | None:
    """The fleet of the same set-up without tiers, as many replicas as hold in the replay."""
    chosen = sized.evaluated.candidate
    spec = question.spec.model_copy(update={"kv_tiers": (), "hardware": (chosen.hardware,)})
    own = resolve(spec)
    found = try_platforms(own, platforms(spec)).trial.sized
    plain = replace(chosen, engine=chosen.engine.model_copy(update={"kv_tiers": None}))
    same = next((item for item in found if item.evaluated.candidate == plain), None)
    return None if same is None else check_fleet(own, same).sized


def study(context: StudyContext) -> KvTiersFound:
    """The study of the recommended fleet."""
    sized, question = context.shown[0], context.question
    candidate, without = sized.evaluated.candidate, _without(question, sized)
    engine, server = sized.evaluated.replica.deployment.engine, candidate.platform.server
    replicas = sized.replicas + sum(sized.spare)
    cost = None if without is None else without.cost.per_hour
    own = sized.cost.per_hour
    share = None
    if server is not None and server.host_memory_bytes is not None:
        share = server.host_memory_bytes * candidate.parallelism.devices / server.accelerators_per_server
    return KvTiersFound(
        levels=_share(question, sized),
        host_memory_bytes=share,
        replicas=replicas,
        stored_bytes=replicas * sum(tier.capacity_bytes for tier in engine.kv_tiers),
        without_devices=None if without is None else without.devices,
        without_per_hour=cost,
        saved_devices=None if without is None else without.devices - sized.devices,
        saved_per_hour=None if cost is None or own is None else cost - own,
    )
