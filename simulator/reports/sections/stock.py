"""What exists already: the fleet that starts from it, and its money beside that of a new one."""

from __future__ import annotations

from functools import partial

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.studies.stock_money import rent_of, stock_money
from simulator.reports.charts.chart import Gauge
from simulator.reports.content import quantities as say
from simulator.reports.content.document import (
    Block,
    Cell,
    Facts,
    Paragraph,
    Table,
    Tone,
    count,
    fact,
    kilo,
    kilowatts,
    money,
    number,
    seconds,
    table,
)
from simulator.reports.sections.answer import device_word, latency_quantity
from simulator.reports.studies import Studies
from simulator.reports.words.fields import note_texts
from simulator.specs.question.plan_values import watched


def stock_blocks(plan: CapacityPlan) -> tuple[Table, ...]:
    """Fleets side by side, the existing one first; nothing where no stock was given."""
    stock = plan.study(StockPlan)
    if stock is None:
        return ()
    rows: list[tuple[Cell | str, ...]] = [
        (
            *(f"{share.hardware} {share.label}", f"{share.replicas:,} + {share.spares:,}"),
            *map(count, (share.devices, share.from_stock, share.bought)),
            number(share.rate_per_s),
            *map(seconds, watched(share.seen, plan.objectives).values()),
            *(money(share.cost_per_hour, digits=0), kilowatts(share.typical_w)),
        )
        for share in stock.shares
    ]
    title = f"With what exists: {stock.devices} accelerators, {stock.bought} of them to obtain"
    counted, taken = "Devices | Existing | To obtain", f"{plan.best.cost.currency}/h | kW"
    heads = f"Fleet: | Replicas: | {counted} | Requests/s | {' | '.join(slowest(plan, stock))} | {taken}"
    return (table("stock", title, heads, rows, note=_note(stock)),)


def slowest(plan: CapacityPlan, stock: StockPlan) -> dict[str, tuple[float, tuple[float, float]]]:
    """Each latency of the fleet that is slowest, and the ends of the intervals that are slowest [s], by name."""
    seen = [share.seen for share in stock.shares if share.seen is not None]
    values = [watched(item, plan.objectives) for item in seen]
    ranges = [watched(item.ranges, plan.objectives) for item in seen]

    def of(name: str) -> tuple[float, tuple[float, float]]:
        lows, highs = zip(*(item[name] for item in ranges), strict=True)
        return max(item[name] for item in values), (max(lows), max(highs))

    return {name: of(name) for name in values[0]}


def stock_figures(plan: CapacityPlan, stock: StockPlan) -> tuple[say.Quantity, ...]:
    """What works, what of it has to be obtained, its rent, the latencies of the slowest fleet, and the power."""
    rent, word = stock.cost_per_month, device_word(plan.best)
    return (
        say.quantity("devices", f"{word} in use", float(stock.devices), say.count_text),
        say.quantity("bought", "To obtain", float(stock.bought), say.count_text),
        say.quantity("per_month", "Rent per month", rent, partial(say.money_text, currency=plan.best.cost.currency)),
        *(latency_quantity(name, *found) for name, found in slowest(plan, stock).items()),
        say.quantity("power_typical_w", "Power", stock.typical_w, say.watts_text),
    )


def stock_gauges(plan: CapacityPlan, stock: StockPlan) -> dict[str, Gauge]:
    """The slowest latencies against the objectives, by their fields."""
    found = slowest(plan, stock)
    return {
        f"{item.key}_s": Gauge(bound_s=item.bound_s, value_s=value_s, ends_s=ends_s, chance=chance)
        for item, chance in zip(plan.objectives, stock.chances, strict=True)
        for value_s, ends_s in (found[item.name],)
    }


def stock_verdict_line(plan: CapacityPlan, stock: StockPlan) -> str:
    """``92 % likely to hold its objectives · a new fleet alone: 24 GPUs (mi355x), $51,684 a month``."""
    fleet = plan.best
    paid = (
        "price unknown" if fleet.cost.per_month is None else say.money_text(fleet.cost.per_month, fleet.cost.currency)
    )
    alone = (
        f"a new fleet alone: {say.count_text(fleet.devices)} {device_word(fleet)} ({fleet.hardware}), {paid} a month"
    )
    sure = [f"{say.chance_text(min(stock.chances))} likely to hold its objectives"] if stock.chances else []
    return " · ".join((*sure, alone))


