"""Validation: what was predicted and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from app.address import opening
from app.fields import glossary, inputs, widgets
from app.fields.uploaded import session_profiles
from app.parts import actions, charts, display, tables
from app.parts.commands import today_command, validate_command
from simulator.errors import RoofcastError
from simulator.reports.answers.validation import predicted_words
from simulator.reports.charts.validation import (
    coverage_by_source_chart,
    error_by_source_chart,
    validation_scatter_chart,
)
from simulator.reports.content.quantities import count_text, counted_text, percent_text
from simulator.reports.tables.validation import (
    DEPLOYMENT_COLUMNS,
    KERNEL_COLUMNS,
    KNOWN_COLUMNS,
    PROVENANCE_COLUMNS,
    RUN_COLUMNS,
    SOURCE_COLUMNS,
    deployment_rows,
    kernel_rows,
    known_rows,
    provenance_rows,
    run_rows,
    source_rows,
    worst_first,
)
from simulator.reports.words.runs import MetricKind, metric_kind
from simulator.specs.hardware.calibration import calibrated_hardware
from simulator.specs.measured.scores import error_score
from simulator.specs.measured.validation_rows import (
    RunChoice,
    ValidationRow,
    load_today_runs,
    load_validation_rows,
    load_validation_table,
)
from simulator.specs.question.plan_values import HARDWARE

_ALL = "all"
_EVERY_RUN = "Every run"
_VIEWS = ("By deployment", "By source", _EVERY_RUN, "Kernels", "What is calibrated")


def _chosen(label: str, values: Iterable[str], *, key: str, help: str) -> str | None:
    """One of the values, or None for all."""
    found = widgets.choice(label, (_ALL, *values), key=key, default=_ALL, help=help)
    return None if found == _ALL else found


def _choice(rows: Sequence[ValidationRow]) -> tuple[str | None, MetricKind, RunChoice]:
    """Who measured, what kind of metric, and which runs; every figure of the page is of these alone."""
    with st.grid(3, min_column_width=display.FIELD_WIDTH, gap="small"):
        source = _chosen("Source", dict.fromkeys(row.source for row in rows), key="source", help="Who measured.")
        hardware = _chosen(
            "Accelerator", sorted({row.hardware for row in rows}), key="measured_on", help="What was measured."
        )
        kind = widgets.choice(
            "Kind", tuple(MetricKind), key="kind", default=MetricKind.LATENCY, help="Times, token rates or joules."
        )
        engine = _chosen("Engine", sorted({row.engine for row in rows}), key="measured_engine", help="What served.")
        model = _chosen("Model", sorted({row.model for row in rows}), key="measured_model", help="What was served.")
        mode = _chosen("Mode", sorted({row.mode for row in rows}), key="measured_mode", help=glossary.MODE)
    return source, MetricKind(kind), RunChoice(hardware=hardware, engine=engine, model=model, mode=mode)


def _filtered(
    rows: Sequence[ValidationRow], source: str | None, kind: MetricKind, choice: RunChoice
) -> list[ValidationRow]:
    try:
        found = choice.of(rows)
    except RoofcastError:
        return []
    return [row for row in found if source in (None, row.source) and metric_kind(row.metric) is kind]


def _kernels() -> None:
    measured = calibrated_hardware("vllm", group="gemm", profiles=session_profiles())
    name = widgets.choice(
        "Accelerator",
        measured,
        key="kernels_of",
        default=inputs.profile_name(HARDWARE),
        help="Those with measured kernels.",
    )
    tables.frame(kernel_rows(name, library="vllm", profiles=session_profiles()), KERNEL_COLUMNS)
    st.caption("Shapes that the fits never saw: one in five, chosen by a hash.")
    display.command_line(validate_command(name))


def _figures(shown: Sequence[ValidationRow]) -> None:
    """The answer and its figures."""
    score, stored = error_score(shown), load_validation_table()
    sources = dict.fromkeys(row.source for row in shown)
    display.headline(
        f"Half of {count_text(score.runs)} measurements are met within {percent_text(score.median)}",
        provenance="measured",
        detail=f"{counted_text(len(sources), 'source')}, whole runs from the first token to the last; "
        f"{predicted_words(stored)}",
    )
    coverage = "–" if score.coverage is None else percent_text(score.coverage)
    display.figures(
        [
            display.ShownFigure(label="Median error", text=percent_text(score.median), help="Half of all are closer."),
            display.ShownFigure(label="Mean error", text=percent_text(score.mean), help="Mean of absolute errors."),
            display.ShownFigure(label="In the 80 % interval", text=coverage, help=glossary.INTERVAL),
            display.ShownFigure(label="Measured values", text=count_text(score.runs), help="Stored with the package."),
        ],
        provenance="measured",
    )


def _by_deployment(shown: Sequence[ValidationRow], choice: RunChoice) -> None:
    rows = deployment_rows(shown)
    ticked = tables.frame(rows, DEPLOYMENT_COLUMNS, key="deployments_table")
    if ticked is None:
        st.caption("Tick a row to look at its runs alone.")
    else:
        hardware, engine, _, mode, *_ = rows[ticked]
        _only({"measured_on": hardware, "measured_engine": engine, "measured_mode": mode, "details": _EVERY_RUN})
    if {row.source for row in shown} == {load_today_runs().origin.source}:
        display.command_line(today_command(choice))


def _only(values: dict[str, object]) -> None:
    """A button that chooses what a row is of, and shows its runs."""
    asked = st.button(
        "Look at its runs alone",
        icon=":material/filter_alt:",
        on_click=actions.apply,
        args=(values,),
        help="Sets the fields above; every figure of the page is of these runs then.",
    )
    if asked:
        # The fields stand outside of this part of the page.
        st.rerun()


def _every_run(shown: Sequence[ValidationRow]) -> None:
    rows = worst_first(shown)
    tables.row_chosen(
        tables.frame(run_rows(rows), RUN_COLUMNS, wide=("deployment",), key="runs_table"),
        lambda row: opening.run_doors(rows[row]),
    )


def _by_source(rows: Sequence[ValidationRow]) -> None:
    grid = charts.side_by_side()
    with grid, st.container():
        charts.chart(error_by_source_chart(rows), key="errors", provenance="measured", sideways=True)
    with grid, st.container():
        charts.chart(coverage_by_source_chart(rows), key="coverage", provenance="measured")
    tables.frame(source_rows(rows), SOURCE_COLUMNS)


def _known(rows: Sequence[ValidationRow]) -> None:
    """What each word of a badge was worth on the stored runs, and where each accelerator stands."""
    for word, meaning in glossary.PROVENANCE.items():
        display.origin(word, meaning)
    tables.frame(provenance_rows(rows), PROVENANCE_COLUMNS)
    tables.frame(known_rows(library="vllm", profiles=session_profiles()), KNOWN_COLUMNS)


@st.fragment
def _details(shown: Sequence[ValidationRow], choice: RunChoice) -> None:
    """Tables below the chart, redrawn by themselves."""
    match widgets.view("Details", _VIEWS, key="details"):
        case "By source":
            _by_source(shown)
        case "Every run":
            _every_run(shown)
        case "Kernels":
            _kernels()
        case "What is calibrated":
            _known(shown)
        case _:
            _by_deployment(shown, choice)


def page() -> None:
    """The page."""
    try:
        rows = load_validation_rows()
    except RoofcastError as error:
        display.refusal(error)
        return
    top = st.container()
    source, kind, choice = _choice(rows)
    shown = _filtered(rows, source, kind, choice)
    with top:
        if not shown:
            display.headline("Nothing was measured with this choice", detail="Set one of the fields below to all.")
            return
        _figures(shown)
    charts.chart(validation_scatter_chart(shown), key="scatter", provenance="measured", height=480)
    _details(shown, choice)
