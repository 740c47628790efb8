"""Plan: a demand and its objectives become a fleet."""

from __future__ import annotations

import streamlit as st

from app.address import baseline
from app.fields import controls, glossary, inputs, question, settled, widgets
from app.fields.variation import variation_inputs
from app.parts import actions, charts, display
from app.parts.answers import checked, is_checked, judged, latency_ranges, planned
from app.parts.commands import plan_command
from app.parts.downloads import downloads
from app.parts.limits import LARGEST_RATE, limit_inputs, solvers
from app.views.plan_details import (
    LOOK,
    NEW_ALONE,
    Outlook,
    closer,
    details,
    fleet_text,
    gap_details,
    hand_on,
    place_of_part,
    spec_of,
)
from simulator.errors import RoofcastError
from simulator.phases.memory import cache_room
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import DEFAULT_SPARES, Fleet
from simulator.planner.money.market import provider_kinds
from simulator.planner.plan import ILLUSTRATED_GROWTH_PER_MONTH
from simulator.planner.search.question import DEFAULT_UTILIZATION
from simulator.planner.studies.growth import DEFAULT_LEAD_TIME_DAYS
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.reports.charts.chart import Gauge
from simulator.reports.charts.latency_breakdown import memory_stack_chart
from simulator.reports.content.quantities import Quantity, count_text, range_text
from simulator.reports.decide.decision import verdict_line, verdict_text
from simulator.reports.sections.answer import (
    checked_text,
    fleet_equation,
    plan_figures,
    plan_headline,
    stock_checked_texts,
)
from simulator.reports.sections.options import plan_options_chart
from simulator.reports.sections.stock import stock_figures, stock_gauges, stock_verdict_line
from simulator.reports.words.derivation import detail_text
from simulator.reports.words.fields import note_texts
from simulator.reports.words.plan_inputs import resource_text, warning_texts
from simulator.specs.question.plan_values import DEFAULT_HORIZON_MONTHS, PLANNED_MODEL, PLANNED_RATE_PER_S
from simulator.traffic.workload_presets import CHAT, WorkloadPreset

_HELP = {
    "devices": "All accelerators: replicas, spares and those that only fill up servers.",
    "bought": "Of them beyond what exists, in whole servers; the rent is theirs alone.",
    "per_month": glossary.COST,
    "per_million_output_tokens": "The whole bill over the tokens that answers hold, as the command prints it.",
    "power_typical_w": glossary.POWER,
}
_LATENCIES = {"ttft": glossary.TTFT, "tpot": glossary.TPOT, "e2e_": glossary.E2E}
_CHEAPEST, _MEDIAN, _ANYBODY = "cheapest to keep", "median", "all providers"
_TERMS = {_CHEAPEST: None, **{kind: kind for kind in ("on_demand", "reserved_1y", "reserved_3y", "spot")}}
_PRICES = {_MEDIAN: None, "lowest": "low", "highest": "high"}
_SELLERS = {_ANYBODY: None, **{f"{kind}s": kind for kind in provider_kinds()}}
_BASELINE = "plan_baseline"
_UNITS = ("server", "device")
_USUAL = "Usual"
_CONFIDENCE = {"Cheapest": 50, _USUAL: None, "Robust": 90}
_VERIFY = "verify"
_NO_TARGET = "no target"
_TARGETS = {_NO_TARGET: None, "99 %": 99.0, "99.9 %": 99.9, "99.99 %": 99.99}


