"""Numbers of phases, memory and crossover as pages show them."""

from __future__ import annotations

import pytest

from simulator.engine.events.state import TRACE_USED
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.scenario_setup import ServeOptions
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.record import UniformRun
from simulator.phases.one_step import roofline_points
from simulator.planner.what_if import technique_steps, what_if
from simulator.reports.answer import Json, result_object
from simulator.reports.charts.chart import PALETTE, SeriesKind
from simulator.reports.charts.latency_breakdown import (
    FAMILIES,
    memory_over_time_chart,
    memory_stack_chart,
    request_waterfall_chart,
    step_timeline_chart,
)
from simulator.reports.charts.plotly_figure import plotly_figure
from simulator.reports.charts.roofline import passes_chart, point_label, roofline_chart
from simulator.reports.charts.what_if import (
    WATERFALL_METRICS,
    WaterfallMetric,
    cost_speed_chart,
    quality_cost_chart,
    technique_waterfall_chart,
)
from simulator.reports.content.quantities import count_text, percent_text, seconds_text
from simulator.reports.tables.comparison import compare_columns, compare_headline, room_text
from simulator.reports.tables.scenario_figures import PHASES, crossover_figure, memory_figures, phase_figures
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec
from tests.for_every import for_every

BASE = {
    "id": "x",
    "kind": "batch",
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm-80gb",
    "batch_size": 16,
    "isl_tokens": 512,
    "osl_tokens": 64,
}


def scenario(**changes: object) -> ScenarioSpec:
    return validate(ScenarioSpec, {**BASE, **changes}, where="")


@pytest.fixture(scope="module")
def document() -> Json:
    return result_object(answer(scenario()))


def test_phases_say_what_the_contract_says(document: Json) -> None:
    for name in PHASES:
        step, mfu, mbu = phase_figures(document, phase=name)
        phase = document[name]
        said = (seconds_text(phase["step_s"]), percent_text(phase["mfu"]), percent_text(phase["mbu"]))
        assert (step.text, mfu.text, mbu.text) == said
        low, high = phase["interval"]["step_s"]
        assert low < phase["step_s"] < high
        assert all(item.interval for item in (step, mfu, mbu))


def test_memory_says_how_sure_the_room_is(document: Json) -> None:
    room, used = memory_figures(document)
    memory = document["memory"]
    assert room.text == count_text(memory["kv_capacity_tokens"])
    assert memory["kv_utilization"] == pytest.approx(16 * 576 / memory["kv_capacity_tokens"], rel=0.01)
    assert used.text == percent_text(memory["kv_utilization"])
    assert room.interval
    assert used.interval


def test_what_keeps_nothing_and_what_decodes_nothing() -> None:
    (room,) = memory_figures(result_object(answer(scenario(model="mamba-2.8b"))))
    assert (room.text, room.interval) == ("keeps none", "")
    one = result_object(answer(scenario(osl_tokens=1)))
    assert one["tpot_s"] is None
    assert one["interval"]["tpot_s"] is None
    assert phase_figures(one, phase="decode") == ()


def test_open_ends_of_a_crossover_are_named() -> None:
    found = {"batch": 322, "interval": [279, 372], "provenance": "calibrated"}
    assert crossover_figure({"crossover": found}).interval == "279 – 372"
    late = crossover_figure({"crossover": {**found, "batch": None, "interval": [4000, None]}})
    assert (late.text, late.interval) == ("above 4,096", "4,000 – above 4,096")
    assert crossover_figure({"crossover": {**found, "batch": None, "interval": [None, None]}}).interval == ""


@for_every(WATERFALL_METRICS)
def test_every_waterfall_ends_at_the_number_of_the_contract(metric: WaterfallMetric) -> None:
    changed = scenario(precision={"weights": "fp8", "kv_cache": "fp8"}, techniques={"sparsity": "2:4"})
    steps = technique_steps(changed)
    chart = technique_waterfall_chart(steps, metric=metric)
    start, *changes, end = chart.series[0].y
    assert start + sum(changes) == pytest.approx(end)
    found = result_object(answer(changed))
    assert end * metric.scale == pytest.approx({**found["memory"], **found}[metric.key])


