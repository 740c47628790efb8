"""Sweep: one deployment along two axes, any metric against any other, and the frontier that no point beats."""

from __future__ import annotations

import streamlit as st

from app.address import baseline, opening
from app.fields import controls, glossary, inputs, question, widgets
from app.fields.techniques import speculation_input
from app.fields.uploaded import session_profiles
from app.parts import actions, charts, display, tables
from app.parts.answers import answered
from app.parts.commands import scenario_line, simulate_command
from simulator.errors import RoofcastError
from simulator.planner.deployment_sweep import SweepAxis, sweep_points
from simulator.planner.replica_setup import scenario_setup
from simulator.reports.charts.sweep import (
    METRICS,
    SWEPT_COLUMNS,
    SweepMetric,
    SweptPoint,
    best_point,
    holds,
    point_label,
    sweep_chart,
    sweep_headline,
    swept_rows,
)
from simulator.reports.content.document import BEST
from simulator.reports.tables.comparison import compared_name
from simulator.reports.tables.scenario_figures import least_known
from simulator.specs.question.scenario import ScenarioSpec

_AXES = tuple(axis.value for axis in SweepAxis)
_METRICS = {metric.name: metric for metric in METRICS}
_NAMES = tuple(_METRICS)
_POINT, _BASELINE = "point", "baseline"
_AXIS_WIDTH = 240
"""Pixels in which the longest name of a metric is not cut."""


def asked() -> tuple[ScenarioSpec, tuple[float, float]]:
    """The static batch that the sidebar asks about, and the bounds of TTFT and TPOT [s]."""
    with st.sidebar:
        preset = inputs.preset_input()
        batch = inputs.batch_input(preset)
        isl, osl = inputs.length_inputs(preset)
        bounds = inputs.objective_inputs(preset)
        fields = inputs.deployment_inputs()
        guesses = speculation_input()
    techniques = {} if guesses is None else {"speculation": guesses}
    lengths = {"batch_size": batch, "isl_tokens": isl, "osl_tokens": osl}
    scenario = inputs.scenario({"kind": "batch", **fields, **lengths, "techniques": techniques})
    return scenario, (bounds["ttft_p95"], bounds["tpot_p95"])


def _choice(label: str, options: tuple[str, ...], *, key: str, place: int, help: str) -> str:
    return widgets.choice(label, options, key=key, default=options[place], help=help)


def _swept(
    scenario: ScenarioSpec, axes: tuple[SweepAxis, SweepAxis], bounds_s: tuple[float, float]
) -> tuple[list[SweptPoint], dict[str, RoofcastError]]:
    """Every point of the grid that can be answered, and why the others cannot."""
    found, refused = [], {}
    ttft_s, tpot_s = bounds_s
    for point in sweep_points(scenario, first=axes[0], second=axes[1], profiles=session_profiles()):
        try:
            answer = answered(point.scenario, profiles=session_profiles())
        except RoofcastError as error:
            refused[point_label(point, *axes)] = error
            continue
        kept = holds(answer.document, ttft_s=ttft_s, tpot_s=tpot_s)
        found.append(SweptPoint(point=point, what_if=answer.what_if, document=answer.document, holds=kept))
    return found, refused


def _pinned(axes: tuple[SweepAxis, SweepAxis], bounds_s: tuple[float, float]) -> tuple[str, list[SweptPoint]] | None:
    """The pinned deployment along the same axes; None where nothing is pinned that can be swept."""
    fields = baseline.pinned(_BASELINE)
    try:
        shared = baseline.shared_scenario(fields) if fields is not None else None
        found = [] if shared is None else _swept(shared, axes, bounds_s)[0]
    except RoofcastError:
        return None
    return (f"pinned {compared_name(found[0].what_if)}", found) if found else None


def page() -> None:
    """The page."""
    scenario = None
    try:
        scenario, bounds_s = asked()
        top = st.container()
        with st.grid(4, min_column_width=_AXIS_WIDTH, gap="small"):
            first = _choice("Along", _AXES, key="axis", place=0, help="What changes from point to point of a series.")
            second = _choice("For each", _AXES, key="axis_2", place=1, help="What tells the series apart.")
            across = _choice("Across", _NAMES, key="x", place=0, help="The horizontal axis.")
            upward = _choice("Upward", _NAMES, key="y", place=1, help="The vertical axis.")
        # The bar after the axes, which say what of the load is not asked for alone.
        question.show()
        axes = (SweepAxis(first), SweepAxis(second))
        with st.spinner("Answering every point", show_time=False):
            swept, refused = _swept(scenario, axes, bounds_s)
        if not swept:
            raise next(iter(refused.values()))
    except RoofcastError as error:
        actions.refusal(error, scenario)
        actions.before(_answer)
        return
    with top:
        _headline(scenario, swept, axes, _METRICS[upward])
    actions.now(_answer, scenario, swept, refused, axes, bounds_s, (_METRICS[across], _METRICS[upward]))


def _headline(
    scenario: ScenarioSpec, swept: list[SweptPoint], axes: tuple[SweepAxis, SweepAxis], metric: SweepMetric
) -> None:
    with st.container(horizontal=True, gap="small", key="answer"):
        with st.container():
            display.headline(
                sweep_headline(best_point(swept, metric), metric=metric, axes=axes),
                provenance=least_known(item.document["provenance"] for item in swept),
                detail=glossary.SWEEP,
            )
        baseline.pin_button(_BASELINE, scenario.model_dump(mode="json", exclude_unset=True, exclude_none=True))


def _answer(
    scenario: ScenarioSpec,
    swept: list[SweptPoint],
    refused: dict[str, RoofcastError],
    axes: tuple[SweepAxis, SweepAxis],
    bounds_s: tuple[float, float],
    metrics: tuple[SweepMetric, SweepMetric],
) -> None:
    x, y = metrics
    known = least_known(item.document["provenance"] for item in swept)
    best = best_point(swept, y)
    against = _pinned(axes, bounds_s)
    if against is not None:
        name, points = against
        st.caption(f"Against {name}: {sweep_headline(best_point(points, y), metric=y, axes=axes)}")
    described = sweep_chart(swept, x=x, y=y, axes=axes, bounds_s=bounds_s, against=against)
    charts.chart(described, key="sweep_chart", provenance=known, picked=_POINT, height=480)
    labels = {point_label(item.point, *axes): item for item in swept}
    first_label = next(iter(labels)) if best is None else point_label(best.point, *axes)
    chosen = widgets.choice(
        "Look closer at", tuple(labels), key=_POINT, default=first_label, help="Click a point, or choose here."
    )
    opening.doors((scenario_setup(labels[chosen].point.scenario, name=chosen),))

    def doors_of(row: int) -> None:
        point = swept[row].point
        opening.doors((scenario_setup(point.scenario, name=point_label(point, *axes)),))

    ticked = tables.frame(swept_rows(swept, axes=axes), SWEPT_COLUMNS, key="swept_table")
    st.caption(f"{BEST}: the best of its column that holds the objectives. In brackets: {glossary.INTERVAL}")
    tables.row_chosen(ticked, doors_of)
    if refused:
        with st.expander(f"Refused ({len(refused)})", icon=":material/block:"):
            st.markdown("\n".join(f"- {name}: {controls.named(str(error))}" for name, error in refused.items()))
    lines = "\n".join(scenario_line(item.point.scenario) for item in swept)
    display.reproduce(simulate_command(), standard_input=lines)