def _policy_inputs() -> dict[str, object]:
    flags: dict[str, object] = {**inputs.weights_input("formats")}
    load = widgets.share(
        "Highest load of a replica",
        key="load",
        low=0.3,
        high=0.95,
        value=DEFAULT_UTILIZATION,
        step=0.05,
        help=glossary.UTILISATION,
    )
    flags |= {} if load == DEFAULT_UTILIZATION else {"utilization": load}
    spares = widgets.count("Spare replicas", key="spares", low=0, high=20, value=DEFAULT_SPARES, help=glossary.SPARES)
    flags |= {} if spares == DEFAULT_SPARES else {"spares": spares}
    unit = widgets.choice("Bought by the", _UNITS, key="round", default=_UNITS[0], help=glossary.ROUNDED)
    flags |= {} if unit == _UNITS[0] else {"round_to": unit}
    flags |= inputs.prices_input()
    term = _TERMS[widgets.choice("Term", tuple(_TERMS), key="price", default=_CHEAPEST, help=glossary.COST)]
    taken = _PRICES[
        widgets.choice("Which of them", tuple(_PRICES), key="price_of", default=_MEDIAN, help=glossary.PRICE_OF)
    ]
    seller = _SELLERS[widgets.choice("Sold by", tuple(_SELLERS), key="seller", default=_ANYBODY, help=glossary.SELLER)]
    given = {"price_kind": term, "price_of": taken, "provider": seller}
    simulated = widgets.switch("Simulate the best fleets", key=_VERIFY, help=glossary.VERIFY)
    return flags | {name: value for name, value in {**given, "verify": simulated}.items() if value}


def _outlook_inputs() -> Outlook:
    """What is to come: growth, lead time, failures. None of it changes the fleet of today."""
    growth = widgets.share(
        "Growth of demand a month",
        key="growth",
        low=0.0,
        high=0.3,
        value=ILLUSTRATED_GROWTH_PER_MONTH,
        step=0.01,
        help=glossary.GROWTH,
    )
    months = widgets.whole(
        "Months ahead", key="horizon", low=6, high=60, step=6, value=DEFAULT_HORIZON_MONTHS, help=glossary.HORIZON
    )
    days = widgets.count(
        "Days from order to use", key="lead", low=1, high=730, value=DEFAULT_LEAD_TIME_DAYS, help=glossary.LEAD_TIME
    )
    grown: dict[str, object] = {}
    if growth > 0:
        grown["growth"] = growth
        grown |= {"horizon": months} if months != DEFAULT_HORIZON_MONTHS else {}
        grown |= {"lead_time": days} if days != DEFAULT_LEAD_TIME_DAYS else {}
    target = _TARGETS[
        widgets.choice("Availability", tuple(_TARGETS), key="target", default=_NO_TARGET, help=glossary.AVAILABILITY)
    ]
    return Outlook(growth=grown, failures={} if target is None else {"availability": target})


def _demand_inputs(preset: WorkloadPreset) -> dict[str, object]:
    """Rate, lengths and objectives: those that are not the kind of demand's own."""
    flags: dict[str, object] = {}
    flags["rate_per_s"] = widgets.number(
        "Requests per second at peak",
        key="rps",
        low=0.01,
        high=LARGEST_RATE,
        value=PLANNED_RATE_PER_S,
        step=10.0,
        help="The rate that the fleet must carry.",
    )
    isl_tokens, osl_tokens = inputs.length_inputs(preset)
    lengths = preset.changed({"isl_tokens": isl_tokens, "osl_tokens": osl_tokens})
    # Other lengths than the kind's would be taken for those of another kind where it is not named.
    flags |= {"workload": preset.word, **lengths} if lengths or preset is not CHAT else {}
    bounds = inputs.objective_inputs(preset)
    own = {"ttft_p95": preset.ttft_p95_s, "tpot_p95": preset.tpot_p95_s}
    return flags | (bounds if bounds != own else {})


def _confidence_input() -> dict[str, object]:
    """How many of the draws of step times the fleet has to hold in."""
    named = widgets.view("How sure", tuple(_CONFIDENCE), key="sure", default=_USUAL)
    sure = _CONFIDENCE[named]
    return {} if sure is None else {"confidence": sure}


def _accelerators(label: str, field: str, *, key: str, without: str, help: str) -> dict[str, object]:
    names, spelled = inputs.hardware_names(), inputs.known_hardware
    chosen = widgets.several(label, names, key=key, placeholder=without, help=help, spelled=spelled)
    return {field: chosen} if chosen else {}


