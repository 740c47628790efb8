"""Plan: a demand and its objectives become a fleet."""

from __future__ import annotations

import streamlit as st

from app import baseline, display, glossary, inputs
from app.answers import latency_ranges, planned
from app.commands import plan_command
from app.downloads import downloads
from app.uploaded import session_profiles
from app.variation import variation_inputs
from app.views.plan_details import details, gap_details, spec_of
from simulator.errors import RoofcastError
from simulator.phases.memory import cache_room
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.market import provider_kinds
from simulator.planner.plan import ILLUSTRATED_GROWTH_PER_MONTH
from simulator.planner.search.question import DEFAULT_UTILIZATION
from simulator.planner.studies.growth import DEFAULT_LEAD_TIME_DAYS
from simulator.planner.workload_presets import WorkloadPreset
from simulator.reports.charts.memory_stack import memory_stack_chart
from simulator.reports.content.quantities import count_text, range_text
from simulator.reports.sections.answer import plan_figures, plan_headline
from simulator.reports.sections.options import plan_options_chart
from simulator.reports.words.limits import detail_text, resource_text
from simulator.reports.words.warnings import warning_texts
from simulator.specs.loading import list_hardware
from simulator.specs.question.plan_values import DEFAULT_HORIZON_MONTHS

_HELP = {
    "devices": "All accelerators to obtain: replicas, spares and those that only fill up servers.",
    "per_month": glossary.COST,
    "per_million_output_tokens": "The share of the bill that answers take, over the tokens that they generate.",
    "power_typical_w": glossary.POWER,
    "ttft_p95_s": f"{glossary.TTFT} {glossary.PERCENTILE}",
    "tpot_p95_s": f"{glossary.TPOT} {glossary.PERCENTILE}",
}
_LARGEST_RATE = 100_000.0
_CHEAPEST, _MEDIAN, _ANYBODY = "cheapest to keep", "median", "all providers"
_TERMS = {_CHEAPEST: None, **{kind: kind for kind in ("on_demand", "reserved_1y", "reserved_3y", "spot")}}
_PRICES = {_MEDIAN: None, "lowest": "low", "highest": "high"}
_SELLERS = {_ANYBODY: None, **{f"{kind}s": kind for kind in provider_kinds()}}
_BASELINE = "plan_baseline"
_NO_TARGET = "no target"
_TARGETS = {_NO_TARGET: None, "99 %": 99.0, "99.9 %": 99.9, "99.99 %": 99.99}


def _policy_inputs() -> dict[str, object]:
    flags: dict[str, object] = {**inputs.weights_input("weights")}
    load = st.slider(
        "Highest load of a replica",
        0.3,
        0.95,
        DEFAULT_UTILIZATION,
        0.05,
        format="percent",
        key="load",
        bind="query-params",
        help=glossary.UTILISATION,
    )
    flags |= {} if load == DEFAULT_UTILIZATION else {"utilization": load}
    flags["spares"] = int(
        st.number_input("Spare replicas", 0, 20, 1, key="spares", bind="query-params", help=glossary.SPARES)
    )
    term = _TERMS[inputs.choice("Term", tuple(_TERMS), key="price", default=_CHEAPEST, help=glossary.COST)]
    taken = _PRICES[
        inputs.choice("Which of them", tuple(_PRICES), key="price_of", default=_MEDIAN, help=glossary.PRICE_OF)
    ]
    seller = _SELLERS[inputs.choice("Sold by", tuple(_SELLERS), key="seller", default=_ANYBODY, help=glossary.SELLER)]
    given = {"price_kind": term, "price_of": taken, "provider": seller}
    return flags | {name: value for name, value in given.items() if value}


def _outlook_inputs() -> dict[str, object]:
    """What is to come: growth, lead time, failures. None of it changes the fleet of today."""
    flags: dict[str, object] = {}
    growth = st.slider(
        "Growth of demand a month",
        0.0,
        0.3,
        ILLUSTRATED_GROWTH_PER_MONTH,
        0.01,
        format="percent",
        key="growth",
        bind="query-params",
        help=glossary.GROWTH,
    )
    months = st.slider(
        "Months ahead", 6, 60, DEFAULT_HORIZON_MONTHS, 6, key="horizon", bind="query-params", help=glossary.HORIZON
    )
    days = int(
        st.number_input(
            "Days from order to use",
            1,
            730,
            DEFAULT_LEAD_TIME_DAYS,
            key="lead",
            bind="query-params",
            help=glossary.LEAD_TIME,
        )
    )
    if growth > 0:
        flags["growth"] = growth
        flags |= {"horizon": months} if months != DEFAULT_HORIZON_MONTHS else {}
        flags |= {"lead_time": days} if days != DEFAULT_LEAD_TIME_DAYS else {}
    target = _TARGETS[
        inputs.choice("Availability", tuple(_TARGETS), key="target", default=_NO_TARGET, help=glossary.AVAILABILITY)
    ]
    return flags if target is None else {**flags, "availability": target}


