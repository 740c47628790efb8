"""Replicas that were evaluated before: another rate, another number of spares or another price asks nothing new."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import lru_cache

from simulator.engine.lengths import RequestMix
from simulator.planner.candidates import Candidate, Platform
from simulator.planner.feasibility import Evaluated, Policy, evaluate
from simulator.planner.records import Objective, Rejection
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


@lru_cache(maxsize=KEPT)
def _outcome(asked: _Asked) -> Evaluated | Rejection:
    return evaluate(asked.candidate, model=asked.model, mix=asked.mix, objectives=asked.objectives, policy=asked.policy)


def evaluate_once(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, objectives: tuple[Objective, ...], policy: Policy
) -> Evaluated | Rejection:
    """``evaluate``, remembered. The rate to carry is none of its arguments: plans that differ in it share outcomes."""
    if candidate.prefill is not None:
        # Of two pools, only the replicas that decode would be told apart.
        return evaluate(candidate, model=model, mix=mix, objectives=objectives, policy=policy)
    return _outcome(_Asked(candidate=candidate, model=model, mix=mix, objectives=objectives, policy=policy))