def asked() -> tuple[dict[str, object], Outlook]:
    """The flags of the plan that the page asks for, and those of what is to come."""
    with st.sidebar:
        preset = inputs.preset_input()
        demand = _demand_inputs(preset)
        flags: dict[str, object] = {"rate_per_s": demand["rate_per_s"], "model": inputs.model_input(PLANNED_MODEL)}
        flags |= demand
        every = "Leave empty to compare everything."
        flags |= _accelerators("Accelerators", "hardware", key="gpus", without="all that have a price", help=every)
        with st.expander("Lengths, formats, spares, prices"):
            apart = "Accelerators that compute prompts for decode pools on another: compared beside one kind alone."
            flags |= _accelerators(
                "Prefill pools on", "prefill_hardware", key="prefill_gpus", without="the same accelerator", help=apart
            )
            isl_cv, osl_cv, prefix_hit = variation_inputs(preset, highest_prefix=0.99)
            flags |= preset.changed({"isl_cv": isl_cv, "osl_cv": osl_cv, "prefix_hit": prefix_hit})
            flags |= inputs.hours_input()
            flags |= _policy_inputs()
        with st.expander("Limits, and what exists"):
            flags |= limit_inputs()
        with st.expander("Growth and failures"):
            outlook = _outlook_inputs()
    # Beside the answer, which it changes most.
    return flags | _confidence_input(), outlook


def _baseline(flags: dict[str, object]) -> tuple[CapacityPlan | None, str]:
    """What the numbers are compared with: the pinned plan, if there is one."""
    pinned = baseline.pinned(_BASELINE)
    if pinned is None:
        return None, ""
    try:
        shared = baseline.shared_plan(pinned)
        return (None, "") if shared is None or shared == spec_of(flags) else (planned(shared), "baseline")
    except RoofcastError:
        return None, ""


def _of(plan: CapacityPlan) -> tuple[Quantity, ...]:
    """The numbers of what works: where something exists, of all of it side by side."""
    stock = plan.study(StockPlan)
    return plan_figures(plan, ranges=latency_ranges(plan)) if stock is None else stock_figures(plan, stock)


def _gauges(plan: CapacityPlan) -> dict[str, Gauge]:
    """Latencies against the objectives."""
    if (stock := plan.study(StockPlan)) is not None:
        return stock_gauges(plan, stock)
    values, ranges = plan.best.degraded.objectives_s, latency_ranges(plan).objectives_s
    chances = judged(plan).confidence.chances
    return {
        f"{item.key}_s": Gauge(bound_s=item.bound_s, value_s=value_s, ends_s=ends_s, chance=chance)
        for item, value_s, ends_s, chance in zip(plan.objectives, values, ranges, chances, strict=True)
    }


def _figures(plan: CapacityPlan, compared: CapacityPlan | None, name: str) -> None:
    stock, shown = plan.study(StockPlan), _of(plan)
    latencies = {item.key: _LATENCIES.get(item.key[:4]) for item in shown}
    helped = _HELP | {key: f"{text} {glossary.PERCENTILE}" for key, text in latencies.items() if text}
    display.figures(
        display.explained(shown, help=helped, before=_of(compared) if compared else (), gauges=_gauges(plan)),
        provenance=plan.best.provenance if stock is None else stock.provenance,
        baseline=name,
    )


def _memory(best: Fleet) -> None:
    """What fills a device of the chosen fleet, and how sure the room for the cache is."""
    replica = best.replica
    room = cache_room(replica.memory, block_size_tokens=replica.deployment.engine.block_size_tokens)
    ends = range_text((room.low_tokens, room.high_tokens), count_text)
    charts.chart(
        memory_stack_chart(
            [(f"{best.hardware} {best.label}", replica.memory)], ranks=replica.deployment.parallelism.dp_size
        ),
        key="plan_memory",
        provenance=best.provenance,
        interval=f"{ends} cached tokens" if room.high_tokens > 0 else "",
    )