def _demand_inputs(preset: WorkloadPreset) -> dict[str, object]:
    """Rate, lengths and objectives."""
    flags: dict[str, object] = {}
    flags["rate_per_s"] = inputs.number(
        "Requests per second at peak",
        key="rps",
        low=0.01,
        high=_LARGEST_RATE,
        value=1000.0,
        step=10.0,
        help="The rate that the fleet must carry.",
    )
    isl_tokens, osl_tokens = inputs.length_inputs(preset)
    flags |= {"workload": preset.word, **preset.changed({"isl_tokens": isl_tokens, "osl_tokens": osl_tokens})}
    left, right = st.columns(2)
    with left:
        flags["ttft_p95"] = inputs.number(
            "TTFT p95 (s)", key="ttft", low=0.01, high=600.0, value=preset.ttft_p95_s, step=0.1, help=glossary.TTFT
        )
    with right:
        flags["tpot_p95"] = inputs.number(
            "TPOT p95 (s)", key="tpot", low=0.001, high=10.0, value=preset.tpot_p95_s, step=0.01, help=glossary.TPOT
        )
    return flags


def _inputs() -> dict[str, object]:
    with st.sidebar:
        preset = inputs.preset_input()
        flags: dict[str, object] = {"model": inputs.model_input(), **_demand_inputs(preset)}
        chosen = st.multiselect(
            "Accelerators",
            list_hardware(profiles=session_profiles()),
            key="gpus",
            bind="query-params",
            placeholder="all that have a price",
            help="Leave empty to compare everything.",
        )
        if chosen:
            flags["hardware"] = tuple(chosen)
        with st.expander("Lengths, formats, spares, prices"):
            isl_cv, osl_cv, prefix_hit = variation_inputs(preset, highest_prefix=0.99)
            flags |= preset.changed({"isl_cv": isl_cv, "osl_cv": osl_cv, "prefix_hit": prefix_hit})
            flags |= _policy_inputs()
        with st.expander("Growth and failures"):
            flags |= _outlook_inputs()
    return flags


def _baseline(flags: dict[str, object]) -> tuple[CapacityPlan | None, str]:
    """What the numbers are compared with: the pinned plan, if there is one."""
    pinned = baseline.pinned(_BASELINE)
    if pinned is None:
        return None, ""
    try:
        shared = inputs.shared_plan(pinned)
        return (None, "") if shared is None or shared == spec_of(flags) else (planned(shared), "baseline")
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


def _memory(best: Fleet) -> None:
    """What fills a device of the chosen fleet, and how sure the room for the cache is."""
    replica = best.replica
    room = cache_room(replica.memory, block_size_tokens=replica.deployment.engine.block_size_tokens)
    ends = range_text((room.low_tokens, room.high_tokens), count_text)
    display.chart(
        memory_stack_chart([(f"{best.hardware} {best.label}", replica.memory)]),
        key="plan_memory",
        provenance=best.provenance,
        interval=f"{ends} cached tokens" if room.high_tokens > 0 else "",
    )


def page() -> None:
    """The page."""
    flags = _inputs()
    try:
        spec = spec_of(flags)
        plan = planned(spec)
    except RoofcastError as error:
        display.refusal(error)
        gap_details(error)
        return
    command, known = plan_command(flags), plan.best.provenance
    compared, name = _baseline(flags)
    display.headline(
        plan_headline(plan),
        provenance=known,
        detail=f"Limited by {resource_text(plan.best.limit)}: {detail_text(plan.best.limit)}",
    )
    _figures(plan, compared, name)
    display.warnings(warning_texts(plan.warnings))
    with st.container(horizontal=True, gap="small"):
        baseline.pin_button(_BASELINE, flags)
        with st.popover("Download", icon=":material/download:"):
            downloads(plan, spec, command)
    left, right = st.columns([3, 2], gap="large")
    with left:
        display.chart(plan_options_chart(plan), key="plan_options", provenance=known, sideways=True)
    with right:
        _memory(plan.best)
    details(flags)
