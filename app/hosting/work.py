"""What a page asks of the library, as functions of the question alone: a process beside the server's can run them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from simulator.engine.events.warm_up import leave_compiling
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.load_sweep import LoadSweep, load_sweep
from simulator.engine.runs.scenario_setup import ServeOptions, scenario_options
from simulator.engine.runs.served_run import served_of
from simulator.planner import plan as planner
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.replica_load import LatencyRange, latency_range
from simulator.planner.largest_demand import DemandField, LargestDemand, largest_demand
from simulator.reports.answer import result_object
from simulator.reports.decide.decision import PlanVerdict, plan_verdict
from simulator.reports.formats.files import ReportFormat, render
from simulator.reports.report import build_report
from simulator.reports.studies import Studies, gather
from simulator.reports.words.fields import reason_in_words
from simulator.specs.question.plan import PlanSpec, plan_spec
from simulator.specs.question.plan_values import PLANNED_MODEL, PLANNED_RATE_PER_S
from simulator.specs.question.scenario import ScenarioSpec

TRACE_STEPS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan with what stands on top of its page: the 80 % intervals of its latencies, and whether it serves.

    beside : the same of each fleet that serves side by side, where something exists
    """

    plan: CapacityPlan
    ranges: LatencyRange
    verdict: PlanVerdict
    beside: tuple[Planned, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAnswer:
    """A served scenario and the JSON object that ``roofcast simulate`` prints for it."""

    result: ScenarioResult
    document: dict[str, Any]


def planned(spec: PlanSpec) -> Planned:
    """The plan that ``plan-capacity`` makes, as far as it is known without a simulation; refusals are raised."""
    with reason_in_words():
        return judged(planner.plan_capacity(spec))


def judged(plan: CapacityPlan) -> Planned:
    """A plan with its intervals and its verdict."""
    beside = tuple(judged(part) for part in plan.serving if part is not plan)
    return Planned(
        plan=plan,
        ranges=latency_range(plan.best, objectives=plan.objectives),
        verdict=plan_verdict(plan),
        beside=beside,
    )


def check_of(plan: CapacityPlan) -> dict[str, Any]:
    """The fields of a plan that its check by the event simulation changes: the fleet too, where it misses."""
    found = planner.checked(plan)
    pairs = ((item.name, getattr(found, item.name), getattr(plan, item.name)) for item in fields(plan))
    return {name: value for name, value, before in pairs if value is not before}


def solved(spec: PlanSpec, field: DemandField, most: float) -> LargestDemand:
    """The highest demand that the limits of a plan allow; refusals are raised."""
    return largest_demand(spec, field=field, most=most)


def served(scenario: ScenarioSpec, profiles: str | None) -> ServedAnswer:
    """The answer to a scenario of kind serve, with its steps kept."""
    result = answer(scenario, profiles=profiles, options=ServeOptions(trace_steps=TRACE_STEPS))
    return ServedAnswer(result=result, document=result_object(result))


def swept(scenario: ScenarioSpec, profiles: str | None) -> LoadSweep:
    """Latency over load of a scenario of kind serve, whatever its stages."""
    workload = scenario.workload
    assert workload is not None, "the page asks for kind serve"
    return load_sweep(
        served_of(scenario, scenario_options(scenario, ServeOptions()), profiles=profiles), workload=workload
    )


def studied(plan: CapacityPlan, command: str, *, complete: bool = False) -> Studies:
    """What a report shows beside the plan."""
    return gather(plan, command=command, complete=complete)


def report_file(plan: CapacityPlan, command: str, form: ReportFormat) -> bytes:
    """The report of a checked plan in one format."""
    studies = studied(plan, command, complete=True)
    return render(build_report(studies), studies, form)[0].data


def warm_up() -> None:
    """Read the calibrations of the first page before its first visitor waits for them; nor is a compiler waited for."""
    leave_compiling()
    planned(plan_spec({"rps": PLANNED_RATE_PER_S, "model": PLANNED_MODEL}))
