"""One small plan and its report, made once for all tests of documents."""

from __future__ import annotations

from functools import lru_cache

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.reports.content.document import Report
from simulator.reports.formats.files import ReportFormat, render
from simulator.reports.report import build_report
from simulator.reports.studies import Studies, gather
from simulator.specs.question.plan import plan_spec

CREATED = "2026-11-21"
QUESTION = {"rps": 40.0, "model": "llama-3.1-8b", "hardware": ("h100", "h200", "v100"), "ttft_p95": "2s"}


@lru_cache(maxsize=1)
def studied() -> Studies:
    plan: CapacityPlan = plan_capacity(plan_spec(QUESTION))
    return gather(plan, command="plan-capacity --rps 40", created=CREATED)


@lru_cache(maxsize=1)
def whole_report() -> Report:
    return build_report(studied())


@lru_cache(maxsize=8)
def rendered(form: ReportFormat) -> bytes:
    return render(whole_report(), studied(), form)[0].data