def test_answers_at_hand_are_not_worked_out_again() -> None:
    changed = scenario(techniques={"sparsity": "2:4"})
    asked: list[ScenarioSpec] = []

    def known(step: ScenarioSpec) -> ScenarioResult:
        asked.append(step)
        return answer(step)

    steps = technique_steps(changed, answered=known)
    assert len(asked) == len(steps) == 2
    assert asked[-1] == changed


def test_every_operator_has_a_place() -> None:
    found = answer(scenario())
    decode = found.run.decode
    assert decode is not None
    every = roofline_points("decode", decode.estimate, deployment=found.deployment, every=True)
    chart = roofline_chart([("decode", decode.estimate)], deployment=found.deployment, all_ceilings=True)
    passes = passes_chart([("decode", decode.estimate)], deployment=found.deployment)
    assert passes is not None
    drawn, beside = (
        [label for series in shown.series if series.kind is SeriesKind.SCATTER for label in series.labels]
        for shown in (chart, passes)
    )
    assert {*drawn, *beside} == {point_label(point) for point in every if point.bytes}
    assert not {*drawn} & {*beside}
    labels = (*drawn, *beside)
    host = float(decode.estimate.host_s[0] / decode.estimate.step_s[0])
    assert sum(point.share for point in every) + host == pytest.approx(1)
    assert all(label.startswith(tuple(f"{point.title}:" for point in every)) for label in labels)


def test_passes_without_flops_stand_by_their_bandwidth() -> None:
    found = answer(scenario())
    decode = found.run.decode
    assert decode is not None
    chart = passes_chart([("decode", decode.estimate)], deployment=found.deployment)
    assert chart is not None
    points = {
        point.name: point
        for point in roofline_points("decode", decode.estimate, deployment=found.deployment, every=True)
    }
    (series,) = chart.series
    shown = {chart.x.categories[int(place)]: rate for place, rate in zip(series.x, series.y, strict=True)}
    assert shown == {name: pytest.approx(points[name].bytes_per_s / 1e12) for name in shown}
    assert "residual_norm" in shown
    (line,) = chart.annotations
    assert line.y == found.deployment.hardware.memory_bytes_per_s / 1e12
    assert [points[name].share for name in chart.x.categories] == sorted(
        (points[name].share for name in shown), reverse=True
    )


def test_marks_differ_in_shape_and_show_their_interval() -> None:
    compared = []
    for name, hardware in (("A", "h100-sxm-80gb"), ("B", "a100-sxm-80gb")):
        found = what_if(scenario(hardware=hardware))
        compared.append((name, found, result_object(found.result)))
    for chart in (cost_speed_chart(compared), quality_cost_chart(compared)):
        marks = [trace for trace in plotly_figure(chart).data if trace.mode == "markers"]
        assert len({trace.marker.symbol for trace in marks}) == 2
        assert all(trace.error_y.array[0] > 0 and trace.error_y.arrayminus[0] > 0 for trace in marks)
    rows = dict((row[0], row[1:]) for row in compare_columns(compared)[0])
    for label in ("TPOT", "Prefill MFU", "Decode MBU", "Decode step", "Tokens in KV cache"):
        assert all("(" in cell for cell in rows[label]), label
    assert room_text(compared).count("tokens") == 2


def test_answers_of_one_token_are_compared_by_the_first() -> None:
    found = what_if(scenario(osl_tokens=1))
    compared = [("A", found, result_object(found.result))]
    assert compare_headline(compared).startswith(f"A is fastest at {seconds_text(found.result.run.ttft_s)}")
    assert not cost_speed_chart(compared).series


