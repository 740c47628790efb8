"""Section 4: what else was considered: the best of every accelerator, the search, the Pareto set, and two split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.errors import ProfileError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.market import MarketPrice, market_price, offers_of, plan_rule, purchase_offer
from simulator.planner.records import FORMATS_DIFFER, TECHNIQUES_SAVE, SearchSummary
from simulator.planner.studies.length_split import LengthSplit, TriedSplit
from simulator.planner.studies.pareto import ParetoSet, cheapest_or_fastest
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind, marks, places, with_room
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import change_text, counted_text, money_text, price_text
from simulator.reports.sections.answer import price_blocks
from simulator.reports.studies import Studies
from simulator.reports.words.derivation import nearest_rejections
from simulator.reports.words.fields import note_text, rejection_text
from simulator.reports.words.plan_inputs import families_text, order_text, terms_text
from simulator.specs.question.plan_values import watched
from simulator.units import KILO

_SHOWN = 14
_FAR = 4.0
"""Options that cost, or without a price need, more than this many times the chosen one are no options: nobody would
build them, and they squeeze the rest together."""
_CHARTED = 8


def _why_not(fleet: Fleet, best: Fleet) -> str:
    if fleet is best:
        return "recommended"
    ratio = fleet.cost_ratio(best)
    if ratio is None:
        return "no price known"
    if ratio >= 2:
        return f"{ratio:.1f} times the cost"
    change = change_text(ratio, 1.0)
    return f"costs {change}" if change else "costs the same"


def _option(fleet: Fleet, plan: CapacityPlan) -> doc.Row:
    best = plan.best
    name, spread = f"{fleet.hardware} {fleet.label}", f"{fleet.devices_low:,}–{fleet.devices_high:,}"
    taken = (doc.count(fleet.devices), spread, doc.money(fleet.cost.per_hour, digits=0), doc.kilowatts(fleet.typical_w))
    latencies = map(doc.seconds, watched(fleet.degraded, plan.objectives).values())
    return doc.row(name, *taken, *latencies, fleet.provenance, _why_not(fleet, best), total=fleet is best)


def is_far(fleet: Fleet, best: Fleet) -> bool:
    """Whether a fleet is beyond what anybody would choose: by its cost, or by its accelerators without a price."""
    return fleet.size_ratio(best) > _FAR


def _options(plan: CapacityPlan) -> list[Fleet]:
    """What is no option is left out, but for the best of an accelerator that was named."""
    firsts = {fleet.hardware: fleet for fleet in reversed(plan.fleets)} if plan.spec.hardware else {}
    return [item for item in plan.fleets if item is firsts.get(item.hardware) or not is_far(item, plan.best)]


def _options_table(studies: Studies) -> doc.Table:
    plan = studies.plan
    near = _options(plan)
    far = [fleet for fleet in plan.fleets if fleet not in near]
    left = [f"{len(far)} that cost or need over {_FAR:g} times as much"] if far else []
    left += [f"{len(near[_SHOWN:])} more of those"] if near[_SHOWN:] else []
    latencies = " | ".join(watched(plan.best.degraded, plan.objectives))
    return doc.table(
        "options",
        f"{len(near)} options, {order_text(near)}, those without a price last",
        f"Option:: | Devices | 80 % | {studies.currency}/h | kW | {latencies} | Known: | Verdict:",
        [_option(fleet, plan) for fleet in near[:_SHOWN]],
        note="Each sized for the whole demand with the same spares; latencies at the peak with the spares down; "
        f"{plan.candidates:,} candidates." + (f" Left out: {', '.join(left)}." if left else ""),
    )


def _market_table(studies: Studies) -> doc.Table:
    """Low, median and high of every accelerator among the options, who sells it, and what buying takes."""
    plan, rule = studies.plan, plan_rule(studies.spec)
    kinds = dict.fromkeys(item.hardware for fleet in _options(plan) for item in fleet.housing)
    return doc.table(
        "market",
        f"What is on offer, {studies.currency} an accelerator-hour",
        "Accelerator: | Low | Of: | Median | High | Providers | Terms: | Newest: | Server listed",
        [_offered(name, market_price(studies.prices, hardware=name, rule=rule), studies) for name in kinds][:_SHOWN],
        note="The cheapest lasting offer of each provider, on demand or a commitment within the horizon; terms: what "
        "they sell. Server listed: published price of an accelerator with its share of a server; a quote replaces it.",
    )


def _offered(name: str, price: MarketPrice | None, studies: Studies) -> doc.Row:
    try:
        bought = purchase_offer(studies.prices, hardware=name).per_device
    except ProfileError:
        bought = None
    server = doc.money(bought, digits=0)
    if price is None:
        none = doc.money(None)
        return doc.row(name, none, "nobody", none, none, doc.count(0), doc.EMPTY, doc.EMPTY, server)
    offers = offers_of(studies.prices, hardware=name, rule=plan_rule(studies.spec))
    sold = terms_text(tuple(dict.fromkeys(offer.kind for offer in offers)))
    low, middle, high = (doc.number(value, digits=2) for value in (price.low, price.median, price.high))
    newest = max(offer.date for offer in offers)
    return doc.row(name, low, price.low_provider, middle, high, doc.count(price.providers), sold, newest, server)


def options_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Every accelerator with the best that it can do, those that cannot serve, and how wide the search was."""
    plan = studies.plan
    options = _options_table(studies)
    refused = doc.table(
        "refused",
        "Cannot serve",
        "Option: | Why::",
        [(f"{item.hardware} {item.label}", rejection_text(item)) for item in nearest_rejections(plan)],
    )
    families = (doc.Paragraph(text=families_text(plan)),) if plan.families else ()
    money = (_market_table(studies), *price_blocks(plan))
    blocks: list[doc.Block] = [options, *families, *money, doc.Figure(chart=pareto_chart(plan))]
    blocks += [refused] if refused.rows else []
    return (*blocks, *search_blocks(plan))


