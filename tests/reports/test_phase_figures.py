"""Numbers of phases, memory and crossover as pages show them."""

from __future__ import annotations

import pytest

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.phases.roofline import roofline_points
from simulator.planner.comparison import technique_steps, what_if
from simulator.reports.charts.chart import SeriesKind
from simulator.reports.charts.memory_stack import memory_stack_chart
from simulator.reports.charts.plotly_figure import plotly_figure
from simulator.reports.charts.roofline import point_label, roofline_chart
from simulator.reports.charts.what_if import (
    WATERFALL_METRICS,
    WaterfallMetric,
    cost_speed_chart,
    quality_cost_chart,
    technique_waterfall_chart,
)
from simulator.reports.content.quantities import count_text, percent_text, seconds_text
from simulator.reports.contract import Json, result_object
from simulator.reports.tables.comparison import compare_columns, compare_headline, room_text
from simulator.reports.tables.scenario_figures import PHASES, crossover_figure, memory_figures, phase_figures
from simulator.specs.documents import validate
from simulator.specs.question.scenario import ScenarioSpec

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


@pytest.mark.parametrize("metric", WATERFALL_METRICS, ids=lambda metric: metric.key)
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
    labels = {label for series in chart.series if series.kind is SeriesKind.SCATTER for label in series.labels}
    assert labels == {point_label(point) for point in every if point.bytes}
    host = float(decode.estimate.host_s[0] / decode.estimate.step_s[0])
    assert sum(point.share for point in every) + host == pytest.approx(1)
    assert all(label.startswith(tuple(f"{point.title}:" for point in every)) for label in labels)


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
