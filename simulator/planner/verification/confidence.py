"""How surely a plan keeps its promise, by the whole runs that stand behind it: of its engine, accelerator, parallel
degrees and weights. The letter comes from these runs alone: fits and intervals are forecasts themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.phases.deployment import Deployment
from simulator.planner.fleet.replica_load import meeting_chances
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.engine.deployment import parallel_text
from simulator.specs.measured.scores import ErrorScore, error_score
from simulator.specs.measured.validation_rows import ValidationRow, load_validation_table
from simulator.specs.model.precision import Dtype, scheme_word

if TYPE_CHECKING:
    from simulator.planner.capacity_plan import CapacityPlan

FEW = 5
"""Runs from which on their mean error says something. Chosen, as the bounds below are."""
BOUNDS = ((0.10, "A"), (0.15, "B"), (0.25, "C"))
"""Mean errors and the grades that they allow."""
_LETTERS = "ABCD"
LIKELY, UNLIKELY = 0.8, 0.5
"""Shares of draws from which a fleet serves, and below which it does not. Chosen: 80 % is what plans are sized for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How surely the recommended fleet keeps its promise: the one answer of report, page and summary.

    chances : that each objective holds at the planned rate with the spares down, over the draws of the step times
    letter : from A to D, what runs say of those draws; reason : the clause that defends it
    """

    chances: tuple[float, ...]
    letter: str
    reason: Note

    @property
    def chance(self) -> float:
        """Chance of the objective that is least sure; 1 where none was asked for."""
        return min(self.chances, default=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Measured runs that share something with the plan; ``score`` is None where there are none.

    names : what they share; runs : whole runs; models : that ran; sources : who measured them
    """

    names: Note
    runs: int
    models: tuple[str, ...]
    sources: tuple[str, ...]
    score: ErrorScore | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """What a replica runs, as rows of runs say it; ``mode``: in two pools, with guesses, or neither."""

    engine: str
    hardware: str
    degrees: tuple[int, ...]
    weights: str
    model_class: str
    mode: str


def _level(names: Note, rows: Sequence[ValidationRow], like: Callable[[ValidationRow], bool]) -> Evidence:
    kept = [row for row in rows if like(row)]
    return Evidence(
        names=names,
        runs=len({(row.source, row.run) for row in kept}),
        models=tuple(sorted({row.model for row in kept})),
        sources=tuple(sorted({row.source for row in kept})),
        score=error_score(kept) if kept else None,
    )


@lru_cache(maxsize=64)
def _levels(ran: _Ran) -> tuple[Evidence, ...]:
    rows = load_validation_table().rows

    def same(row: ValidationRow) -> bool:
        return (row.engine, row.hardware, row.mode) == (ran.engine, ran.hardware, ran.mode)

    mode = {"aggregated": "runs_aggregated", "disaggregated": "runs_in_pools"}.get(ran.mode, "runs_guessing")
    of = {"ran": ran, "shape": Note(mode, {"ran": ran}), "degrees": parallel_text(ran.degrees)}
    return (
        _level(
            Note("runs_alike", of),
            rows,
            lambda row: (
                same(row)
                and (row.degrees, row.model_class) == (ran.degrees, ran.model_class)
                and ran.weights == (row.scheme or row.weights)
            ),
        ),
        _level(Note("runs_of_other_degrees", of), rows, same),
        _level(
            Note("runs_of_class", of),
            rows,
            lambda row: (row.model_class, row.hardware) == (ran.model_class, ran.hardware),
        ),
        _level(Note("runs_on_hardware", of), rows, lambda row: row.hardware == ran.hardware),
        _level(Note("runs_of_engine", of), rows, lambda row: row.engine == ran.engine),
    )


def evidence_of(plan: CapacityPlan) -> tuple[Evidence, ...]:
    """Measured runs like the replica of the plan that is known worst, from the closest on."""
    return max(every_evidence(plan), key=lambda levels: _grade(levels)[0])


def every_evidence(plan: CapacityPlan) -> list[tuple[Evidence, ...]]:
    """Evidence of a replica on every kind of accelerator of the plan, of the last pool on it."""
    last = {pool.hardware: pool.replica.deployment for pool in plan.best.pools}
    pools, scheme = len(plan.best.pools), plan.best.scheme
    return [_levels(_ran(deployment, pools=pools, scheme=scheme)) for deployment in last.values()]


def _ran(deployment: Deployment, *, pools: int, scheme: str | None) -> _Ran:
    degrees, guesses = deployment.parallelism, deployment.speculation
    return _Ran(
        engine=deployment.engine.name,
        hardware=deployment.hardware.name,
        degrees=(degrees.tp_size, degrees.pp_size, degrees.ep_size, degrees.dp_size, degrees.cp_size),
        weights=_weights(deployment.plan, scheme),
        model_class=deployment.model.model_class,
        mode="disaggregated" if pools > 1 else "aggregated" if guesses is None else guesses.plan.method,
    )


def _weights(plan: PrecisionPlan, scheme: str | None) -> str:
    """Format of the weights as runs name it: four-bit floats by their scales, ``nvfp4``, integers by the scheme that
    was asked for, others by their dtype."""
    if scheme is not None and plan.weights in (Dtype.INT8, Dtype.INT4):
        return scheme_word(scheme)
    if plan.weights in (Dtype.FP4, Dtype.INT8, Dtype.INT4):
        return plan.linear.name.replace("_", "-")
    return plan.weights.value


def confidence_in(plan: CapacityPlan) -> Confidence:
    """The chances of the objectives, and how far whole runs bear them out.

    The letter goes by the mean error of the closest runs of which there are enough; a grade less for every step away
    from the plan. Replicas that do both say nothing of what two pools, or guesses, do on top.

    Runs of other degrees or formats allow B at best, of another engine C, and of other accelerators alone D; without
    any run of this class of models on this accelerator it is a grade less.
    """
    place, reason = _grade(evidence_of(plan))
    chances = meeting_chances(plan.best, objectives=plan.objectives)
    return Confidence(chances=chances, letter=_LETTERS[place], reason=reason)


def _grade(levels: tuple[Evidence, ...]) -> tuple[int, Note]:
    """The place of the letter, and what stands for it."""
    exact, kind, same_class, hardware, engine = levels
    worst = _LETTERS.index("D")
    for found, step in ((exact, 0), (kind, 1), (hardware, 2), (engine, 3)):
        if found.score is not None and found.runs >= FEW:
            mean = found.score.mean
            letter = next((letter for bound, letter in BOUNDS if mean <= bound), _LETTERS[-1])
            place = max(step, _LETTERS.index(letter) + (same_class.runs == 0))
            return min(place, worst), _defence(found, exact, same_class)
    return worst, Note("no_runs", {"hardware": hardware.names, "engine": engine.names})


def _defence(found: Evidence, exact: Evidence, same_class: Evidence) -> Note:
    of = {"found": found, "exact": exact, "same_class": same_class}
    return Note("runs_behind", {**of, "others": found is not exact, "strange": not same_class.runs})
