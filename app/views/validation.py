"""Validation: what was predicted and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pandas as pd
import streamlit as st

from app import display, glossary, inputs
from app.commands import validate_command
from app.uploaded import session_profiles
from simulator.errors import RoofcastError
from simulator.reports.charts.validation import (
    coverage_by_source_chart,
    error_by_source_chart,
    is_time,
    validation_scatter_chart,
)
from simulator.reports.content.quantities import count_text, percent_text
from simulator.reports.tables.validation import (
    KERNEL_COLUMNS,
    KNOWN_COLUMNS,
    PROVENANCE_COLUMNS,
    RUN_COLUMNS,
    SOURCE_COLUMNS,
    ValidationSummary,
    kernel_rows,
    known_rows,
    provenance_rows,
    run_rows,
    source_rows,
    validation_summary,
)
from simulator.specs.hardware.calibration import calibrated_hardware
from simulator.specs.measured.validation_rows import ValidationRow, load_validation_rows, load_validation_table

_ALL = "all"
_VIEWS = ("By source", "Every run", "Kernels", "What is calibrated")
_KINDS = {"Latency": True, "Throughput": False}


def _table(rows: Sequence[tuple[str, ...]], columns: tuple[str, ...]) -> None:
    tall: Literal["content", "auto"] = "content" if len(rows) <= display.WHOLE_TABLE else "auto"
    st.dataframe(pd.DataFrame(rows, columns=list(columns)), hide_index=True, width="stretch", height=tall)


def _filtered(rows: tuple[ValidationRow, ...]) -> list[ValidationRow]:
    sources = (_ALL, *dict.fromkeys(row.source for row in rows))
    hardware = (_ALL, *sorted({row.hardware for row in rows}))
    left, middle, right = st.columns([2, 2, 1])
    with left:
        source = inputs.choice("Source", sources, key="source", default=_ALL, help="Who measured.")
    with middle:
        device = inputs.choice("Accelerator", hardware, key="measured_on", default=_ALL, help="What was measured.")
    with right:
        kind = inputs.choice("Kind", tuple(_KINDS), key="kind", default="Latency", help="Times or token rates.")
    return [
        row
        for row in rows
        if source in (_ALL, row.source) and device in (_ALL, row.hardware) and is_time(row.metric) == _KINDS[kind]
    ]


def _kernels() -> None:
    measured = calibrated_hardware("vllm", group="gemm", profiles=session_profiles())
    name = inputs.choice(
        "Accelerator", measured, key="kernels_of", default=inputs.DEFAULT_HARDWARE, help="Those with measured kernels."
    )
    _table(kernel_rows(name, library="vllm", profiles=session_profiles()), KERNEL_COLUMNS)
    st.caption("Shapes that the fits never saw: one in five, chosen by a hash.")
    display.reproduce(validate_command(name))


def _figures(summary: ValidationSummary) -> None:
    coverage = "–" if summary.coverage is None else percent_text(summary.coverage)
    display.figures(
        [
            display.Figure(
                label="Median error", text=percent_text(summary.median_error), help="Half of all are closer."
            ),
            display.Figure(label="Mean error", text=percent_text(summary.mean_error), help="Mean of absolute errors."),
            display.Figure(label="In the 80 % interval", text=coverage, help=glossary.INTERVAL),
            display.Figure(label="Measured values", text=count_text(summary.runs), help="Stored with the package."),
        ],
        provenance="measured",
    )


def _by_source(rows: Sequence[ValidationRow]) -> None:
    left, right = st.columns(2, gap="large")
    with left:
        display.chart(error_by_source_chart(rows), key="errors", provenance="measured", sideways=True)
    with right:
        display.chart(coverage_by_source_chart(rows), key="coverage", provenance="measured")
    _table(source_rows(rows), SOURCE_COLUMNS)


def _known(rows: Sequence[ValidationRow]) -> None:
    """What each word of a badge was worth on the stored runs, and where each accelerator stands."""
    for word, meaning in glossary.PROVENANCE.items():
        display.origin(word, meaning)
    _table(provenance_rows(rows), PROVENANCE_COLUMNS)
    _table(known_rows(library="vllm", profiles=session_profiles()), KNOWN_COLUMNS)


@st.fragment
def _details(rows: Sequence[ValidationRow], shown: Sequence[ValidationRow]) -> None:
    match display.view("Details", _VIEWS, key="details"):
        case "Every run":
            _table(run_rows(shown), RUN_COLUMNS)
        case "Kernels":
            _kernels()
        case "What is calibrated":
            _known(rows)
        case _:
            _by_source(rows)


def page() -> None:
    """The page."""
    try:
        rows = load_validation_rows()
    except RoofcastError as error:
        display.refusal(error)
        return
    summary, stored = validation_summary(rows), load_validation_table()
    display.headline(
        f"Half of {count_text(summary.runs)} measurements are met within {percent_text(summary.median_error)}",
        provenance="measured",
        detail=f"{summary.sources} sources, whole runs from the first token to the last; predicted on {stored.date} "
        f"by roofcast {stored.version}",
    )
    _figures(summary)
    shown = _filtered(rows)
    if shown:
        display.chart(validation_scatter_chart(shown), key="scatter", provenance="measured", height=480)
    else:
        st.caption("Nothing was measured with this choice.")
    _details(rows, shown)
