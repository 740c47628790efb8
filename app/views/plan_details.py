"""Below a plan: what else was tried, how it was derived, and what growth, failures, doubt and owning do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from app.address import opening
from app.fields import controls, question, widgets
from app.fields.uploaded import session_profiles
from app.parts import charts, display, tables
from app.parts.answers import latency_ranges, planned, studied
from app.parts.commands import plan_command
from app.parts.sections import section_body
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.gap.records import GapError
from simulator.planner.records import Rejection
from simulator.planner.replica_setup import ReplicaSetup, fleet_setups, refused_setup, share_setups
from simulator.planner.studies.growth import Growth
from simulator.planner.studies.stock_fleets import FleetShare, StockPlan
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.reports.charts.chart import Chart
from simulator.reports.charts.load import replica_load_chart
from simulator.reports.content.document import Section, Table
from simulator.reports.content.quantities import count_text, price_text, range_text
from simulator.reports.report import charts_of, study_sections
from simulator.reports.sections.answer import fleets_table, plan_figures, price_blocks
from simulator.reports.sections.cost import (
    break_even_chart,
    buying_text,
    cash_flow_chart,
    owning_range_text,
    tco_waterfall_chart,
)
from simulator.reports.sections.gap import gap_sections
from simulator.reports.sections.stock import stock_blocks, stock_money_blocks
from simulator.reports.words.derivation import explanation, nearest_rejections
from simulator.reports.words.fields import sentence
from simulator.reports.words.plan_inputs import plan_input, terms_text
from simulator.specs.question.plan import PlanSpec, plan_spec

_DRAWN = "with step times and demand drawn together"
LOOK, PART = "look", "part"
"""Keys of the deployment to look closer at, and of the fleet that a page is about where several serve."""
VIEWS = (
    *("Options", "Rejected", "How it was derived", "Assumptions"),
    *("Growth", "Resilience", "Risk", "Rent or own", "Launch"),
)

_OF_ALL = ("Options", "Rejected", "Assumptions", "Rent or own")
"""Those that compare what can be obtained; the others are about what serves."""
NEW_ALONE = "A new fleet alone, as if nothing existed"
_HANDED = "_handed_on"
_Offered = dict[str, Callable[[], tuple[ReplicaSetup, ...]]]
"""Kinds of replicas that pages open, by the name that they are chosen by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Flags of what is to come, for the views that ask about it."""

    growth: Mapping[str, object]
    failures: Mapping[str, object]


def fleet_text(plan: CapacityPlan) -> str:
    """``192 mi355x TP1 fp8``; where something exists, what works side by side."""
    stock = plan.study(StockPlan)
    fleets: Sequence[Fleet | FleetShare] = (plan.best,) if stock is None else stock.shares
    return " + ".join(controls.named(f"{count_text(item.devices)} {item.hardware} {item.label}") for item in fleets)


def hand_on(plan: CapacityPlan) -> None:
    """The pages after this one ask about the chosen fleet, until somebody chooses another deployment there; where
    something exists, about the part of what serves side by side that carries most.
    """
    stock = plan.study(StockPlan)
    setups = (
        fleet_setups(plan, 0) if stock is None else share_setups(max(stock.shares, key=lambda share: share.rate_per_s))
    )
    chosen = (plan.spec.model_dump_json(), setups)
    if st.session_state.get(_HANDED) != chosen:
        st.session_state[_HANDED] = chosen
        question.hand_on(opening.fleet_values(setups))


def _existing(plan: CapacityPlan) -> dict[str, FleetShare]:
    """Each part of what serves where something exists, by a name that says how much of it is there already."""
    stock = plan.study(StockPlan)
    found = {}
    for share in () if stock is None else stock.shares:
        kept = f"{count_text(share.from_stock)} in stock" if share.from_stock else ""
        new = f"{count_text(share.bought)} to obtain" if share.bought else ""
        name = f"{count_text(share.devices)} {share.hardware} {share.label}"
        found[controls.named(f"{name} ({', '.join(filter(None, (kept, new)))})")] = share
    return found


def place_of_part(plan: CapacityPlan) -> int:
    """Which of the fleets that serve side by side the rest of the page is about."""
    names = tuple(_existing(plan))
    if len(names) < 2:
        return 0
    help = "What exists and what is obtained serve side by side; what follows is about one of them."
    return names.index(widgets.choice("Of these fleets", names, key=PART, default=names[0], help=help))


def _refused(item: Rejection) -> tuple[ReplicaSetup, ...]:
    return (refused_setup(item.candidate),)


def closer(plan: CapacityPlan) -> None:
    """One of all fleets and refusals, chosen by its bar or by its name, and the pages that ask about it."""
    offered: _Offered = {name: partial(share_setups, share) for name, share in _existing(plan).items()}
    for place, fleet in enumerate(plan.fleets):
        offered[controls.named(f"{fleet.hardware} {fleet.label}")] = partial(fleet_setups, plan, place)
    for item in nearest_rejections(plan):
        offered[controls.named(f"{item.hardware} {item.label} (refused)")] = partial(_refused, item)
    names = tuple(offered)
    chosen = widgets.choice(
        "Look closer at", names, key=LOOK, default=names[0], help="Click a bar, or choose here, then open it on a page."
    )
    opening.doors(offered[chosen]())


def spec_of(flags: Mapping[str, object]) -> PlanSpec:
    """The question that the widgets ask, checked as strictly as a command line."""
    profiles = session_profiles()
    return plan_spec(dict(flags) if profiles is None else {**flags, "profiles": profiles})


def _options(plan: CapacityPlan) -> None:
    setups = [fleet_setups(plan, place) for place in range(len(plan.fleets))]
    shown = fleets_table(plan.fleets, objectives=plan.objectives)
    ticked = tables.framed(shown, currency=plan.best.cost.currency, key="options_table")
    tables.row_chosen(ticked, lambda row: opening.doors(setups[row]))
    st.caption(
        f"Cheapest first at prices {terms_text(plan.best.cost.terms)}; latencies at the planned peak with the "
        "spares down."
    )
    for section in (
        Section(key="stock", title="With what exists", blocks=stock_blocks(plan)),
        Section(key="price_ranking", title="Prices and the ranking", blocks=price_blocks(plan)),
    ):
        if section.blocks:
            st.markdown(f"**{section.title}**")
            section_body(section, currency=plan.best.cost.currency, whole=False)


def _rejected(plan: CapacityPlan) -> None:
    nearest = nearest_rejections(plan)
    if not nearest:
        st.success("Every accelerator that was tried can carry this demand.", icon=":material/check_circle:")
        return
    rows = [(item.hardware, item.label, controls.named(sentence(item.reason))) for item in nearest]
    setups = [(refused_setup(item.candidate),) for item in nearest]
    columns = ("accelerator", "nearest setup", "why not")

    def picked(row: int) -> None:
        # In full: a cell cuts it off.
        st.caption(rows[row][-1].replace("$", "\\$"))
        opening.doors(setups[row])

    tables.row_chosen(tables.frame(rows, columns, wide=("why not",), key="rejected_table"), picked)


def _growth(plan: CapacityPlan) -> None:
    """When the demand to come needs more, and by when that has to be ordered."""
    if plan.study(Growth) is None:
        st.caption("Set a growth of demand in the sidebar to see when the fleet has to grow, and when to order.")
        return
    today = range_text((plan.best.devices_low, plan.best.devices_high), count_text)
    _study(plan, "growth", intervals={"capacity_demand": f"{today} accelerators in the first month"})


def _resilience(plan: CapacityPlan, command: str) -> None:
    """What is left after losses, and how close to its limits a replica runs."""
    load = studied(plan, command=command).load
    figures = plan_figures(plan, ranges=latency_ranges(plan))
    waits = next(item for item in figures if item.key.startswith("ttft_"))
    intervals = {"load_latency": f"{waits.label} as planned {waits.interval}"} if waits.interval else {}
    _study(plan, "resilience", intervals=intervals, beside=(replica_load_chart(load, plan=plan),))


def _risk(plan: CapacityPlan) -> None:
    """What moves the plan, and what breaks it."""
    found, best = plan.study(Uncertainty), plan.best
    assert found is not None, "asked for"
    intervals = {"tornado": f"{range_text((found.devices.p10, found.devices.p90), count_text)} accelerators, {_DRAWN}"}
    if found.cost_per_hour is not None:
        ends = range_text((found.cost_per_hour.p10, found.cost_per_hour.p90), _price(best.cost.currency))
        intervals["cost_tornado"] = f"{ends} an hour, {_DRAWN}"
    _study(plan, "uncertainty", intervals=intervals)


def _study(plan: CapacityPlan, key: str, *, intervals: Mapping[str, str], beside: Sequence[Chart] = ()) -> None:
    """A study as the report has it: its charts side by side, then its tables and sentences."""
    sections = study_sections(plan, key)
    drawn = (*charts_of(*sections), *beside)
    grid = charts.side_by_side(max(1, len(drawn)))
    for chart in drawn:
        with grid, st.container():
            interval = intervals.get(chart.key, "")
            charts.chart(chart, key=chart.key, provenance=plan.best.provenance, interval=interval)
    for section in sections:
        section_body(section, currency=plan.best.cost.currency, whole=False)


def _price(currency: str) -> Callable[[float], str]:
    return partial(price_text, currency=currency)


def _ownership(plan: CapacityPlan, command: str) -> None:
    found, known = studied(plan, command=command), plan.best.provenance
    cost = found.cost
    st.markdown(buying_text(cost))
    if cost.owning is not None:
        grid = charts.side_by_side()
        spread = owning_range_text(cost.owning, fleet=plan.best, currency=cost.currency)
        with grid, st.container():
            described = tco_waterfall_chart(cost.owning, currency=cost.currency)
            charts.chart(described, key="tco", provenance=known, interval=spread)
        with grid, st.container():
            charts.chart(break_even_chart(cost), key="break_even", provenance=known, interval=spread)
    charts.chart(cash_flow_chart(cost), key="cash_flow", provenance=known)
    money = Section(key="stock_money", title="", blocks=stock_money_blocks(found))
    for section in (money, *study_sections(plan, "rental")):
        section_body(section, currency=plan.best.cost.currency, whole=False)


def _launch(plan: CapacityPlan, command: str) -> None:
    for file in studied(plan, command=command).handoff.files:
        st.markdown(f"**{file.name}**")
        st.code(file.text, language="yaml" if file.name.endswith("yaml") else "bash", wrap_lines=True)


def gap_details(error: RoofcastError) -> None:
    """What is missing where nothing serves, and what would close it."""
    if isinstance(error, GapError):
        for section in gap_sections(error.gap, currency=error.currency):
            titles = [block.title for block in section.blocks if isinstance(block, Table)]
            if not any(title.startswith(section.title) for title in titles):
                st.markdown(f"**{section.title}**")
            section_body(section, currency=error.currency, whole=False)


def _asked_by(view: str, outlook: Outlook) -> Mapping[str, object]:
    """What a view asks beside the plan."""
    match view:
        case "Growth":
            return outlook.growth
        case "Resilience":
            return {"resilience": True, **outlook.failures}
        case "Risk":
            return {"uncertainty": True}
        case "Rent or own":
            return {"rental": True}
    return {}


@st.fragment
def details(flags: Mapping[str, object], outlook: Outlook, place: int) -> None:
    """One of VIEWS, each worked out when it is looked at, without running the page again.

    place : of the fleet that it is about, where several serve side by side
    """
    view = widgets.view("More about this plan", VIEWS, key="view", folded=True)
    asked = {**flags, **_asked_by(view, outlook)}
    command = plan_command(asked)
    try:
        spec = spec_of(asked)
        if view:
            with st.spinner("Working it out", show_time=False):
                plan = planned(spec)
            about_all = view in _OF_ALL
            if about_all and spec.stock:
                st.markdown(f"**{NEW_ALONE}**")
            _shown(view, plan if about_all else plan.serving[place], command)
    except RoofcastError as error:
        display.refusal(error)
    display.command_line(command)


def _shown(view: str, plan: CapacityPlan, command: str) -> None:
    match view:
        case "Rejected":
            _rejected(plan)
        case "How it was derived":
            st.markdown("\n".join(f"- {line}" for line in explanation(plan)).replace("$", "\\$"))
        case "Assumptions":
            rows = [(item.name, item.value, item.source) for item in map(plan_input, plan.assumptions)]
            tables.read(rows, ("assumption", "value", "where it comes from"))
        case "Growth":
            _growth(plan)
        case "Resilience":
            _resilience(plan, command)
        case "Risk":
            _risk(plan)
        case "Rent or own":
            _ownership(plan, command)
        case "Launch":
            _launch(plan, command)
        case "Options":
            _options(plan)
