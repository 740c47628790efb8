"""Downloads of a plan: every form of the report, and the plan itself."""

from __future__ import annotations

from functools import partial
from itertools import cycle

import streamlit as st

from app.parts.answers import checked, report_file
from app.parts.charts import is_installed
from simulator.planner.capacity_plan import CapacityPlan
from simulator.reports.formats.files import ReportFormat
from simulator.reports.tables.plan_document import plan_document

_FORMATS = (
    ("PDF", ReportFormat.PDF, "application/pdf"),
    ("Excel", ReportFormat.XLSX, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("HTML", ReportFormat.HTML, "text/html"),
    ("Markdown", ReportFormat.MD, "text/markdown"),
    ("CSV", ReportFormat.CSV, "text/csv"),
    ("JSON report", ReportFormat.JSON, "application/json"),
)
_NEEDS = {ReportFormat.PDF: "typst", ReportFormat.XLSX: "xlsxwriter", ReportFormat.HTML: "jinja2"}


@st.fragment
def downloads(plan: CapacityPlan, command: str) -> None:
    """Every form of the report; each is made when it is asked for."""
    st.caption("The report that you can sign: recommendation, derivation, cost of ownership, risks, sources.")
    columns = st.columns(2)
    for (label, form, mime), column in zip(_FORMATS, cycle(columns), strict=False):
        with column:
            if not is_installed(_NEEDS.get(form, "json")):
                st.caption(f"{label}: install the extra report")
                continue
            st.download_button(
                label,
                partial(report_file, plan, command, form),
                f"roofcast-plan.{form.value}",
                mime,
                on_click="ignore",
                icon=":material/download:",
                key=f"get_{form.value}",
                width="stretch",
            )
    st.download_button(
        "Plan as JSON",
        lambda: plan_document(checked(plan)),
        "plan.json",
        "application/json",
        on_click="ignore",
        icon=":material/data_object:",
        key="get_plan",
        width="stretch",
        help="The document that plan-capacity --json prints.",
    )
