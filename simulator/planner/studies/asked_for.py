"""What is worked out beside a plan: each study that its question asks for, whose module is imported only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from simulator.planner.capacity_plan import KEYS, KINDS, STOCK, CapacityPlan, StudyContext, StudyKind
from simulator.planner.fleet.fleet import Sized
from simulator.planner.search.question import Question
from simulator.specs.question.plan import PlanSpec


def _module_of(kind: StudyKind) -> Any:
    if kind.module:
        return import_module(f"simulator.planner.{kind.module}")
    return import_module(f"simulator.planner.studies.{kind.key}")


def with_studies(
    plan: CapacityPlan, question: Question, *, shown: Sequence[Sized], allowed: Sequence[Sized] = ()
) -> CapacityPlan:
    """``plan`` with every study that its question asks for and that it lacks.

    shown : the best fleet of every accelerator, best first
    allowed : fleets within the limits, best first; without any, only studies of every report are made
    """
    there, spec = {item.key for item in plan.studies}, question.spec
    for kind in KINDS:
        left_out = kind.key in there or (kind.of_serving and spec.stock) or not (allowed or kind.in_reports)
        if left_out or not kind.asked(spec):
            continue
        context = StudyContext(plan=plan, question=question, shown=tuple(shown), allowed=tuple(allowed))
        made = _module_of(kind).study(context)
        if made is not None:
            ordered = sorted((*plan.studies, made), key=lambda item: KEYS.index(item.key))
            plan = replace(plan, studies=tuple(ordered), warnings=(*plan.warnings, *made.warnings))
    return _with_parts(plan, spec)


def _with_parts(plan: CapacityPlan, spec: PlanSpec) -> CapacityPlan:
    """``plan`` with each fleet that serves side by side, and what ``spec`` asks of it, where something exists."""
    alone = _module_of(STOCK).parts(plan, spec) if spec.stock else ()
    parts = tuple(with_studies(part, part.basis.question, shown=part.basis.shown) for part in alone)
    warned = [item for part in parts for item in part.warnings if item not in plan.warnings]
    return replace(plan, parts=parts, warnings=(*plan.warnings, *warned)) if parts else plan