def _note(stock: StockPlan) -> str:
    said = "Existing accelerators serve first and cost nothing an hour here: they are paid for."
    if len(stock.shares) > 1:
        said += " Requests go to each fleet in proportion to what it carries, "
        said += f"{say.percent_text(stock.shares[0].load)} of it at the planned peak."
    if stock.chances:
        said += f" {say.chance_text(min(stock.chances))} likely to hold the objectives with the spares down."
    said += " Failures, growth and what moves it are of each of these fleets; everything else is about a new one alone."
    return said + (f" Left over: {'; '.join(note_texts(stock.unused))}." if stock.unused else "")


def stock_shapes(stock: StockPlan) -> str:
    """``7 + 1 x h100-sxm-80gb TP2, 30 + 1 x h200-sxm-141gb TP1``: replicas and spares of what serves side by side."""
    return ", ".join(
        f"{share.replicas:,} + {share.spares:,} x {share.hardware} {share.label}" for share in stock.shares
    )


def existing(studies: Studies) -> tuple[Block, ...]:
    """The fleet with what exists already, and that everything else is about one without it."""
    stock = studies.plan.study(StockPlan)
    if stock is None:
        return ()
    said = (
        "What is decided, failures, growth and what moves the fleet are of these. Everything else is about the "
        f"alternative: {studies.plan.best.devices:,} new accelerators of one kind, as if nothing existed. The section "
        "on options has the fleet with the existing ones, and the money of both."
    )
    facts = (
        fact("stock_devices", "with what exists", count(stock.devices), "in use, spares included"),
        fact("stock_bought", "of them to obtain", count(stock.bought), "the rest is in stock"),
        fact("stock_cost_per_hour", "an hour", money(stock.cost_per_hour), "existing ones count as paid for"),
        fact("stock_power_kw", "expected power", kilo(stock.typical_w, "kW")),
    )
    return Facts(facts=facts), Paragraph(text=said, tone=Tone.WARNING)


def stock_money_blocks(studies: Studies) -> tuple[Table, ...]:
    """One table where stock was given, none otherwise."""
    plan, stock = studies.plan, studies.plan.study(StockPlan)
    if stock is None:
        return ()
    found = stock_money(stock, mean_load=plan.demand.mean_load, prices=studies.prices, ownership=studies.ownership)
    fleet, owning = plan.best, studies.cost.owning
    ours, new = found.rent, rent_of(fleet.cost.per_hour, ownership=studies.ownership)
    rate, years = studies.ownership.discount_rate.value, int(studies.ownership.depreciation_years.value)
    capital = owning.capex_total if owning is not None else None
    discounted, existing = f"discounted at {say.percent_text(rate)}", found.existing_electricity_per_year

    def whole(with_stock: float | None, alone: float | None) -> tuple[Cell, Cell]:
        return money(with_stock, digits=0), money(alone, digits=0)

    energy = [number(value, "kWh", digits=0) for value in (found.facility_kwh, studies.energy.facility_kwh)]
    emitted = [number(value, "t CO2e", digits=1) for value in (found.location_t, studies.energy.location_t)]
    included = "beside the rent, which includes its own"
    rows: tuple[tuple[Cell | str, ...], ...] = (
        ("accelerators to obtain", count(stock.bought), count(fleet.devices), ""),
        ("rent, an hour", money(ours.per_hour), money(new.per_hour), fleet.cost.offer),
        ("rent, a year", *whole(ours.per_year, new.per_year), "x 8,760 h"),
        (f"present value of the rent, {years} years", *whole(ours.present_value, new.present_value), discounted),
        ("capital, if bought instead", *whole(found.capital, capital), "as in total cost"),
        ("electricity of the existing, a year", *whole(existing, 0.0), included),
        ("expected power", kilo(found.typical_w, "kW"), kilo(fleet.typical_w, "kW"), ""),
        ("energy of a year, at the meter", *energy, f"PUE {studies.prices.pue:g}"),
        ("location-based emissions, a year", *emitted, "grid as in energy"),
    )
    return (
        table(
            "stock_money",
            "The money with what exists, beside a new fleet",
            "Figure: | With what exists | New fleet alone | How::",
            rows,
            note="Existing accelerators count as paid for; their space, support and staff go on as they are.",
        ),
    )
