"""The studies beside a plan: which question asks for each, and where it is computed. Each is imported only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

from simulator.planner.capacity_plan import CapacityPlan, StudyContext
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized
from simulator.planner.records import Study
from simulator.planner.search.question import Question
from simulator.records import dataclass
from simulator.specs.question.plan import PlanSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKind:
    """A kind of study.

    key : of its record (``Study.key``); asked : whether a question wants it
    module : has ``study(context)``, which returns the record, or None where there is no answer
    in_reports : every report has it, so it can be made later from the shown fleets alone
    """

    key: str
    module: str
    asked: Callable[[PlanSpec], bool]
    in_reports: bool = False

    def study(self, context: StudyContext) -> Study | None:
        """Compute it."""
        made: Study | None = import_module(f"simulator.planner.{self.module}").study(context)
        return made


KINDS = (
    StudyKind(key="pareto", module="studies.pareto", asked=lambda spec: spec.pareto),
    StudyKind(key="gap", module="gap.closing", asked=lambda spec: spec.explain_gap),
    StudyKind(key="stock", module="studies.stock", asked=lambda spec: bool(spec.stock)),
    StudyKind(
        key="measured_rate",
        module="studies.measured_rate",
        asked=lambda spec: spec.measured_rps_per_gpu is not None,
    ),
    StudyKind(key="length_split", module="studies.length_split", asked=lambda spec: spec.pools),
    StudyKind(
        key="resilience",
        module="studies.resilience",
        asked=lambda spec: spec.resilience or spec.availability is not None,
        in_reports=True,
    ),
    StudyKind(key="growth", module="studies.growth", asked=lambda spec: spec.growth is not None, in_reports=True),
    StudyKind(key="rental", module="studies.rental", asked=lambda spec: spec.rental, in_reports=True),
    StudyKind(key="uncertainty", module="studies.uncertainty", asked=lambda spec: spec.uncertainty, in_reports=True),
)
"""Every study, in the order in which they are computed and listed."""

KEYS = tuple(kind.key for kind in KINDS)


def has_studies(spec: PlanSpec) -> bool:
    """Whether anything beside the plan was asked for."""
    return bool(spec.verify) or replays_trace(spec) or any(kind.asked(spec) for kind in KINDS)


def _with_study(plan: CapacityPlan, made: Study | None) -> CapacityPlan:
    if made is None:
        return plan
    ordered = sorted((*plan.studies, made), key=lambda item: KEYS.index(item.key))
    return replace(plan, studies=tuple(ordered), warnings=(*plan.warnings, *made.warnings))


def with_studies(
    plan: CapacityPlan, question: Question, *, shown: Sequence[Sized], allowed: Sequence[Sized]
) -> CapacityPlan:
    """``plan`` with every study that its question asks for.

    allowed : fleets within the limits, best first; shown : the best of every accelerator, best first
    """
    for kind in KINDS:
        if kind.asked(question.spec):
            context = StudyContext(plan=plan, question=question, shown=tuple(shown), allowed=tuple(allowed))
            plan = _with_study(plan, kind.study(context))
    return plan


def with_report_studies(plan: CapacityPlan, question: Question, *, shown: Sequence[Sized]) -> CapacityPlan:
    """``plan`` with the studies of every report that it lacks and ``question`` asks for."""
    there = {item.key for item in plan.studies}
    for kind in KINDS:
        if kind.in_reports and kind.key not in there and kind.asked(question.spec):
            context = StudyContext(plan=plan, question=question, shown=tuple(shown))
            plan = _with_study(plan, kind.study(context))
    return plan


def only_asked(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` without the studies that its question does not ask for."""
    wanted = {kind.key for kind in KINDS if kind.asked(plan.spec)}
    return replace(plan, studies=tuple(item for item in plan.studies if item.key in wanted))
