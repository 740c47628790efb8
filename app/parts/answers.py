"""Answers of the library, kept for as long as their question stays the same; the long ones are made by workers."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock, get_ident
from typing import Any

import streamlit as st

from app.fields.question import prices as asked_prices
from app.hosting import turns, work
from app.hosting.work import Planned, ServedAnswer
from app.hosting.workers import CREW, PATIENT
from simulator.api.explanations import ExplainAnswer, explain
from simulator.api.published import PublishedAnswer, published
from simulator.api.steps import step
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.load_sweep import LoadSweep
from simulator.phases.deployment import Deployment
from simulator.phases.step import StepEstimate
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.replica_load import LatencyRange
from simulator.planner.largest_demand import DemandField, LargestDemand
from simulator.planner.what_if import TechniqueStep, WhatIf, run_cost, technique_steps
from simulator.reports.answer import result_object
from simulator.reports.decide.decision import PlanVerdict
from simulator.reports.formats.files import ReportFormat
from simulator.reports.studies import Studies
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.scenario import ScenarioSpec

_MOST_RESIZED = _MOST_CHECKS = 100
_CHECKS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="check")
"""Simulates one fleet at a time, while pages stay free for the next question."""
_BEGUN = Lock()
"""Held while the fleets that are simulated change: two visitors with one question begin one simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """A what-if and the JSON object that ``roofcast simulate`` prints for it."""

    what_if: WhatIf
    document: dict[str, Any]


@st.cache_resource(max_entries=500, show_spinner=False)
def _result(question: str, profiles: str | None, _scenario: ScenarioSpec) -> ScenarioResult:
    return answer(_scenario, profiles=profiles)


@st.cache_resource(max_entries=500, show_spinner=False)
def _answered(question: str, profiles: str | None, prices: str, _scenario: ScenarioSpec) -> WhatIfAnswer:
    result = _result(question, profiles, _scenario)
    found = WhatIf(scenario=_scenario, result=result, cost=run_cost(result, prices=prices, profiles=profiles))
    return WhatIfAnswer(what_if=found, document=result_object(result))


def answered(scenario: ScenarioSpec, *, profiles: str | None) -> WhatIfAnswer:
    """The answer to a scenario, at the prices of the question; refusals are raised."""
    return _answered(scenario.model_dump_json(), profiles, asked_prices(), scenario)


@st.cache_resource(max_entries=200, show_spinner=False)
def _steps(question: str, profiles: str | None, _scenario: ScenarioSpec) -> tuple[TechniqueStep, ...]:
    return technique_steps(
        _scenario, profiles=profiles, answered=lambda step: _result(step.model_dump_json(), profiles, step)
    )


def technique_answers(scenario: ScenarioSpec, *, profiles: str | None) -> tuple[TechniqueStep, ...]:
    """The scenario's techniques, one more at a time."""
    return _steps(scenario.model_dump_json(), profiles, scenario)


@st.cache_resource(max_entries=100, show_spinner=False)
def _planned(question: str, _spec: PlanSpec) -> Planned:
    return CREW.ask(work.planned, _spec)


@st.cache_resource(show_spinner=False)
def _resized() -> dict[str, CapacityPlan]:
    """Plans whose fleet missed in the event simulation and was sized again, by their questions."""
    return {}


def planned(spec: PlanSpec) -> CapacityPlan:
    """The plan that ``plan-capacity`` makes, as far as it is known without a simulation; refusals are raised."""
    question = spec.model_dump_json()
    return _resized().get(question) or _planned(question, spec).plan


def _kept_as(plan: CapacityPlan) -> str:
    """What a plan's answers are kept under: its fleet may be sized again under the same question."""
    best = plan.best
    return f"{best.hardware} {best.label} {[pool.replicas for pool in best.pools]} {plan.spec.model_dump_json()}"


def _check(plan: CapacityPlan, run: int) -> CapacityPlan:
    turns.let_others_ask(run)
    changed = PATIENT.ask(work.check_of, plan)
    return replace(plan, **changed) if changed else plan


@st.cache_resource(show_spinner=False)
def _checks() -> dict[str, Future[CapacityPlan]]:
    """Simulations of fleets that were begun, by :func:`_kept_as`."""
    return {}


def is_checked(plan: CapacityPlan) -> bool:
    """Whether the check of a plan is known."""
    found = _checks().get(_kept_as(plan))
    return found is not None and found.done()


def _awaited(plan: CapacityPlan) -> CapacityPlan:
    """The plan with its check. A page whose question changes meanwhile is left, and a check not begun is dropped."""
    kept, question = _checks(), _kept_as(plan)
    with _BEGUN:
        check = kept.get(question)
        if check is None or check.cancelled():
            check = kept[question] = _CHECKS.submit(_check, plan, get_ident())
        if len(kept) > _MOST_CHECKS:
            del kept[next(iter(kept))]
    try:
        turns.wait_until(check.done)
        return check.result()
    except CancelledError:
        return _awaited(plan)
    finally:
        left = check.cancel() or (check.done() and check.exception() is not None)
        with _BEGUN:
            # Somebody else who waited may have begun it anew.
            if left and kept.get(question) is check:
                del kept[question]