def test_the_cache_divides_into_used_and_free() -> None:
    plan = answer(scenario()).run.memory
    whole = memory_stack_chart([("x", plan)])
    split = memory_stack_chart([("x", plan)], used=(0.25,))
    sizes = {series.name: series.y[0] for series in split.series}
    assert sizes["KV cache in use"] == pytest.approx(plan.kv_capacity_bytes / 4e9)
    assert sum(sizes.values()) == pytest.approx(sum(series.y[0] for series in whole.series))


POOLS = {"prefill_replicas": 1, "decode_replicas": 1}
SERVED = {
    "kind": "serve",
    **dict.fromkeys(("batch_size", "isl_tokens", "osl_tokens")),
    "workload": {"isl_tokens": 512, "osl_tokens": 64, "stages": [{"rate_per_s": 8, "duration_s": 20}]},
}


@pytest.mark.parametrize(("changes", "named"), [
    ({}, {"Prefill", "Decode"}),
    ({"tp_size": 2}, {"Prefill", "Network in prefill", "Decode", "Network in decode"}),
    (SERVED, {"Queue", "Prefill", "Decode"}),
    ({**SERVED, "disaggregation": POOLS}, {"Queue", "Prefill", "KV transfer", "Decode"}),
])  # fmt: skip
def test_what_a_request_waits_for_adds_up(changes: dict[str, object], named: set[str]) -> None:
    run = answer(scenario(**changes)).run
    parts = run.waits_s
    assert set(parts) == named
    assert sum(parts.values()) == pytest.approx(run.e2e_s)
    chart = request_waterfall_chart(run)
    assert seconds_text(run.e2e_s) in chart.title
    (bars,) = plotly_figure(chart).data
    assert bars.base[-1] == 0
    assert bars.y[-1] == pytest.approx(bars.base[-2] + bars.y[-2])
    painted = dict(zip(bars.x, bars.marker.color, strict=True))
    assert (painted["Prefill"], painted["Decode"]) == PALETTE[:2], "as in the roofline of both phases"


def test_a_step_is_a_row_of_operators_without_gaps() -> None:
    run = answer(scenario()).run
    assert isinstance(run, UniformRun)
    (series,) = step_timeline_chart("Prefill", run.prefill).series
    assert series.low[0] == 0
    assert series.low[1:] == pytest.approx(series.high[:-1])
    assert series.high[-1] == pytest.approx(1000 * run.prefill.total_s / run.prefill.steps)
    assert series.colors[0] == FAMILIES["host"][1], "it comes first, in the colour that it has in the breakdown"
    assert {FAMILIES[name][1] for name in ("gemm", "prefill_attention", "elementwise")} <= set(series.colors)


def test_a_step_of_experts_says_so_in_grammar() -> None:
    run = answer(scenario(model="qwen3-30b-a3b")).run
    assert isinstance(run, UniformRun)
    assert run.decode is not None
    assert step_timeline_chart("Decode", run.decode).title.startswith("experts take ")


def test_memory_over_time_is_the_budget_at_every_moment() -> None:
    batch = answer(scenario())
    served = answer(scenario(**SERVED), options=ServeOptions(trace_steps=1000)).run
    assert isinstance(batch.run, UniformRun)
    assert isinstance(served, ServedRun)
    share = result_object(batch)["memory"]["kv_utilization"]
    uses = ((batch.run.memory, batch.run.cache_use(share)), (served.memory, served.cache_use))
    for memory, use in uses:
        chart = memory_over_time_chart(memory, use)
        whole = [sum(series.y[place] for series in chart.series) for place in range(len(use.moments_s))]
        assert whole == pytest.approx([memory.budget_bytes / 1e9] * len(use.moments_s))
    assert uses[0][1].used[-1] == pytest.approx(share)
    assert max(uses[1][1].used) == served.decoding_trace[:, TRACE_USED].max() / served.memory.kv_blocks
