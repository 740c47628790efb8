"""Charts of the pages say what the records hold."""

from __future__ import annotations

import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.uniform.record import UniformRun
from simulator.kernels.sustained import cache_rate
from simulator.phases.one_step import roofline_points
from simulator.phases.step import StepEstimate
from simulator.planner.what_if import native_scenario, technique_steps, what_if
from simulator.reports.answer import result_object
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.charts.latency_breakdown import latency_breakdown_chart, memory_stack_chart
from simulator.reports.charts.plotly_figure import plotly_figure, plotly_spec
from simulator.reports.charts.roofline import roofline_chart, shape_text
from simulator.reports.charts.validation import validation_scatter_chart
from simulator.reports.charts.what_if import cost_speed_chart, quality_cost_chart, technique_waterfall_chart
from simulator.reports.tables.comparison import compare_columns, compare_provenance
from simulator.reports.tables.validation import run_rows, source_rows
from simulator.specs.base import validate
from simulator.specs.measured.scores import error_score
from simulator.specs.measured.validation_rows import load_validation_rows
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.techniques import TechniquesSpec

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
    largest = max(points, key=lambda point: point.share)
    (named, *_) = chart.annotations
    assert named.text == largest.name
    assert named.x == largest.arithmetic_intensity
    # Names stand on the right of their points, below the ceilings; the axis has room for them.
    assert {note["xanchor"] for note in plotly_spec(chart)["layout"]["annotations"]} == {"left"}
    assert max(series.x[-1] for series in chart.series if series.kind is SeriesKind.CEILING) >= 4 * named.x


def test_ceilings_of_all_formats_and_of_the_cache(run: UniformRun) -> None:
    deployment = answer(SCENARIO).deployment
    chart = roofline_chart([("decode", decode(run))], deployment=deployment, all_ceilings=True)
    names = [series.name for series in chart.series]
    assert any(name.startswith("L2 cache") for name in names)
    peaks = {
        peak / 1e12 for dtype, peak in deployment.hardware.peak_flops_per_s.items() if dtype not in ("fp32", "fp64")
    }
    drawn = {series.y[-1] for series in chart.series if series.kind is SeriesKind.CEILING}
    assert sorted(drawn) == pytest.approx(sorted(peaks))
    assert cache_rate(deployment.kernels).bytes_per_s > 0.8 * deployment.hardware.memory_bytes_per_s


def test_operators_tell_their_shape(run: UniformRun) -> None:
    deployment = answer(SCENARIO).deployment
    points = {point.name: point for point in roofline_points("decode", decode(run), deployment=deployment)}
    # llama-3.1-8b: 4096 wide, 32 heads of 128 on 8 KV heads, batch 16.
    assert any("m 16" in shape_text(point.work) and "k 4,096" in shape_text(point.work) for point in points.values())
    assert any("32 heads, 8 KV heads of 128" in shape_text(point.work) for point in points.values())


def test_quality_against_cost_shows_what_is_known() -> None:
    native = native_scenario(SCENARIO).model_copy(update={"model": "llama-2-70b", "tp_size": 4})
    sparse = native.model_copy(
        update={"techniques": validate(TechniquesSpec, {"sparsity": {"pattern": "2:4", "method": "wanda"}}, where="")}
    )
    unknown = native.model_copy(update={"precision": SCENARIO.precision})
    compared = []
    for name, scenario in (("A", native), ("B", sparse), ("C", unknown)):
        found = what_if(scenario)
        compared.append((name, found, result_object(found.result)))
    chart = quality_cost_chart(compared)
    losses = {series.name[0]: series.x[0] for series in chart.series if series.kind is SeriesKind.SCATTER}
    # Sun et al.: 3.12 dense, 5.16 with 2:4 by Wanda.
    assert losses == pytest.approx({"A": 0.0, "B": 100 * (5.16 / 3.12 - 1)})
    assert "C is unknown" in chart.title
    assert [row for row, *_ in compare_columns(compared)[0] if row == "Quality"]
    assert compare_provenance(compared) == max(
        (document["provenance"] for _, _, document in compared),
        key=["measured", "calibrated", "extrapolated", "assumed"].index,
    )


def test_bars_turn_sideways_with_their_whiskers() -> None:
    chart = Chart(
        key="k",
        title="t",
        x=Axis(title="", categories=("a", "b")),
        y=Axis(title="money"),
        series=(Series(name="s", kind=SeriesKind.BAR, x=(0, 1), y=(2.0, 4.0), low=(1.0, 4.0), high=(5.0, 6.0)),),
    )
    (bar,) = plotly_figure(chart, sideways=True).data
    assert (bar.orientation, list(bar.x), list(bar.y)) == ("h", [2.0, 4.0], ["a", "b"])
    assert (list(bar.error_x.array), list(bar.error_x.arrayminus)) == ([3.0, 2.0], [1.0, 0.0])


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
    score = error_score(rows)
    assert score.runs == len(rows) > 900
    assert 0 < score.median < score.mean < 0.3
    assert len(run_rows(rows)) == len(rows)
    assert sum(line[2].value for line in source_rows(rows)) == len(rows)
    times = [row for row in rows if row.metric == "e2e_s"]
    chart = validation_scatter_chart(times)
    assert sum(len(series.x) for series in chart.series if series.labels) == len(times)


def test_no_two_of_many_series_look_alike() -> None:
    many = tuple(Series(name=str(one), kind=SeriesKind.SCATTER, x=(1.0,), y=(1.0,)) for one in range(20))
    chart = Chart(key="many", title="Many", x=Axis(title="x"), y=Axis(title="y"), series=many)
    marks = [trace["marker"] for trace in plotly_spec(chart)["data"]]
    assert len({(mark["color"], mark["symbol"]) for mark in marks}) == len(many)


@pytest.mark.parametrize(
    ("isl_tokens", "says"), [(100, "Matrix products take "), (30_000, "Attention (decode) takes ")]
)
def test_a_step_says_in_grammar_what_takes_most_of_it(isl_tokens: int, says: str) -> None:
    run = answer(SCENARIO.model_copy(update={"isl_tokens": isl_tokens})).run
    assert isinstance(run, UniformRun)
    assert run.decode is not None
    assert latency_breakdown_chart([("Decode", run.decode)]).title.startswith(says)
