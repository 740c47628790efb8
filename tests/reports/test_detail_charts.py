"""Charts below a plan and of the validation: they say what their records say, and draw on every renderer."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.resilience import Resilience
from simulator.reports.charts.plotly_figure import plotly_figure
from simulator.reports.charts.static_svg import static_svg
from simulator.reports.charts.validation import coverage_by_source_chart, error_by_source_chart
from simulator.reports.sections.resilience import loss_cases_chart
from simulator.reports.tables.validation import provenance_rows
from simulator.reports.words.runs import deployment_text, load_text, metric_word
from simulator.specs.engine.deployment import parallel_text
from simulator.specs.measured.validation_rows import ValidationRow, load_validation_rows
from simulator.specs.question.plan import plan_spec
from tests.reports.report_cases import measured_row


@pytest.fixture(scope="module")
def plan() -> CapacityPlan:
    return plan_capacity(
        plan_spec({"model": "llama-3.1-8b", "hardware": ("h100-sxm-80gb",), "rps": 60.0, "resilience": True})
    )


def _row(source: str, *, measured: float, predicted: float, low: float = nan, high: float = nan) -> ValidationRow:
    return measured_row(source=source, metric="tpot_s", measured=measured, predicted=predicted, low=low, high=high)


def test_losses_raise_the_load_of_what_is_left(plan: CapacityPlan) -> None:
    assert plan.study(Resilience) is not None
    chart = loss_cases_chart(plan.study(Resilience), fleet=plan.best)
    (bars,) = chart.series
    shown = [case for case in plan.study(Resilience).cases if case.load < inf]
    assert bars.y == pytest.approx((100 * plan.best.at_peak.load, *(100 * case.load for case in shown)))
    assert chart.x.categories == ("nothing", *(case.name for case in shown))
    missed = [case.name for case in plan.study(Resilience).cases if not case.holds]
    assert ("breaks" in chart.title) == bool(missed)
    assert all(name in chart.title for name in missed[:1])
    assert plotly_figure(chart).data
    assert static_svg(chart).startswith("<svg")


def test_a_loss_of_everything_is_named_not_drawn(plan: CapacityPlan) -> None:
    assert plan.study(Resilience) is not None
    gone = replace(plan.study(Resilience).cases[-1], name="the site", load=inf, replicas_left=0, holds=False)
    found = replace(plan.study(Resilience), cases=(*plan.study(Resilience).cases, gone))
    chart = loss_cases_chart(found, fleet=plan.best)
    assert "the site" not in chart.x.categories
    assert chart.caption.endswith("the site.")
    assert "No replica is left" in chart.caption


def test_errors_by_source_are_medians_with_their_spread() -> None:
    near = [_row("near", measured=1.0, predicted=value) for value in (1.0, 1.02, 0.9)]
    far = [_row("far", measured=1.0, predicted=1.5)]
    chart = error_by_source_chart([*far, *near])
    (bars,) = chart.series
    assert chart.x.categories == ("near", "far")
    assert bars.y == pytest.approx((2.0, 50.0))
    assert all(low <= middle <= high for low, middle, high in zip(bars.low, bars.y, bars.high, strict=True))


def test_coverage_leaves_out_what_has_no_interval() -> None:
    rows = [
        _row("half", measured=1.0, predicted=1.0, low=0.9, high=1.1),
        _row("half", measured=2.0, predicted=1.0, low=0.9, high=1.1),
        _row("none", measured=1.0, predicted=1.0),
    ]
    chart = coverage_by_source_chart(rows)
    assert chart.x.categories == ("half",)
    assert chart.series[0].y == (50.0,)
    assert chart.title.startswith("50 %")


def test_stored_runs_draw_and_add_up() -> None:
    rows = load_validation_rows()
    for chart in (error_by_source_chart(rows), coverage_by_source_chart(rows)):
        assert plotly_figure(chart).data
        assert static_svg(chart).startswith("<svg")
    assert sum(line[1].value for line in provenance_rows(rows)) == len(rows)


@pytest.mark.parametrize(("metric", "word"), [
    ("ttft_s", "TTFT"), ("ttft_p99_s", "TTFT p99"), ("e2e_mean_s", "end to end mean"),
    ("output_tokens_per_s", "output tokens/s"), ("odd_thing", "odd thing"), ("total_tokens_per_s", "tokens/s"),
])  # fmt: skip
def test_metrics_are_said_in_words(metric: str, word: str) -> None:
    assert metric_word(metric) == word


def test_runs_are_said_in_words() -> None:
    run = measured_row(model="Llama-2-7b", tp_size=2, weights="bf16", kv_cache="fp8", batch_size=16, isl_tokens=128)
    assert deployment_text(run) == "Llama-2-7b, TP2, bf16, fp8 cache"
    assert load_text(replace(run, osl_tokens=64)) == "batch 16: 128 in, 64 out"
    assert load_text(replace(run, kind="serve", rate_per_s=7.5)) == "serve at 7.5/s"
    loop = replace(run, kind="closed_loop", batch_size=None, concurrency=4, osl_tokens=8)
    assert load_text(loop) == "closed loop 4: 128 in, 8 out"
    pools = replace(run, scheme="nvfp4", kv_cache=None, prefill_replicas=2, decode_replicas=3)
    pools = replace(pools, prefill_tp_size=4, prefill_ep_size=4)
    assert deployment_text(pools) == "Llama-2-7b, 2 x TP4 EP4 prefill + 3 x TP2 decode, nvfp4"
    assert parallel_text((1, 1, 1, 1, 1)) == "TP1"
