"""The Sweep page: every pair of axes and metrics, the frontier, and the doors of its points."""

from __future__ import annotations

from itertools import combinations

import pytest

from app.parts.answers import answered
from simulator.errors import RoofcastError
from simulator.planner.deployment_sweep import SweepAxis, axis_values, sweep_points
from simulator.planner.replica_setup import scenario_setup
from simulator.reports.charts.plotly_figure import plotly_spec
from simulator.reports.charts.static_svg import static_svg
from simulator.reports.charts.sweep import METRICS, SWEPT_COLUMNS, SweptPoint, frontier, sweep_chart
from simulator.reports.content.document import BEST
from simulator.reports.content.quantities import number_text
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec
from tests.app.pages import headline, opened, printed, tables

BASE = validate(
    ScenarioSpec,
    {"id": 1, "kind": "batch", "model": "llama-3.1-8b", "hardware": "h100", "batch_size": 8,
     "isl_tokens": 100, "osl_tokens": 20},
    where="",
)  # fmt: skip
TOGETHER = [pair for pair in combinations(SweepAxis, 2) if set(pair) != {SweepAxis.BATCH, SweepAxis.RATE}]


@pytest.mark.parametrize(("first", "second"), TOGETHER)
def test_every_pair_of_axes_is_a_grid_of_their_values(first: SweepAxis, second: SweepAxis) -> None:
    points = sweep_points(BASE, first=first, second=second)
    one, two = (axis_values(axis, scenario=BASE) for axis in (first, second))
    assert [(point.first, point.second) for point in points] == [(a, b) for a in one for b in two]
    assert len({point.scenario.model_dump_json() for point in points}) == len(points), "two points ask the same"
    kinds = {point.scenario.kind for point in points}
    assert kinds == {"serve" if SweepAxis.RATE in (first, second) else "batch"}


@pytest.mark.parametrize(("first", "second"), [(SweepAxis.TP, SweepAxis.TP), (SweepAxis.RATE, SweepAxis.BATCH)])
def test_axes_that_are_one_are_refused(first: SweepAxis, second: SweepAxis) -> None:
    with pytest.raises(RoofcastError, match="cannot be swept together"):
        sweep_points(BASE, first=first, second=second)


def test_a_frontier_beats_every_point_that_is_not_on_it() -> None:
    points = [(1.0, 9.0), (2.0, 8.0), (2.0, 5.0), (3.0, 8.0), (4.0, 1.0)]
    kept = frontier(points, x_up=True, y_up=True)
    assert [points[place] for place in kept] == [(1.0, 9.0), (3.0, 8.0), (4.0, 1.0)]
    for place, (x, y) in enumerate(points):
        beaten = any(points[other][0] >= x and points[other][1] >= y for other in kept if points[other] != (x, y))
        assert beaten == (place not in kept)
    assert frontier(points, x_up=False, y_up=True) == (0,)


def test_the_page_shows_what_the_command_prints_and_its_best_point_holds() -> None:
    page = opened("sweep")
    assert not page.exception
    documents, table = printed(page), tables(page)[0]
    assert list(table.columns) == list(SWEPT_COLUMNS)
    per_user = [cell.removeprefix(f"{BEST} ").split(" ")[0] for cell in table["Tokens/s per user"]]
    assert per_user == [number_text(1 / document["tpot_s"]) for document in documents]
    held = table[table["objectives"] == "held"]
    assert headline(page).lower().startswith(tuple(name.lower() for name in held["point"]))
    assert {"held", "missed"} == set(table["objectives"])


def test_money_is_said_in_its_currency() -> None:
    page = opened("sweep", {"y": "Cost per 1M tokens out (list price)"})
    assert ": $" in headline(page)
    assert "list price" not in headline(page)
    assert all("$" in cell for cell in tables(page)[0]["Cost per 1M tokens out (list price)"])


