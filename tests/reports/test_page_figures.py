"""Charts of the pages say what the records hold."""

from __future__ import annotations

import pytest

from simulator.engine.answers import answer
from simulator.engine.uniform_runs import UniformRun
from simulator.phases.step import StepEstimate
from simulator.planner.what_if import technique_steps, what_if
from simulator.reports.contract import result_object
from simulator.reports.figures.cost_speed import cost_speed_chart
from simulator.reports.figures.latency_breakdown import latency_breakdown_chart
from simulator.reports.figures.memory_stack import memory_stack_chart
from simulator.reports.figures.roofline import roofline_chart, roofline_points
from simulator.reports.figures.technique_waterfall import technique_waterfall_chart
from simulator.reports.figures.validation_scatter import validation_scatter_chart
from simulator.reports.validation_tables import run_rows, source_rows, validation_summary
from simulator.specs.documents import validate
from simulator.specs.scenario import ScenarioSpec
from simulator.specs.validation_rows import load_validation_rows

SCENARIO = validate(
    ScenarioSpec,
    {
        "id": 1,
        "kind": "batch",
        "model": "llama-3.1-8b",
        "hardware": "h100",
        "batch_size": 16,
        "isl_tokens": 1000,
        "osl_tokens": 100,
        "engine": {"name": "vllm"},
        "precision": {"weights": "fp8"},
    },
    where="",
)


@pytest.fixture(scope="module")
def run() -> UniformRun:
    found = answer(SCENARIO).run
    assert isinstance(found, UniformRun)
    return found


def decode(run: UniformRun) -> StepEstimate:
    assert run.decode is not None
    return run.decode.estimate


def test_shares_of_a_step_add_up(run: UniformRun) -> None:
    assert run.decode is not None
    chart = latency_breakdown_chart([("Prefill", run.prefill), ("Decode", run.decode)])
    for place in range(2):
        assert sum(series.y[place] for series in chart.series) == pytest.approx(100)


def test_memory_adds_up_to_the_budget(run: UniformRun) -> None:
    chart = memory_stack_chart([("h100", run.memory)])
    assert sum(series.y[0] for series in chart.series) * 1e9 == pytest.approx(run.memory.budget_bytes)


def test_no_operator_is_above_its_roof(run: UniformRun) -> None:
    deployment = answer(SCENARIO).deployment
    hardware = deployment.hardware
    for point in roofline_points("decode", decode(run), deployment=deployment):
        roof = min(max(hardware.peak_flops_per_s.values()), point.arithmetic_intensity * hardware.memory_bytes_per_s)
        # Operands that stay in the L2 cache may beat device memory a little.
        assert point.flops_per_s <= 1.2 * roof, point.name


def test_roofline_points_carry_the_whole_step(run: UniformRun) -> None:
    deployment = answer(SCENARIO).deployment
    points = roofline_points("decode", decode(run), deployment=deployment)
    assert 0.5 < sum(point.share for point in points) <= 1
    chart = roofline_chart([("decode", decode(run))], deployment=deployment)
    assert len(chart.series[-1].x) == len(points)


def test_the_waterfall_ends_where_it_must() -> None:
    chart = technique_waterfall_chart(technique_steps(SCENARIO))
    (series,) = chart.series
    start, *changes, end = series.y
    assert start + sum(changes) == pytest.approx(end)
    assert end == pytest.approx(answer(SCENARIO).run.tpot_s * 1e3)


def test_cost_and_speed_are_those_of_the_contract() -> None:
    found = what_if(SCENARIO)
    document = result_object(found.result)
    (point,) = cost_speed_chart([("A", found, document)]).series
    assert point.x[0] == pytest.approx(document["tpot_s"] * 1e3)
    assert point.y[0] == found.cost.per_million_output_tokens


def test_stored_measurements_tell_what_they_are() -> None:
    rows = load_validation_rows()
    summary = validation_summary(rows)
    assert summary.runs == len(rows) > 900
    assert 0 < summary.median_error < summary.mean_error < 0.3
    assert len(run_rows(rows)) == len(rows)
    assert sum(int(line[2]) for line in source_rows(rows)) == len(rows)
    times = [row for row in rows if row.metric == "e2e_s"]
    chart = validation_scatter_chart(times)
    assert sum(len(series.x) for series in chart.series if series.labels) == len(times)
