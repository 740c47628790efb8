"""What a search found or refused, one kind of replica at a time, to be asked about by itself."""

from __future__ import annotations

from dataclasses import replace

from simulator.engine.pools import small_group
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.records import Candidate
from simulator.planner.serving.capacity import Role
from simulator.planner.serving.shapes import Counts, Shape
from simulator.planner.studies.stock_fleets import FleetShare
from simulator.planner.verification.simulation import LEAST_DECODING
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.techniques import TechniquesSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSetup:
    """One kind of replica of a fleet, or one that was refused.

    name : the fleet or candidate as tables write it; role : of its pool, empty where replicas do both
    replicas : of the fleet, spares aside; rate_per_s, sequences : of one of them with the spares down; all three None
    where there is no fleet
    power_cap_w : of each accelerator, None where it has none
    link : to the other pool, by its place in the servers; empty where there is none
    """

    name: str
    role: Role
    hardware: str
    parallelism: ParallelismSpec
    precision: PrecisionSpec
    engine: EngineSpec
    techniques: TechniquesSpec
    replicas: int | None = None
    rate_per_s: float | None = None
    sequences: int | None = None
    power_cap_w: float | None = None
    link: str = ""


def _setup(asked: Candidate | ScenarioSpec, *, name: str, power_cap_w: float | None) -> ReplicaSetup:
    return ReplicaSetup(
        name=name,
        role="",
        hardware=asked.hardware,
        parallelism=asked.parallelism,
        precision=asked.precision,
        engine=asked.engine,
        techniques=asked.techniques,
        power_cap_w=power_cap_w,
    )


def _link(candidate: Candidate) -> str:
    """Pools of a fleet fill servers: caches cross their network, where there is one."""
    return "scale_up" if candidate.platform.server is None else "nic"


def _setups(
    serving: Shape, counts: Counts, *, name: str, rate_per_s: float, sequences: float
) -> tuple[ReplicaSetup, ...]:
    return tuple(
        replace(
            _setup(part.candidate, name=name, power_cap_w=part.candidate.platform.hardware.power_cap_w),
            role=part.role,
            replicas=count,
            rate_per_s=rate_per_s / count,
            # A prompt of a prefill pool is computed alone; a replica of the other pool holds several at once.
            sequences=1 if part.role == "prefill" else max(round(sequences), 1),
            link=_link(part.candidate) if part.role else "",
        )
        for part, count in zip(serving.parts, counts, strict=True)
    )


def fleet_setups(plan: CapacityPlan, place: int) -> tuple[ReplicaSetup, ...]:
    """Every kind of replica of ``plan.fleets[place]``, in the order of a request's way."""
    fleet = plan.fleets[place]
    return _setups(
        plan.basis.shown[place].evaluated,
        tuple(pool.replicas for pool in fleet.pools),
        name=f"{fleet.devices:,} {fleet.hardware} {fleet.label}",
        rate_per_s=plan.demand.planned_rate_per_s,
        sequences=fleet.degraded.mean_sequences,
    )


def share_setups(share: FleetShare) -> tuple[ReplicaSetup, ...]:
    """Set-ups of one of the fleets that serve side by side where something exists, at its share of the demand."""
    (seen,) = share.serving.at_counts(share.rate_per_s, share.counts, objectives=())
    return _setups(
        share.serving,
        share.counts,
        name=f"{share.devices:,} {share.hardware} {share.label}",
        rate_per_s=share.rate_per_s,
        sequences=seen.mean_sequences,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsSetup:
    """Two pools that serve together: so many replicas of each setup, and the rate that arrives at them [1/s]."""

    prefill: ReplicaSetup
    decode: ReplicaSetup
    prefill_replicas: int
    decode_replicas: int
    rate_per_s: float


MOST_POOLED = 64
"""Replicas of two pools that are asked about together; of larger fleets a group of nearly their ratio, loaded alike."""


def pools_setup(prefill: ReplicaSetup, decode: ReplicaSetup) -> PoolsSetup:
    """Both pools of a fleet."""
    counts = (prefill.replicas or 1, decode.replicas or 1)
    group = small_group(counts, least=LEAST_DECODING, most=MOST_POOLED)
    return PoolsSetup(
        prefill=prefill,
        decode=decode,
        prefill_replicas=group.prefill,
        decode_replicas=group.decode,
        rate_per_s=(decode.rate_per_s or 0.0) * counts[1] * group.share,
    )


def refused_setup(candidate: Candidate) -> ReplicaSetup:
    """A candidate that no fleet is made of, on its own."""
    name = f"{candidate.hardware} {candidate.label}"
    return _setup(candidate, name=name, power_cap_w=candidate.platform.hardware.power_cap_w)


def scenario_setup(scenario: ScenarioSpec, *, name: str) -> ReplicaSetup:
    """The deployment of a scenario, with the sequences or the rate that it was asked about."""
    rate = scenario.workload.stages[0].rate_per_s if scenario.workload is not None else None
    setup = _setup(scenario, name=name, power_cap_w=scenario.power_cap_w)
    return replace(setup, rate_per_s=rate, sequences=scenario.batch_size)