def test_a_rate_is_swept_and_points_open_elsewhere() -> None:
    short = {"isl": "300", "osl": "30"}
    page = opened("sweep", {**short, "axis": "rate", "axis_2": "weights", "x": METRICS[2].name, "y": METRICS[4].name})
    assert not page.exception
    assert not page.error
    points = page.selectbox(key="point").options
    assert "rate 8, weights fp8" in points
    (point,) = [
        item.scenario
        for item in sweep_points(BASE, first=SweepAxis.RATE, second=SweepAxis.PRECISION)
        if (item.first, item.second) == (8, "fp8")
    ]
    setup = scenario_setup(point, name="x")
    assert (setup.rate_per_s, setup.sequences, setup.precision.scheme) == (8, None, "fp8")


def test_what_cannot_be_swept_is_refused_in_a_sentence() -> None:
    page = opened("sweep", {"axis": "TP", "axis_2": "TP"})
    assert not page.exception
    assert "cannot be swept together" in page.error[0].value
    large = opened("sweep", {"model": "llama-3.1-405b", "axis": "batch", "axis_2": "TP"})
    assert not large.exception
    assert large.error


def test_axes_that_go_together_are_one_click_away_and_nothing_else_is_offered() -> None:
    page = opened("sweep", {"axis": "batch", "axis_2": "rate"})
    assert page.error
    assert [button.key for button in page.button if (button.key or "").startswith("fit_")] == ["fit_axis_2"]
    page.button(key="fit_axis_2").click().run()
    assert not page.error
    assert headline(page)


def test_a_value_keeps_its_colour_whichever_points_hold() -> None:
    axes = (SweepAxis.BATCH, SweepAxis.TP)
    answers = [
        (point, answered(point.scenario, profiles=None)) for point in sweep_points(BASE, first=axes[0], second=axes[1])
    ]
    colors: dict[str, set[int | None]] = {}
    for refused in (0, 1, 2, 4):
        swept = [
            SweptPoint(point=point, what_if=answer.what_if, document=answer.document, holds=point.second != refused)
            for point, answer in answers
        ]
        chart = sweep_chart(swept, x=METRICS[0], y=METRICS[1], axes=axes, bounds_s=(1.0, 0.05))
        for series in chart.series[1:]:
            colors.setdefault(series.name, set()).add(series.color)
    assert all(len(found) == 1 for found in colors.values())
    assert len({color for found in colors.values() for color in found}) == len(colors)


def test_a_pinned_deployment_is_swept_along() -> None:
    page = opened("sweep", {"axis": "batch", "axis_2": "weights"})
    said = [item.value for item in page.caption]
    assert not any(text.startswith("Against pinned") for text in said)
    page.button(key="pin_baseline").click().run()
    page.selectbox(key="gpu").set_value("h200-sxm-141gb").run()
    assert not page.exception
    (text,) = [item.value for item in page.caption if item.value.startswith("Against pinned")]
    assert text.startswith("Against pinned h100-sxm-80gb TP1: ")
    assert text.split(": ", 1)[1] == headline(opened("sweep", {"axis": "batch", "axis_2": "weights"}))


def test_what_misses_an_objective_is_shaded() -> None:
    swept = [
        SweptPoint(point=point, what_if=answer.what_if, document=answer.document, holds=True)
        for point in sweep_points(BASE, first=SweepAxis.BATCH, second=SweepAxis.TP)
        for answer in (answered(point.scenario, profiles=None),)
    ]
    per_user, tpot = METRICS[0], METRICS[2]
    axes = (SweepAxis.BATCH, SweepAxis.TP)
    chart = sweep_chart(swept, x=per_user, y=tpot, axes=axes, bounds_s=(1.0, 0.01))
    assert chart.title == "TPOT over tokens/s per user"
    assert sweep_chart(swept, x=tpot, y=METRICS[5], axes=axes, bounds_s=(1.0, 0.01)).title == "Power over TPOT"
    left, above = chart.annotations
    assert left.shaded(chart.x) == (0.0, 100.0), "fewer tokens a second than 10 ms each"
    assert above.shaded(chart.y) == (10.0, chart.y.high), "longer than 10 ms"
    assert static_svg(chart).count("<rect") >= 2
    assert sum(shape["type"] == "rect" for shape in plotly_spec(chart)["layout"]["shapes"]) == 2
