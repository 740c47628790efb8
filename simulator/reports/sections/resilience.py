"""What failures, maintenance and ramps do to a fleet: the loss cases, and the answers to what operators ask."""

from __future__ import annotations

from math import isfinite

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.fleet.replica_load import load_range
from simulator.planner.studies.resilience import Availability, Resilience
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, places, with_room
from simulator.reports.content.document import Block, Figure, Table, count, fraction, seconds, table
from simulator.reports.content.quantities import availability_text, counted_text, percent_text, seconds_text
from simulator.reports.words.fields import note_text
from simulator.specs.question.plan_values import watched
from simulator.units import SECONDS_PER_MINUTE, plain_text


def cases_blocks(plan: CapacityPlan) -> tuple[Table, ...]:
    """Latencies at the peak after each loss."""
    found = plan.study(Resilience)
    if found is None:
        return ()
    shown = [watched(case, plan.objectives, free="ttft tpot e2e") for case in found.cases]
    rows = [
        (
            *(case.name, count(case.replicas_left), fraction(case.load)),
            *map(seconds, seen.values()),
            "held" if case.holds else "missed",
        )
        for case, seen in zip(found.cases, shown, strict=True)
    ]
    heads = f"Lost: | Replicas left | Load | {' | '.join(shown[0])} | Objectives:"
    note = "Steps as predicted: the room that the plan leaves for slower ones helps here."
    return (table("degraded_cases", "After something fails, at the peak", heads, rows, note=note),)


def _availability(item: Availability) -> tuple[str, str]:
    both = "" if item.spares_each is None else " of both pools"
    return (
        f"availability {availability_text(item.target)}",
        f"{counted_text(item.spares, 'spare')}{both} needed ({item.devices:,} GPUs), "
        f"{availability_text(item.achieved)} reached; the plan's {item.present_spares} reach "
        f"{availability_text(item.present_achieved)}; a replica is down "
        f"{percent_text(item.unavailability, digits=3)} of the time ({note_text(item.source)})",
    )


def _survivors(plan: CapacityPlan, found: Resilience) -> str:
    """``prefill 2, 4 (2 replicas a server; planned: 1); decode 1, 2 (...)``: a pool's servers hold nothing else."""
    return "; ".join(
        f"{pool.role} {one}, {2 * one} ({counted_text(one, 'replica')} a server; planned: {spares})".lstrip()
        for pool, one, spares in zip(plan.best.pools, found.each_per_server, found.each_spares, strict=True)
    )


def operation_blocks(plan: CapacityPlan) -> tuple[Table, ...]:
    """Spares, start, restart, load and availability, one question a row."""
    found = plan.study(Resilience)
    if found is None:
        return ()
    start, rest, target = found.startup, found.maintenance, found.load_target
    decoding = plan.best.pools[-1].role
    binding = target.binding or "no objective fails below saturation"
    ramp = f"{plain_text(start.ramp_per_s2 * SECONDS_PER_MINUTE, digits=3)} requests/s more a minute"
    rows = [
        ("spares that survive a server, two servers", _survivors(plan, found)),
        (
            "start of a replica",
            f"{start.delay_s:,.0f} s ({note_text(start.source)}); replicas that run ahead of {ramp}: "
            f"{start.headroom_replicas:,}",
        ),
        (
            "rolling restart",
            f"{rest.at_once} at a time, {rest.rounds} rounds of {seconds_text(rest.round_s)}, "
            f"{seconds_text(rest.total_s)} in all; at the peak the objectives are {'held' if rest.holds else 'missed'} "
            "meanwhile",
        ),
        (
            f"load{f' of {decoding}' if decoding else ''} allowed by the objectives, steps as predicted",
            f"{percent_text(target.by_objectives)} ({binding}); planned: {percent_text(target.planned)}",
        ),
        *([_availability(found.availability)] if found.availability is not None else []),
    ]
    heads = "Question: | Answer::"
    return (table("resilience", "Failure and maintenance", heads, rows),)


def resilience_blocks(plan: CapacityPlan) -> tuple[Block, ...]:
    """The whole study: chart, loss cases, questions."""
    found = plan.study(Resilience)
    if found is None:
        return ()
    chart = Figure(chart=loss_cases_chart(found, fleet=plan.best))
    return (chart, *cases_blocks(plan), *operation_blocks(plan))


def loss_cases_chart(found: Resilience, *, fleet: Fleet) -> Chart:
    """Load of the replicas that remain, as a share of the rate that saturates them, after each loss.

    Cases that leave no replica have no load and are named in the caption. A load goes with the step time, and so do its
    whiskers: the ends of the 80 % interval.
    """
    loads = [("nothing", fleet.at_peak.load), *((case.name, case.load) for case in found.cases)]
    shown = [(name, 100 * load) for name, load in loads if isfinite(load)]
    gone = [name for name, load in loads if not isfinite(load)]
    allowed = 100 * found.load_target.by_objectives
    lows, highs = zip(*(load_range(load, fleet=fleet) for _, load in shown), strict=True)
    values, names = tuple(load for _, load in shown), tuple(name for name, _ in shown)
    labels = tuple(f"{load:.0f} %" for load in values)
    bars = Series(
        name="load", kind=SeriesKind.BAR, x=places(len(shown)), y=values, low=lows, high=highs, labels=labels, color=0
    )
    caption = (
        f"The line is what the objectives allow: {allowed:.0f} %. Spares carry load until they are needed. Whiskers: "
        "80 % interval; above 100 % the queue grows."
    )
    return Chart(
        key="loss_cases",
        title=_loss_title(found),
        x=Axis(title="Lost at the planned peak", categories=names),
        y=Axis(title="Load of what is left", unit="% of saturation", low=0.0, high=with_room(max([allowed, *highs]))),
        series=(bars,),
        annotations=(Annotation(text="", y=allowed),),
        caption=caption + (f" No replica is left after losing {' or '.join(gone)}." if gone else ""),
    )


def _loss_title(found: Resilience) -> str:
    missed = [case.name for case in found.cases if not case.holds]
    if not missed:
        return "The objectives hold in every loss case"
    held = [case.name for case in found.cases if case.holds]
    first = f"Losing {held[-1]} is covered" if held else "No loss is covered"
    return f"{first}; losing {missed[0]} breaks the objectives"
