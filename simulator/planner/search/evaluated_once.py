"""Replicas that were evaluated are remembered, with the load curves that were priced for them.

Another rate, number of spares or price asks nothing new of a replica, and other objectives or another highest load are
asked of its load curve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Generic, TypeVar

from simulator.engine.lanes.steady_state import Objective
from simulator.planner.candidate import Candidate, Rejection
from simulator.planner.serving.replica import Policy, Prepared, prepare_all
from simulator.planner.serving.shapes import Aggregated, Shape, evaluate_prepared
from simulator.specs.base import Same
from simulator.specs.model.architecture import ModelSpec
from simulator.traffic.lengths import RequestMix

Answer = TypeVar("Answer")

KEPT = 512
"""Outcomes that are kept, some 40 kB each: a few questions about all accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A candidate and what is asked of it.

    policy : without its highest load and margin where ``objectives`` is None, which asks for the load curve only
    """

    candidate: Candidate
    model: Same[ModelSpec]
    mix: RequestMix
    objectives: tuple[Objective, ...] | None
    policy: Policy


class _Kept(Generic[Answer]):
    """KEPT answers; those that nobody asked for longest are forgotten first."""

    def __init__(self) -> None:
        self._answers: dict[_Asked, Answer] = {}
        self._lock = Lock()

    def get(self, asked: Sequence[_Asked], work_out: Callable[[list[_Asked]], list[Answer]]) -> list[Answer]:
        """Answers to all that is asked; those that are not known are worked out together."""
        known = [self._answers.get(item) for item in asked]
        missing = [item for item, answer in zip(asked, known, strict=True) if answer is None]
        new = iter(work_out(missing) if missing else [])
        answers = [next(new) if answer is None else answer for answer in known]
        with self._lock:
            for item, answer in zip(asked, answers, strict=True):
                # Asked for again it is the newest: what is evaluated beside it would push it out before it is read.
                self._answers.pop(item, None)
                self._answers[item] = answer
            while len(self._answers) > KEPT:
                del self._answers[next(iter(self._answers))]
        return answers

    def of(self, model: ModelSpec) -> dict[_Asked, Answer]:
        """What is known of one model."""
        return {asked: answer for asked, answer in self._answers.items() if asked.model.held is model}

    def add(self, answers: Mapping[_Asked, Answer]) -> None:
        """Answers that another process worked out."""
        self._answers.update(answers)


_OUTCOMES: _Kept[Aggregated | Rejection] = _Kept()
_OF_POOLS: _Kept[Shape | Rejection] = _Kept()
_PREPARED: _Kept[Prepared | Rejection] = _Kept()
Remembered = tuple[
    Mapping[_Asked, Aggregated | Rejection], Mapping[_Asked, Shape | Rejection], Mapping[_Asked, Prepared | Rejection]
]


def remembered(model: ModelSpec) -> Remembered:
    """Outcomes of a model's replicas and pools, and the load curves that were priced for them."""
    return _OUTCOMES.of(model), _OF_POOLS.of(model), _PREPARED.of(model)


def remember(found: Remembered) -> None:
    """Count as evaluated what another process evaluated."""
    outcomes, of_pools, prepared = found
    _OUTCOMES.add(outcomes)
    _OF_POOLS.add(of_pools)
    _PREPARED.add(prepared)


def _prepare(asked: list[_Asked]) -> list[Prepared | Rejection]:
    first = asked[0]
    return prepare_all([item.candidate for item in asked], model=first.model.held, mix=first.mix, policy=first.policy)


def _worked_out(asked: list[_Asked]) -> list[Aggregated | Rejection]:
    first = asked[0]
    assert first.objectives is not None
    unloaded = replace(first.policy, utilization=0.0, deviate=0.0)
    prepared = _PREPARED.get([replace(item, objectives=None, policy=unloaded) for item in asked], _prepare)
    return evaluate_prepared(prepared, objectives=first.objectives, policy=first.policy)


def _pools_worked_out(asked: list[_Asked]) -> list[Shape | Rejection]:
    from simulator.planner.serving.disaggregated import evaluate_pools

    found = list[Shape | Rejection]()
    for item in asked:
        assert item.objectives is not None
        found.append(
            evaluate_pools(
                item.candidate, model=item.model.held, mix=item.mix, objectives=item.objectives, policy=item.policy
            )
        )
    return found


def evaluate_once(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, objectives: tuple[Objective, ...], policy: Policy
) -> Shape | Rejection:
    """What a candidate sustains, remembered. The rate to carry is none of its arguments: plans that differ in it share
    outcomes.
    """
    asked = _Asked(candidate=candidate, model=Same(model), mix=mix, objectives=objectives, policy=policy)
    if len(candidate.parts) > 1:
        return _OF_POOLS.get((asked,), _pools_worked_out)[0]
    return _OUTCOMES.get((asked,), _worked_out)[0]


def evaluate_ahead(
    tried: Iterable[Candidate],
    *,
    model: ModelSpec,
    mix: RequestMix,
    objectives: tuple[Objective, ...],
    policy: Policy,
) -> None:
    """Have ``evaluate_once`` know these, no more than KEPT: worked out together, they take less time than alone."""
    asked = [_Asked(candidate=item, model=Same(model), mix=mix, objectives=objectives, policy=policy) for item in tried]
    _OUTCOMES.get(asked, _worked_out)