def search_blocks(plan: CapacityPlan) -> tuple[doc.Paragraph, ...]:
    """How wide the search was."""
    return () if plan.search is None else (_searched(plan.search),)


def _searched(search: SearchSummary) -> doc.Paragraph:
    text = (
        f"The search compared {search.candidates:,} set-ups ({', '.join(search.axes)}); {search.feasible:,} of those "
        f"priced can serve, and the best {search.finalists} were priced again exactly."
    )
    if search.in_all_formats < search.platforms:
        text += (
            f" Every number format was tried on {search.in_all_formats} of {search.platforms} accelerators: what is "
            "left out on the others has no price, or would cost over "
            f"{FORMATS_DIFFER:g} times as much as the best, told from the formats that they multiply fastest."
        )
    if search.combined < search.platforms:
        text += (
            f" Techniques were tried on {search.combined} of {search.platforms} accelerators: the others have no "
            f"price, or would cost over {TECHNIQUES_SAVE:g} times as much as the best even when full. Name one with "
            "--hardware to try them on it."
        )
    return doc.Paragraph(text=text)


def pareto_blocks(plan: CapacityPlan) -> tuple[doc.Table, ...]:
    """Fleets that no other beats."""
    pareto, currency = plan.study(ParetoSet), plan.best.cost.currency
    if pareto is None:
        return ()
    rows: list[tuple[doc.Cell | str, ...]] = [
        (
            *(f"{fleet.hardware} {fleet.label}", doc.count(fleet.devices), doc.money(fleet.cost.per_hour, digits=0)),
            doc.kilowatts(fleet.typical_w),
            doc.number(point.energy_per_output_token_j),
            *map(doc.seconds, watched(fleet.degraded, plan.objectives, free="ttft tpot e2e").values()),
            note_text(point.quality.note),
        )
        for point in pareto.points
        for fleet in (point.fleet,)
    ]
    title = f"{len(pareto.points)} of {pareto.considered} fleets that no other beats"
    note = (
        f"No other fleet is at least as good in {', '.join(pareto.axes)} at once. By rising cost; fleets without a "
        "known price stand at the end."
    )
    latencies = " | ".join(watched(plan.best.degraded, plan.objectives, free="ttft tpot e2e"))
    heads = f"Fleet: | Devices | {currency}/h | kW | J/token | {latencies} | Answers::"
    return (doc.table("pareto", title, heads, rows, note=note),)


def _split_text(split: TriedSplit, currency: str) -> str:
    if split.devices is None:
        found = "cannot be served"
    else:
        cost = "price unknown" if split.cost_per_hour is None else f"{price_text(split.cost_per_hour, currency)}/h"
        found = f"{counted_text(split.devices, 'device')}, {cost}"
    return f"at {split.threshold_tokens:,.0f} tokens {found}"


def _split_verdict(split: LengthSplit, currency: str) -> str:
    """Money decides where it is known, devices otherwise."""
    verdict = f"saves {split.saved_devices}" if split.saved_devices > 0 else f"takes {-split.saved_devices} more"
    if split.saved_per_hour is not None:
        word = "less" if split.saved_per_hour > 0 else "more"
        verdict = f"costs {price_text(abs(split.saved_per_hour), currency)}/h {word} and {verdict}"
    advice = "two fleets are better" if split.better else "one fleet is better"
    return f"The best split that was tried; it {verdict} accelerators against one fleet for all: {advice}."


