"""Below a plan: what else was tried, how it was derived, and what growth, failures, doubt and owning do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from app import display
from app.answers import latency_ranges, planned, studied
from app.commands import plan_command
from app.uploaded import session_profiles
from simulator.errors import RoofcastError
from simulator.planner.explain import explanation, nearest_rejections
from simulator.planner.gap.records import GapError
from simulator.planner.records import CapacityPlan
from simulator.reports.charts.load import replica_load_chart
from simulator.reports.charts.money import break_even_chart, owning_range_text, tco_waterfall_chart
from simulator.reports.charts.risk import capacity_demand_chart, cost_tornado_chart, loss_cases_chart, tornado_chart
from simulator.reports.content.quantities import count_text, price_text, range_text
from simulator.reports.content.text import StudySection
from simulator.reports.tables.gap import gap_sections
from simulator.reports.tables.plan import TABLE_COLUMNS, fleet_cells
from simulator.reports.tables.plan_figures import plan_figures
from simulator.reports.tables.plan_risk import (
    growth_section,
    rental_section,
    resilience_section,
    uncertainty_section,
)
from simulator.specs.question.plan import PlanSpec, plan_spec

_DRAWN = "with step times and demand drawn together"
VIEWS = (
    *("Options", "Rejected", "How it was derived", "Assumptions"),
    *("Growth", "Resilience", "Risk", "Rent or own", "Launch"),
)


def spec_of(flags: Mapping[str, object]) -> PlanSpec:
    """The question that the widgets ask, checked as strictly as a command line."""
    profiles = session_profiles()
    return plan_spec(dict(flags) if profiles is None else {**flags, "profiles": profiles})


def _options(plan: CapacityPlan) -> None:
    rows = [fleet_cells(fleet) for fleet in (plan.best, *plan.alternatives)]
    shown = [name for name in TABLE_COLUMNS if name != "price"]
    st.dataframe(
        pd.DataFrame(rows, columns=list(TABLE_COLUMNS)),
        hide_index=True,
        width="stretch",
        height="content" if len(rows) <= display.WHOLE_TABLE else "auto",
        column_order=shown,
    )
    st.caption(
        f"Cheapest first at {plan.best.cost.kind.replace('_', ' ')} prices; latencies at the planned peak with the "
        "spares down."
    )


def _rejected(plan: CapacityPlan) -> None:
    nearest = nearest_rejections(plan)
    if not nearest:
        st.success("Every accelerator that was tried can carry this demand.", icon=":material/check_circle:")
        return
    rows = [(item.hardware, item.label, item.message) for item in nearest]
    st.dataframe(
        pd.DataFrame(rows, columns=["accelerator", "nearest setup", "why not"]),
        hide_index=True,
        width="stretch",
        column_config={"why not": st.column_config.TextColumn(width="large")},
    )


def _growth(plan: CapacityPlan) -> None:
    """When the demand to come needs more, and by when that has to be ordered."""
    if plan.growth is None:
        st.caption("Set a growth of demand in the sidebar to see when the fleet has to grow, and when to order.")
        return
    chart = capacity_demand_chart(plan.growth, devices_now=plan.best.devices)
    today = range_text((plan.best.devices_low, plan.best.devices_high), count_text)
    display.chart(
        chart, key="growth_chart", provenance=plan.best.provenance, interval=f"{today} accelerators in the first month"
    )
    _section(growth_section(plan.growth))


def _resilience(plan: CapacityPlan, spec: PlanSpec, command: str) -> None:
    """What is left after losses, and how close to its limits a replica runs."""
    assert plan.resilience is not None, "asked for"
    known = plan.best.provenance
    left, right = st.columns(2, gap="large")
    with left:
        display.chart(loss_cases_chart(plan.resilience, fleet=plan.best), key="losses", provenance=known)
    with right:
        load = studied(plan, spec, command=command).load
        figures = plan_figures(plan, ranges=latency_ranges(plan))
        waits = next(item.interval for item in figures if item.key == "ttft_p95_s")
        display.chart(
            replica_load_chart(load, plan=plan),
            key="replica_load",
            provenance=known,
            interval=f"TTFT p95 as planned {waits}" if waits else "",
        )
    _section(resilience_section(plan.resilience))


def _risk(plan: CapacityPlan) -> None:
    """What moves the plan, and what breaks it."""
    found, best = plan.uncertainty, plan.best
    assert found is not None, "asked for"
    left, right = st.columns(2, gap="large")
    with left:
        display.chart(
            tornado_chart(found, base_devices=best.devices),
            key="tornado",
            provenance=best.provenance,
            interval=f"{range_text((found.devices.p10, found.devices.p90), count_text)} accelerators, {_DRAWN}",
        )
    if best.cost.per_hour is not None and found.cost_per_hour is not None:
        with right:
            ends = range_text((found.cost_per_hour.p10, found.cost_per_hour.p90), _price(best.cost.currency))
            display.chart(
                cost_tornado_chart(found, base_per_hour=best.cost.per_hour, currency=best.cost.currency),
                key="cost_tornado",
                provenance=best.provenance,
                interval=f"{ends} an hour, {_DRAWN}",
            )
    _section(uncertainty_section(found, currency=best.cost.currency))


def _price(currency: str) -> Callable[[float], str]:
    return partial(price_text, currency=currency)


def _ownership(plan: CapacityPlan, spec: PlanSpec, command: str) -> None:
    cost, known = studied(plan, spec, command=command).cost, plan.best.provenance
    if cost.owning is None:
        st.caption("No purchase price of this accelerator is known: owning cannot be compared with renting.")
    else:
        left, right = st.columns(2, gap="large")
        spread = owning_range_text(cost.owning, fleet=plan.best, currency=cost.currency)
        with left:
            described = tco_waterfall_chart(cost.owning, currency=cost.currency)
            display.chart(described, key="tco", provenance=known, interval=spread)
        with right:
            display.chart(break_even_chart(cost), key="break_even", provenance=known, interval=spread)
    if plan.rental is not None:
        _section(rental_section(plan.rental, currency=plan.best.cost.currency), titled=True)


def _launch(plan: CapacityPlan, spec: PlanSpec, command: str) -> None:
    for file in studied(plan, spec, command=command).handoff.files:
        st.markdown(f"**{file.name}**")
        st.code(file.text, language="yaml" if file.name.endswith("yaml") else "bash", wrap_lines=True)


def _section(section: StudySection, *, titled: bool = False) -> None:
    """A study as its table and its sentences; dollars are money here, not mathematics."""
    if titled:
        st.markdown(f"**{section.title}**")
    if section.rows:
        table = pd.DataFrame(section.rows, columns=_distinct(section.columns))
        st.dataframe(table, hide_index=True, width="stretch")
    st.markdown("\n".join(f"- {line[:1].upper()}{line[1:]}" for line in section.lines).replace("$", "\\$"))
    if section.laid_out:
        st.code("\n".join(section.laid_out), language=None)


def _distinct(columns: Sequence[str]) -> list[str]:
    """Column names, a repeated one told apart."""
    return [name if name not in columns[:place] else f"{name} (high)" for place, name in enumerate(columns)]


def gap_details(error: RoofcastError) -> None:
    """What is missing where nothing serves, and what would close it."""
    if isinstance(error, GapError):
        for section in gap_sections(error.gap, currency=error.currency):
            _section(section, titled=True)


_STUDIES: dict[str, dict[str, object]] = {
    "Resilience": {"resilience": True},
    "Risk": {"uncertainty": True},
    "Rent or own": {"rental": True},
}


@st.fragment
def details(flags: Mapping[str, object]) -> None:
    """One of VIEWS. Another one is shown without running the page again; studies are made when they are looked at."""
    view = display.view("Details", VIEWS, key="view")
    asked = {**flags, **_STUDIES.get(view, {})}
    command = plan_command(asked)
    try:
        spec = spec_of(asked)
        with st.spinner("Working it out", show_time=False):
            plan = planned(spec)
        _shown(view, plan, spec, command)
    except RoofcastError as error:
        display.refusal(error)
    display.reproduce(command)


def _shown(view: str, plan: CapacityPlan, spec: PlanSpec, command: str) -> None:
    match view:
        case "Rejected":
            _rejected(plan)
        case "How it was derived":
            st.markdown("\n".join(f"- {line}" for line in explanation(plan)).replace("$", "\\$"))
        case "Assumptions":
            rows = [(item.name, item.value, item.source) for item in plan.assumptions]
            st.dataframe(
                pd.DataFrame(rows, columns=["assumption", "value", "where it comes from"]),
                hide_index=True,
                width="stretch",
            )
        case "Growth":
            _growth(plan)
        case "Resilience":
            _resilience(plan, spec, command)
        case "Risk":
            _risk(plan)
        case "Rent or own":
            _ownership(plan, spec, command)
        case "Launch":
            _launch(plan, spec, command)
        case _:
            _options(plan)