@st.fragment
def _simulated(plan: CapacityPlan, question: str) -> None:
    """What the event simulation says of the fleet, once the reader stays with the question."""
    place = st.empty()
    if not is_checked(plan):
        if not settled.stays(question, key="settled"):
            place.caption("Sized in steady state, simulated in a moment.")
            return
        place.caption("Sized in steady state, being simulated.")
    try:
        found = checked(plan)
    except RoofcastError as error:
        display.refusal(error)
        return
    if found.best is not plan.best:
        # Sized again: every number of the page is of another fleet.
        st.rerun()
    with place.container():
        _check_said(plan, found)


def _check_said(plan: CapacityPlan, found: CapacityPlan) -> None:
    stocked = stock_checked_texts(found)
    if stocked:
        st.caption("\n\n".join(stocked))
    elif found.verification is None and checked_text(found):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption("Sized in steady state, not simulated yet.", width="content")
            asked = st.button(
                "Simulate it",
                key="simulate",
                type="tertiary",
                icon=":material/play_arrow:",
                on_click=actions.apply,
                args=({_VERIFY: True},),
                help=glossary.VERIFY,
            )
        if asked:
            # Another question for the whole page, not for this part of it.
            st.rerun()
    elif checked_text(found):
        st.caption(checked_text(found))
    display.warnings(warning_texts([item for item in found.warnings if item not in plan.warnings]))


def _look_at(name: str) -> None:
    """Offer the fleet whose bar was clicked."""
    st.session_state[LOOK] = controls.named(name)


def page() -> None:
    """The page."""
    with st.container(horizontal=True, key="verdict", vertical_alignment="center", gap="medium"):
        place = st.container()
        flags, outlook = asked()
    question.show()
    try:
        spec = spec_of(flags)
        solvers(spec_of({"workload": question.preset().word, **flags}))
        with place, st.spinner("Planning the fleet", show_time=False):
            plan = planned(spec)
    except RoofcastError as error:
        actions.refusal(error)
        gap_details(error)
        actions.before(_answer)
        return
    question.show(fleet=fleet_text(plan))
    hand_on(plan)
    with place:
        _verdict(plan)
    actions.now(_answer, plan, flags, outlook)


def _verdict(plan: CapacityPlan) -> None:
    """Whether it serves: where something exists, what works side by side."""
    found, stock = judged(plan), plan.study(StockPlan)
    if stock is None:
        display.verdict(found.confidence.chance, verdict_line(found, plan))
        return
    display.verdict(min(stock.chances, default=1.0), stock_verdict_line(plan, stock))


def _answer(plan: CapacityPlan, flags: dict[str, object], outlook: Outlook) -> None:
    """The answer."""
    command, known = plan_command(flags), plan.best.provenance
    compared, name = _baseline(flags)
    found = judged(plan)
    display.headline(plan_headline(plan), provenance=known, detail=fleet_equation(plan))
    _figures(plan, compared, name)
    with st.container(horizontal=True, gap="small"):
        baseline.pin_button(_BASELINE, flags)
        with st.popover("Download", icon=":material/download:"):
            downloads(plan, command)
    display.warnings(warning_texts(plan.warnings))
    if (stock := plan.study(StockPlan)) is not None and stock.unused:
        st.caption(f"Left over: {'; '.join(note_texts(stock.unused))}.")
    _simulated(plan, command)
    place = place_of_part(plan)
    part = plan.serving[place]
    if found.rival and not plan.spec.stock:
        st.caption(found.rival.replace("$", "\\$"))
    with st.expander("How sure it is, and what limits it", icon=":material/rule:"):
        limit = f"Limited by {resource_text(part.best.limit)}: {detail_text(part.best.limit)}."
        st.markdown(f"- {verdict_text(judged(part), part)}\n- {limit}\n- {glossary.SURE}")
    grid = charts.side_by_side()
    with grid, st.container():
        if plan.spec.stock:
            st.markdown(f"**{NEW_ALONE}**")
        charts.chart(plan_options_chart(plan), key="plan_options", provenance=known, sideways=True, picked=_look_at)
        closer(plan)
    with grid, st.container():
        _memory(part.best)
    details(flags, outlook, place)