def length_split_blocks(plan: CapacityPlan) -> tuple[doc.Table, ...]:
    """Two fleets by prompt length."""
    split, currency = plan.study(LengthSplit), plan.best.cost.currency
    if split is None:
        return ()
    tried = "; ".join(_split_text(item, currency) for item in split.splits)
    rows: list[tuple[doc.Cell | str, ...]] = [
        (
            f"from {fleet.from_tokens:,.0f}"
            if fleet.to_tokens is None
            else f"{fleet.from_tokens:,.0f} to {fleet.to_tokens:,.0f}",
            *(doc.number(fleet.rate_per_s), f"{fleet.hardware} {fleet.label}"),
            *(f"{fleet.replicas:,} + {fleet.spares:,}", doc.count(fleet.devices)),
            doc.money(fleet.cost_per_hour, digits=0),
        )
        for fleet in split.fleets
    ]
    heads = f"Prompt tokens: | Requests/s | Fleet: | Replicas: | Devices | {currency}/h"
    note = _split_verdict(split, currency) + (f" Splits that were tried: {tried}." if tried else "")
    return (doc.table("pools", "Short and long prompts on fleets of their own", heads, rows, note=note),)


def _claim(best: Fleet, fleets: Sequence[Fleet]) -> str:
    """What the chosen one of ``fleets`` is by its bill: the least, as little as another, or more than unsure ones."""
    bills = [fleet.cost.per_hour or fleet.devices for fleet in fleets if fleet is not best]
    own = best.cost.per_hour or best.devices
    if own > min(bills, default=own):
        return "chosen before cheaper ones on kernels nobody measured, of"
    return "one of the cheapest of" if own in bills else "the cheapest of"


def pareto_chart(plan: CapacityPlan) -> Chart:
    """Every option by TTFT p95 (spares down) and cost an hour; what nothing beats in both is joined."""
    fleets = [fleet for fleet in plan.fleets if fleet.cost.per_hour is not None]
    shown = [fleet for fleet in fleets if not is_far(fleet, plan.best)]
    highest = max((fleet.cost.per_hour or 0.0 for fleet in shown), default=0.0)
    front = cheapest_or_fastest(shown)
    others = [fleet for fleet in shown if fleet not in front and fleet is not plan.best]
    series = [
        _points("other options", others, color=4),
        _points("cheapest or fastest", [fleet for fleet in front if fleet is not plan.best], color=0),
        _points("recommended", [plan.best], color=3),
    ]
    if len(front) > 1:
        line = sorted(front, key=lambda fleet: fleet.degraded.ttft_p95_s)
        joined = replace(_points("", line, color=0), kind=SeriesKind.STEP, labels=(), dashed=True)
        series.insert(0, joined)
    return Chart(
        key="pareto",
        title=f"{plan.best.hardware} is {_claim(plan.best, fleets)} {len(fleets)} priced options",
        x=Axis(title="TTFT p95, spares down", unit="s"),
        y=Axis(title="Cost", unit=f"{plan.best.cost.currency}/h", low=0.0, high=with_room(highest)),
        series=tuple(item for item in series if item.x),
        caption="Each option sized for the whole demand, the best of every accelerator.",
    )


def _points(name: str, fleets: list[Fleet], *, color: int) -> Series:
    at = [
        (fleet.degraded.ttft_p95_s, fleet.cost.per_hour or 0.0, f"{fleet.devices} {fleet.hardware}") for fleet in fleets
    ]
    return marks(name, at, color=color)


def plan_options_chart(plan: CapacityPlan) -> Chart:
    """Rent per month of each accelerator's best fleet, the chosen first [thousands]; devices without prices."""
    found = [fleet for fleet in plan.fleets if fleet.cost.per_month is not None]
    priced = bool(found)
    found = found or list(plan.fleets)
    fleets = found[:_CHARTED]
    currency = plan.best.cost.currency
    values = [(fleet.cost.per_month or 0.0) / KILO if priced else float(fleet.devices) for fleet in fleets]
    lows, highs = zip(*map(Fleet.ends_of, fleets, values), strict=True)
    names, labels = tuple(f"{fleet.hardware} {fleet.label}" for fleet in fleets), tuple(map(_label, fleets))
    y = Axis(title="Rent per month", unit=f"thousand {currency}") if priced else Axis(title="Devices")
    bars = Series(
        name=y.title,
        kind=SeriesKind.BAR,
        x=places(len(fleets)),
        y=tuple(values),
        low=lows,
        high=highs,
        labels=labels,
        color=0,
    )
    return Chart(
        key="plan_options",
        title=f"{fleets[0].hardware} is {_claim(fleets[0], found)} {len(found)} {'priced ' * priced}options",
        x=Axis(title="", categories=names),
        y=y,
        series=(bars,),
        caption="Best setup of each accelerator, spares and whole servers included. Whiskers: 80 % interval.",
    )


def _label(fleet: Fleet) -> str:
    """``$475k, 352 devices``."""
    devices = f"{fleet.devices:,} devices"
    price = money_text(fleet.cost.per_month, fleet.cost.currency)
    return devices if fleet.cost.per_month is None else f"{price}, {devices}"
