"""Replicas that were evaluated before: another rate, number of spares or price asks nothing new.

Other objectives or another highest load are asked of the load curves that were priced before.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import lru_cache

from simulator.engine.lengths import RequestMix
from simulator.engine.load_curve import LoadCurve
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan
from simulator.phases.step import StepEstimate
from simulator.planner.candidates import Candidate, Platform
from simulator.planner.feasibility import Evaluated, Policy, evaluate
from simulator.planner.records import Objective, Rejection
from simulator.planner.replica_curve import replica_curve
from simulator.specs.model import ModelSpec

KEPT = 512
"""Outcomes that are kept, some 60 kB each: a few questions about all accelerators."""


def _key(part: object) -> Hashable:
    """What tells one part of a candidate from another.

    Profiles count as the same only where they are the same object, which is how loaders hand out one file twice:
    comparing their contents would take as long as evaluating.
    """
    if isinstance(part, Platform):
        return id(part.hardware), id(part.server)
    if isinstance(part, Candidate):
        return tuple(_key(getattr(part, field.name)) for field in fields(part))
    assert isinstance(part, Hashable), "specs are frozen"
    return part


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """The arguments of ``evaluate``; keeps profiles alive, so that nothing else takes their place in memory."""

    candidate: Candidate
    model: ModelSpec
    mix: RequestMix
    objectives: tuple[Objective, ...]
    policy: Policy

    def _key(self) -> Hashable:
        return _key(self.candidate), id(self.model), self.mix, self.objectives, self.policy

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._key() == other._key()


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """What a load curve depends on; the deployment and its memory follow from the candidate."""

    candidate: Candidate
    model: ModelSpec
    mix: RequestMix
    profiles: str | None
    deployment: Deployment
    memory: MemoryPlan

    def _key(self) -> Hashable:
        return _key(self.candidate), id(self.model), self.mix, self.profiles

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Priced) and self._key() == other._key()


@lru_cache(maxsize=KEPT)
def _curve(priced: _Priced) -> tuple[LoadCurve, StepEstimate]:
    return replica_curve(priced.deployment, memory=priced.memory, mix=priced.mix)


@lru_cache(maxsize=KEPT)
def _outcome(asked: _Asked) -> Evaluated | Rejection:
    candidate, model, mix, policy = asked.candidate, asked.model, asked.mix, asked.policy

    def curve_of(deployment: Deployment, memory: MemoryPlan) -> tuple[LoadCurve, StepEstimate]:
        return _curve(_Priced(candidate, model, mix, policy.profiles, deployment, memory))

    return evaluate(candidate, model=model, mix=mix, objectives=asked.objectives, policy=policy, curve_of=curve_of)


def evaluate_once(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, objectives: tuple[Objective, ...], policy: Policy
) -> Evaluated | Rejection:
    """``evaluate``, remembered. The rate to carry is none of its arguments: plans that differ in it share outcomes."""
    if candidate.prefill is not None:
        # Of two pools, only the replicas that decode would be told apart.
        return evaluate(candidate, model=model, mix=mix, objectives=objectives, policy=policy)
    return _outcome(_Asked(candidate=candidate, model=model, mix=mix, objectives=objectives, policy=policy))
