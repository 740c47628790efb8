"""One small plan and its report, made once for all tests of documents."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from math import nan
from typing import Any

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.reports.content.document import Report
from simulator.reports.formats.files import ReportFormat, render
from simulator.reports.report import build_report
from simulator.reports.studies import Studies, gather
from simulator.specs.measured.validation_rows import ValidationRow
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


def measured_row(**changed: Any) -> ValidationRow:
    """A value of one run and its prediction, 10 % too high."""
    stated = {
        "source": "s", "run": "1", "hardware": "h100-sxm-80gb", "engine": "vllm", "model": "m", "model_class": "dense",
        "mode": "aggregated", "kind": "batch", "metric": "e2e_s", "measured": 1.0, "predicted": 1.1, "low": nan,
        "high": nan, "provenance": "calibrated",
        **dict.fromkeys(("tp_size", "pp_size", "ep_size", "dp_size", "cp_size"), 1),
    }  # fmt: skip
    return ValidationRow(**dict.fromkeys(item.name for item in fields(ValidationRow)) | stated | changed)
