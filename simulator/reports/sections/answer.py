"""The answer of a plan in short: one sentence, the figures on top of every page, and the table of its fleets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import isinf
from typing import TYPE_CHECKING

from simulator.planner.capacity_plan import CapacityPlan, Rival
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.market import COMMITMENT_MONTHS
from simulator.reports.content import document as doc
from simulator.reports.content import quantities as say
from simulator.reports.words.plan_inputs import CASES, ranking_texts, resource_text, steady_text, taken_text
from simulator.specs.question.plan_values import ObjectiveSpec, watched

if TYPE_CHECKING:
    from simulator.planner.fleet.replica_load import LatencyRange
    from simulator.planner.studies.stock_fleets import FleetShare, StockPlan
    from simulator.planner.verification.records import Finalists, Verification

_NEARLY_ALL = 0.99


def device_word(fleet: Fleet) -> str:
    """What people call these accelerators."""
    return "GPUs" if fleet.replica.deployment.hardware.vendor in ("nvidia", "amd") else "accelerators"


def _devices(number: int, word: str) -> str:
    return f"{number:,} {word.removesuffix('s') if number == 1 else word}"


def _stock(plan: CapacityPlan) -> StockPlan | None:
    if not plan.studies:
        return None
    from simulator.planner.studies.stock_fleets import StockPlan

    return plan.study(StockPlan)


def sentence(plan: CapacityPlan) -> str:
    """GPUs = replicas x GPUs per replica + spares + idle, cost, power, limit; theirs of a measured rate or stock."""
    if plan.spec.measured_rps_per_gpu is not None:
        from simulator.planner.studies.measured_rate import MeasuredRate
        from simulator.reports.sections.sizing import measured_sentence

        measured = plan.study(MeasuredRate)
        if measured is not None:
            return measured_sentence(measured, plan.best.cost.currency)
    stock = _stock(plan)
    return new_fleet_sentence(plan) if stock is None else _stock_sentence(stock, plan.best.cost.currency)


def _existing(share: FleetShare) -> str:
    if not share.from_stock:
        return ""
    return f", {share.from_stock:,} of them stock" if share.bought else ", stock"


def _stock_equation(stock: StockPlan) -> str:
    parts = [
        f"{say.counted_text(share.replicas, 'replica')} + {share.spares:,} spare on "
        f"{share.busy_devices:,} {share.hardware} ({share.label}{_existing(share)})"
        for share in stock.shares
    ]
    parts += [f"{_devices(stock.idle_devices, 'idle GPUs')} in whole servers"] if stock.idle_devices else []
    return f"{_to_obtain_text(stock)} = {' + '.join(parts)}"


def _to_obtain_text(stock: StockPlan) -> str:
    return f"{stock.devices:,} GPUs, {stock.bought:,} of them to obtain"


def _stock_sentence(stock: StockPlan, currency: str) -> str:
    cost, power = say.price_text(stock.cost_per_hour, currency), say.kilowatts_text(stock.typical_w)
    return f"{_stock_equation(stock)}: {cost}/h, {power} kW"


def new_fleet_sentence(plan: CapacityPlan) -> str:
    """:func:`sentence` of the recommended fleet without what exists."""
    fleet, word = plan.best, device_word(plan.best)
    parts = _pool_parts(fleet, word=word)
    if fleet.idle_devices:
        parts.append(f"{_devices(fleet.idle_devices, f'idle {word}')} in whole servers")
    hourly = fleet.cost.per_hour
    cost = "price unknown" if hourly is None else f"{say.price_text(hourly, fleet.cost.currency)}/h{_bound_text(fleet)}"
    ends = (fleet.devices_low, fleet.devices_high)
    sure = (
        "" if len({*ends, fleet.devices}) == 1 else f" ({say.range_text(ends, say.count_text)} in four draws of five)"
    )
    # Rooms and --max-power-kw go by the nameplate.
    nameplate = f" ({say.kilowatts_text(fleet.maximum_w)} nameplate)" if fleet.maximum_w > fleet.typical_w else ""
    return (
        f"{_devices(fleet.devices, word)}{sure} = {' + '.join(parts)}: {cost}, "
        f"{say.kilowatts_text(fleet.typical_w)} kW{nameplate}, limited by {resource_text(fleet.limit)}"
    )


def _bound_text(fleet: Fleet) -> str:
    """What has to be signed for the price; nothing where it is one on demand."""
    bound = [item for item in fleet.cost.prices if any(kind in COMMITMENT_MONTHS for kind in item.terms)]
    return f" ({' + '.join(map(taken_text, bound))})" if bound else ""


def _pool_parts(fleet: Fleet, *, word: str) -> list[str]:
    """``250 replicas x 2 mi300x (TP2)`` and the spares of every pool."""
    parts, spare = [], []
    for pool in fleet.pools:
        name = say.counted_text(pool.replicas, f"{pool.role} replica".strip())
        parts.append(f"{name} x {pool.replica.devices} {pool.hardware} ({pool.label})")
        if pool.spares:
            shown = say.counted_text(pool.spares, "spare replica")
            shown = f"{pool.spares:,} spare for {pool.role}" if pool.role else shown
            spare.append(f"{shown} ({_devices(pool.spare_devices, word)})")
    return [*parts, *spare]


def replicas_text(fleet: Fleet) -> str:
    """``250 + 1``: replicas and spares; of two pools ``88P + 1, 32D + 1``."""
    return ", ".join(f"{pool.replicas:,}{pool.role[:1].upper()} + {pool.spares:,}" for pool in fleet.pools)


def rival_text(rival: Rival, plan: CapacityPlan) -> str:
    """What stands beside the chosen fleet, whether it was simulated as well, and what would make it the choice."""
    best, currency = plan.best, plan.best.cost.currency
    tried = () if plan.finalists is None else plan.finalists.members
    simulated = any((item.hardware, item.label) == (rival.hardware, rival.label) for item in tried)
    unsure = ", not simulated" if plan.verification is not None and not simulated else ""
    share, dearer = say.percent_text(abs(rival.cost_change)), rival.cost_change >= 0
    price = say.price_text(rival.cost_per_hour, currency)
    fleet = f"{rival.devices:,} {rival.hardware} ({rival.label}{unsure}) at {price}/h"
    counts = {rival.hardware: rival.doubt, best.hardware: best.doubt} if rival.doubt != best.doubt else {}
    against = " and ".join(f"{say.percent_text(doubt)} against {name}" for name, doubt in counts.items() if doubt)
    unsure = f"; for unsure step times costs count {against}" if against else ""
    first, once = f"Next: {fleet}, {share} more{unsure}.", ""
    if share == say.percent_text(0.0) and rival.doubt == best.doubt:
        return f"Next: {fleet}, as much: at other prices it would be the choice."
    if not dearer:
        counted = (
            f"kernels nobody measured, for which {say.percent_text(rival.doubt)} of its cost are counted against it"
        )
        first, once = f"Cheapest: {fleet}, {share} less, by {counted}.", " once measurements confirm it, or"
    elif rival.known and best.doubt:
        counted = (
            f"kernels of {best.hardware} are {best.provenance}, {say.percent_text(best.doubt)} are counted against it"
        )
        first = f"Cheapest with measured kernels: {fleet}, {share} more; {counted}."
    above = f" or cost more than {say.price_text(rival.price_above, currency)} an hour" if rival.price_above else ""
    more = say.percent_text(rival.break_even_change)
    return f"{first} It would be the choice{once} if {best.hardware} took {more} more devices{above}."


def checked_text(plan: CapacityPlan) -> str:
    """Whether the recommended fleet holds in the event simulation; nothing where it was not to be asked."""
    if plan.verification is None:
        asked = plan.spec.verify is None and plan.objectives
        once = "run roofcast warm-up once for this and later plans (pip install '.[fast]')"
        return f"Not simulated: add --verify, or {once}." if asked else ""
    tried = plan.spec.verify or plan.finalists is not None
    ending = "" if plan.verification.holds or tried else "; --verify sizes a fleet that holds"
    if plan.finalists and plan.verification.holds:
        from simulator.planner.verification.records import Verdict

        chosen = plan.finalists.chosen
        if chosen.verdict is Verdict.RESIZED:
            ending = f"; {say.counted_text(chosen.planned_replicas, 'replica')} as sized in steady state would not"
    return simulated_text(plan.verification.degraded, ending=ending)


def stock_checked_texts(plan: CapacityPlan) -> list[str]:
    """What the simulation said of each fleet that serves side by side where something exists."""
    stock = _stock(plan)
    shares = () if stock is None else stock.shares
    return [
        simulated_text(share.simulated.degraded, fleet=f"{share.hardware} {share.label}" if len(shares) > 1 else "")
        for share in shares
        if share.simulated is not None
    ]


def simulated_text(found: Verification, *, fleet: str = "", ending: str = "") -> str:
    """What the event simulation says of a fleet with its spares down; ``fleet`` names one of several."""
    named = f"{fleet}: " if fleet else ""
    if found.reason:
        return f"{named}Not simulated: {found.reason}."
    # An encoder has no time per token, whatever bound stands for it.
    shown = ", ".join(
        f"{item.name} {_limited(item.simulated_s)} of {say.seconds_text(item.bound_s)}"
        for item in found.objectives
        if item.simulated_s > 0
    )
    held = f"{found.held_runs} of {say.counted_text(found.seeds, 'run')}"
    return f"{named}Simulated with the spares down: {shown}; {held} of {found.requests:,} requests hold{ending}."


def fleets_table(
    fleets: Sequence[Fleet], *, objectives: Sequence[ObjectiveSpec], note: str = "", brief: bool = False
) -> doc.Table:
    """Fleets that were sized for the same demand, one a row; latencies hold with the spares down, at the percentiles of
    ``objectives``.

    brief : only what they are compared by, for a terminal. Money by the token is all of it on the answers: shares of
    prompts and answers are not alike in pools and in replicas that do both.
    """
    per_request = answers_at_once(fleets)
    unit = "per 1M requests" if per_request else "all-in/1M out"

    def cells(fleet: Fleet) -> list[doc.Cell | str]:
        cost = fleet.cost
        by_unit = cost.per_million_requests if per_request else cost.per_million_output_tokens_all_in
        seen = watched(fleet.degraded, objectives)
        latencies = [doc.EMPTY if per_request and name[:4] == "TPOT" else doc.seconds(seen[name]) for name in seen]
        kind, bought = (fleet.hardware, fleet.label, doc.count(fleet.devices)), doc.price(cost.per_hour)
        if brief:
            return [*kind, replicas_text(fleet), bought, doc.price(by_unit), *latencies, fleet.provenance]
        spread = doc.ordered(f"{fleet.devices_low:,} – {fleet.devices_high:,}", fleet.devices_low)
        parts = doc.ordered(replicas_text(fleet), fleet.hosts)
        hourly = doc.ordered(hourly_text(fleet), cost.per_device_hour)
        made = (spread, parts, bought, hourly)
        power = doc.kilowatts(fleet.typical_w)
        return [*kind, *made, doc.price(by_unit), power, *latencies, resource_text(fleet.limit), fleet.provenance]

    kind, latencies = "hardware: | setup: | GPUs", " | ".join(watched(fleets[0].degraded, objectives))
    heads = f"{kind} | 80 % | replicas | cost/h | price: | {unit} | kW | {latencies} | limited by: | known:"
    if brief:
        heads = f"{kind} | replicas | cost/h | {unit} | {latencies} | known:"
    return doc.table("fleets", "", heads, [cells(fleet) for fleet in fleets], note=note)


def answers_at_once(fleets: Sequence[Fleet]) -> bool:
    """Whether nothing is decoded after the first token, so that money goes by the request."""
    return all(fleet.degraded.tpot_p95_s == 0 for fleet in fleets)


def hourly_text(fleet: Fleet) -> str:
    """The price of an accelerator-hour and what was taken: ``$5.60 median of 6``."""
    cost = fleet.cost
    return (
        " + ".join(f"{say.price_text(item.per_hour, cost.currency)} {taken_text(item)}" for item in cost.prices)
        or doc.EMPTY
    )


def price_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """What the range of listed prices does to the ranking; nothing where the chosen fleet has no price."""
    found = plan.price_ranking
    if found is None:
        return ()
    rows = []
    for case in found.cases:
        chosen = (
            CASES[case.name],
            f"{case.hardware} {case.setup}",
            doc.count(case.devices),
            doc.price(case.cost_per_hour),
        )
        rival = (case.next_hardware or doc.EMPTY, doc.price(case.next_cost_per_hour), doc.count(case.priced))
        rows.append((*chosen, *rival))
    doubted = any((case.next_cost_per_hour or case.cost_per_hour) < case.cost_per_hour for case in found.cases)
    note = "Where the next costs less: its kernels are not measured, which counts against it." if doubted else ""
    heads = "Prices: | Chosen:: | Devices | cost/h | Next: | cost/h then | Options priced"
    cases = doc.table("price_ranking", "The choice at other prices", heads, rows, note=note)
    lines = ranking_texts(found, plan.best)
    return (doc.Paragraph(text=steady_text(found)), cases, *((doc.Bullets(items=lines),) if lines else ()))


def _cost(fleet: Fleet) -> tuple[say.Quantity, say.Quantity]:
    """Money; its range is that of the devices, because the price per device is given."""
    cost = fleet.cost
    money = partial(say.money_text, currency=cost.currency)

    def figure(key: str, label: str, value: float | None) -> say.Quantity:
        return say.quantity(key, label, value, money, None if value is None else fleet.ends_of(value))

    month = figure("per_month", "Rent per month", cost.per_month)
    if answers_at_once([fleet]):
        return (month, figure("per_million_requests", "Per 1M requests", cost.per_million_requests))
    return (month, figure("per_million_output_tokens", "Per 1M tokens out", cost.per_million_output_tokens_all_in))


def plan_figures(plan: CapacityPlan, *, ranges: LatencyRange | None = None) -> tuple[say.Quantity, ...]:
    """Devices and rent, latencies, cost of the work and power of the chosen fleet, the most decisive first.

    Latencies are those at the peak with the spares down.

    ranges : intervals of the latencies, where they were worked out
    """
    fleet, down = plan.best, plan.best.degraded
    ends, power_w = (fleet.devices_low, fleet.devices_high), fleet.typical_w
    per_month, per_unit = _cost(fleet)
    seen = watched(down, plan.objectives)
    ends_s = watched(ranges, plan.objectives) if ranges else {}
    return (
        say.quantity("devices", device_word(fleet), float(fleet.devices), say.count_text, ends),
        per_month,
        *(latency_quantity(name, value, ends_s.get(name)) for name, value in seen.items()),
        per_unit,
        say.quantity("power_typical_w", "Power", power_w, say.watts_text, fleet.ends_of(power_w)),
    )


def latency_quantity(label: str, value_s: float, ends_s: tuple[float, float] | None) -> say.Quantity:
    """``TTFT p95`` with the ends of its interval [s], where they are known; where a fleet is overloaded they say so."""
    key = f"{label.lower().replace(' ', '_')}_s"
    return replace(say.quantity(key, label, value_s, _limited, ends_s), text=say.seconds_text(value_s))


def _limited(value_s: float) -> str:
    """A latency; where this fleet cannot keep up there is none."""
    return "overload" if isinf(value_s) else say.seconds_text(value_s)


def plan_headline(plan: CapacityPlan) -> str:
    """``296 GPUs (mi325x) for 1,000 requests/s: $431k a month``; with stock, how many of them are to obtain."""
    fleet, stock = plan.best, _stock(plan)
    monthly = fleet.cost.per_month if stock is None else stock.cost_per_month
    paid = "price unknown" if monthly is None else f"{say.money_text(monthly, fleet.cost.currency)} a month"
    new = f"{_devices(fleet.devices, device_word(fleet))} ({fleet.hardware})"
    needed = new if stock is None else f"{_to_obtain_text(stock)},"
    return f"{needed} for {say.demand_text(plan.demand)}: {paid}"


def fleet_equation(plan: CapacityPlan) -> str:
    """``296 GPUs = 295 × 1 mi325x (TP1) + 1 spare``; with stock, the fleets side by side."""
    fleet, stock = plan.best, _stock(plan)
    if stock is not None:
        return _stock_equation(stock)
    parts = [
        f"{say.count_text(pool.replicas)} × {pool.replica.devices} {pool.hardware} ({pool.label})"
        + (f" for {pool.role}" if pool.role else "")
        for pool in fleet.pools
    ]
    if fleet.spares:
        spares = [say.count_text(fleet.spares)] if len(fleet.pools) == 1 else [str(pool.spares) for pool in fleet.pools]
        parts.append(f"{' and '.join(spares)} spare")
    if fleet.idle_devices:
        parts.append(f"{say.count_text(fleet.idle_devices)} idle in whole servers")
    return f"{_devices(fleet.devices, device_word(fleet))} = {' + '.join(parts)}"


def covered_text(finalists: Finalists) -> str:
    """Which requests the objectives of a replayed trace are over; that it was not replayed where it was not."""
    from simulator.planner.verification.records import Verdict

    if finalists.chosen.verdict is Verdict.NOT_SIMULATED:
        return "The trace was not replayed: this fleet is sized for its busiest minute as a steady rate."
    text = "The objectives are over all requests of the trace together, busy and quiet minutes alike, in nine replays "
    chance = finalists.chosen.found.chance
    if chance is None:
        return f"{text}of ten"
    shown = f"more than {say.percent_text(_NEARLY_ALL)}" if chance > _NEARLY_ALL else say.percent_text(chance)
    return f"{text}of ten (this fleet: in {shown})"
