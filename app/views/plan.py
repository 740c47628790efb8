"""Plan: a demand and its objectives become a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from app import baseline, display, glossary, inputs
from app.answers import latency_ranges, planned, studied
from app.commands import plan_command
from app.downloads import downloads
from app.uploaded import session_profiles
from simulator.errors import RoofcastError
from simulator.planner.explain import explanation, nearest_rejections
from simulator.planner.records import CapacityPlan
from simulator.planner.workload_presets import WorkloadPreset
from simulator.reports.figures.memory_stack import memory_stack_chart
from simulator.reports.figures.money import break_even_chart, tco_waterfall_chart
from simulator.reports.figures.plan_options import plan_options_chart
from simulator.reports.figures.tornado import cost_tornado_chart, tornado_chart
from simulator.reports.plan_figures import plan_figures, plan_headline
from simulator.reports.plan_risk_tables import risk_sections
from simulator.reports.plan_tables import TABLE_COLUMNS, fleet_cells
from simulator.specs.loading import list_hardware
from simulator.specs.plan import PlanSpec, plan_spec

_HELP = {
    "devices": "All accelerators to obtain: replicas, spares and those that only fill up servers.",
    "per_month": glossary.COST,
    "per_million_output_tokens": "The share of the bill that answers take, over the tokens that they generate.",
    "power_typical_w": glossary.POWER,
    "ttft_p95_s": f"{glossary.TTFT} {glossary.PERCENTILE}",
    "tpot_p95_s": f"{glossary.TPOT} {glossary.PERCENTILE}",
}
_VIEWS = ("Options", "Rejected", "How it was derived", "Assumptions", "Risk", "Rent or own", "Launch")
_LARGEST_RATE = 100_000.0
_BASELINE = "plan_baseline"
_RISKS: dict[str, object] = {"resilience": True, "uncertainty": True}


def _policy_inputs() -> dict[str, object]:
    flags: dict[str, object] = {**inputs.weights_input("weights")}
    flags["utilization"] = st.slider(
        "Highest load of a replica",
        0.3,
        0.95,
        0.8,
        0.05,
        format="percent",
        key="load",
        bind="query-params",
        help=glossary.UTILISATION,
    )
    flags["spares"] = int(
        st.number_input("Spare replicas", 0, 20, 1, key="spares", bind="query-params", help=glossary.SPARES)
    )
    kinds = ("on_demand", "reserved_1y", "reserved_3y", "spot")
    flags["price_kind"] = inputs.choice("Prices", kinds, key="price", default="on_demand", help=glossary.COST)
    return flags


def _inputs() -> tuple[dict[str, object], WorkloadPreset]:
    with st.sidebar:
        preset = inputs.preset_input()
        flags: dict[str, object] = {"model": inputs.model_input()}
        flags["rps"] = inputs.number(
            "Requests per second at peak", key="rps", low=0.01, high=_LARGEST_RATE, value=1000.0, step=10.0,
            help="The rate that the fleet must carry.",
        )
        flags["isl"], flags["osl"] = inputs.length_inputs(preset)
        left, right = st.columns(2)
        with left:
            flags["ttft_p95"] = inputs.number(
                "TTFT p95 (s)", key="ttft", low=0.01, high=600.0, value=preset.ttft_p95_s, step=0.1, help=glossary.TTFT
            )
        with right:
            flags["tpot_p95"] = inputs.number(
                "TPOT p95 (s)", key="tpot", low=0.001, high=10.0, value=preset.tpot_p95_s, step=0.01,
                help=glossary.TPOT,
            )
        chosen = st.multiselect(
            "Accelerators", list_hardware(profiles=session_profiles()), key="gpus", bind="query-params",
            placeholder="all that have a price", help="Leave empty to compare everything.",
        )
        if chosen:
            flags["hardware"] = tuple(chosen)
        with st.expander("Lengths, formats, spares, prices"):
            flags["isl_cv"] = inputs.number(
                "Variation of prompts", key="isl_cv", low=0.0, high=5.0, value=preset.isl_cv, step=0.1,
                help=glossary.VARIATION,
            )
            flags["osl_cv"] = inputs.number(
                "Variation of answers", key="osl_cv", low=0.0, high=5.0, value=preset.osl_cv, step=0.1,
                help=glossary.VARIATION,
            )
            flags["prefix_hit"] = inputs.number(
                "Prompt tokens in cache", key="prefix", low=0.0, high=0.99, value=preset.prefix_hit, step=0.05,
                help=glossary.PREFIX,
            )
            flags |= _policy_inputs()
    return flags, preset


def _spec(flags: Mapping[str, object]) -> PlanSpec:
    profiles = session_profiles()
    return plan_spec(dict(flags) if profiles is None else {**flags, "profiles": profiles})


def _baseline(flags: dict[str, object]) -> tuple[CapacityPlan | None, str]:
    """What the numbers are compared with: the pinned plan, if there is one."""
    pinned = baseline.pinned(_BASELINE)
    if pinned is None:
        return None, ""
    try:
        shared = inputs.shared_plan(pinned)
        return (None, "") if shared is None or shared == _spec(flags) else (planned(shared), "baseline")
    except RoofcastError:
        return None, ""


def _figures(plan: CapacityPlan, compared: CapacityPlan | None, name: str) -> None:
    before = {item.key: item.value for item in plan_figures(compared)} if compared else {}
    display.figures(
        [
            display.Figure(
                label=item.label,
                text=item.text,
                help=_HELP[item.key],
                interval=item.interval,
                now=item.value,
                before=before.get(item.key),
            )
            for item in plan_figures(plan, ranges=latency_ranges(plan))
        ],
        provenance=plan.best.provenance,
        baseline=name,
    )


def _options(plan: CapacityPlan) -> None:
    rows = [fleet_cells(fleet) for fleet in (plan.best, *plan.alternatives)]
    shown = [name for name in TABLE_COLUMNS if name != "price"]
    st.dataframe(
        pd.DataFrame(rows, columns=list(TABLE_COLUMNS)), hide_index=True, width="stretch", column_order=shown
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
        pd.DataFrame(rows, columns=["accelerator", "nearest setup", "why not"]), hide_index=True, width="stretch"
    )


def _ownership(plan: CapacityPlan, spec: PlanSpec, command: str) -> None:
    try:
        cost = studied(plan, spec, command=command).cost
    except RoofcastError as error:
        display.refusal(error)
        return
    if cost.owning is None:
        st.caption("No purchase price of this accelerator is known: owning cannot be compared with renting.")
        return
    known = plan.best.provenance
    left, right = st.columns(2, gap="large")
    with left:
        display.chart(tco_waterfall_chart(cost.owning, currency=cost.currency), key="tco", provenance=known)
    with right:
        display.chart(break_even_chart(cost), key="break_even", provenance=known)


def _risk(flags: Mapping[str, object]) -> None:
    """What moves the plan, what breaks it, and what is left after losses."""
    with st.spinner("Drawing demands and step times"):
        plan = planned(_spec({**flags, **_RISKS}))
    found, best = plan.uncertainty, plan.best
    if found is not None:
        left, right = st.columns(2, gap="large")
        with left:
            display.chart(
                tornado_chart(found, base_devices=best.devices), key="tornado", provenance=best.provenance
            )
        if best.cost.per_hour is not None:
            with right:
                described = cost_tornado_chart(
                    found, base_per_hour=best.cost.per_hour, currency=best.cost.currency
                )
                display.chart(described, key="cost_tornado", provenance=best.provenance)
    for section in risk_sections(plan):
        st.markdown(f"**{section.title}**")
        st.markdown("\n".join(f"- {line}" for line in section.lines).replace("$", "\\$"))
        st.dataframe(
            pd.DataFrame(section.rows, columns=_distinct(section.columns)), hide_index=True, width="stretch"
        )


def _distinct(columns: Sequence[str]) -> list[str]:
    """Column names, a repeated one told apart."""
    return [name if name not in columns[:place] else f"{name} (high)" for place, name in enumerate(columns)]


def _launch(plan: CapacityPlan, spec: PlanSpec, command: str) -> None:
    try:
        files = studied(plan, spec, command=command).handoff.files
    except RoofcastError as error:
        display.refusal(error)
        return
    for file in files:
        st.markdown(f"**{file.name}**")
        st.code(file.text, language="yaml" if file.name.endswith("yaml") else "bash", wrap_lines=True)


def _details(plan: CapacityPlan, spec: PlanSpec, flags: Mapping[str, object]) -> None:
    command = plan_command(flags)
    match display.view("Details", _VIEWS, key="view"):
        case "Rejected":
            _rejected(plan)
        case "How it was derived":
            st.markdown("\n".join(f"- {line}" for line in explanation(plan)))
        case "Assumptions":
            st.markdown("\n".join(f"- {item.name}: **{item.value}** ({item.source})" for item in plan.assumptions))
        case "Risk":
            _risk(flags)
            command = plan_command({**flags, **_RISKS})
        case "Rent or own":
            _ownership(plan, spec, command)
        case "Launch":
            _launch(plan, spec, command)
        case _:
            _options(plan)
    display.reproduce(command)


def page() -> None:
    """The page."""
    flags, _ = _inputs()
    try:
        spec = _spec(flags)
        plan = planned(spec)
    except RoofcastError as error:
        display.refusal(error)
        return
    command, known = plan_command(flags), plan.best.provenance
    compared, name = _baseline(flags)
    display.headline(
        plan_headline(plan),
        provenance=known,
        detail=f"Limited by {plan.best.limit.resource}: {plan.best.limit.detail}",
    )
    _figures(plan, compared, name)
    display.warnings(plan.warnings)
    with st.container(horizontal=True, gap="small"):
        baseline.pin_button(_BASELINE, flags)
        with st.popover("Download", icon=":material/download:"):
            downloads(plan, spec, command)
    left, right = st.columns([3, 2], gap="large")
    with left:
        display.chart(plan_options_chart(plan), key="plan_options", provenance=known, sideways=True)
    with right:
        best = plan.best
        described = memory_stack_chart([(f"{best.hardware} {best.label}", best.replica.memory)])
        display.chart(described, key="plan_memory", provenance=known)
    _details(plan, spec, flags)
