"""What to check before a plan is used, in words."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.planner.fleet.records import availability_text
from simulator.planner.records import (
    AcceptanceAssumed,
    AnswersMayDiffer,
    AvailabilityMissed,
    BusiestMinute,
    FewerDevices,
    HighUtilization,
    ManyDevices,
    NoSpareReplica,
    NotConfirmed,
    PlanWarning,
    PriceUnknown,
    PromptsNotChunked,
    SmallerUnpriced,
    StalePrice,
    TraceLeftOut,
    TraceRepaired,
)
from simulator.reports.words.flags import burst_text, flag_of, flag_text
from simulator.units import percent_text


def _way_out(way: FewerDevices) -> str:
    return f"{way.hardware if way.change is None else flag_text(way.change)} needs {way.devices}"


def _many(item: ManyDevices) -> str:
    ways = dict.fromkeys(_way_out(way) for way in item.ways_out)
    advice = "; ".join(ways) or "no single change of format or hardware halves that"
    return f"{item.devices} GPUs is implausibly many for one model on {item.hardware}: {advice}"


def _left_out(item: TraceLeftOut) -> str:
    return f"of the trace the plan leaves out bursts: {burst_text(item.dispersion)}"


def _availability(item: AvailabilityMissed) -> str:
    planned = f"{item.spares} spares" if item.spares != 1 else "1 spare"
    needed = f"{flag_of('spares')} {item.spares_needed}" + (" (of each pool)" if item.of_each_pool else "")
    achieved, target = availability_text(item.achieved), availability_text(item.target)
    return f"{planned} give an availability of {achieved}, below {target}: that takes {needed}"


def warning_text(item: PlanWarning) -> str:
    """One sentence, without its capital and its stop."""
    match item:
        case ManyDevices():
            return _many(item)
        case AnswersMayDiffer():
            return (
                f"answers may differ from {item.model} as published ({item.quality}): measure them, or set "
                f"{flag_of('max_quality_loss')}"
            )
        case AcceptanceAssumed():
            return "how many guesses of speculation are accepted is assumed: measure it on your own requests"
        case NoSpareReplica():
            return "no spare replica: losing one puts the rest above their planned load"
        case HighUtilization():
            load = percent_text(item.utilization)
            return f"replicas planned at {load} of saturation: a small error overloads them"
        case PriceUnknown():
            return f"no price is known for {item.hardware}: add one to your price list ({flag_of('prices')})"
        case SmallerUnpriced():
            return f"ranked last for want of a price, though smaller: {', '.join(item.hardware)}"
        case StalePrice():
            return (
                f"the price of {item.hardware} is of {item.newest}, {item.days} days old: the list {item.price_list} "
                f"calls prices stale after {item.allowed_days} (`roofcast prices import`, {flag_of('prices')})"
            )
        case PromptsNotChunked():
            return "this engine does not chunk prompts: the plan's mixed steps are optimistic about TPOT percentiles"
        case TraceRepaired():
            return item.note
        case TraceLeftOut():
            return _left_out(item)
        case AvailabilityMissed():
            return _availability(item)
        case NotConfirmed():
            why = item.reason or f"an objective fails there: plan with a lower {flag_of('utilization')}"
            return f"the event simulation does not confirm this fleet ({why})"
        case BusiestMinute():
            return (
                "the objectives hold over all requests of the trace, not in every minute of it: "
                f"{flag_of('peak_to_mean')} {item.peak_to_mean:.3g} plans for its busiest one "
                f"({item.replicas} replicas)"
            )


def warning_texts(items: Iterable[PlanWarning]) -> list[str]:
    """All of them."""
    return [warning_text(item) for item in items]