def checked(plan: CapacityPlan) -> CapacityPlan:
    """The plan as its command answers it, its fleet simulated and, where it misses, sized again."""
    found = _awaited(plan)
    if found.best is not plan.best:
        kept = _resized()
        kept[plan.spec.model_dump_json()] = found
        if len(kept) > _MOST_RESIZED:
            kept.pop(next(iter(kept)))
    return found


@st.cache_resource(max_entries=100, show_spinner=False)
def _highest(question: str, field: DemandField, most: float, _spec: PlanSpec) -> LargestDemand:
    return CREW.ask(work.solved, _spec, field, most)


def solved(spec: PlanSpec, *, field: DemandField, most: float) -> LargestDemand:
    """The highest demand that the limits of a plan allow; refusals are raised."""
    return _highest(spec.model_dump_json(), field, most, spec)


@st.cache_resource(max_entries=100, show_spinner=False)
def _judged(question: str, _plan: CapacityPlan) -> Planned:
    return work.judged(_plan)


def _of_plan(plan: CapacityPlan) -> Planned:
    """A plan with its verdict: as it was worked out, or for a fleet that was sized again."""
    known = _planned(plan.spec.model_dump_json(), plan.spec)
    same = (item for item in (known, *known.beside) if item.plan is plan)
    return next(same, None) or _judged(_kept_as(plan), plan)


def latency_ranges(plan: CapacityPlan) -> LatencyRange:
    """The 80 % intervals of the chosen fleet's latencies."""
    return _of_plan(plan).ranges


def judged(plan: CapacityPlan) -> PlanVerdict:
    """Whether the chosen fleet serves, how surely, and how that is known."""
    return _of_plan(plan).verdict


@st.cache_resource(max_entries=60, show_spinner=False)
def _swept(question: str, profiles: str | None, _scenario: ScenarioSpec) -> LoadSweep:
    return CREW.ask(work.swept, _scenario, profiles)


def swept(scenario: ScenarioSpec, *, profiles: str | None) -> LoadSweep:
    """Latency over load of a scenario of kind serve, whatever its stages."""
    return _swept(scenario.model_dump_json(), profiles, scenario)


@st.cache_resource(max_entries=60, show_spinner=False)
def _served(question: str, profiles: str | None, _scenario: ScenarioSpec) -> ServedAnswer:
    return CREW.ask(work.served, _scenario, profiles)


def served(scenario: ScenarioSpec, *, profiles: str | None) -> ServedAnswer:
    """The answer to a scenario of kind serve, with its steps kept."""
    return _served(scenario.model_dump_json(), profiles, scenario)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A decode step and the prefill of one prompt, with the JSON documents that ``roofcast step`` prints."""

    deployment: Deployment
    prefill: StepEstimate
    decode: StepEstimate
    prefill_document: dict[str, Any]
    decode_document: dict[str, Any]


@st.cache_resource(max_entries=200, show_spinner=False)
def _stepped(question: str, profiles: str | None, context_tokens: int, _scenario: ScenarioSpec) -> Steps:
    precision = _scenario.precision
    prefill, decode = (
        step(
            model=_scenario.model,
            hardware=_scenario.hardware,
            power_cap_w=_scenario.power_cap_w,
            phase=phase,
            batch_size=batch,
            context_tokens=context_tokens,
            tp_size=_scenario.tp_size,
            pp_size=_scenario.pp_size,
            ep_size=_scenario.ep_size,
            dp_size=_scenario.dp_size,
            cp_size=_scenario.cp_size,
            engine=_scenario.engine.name if "name" in _scenario.engine.model_fields_set else None,
            precision=PrecisionSpec(weights=precision.weights, kv_cache=precision.kv_cache, scheme=precision.scheme),
            profiles=profiles,
        )
        for phase, batch in (("prefill", 1), ("decode", _scenario.batch_size or 1))
    )
    return Steps(
        deployment=decode.step.deployment,
        prefill=prefill.step.estimate,
        decode=decode.step.estimate,
        prefill_document=prefill.to_dict(),
        decode_document=decode.to_dict(),
    )


def stepped(scenario: ScenarioSpec, *, context_tokens: int, profiles: str | None) -> Steps:
    """One pass of each phase; refusals are raised."""
    return _stepped(scenario.model_dump_json(), profiles, context_tokens, scenario)


@st.cache_resource(max_entries=50, show_spinner=False)
def explained(topic: str, model: str, hardware: str, profiles: str | None) -> ExplainAnswer:
    """A topic of the field, worked with this model and accelerator; refusals are raised."""
    found = explain(topic, model=model, hardware=hardware, profiles=profiles)
    assert isinstance(found, ExplainAnswer), "a topic was named"
    return found


@st.cache_resource(max_entries=20, show_spinner=False)
def learned(topic: str) -> PublishedAnswer:
    """The published figures of a topic beside what is predicted."""
    return published(topic)


@st.cache_resource(max_entries=50, show_spinner=False)
def _studied(question: str, command: str, _plan: CapacityPlan) -> Studies:
    return work.studied(_plan, command)


def studied(plan: CapacityPlan, *, command: str) -> Studies:
    """What a report shows beside the plan: ownership, carbon, facilities, launch commands."""
    return _studied(_kept_as(plan), command, plan)


def report_file(plan: CapacityPlan, command: str, form: ReportFormat) -> bytes:
    """The report in one format."""
    return CREW.ask(work.report_file, checked(plan), command, form)
