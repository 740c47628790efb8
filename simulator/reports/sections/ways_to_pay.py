"""Ways to pay for one fleet: what each comes to, below which purchase price owning pays, and from how many hours on."""

from __future__ import annotations

from simulator.planner.money.tco_records import SHARES_OF_HOURS, Owning, TotalCost
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.content.document import Origin, Table, columns, following, fraction, money, number, table, text
from simulator.reports.content.quantities import RENTAL_NAMES, percent_text
from simulator.reports.studies import Studies

_PERCENT = 100


def buying_text(cost: TotalCost) -> str:
    """Below which purchase price owning pays, and what is asked: a quote decides, a published price does not."""
    rent, even, owning = cost.rent, cost.break_even_price, cost.owning
    if rent is None:
        return "Without a price of renting there is nothing to compare owning with."
    if even is None:
        return f"Owning does not pay at any purchase price over {cost.years} years: its operation alone costs the rent."
    limit = f"Owning pays below {cost.currency} {even:,.0f} an accelerator with its share of a server"
    if owning is None:
        return f"{limit}; nobody lists that price: get a quote."
    asked, saves = owning.offer.per_device or 0.0, cost.owning_saves or 0.0
    worth = f"{cost.currency} {abs(saves):,.0f} of present value over {cost.years} years"
    if owning.quoted:
        return (
            f"{limit}; the quote of {asked:,.0f} ({owning.offer.provider}) {'saves' if saves > 0 else 'loses'} {worth}."
        )
    side = "below that: get quotes before committing to a rent" if saves > 0 else "above that"
    return f"{limit}; the published price of {asked:,.0f} ({owning.offer.provider}) is {side}."


def ways_table(studies: Studies) -> Table:
    """Ways to pay, cheapest present value first."""
    cost = studies.cost
    rows = [
        (
            f"rent, {RENTAL_NAMES[item.kind].removeprefix('reserved ')}",
            following(money(item.annual, digits=0), f"rent_{item.kind}_annual"),
            following(money(item.present_value, digits=0), f"rent_{item.kind}_present"),
            f"{item.provider}, {item.date}",
        )
        for item in cost.renting
    ]
    if cost.owning is not None:
        offer = cost.owning.offer
        name = "own" if cost.owning.quoted else "own, at a published price"
        annual = following(money(cost.owning.annual, digits=0), "owning_annual")
        present = following(money(cost.owning.present_value, digits=0), "owning_present_value")
        rows.append((name, annual, present, f"{offer.provider}, {offer.date}"))
    rows.sort(key=lambda item: float(item[2].value or 0.0))
    withdrawn = any(item.kind == "spot" for item in cost.renting)
    spot = " Spot capacity can be withdrawn at any time and carries no availability." if withdrawn else ""
    return table(
        "ways_to_pay",
        f"Ways to pay for the same fleet over {cost.years} years",
        columns("Way", "A year", "Present value", "Price from", words=("Way",), wide="Price from"),
        [(name, annual, value, text(whose, origin=Origin.SOURCED)) for name, annual, value, whose in rows],
        note=f"Discounted at {percent_text(studies.ownership.discount_rate.value)} a year."
        f"{price_note(cost.owning)}{spot}",
    )


def renting_table(cost: TotalCost) -> Table:
    """Every kind of renting, by the hour, the year and the token, and from how many hours on owning is cheaper."""
    names = ("Renting", "Device-hour", "A year", "Over the years", "1M input", "1M output", "Break-even", "Price from")
    return table(
        "renting",
        f"Renting all {cost.devices} devices all hours",
        columns(*names, words=("Renting",), wide="Price from"),
        [
            (
                RENTAL_NAMES[item.kind],
                following(number(item.per_device_hour, digits=4), f"rate_{item.kind}"),
                following(number(item.annual, digits=2), f"rent_{item.kind}_annual"),
                following(number(item.total, digits=2), f"rent_{item.kind}_total"),
                following(number(item.per_million_input_tokens, digits=4), f"rent_{item.kind}_input"),
                following(number(item.per_million_output_tokens, digits=4), f"rent_{item.kind}_output"),
                following(fraction(item.break_even), f"rent_{item.kind}_even"),
                text(f"{item.provider}, {item.date}: {item.source}", origin=Origin.SOURCED),
            )
            for item in cost.renting
        ],
        note=f"Amounts in {cost.currency}. Break-even: share of the hours above which owning is cheaper than paying "
        "this price for hours of use; above 100 % it never is. Spot has no availability.",
    )


def price_note(owning: Owning | None) -> str:
    """What a reader of a chart with owning in it has to know of the purchase price."""
    if owning is None or owning.quoted:
        return ""
    return f" The purchase price is no quote: {owning.offer.provider}, {owning.offer.date}."


def break_even_chart(cost: TotalCost) -> Chart:
    """Cost of a year over the share of hours that devices are used: owned, committed and paid by the hour."""
    percents = tuple(_PERCENT * share for share in SHARES_OF_HOURS)
    series: list[Series] = []
    notes: list[Annotation] = []
    if cost.owning is not None:
        flat = tuple(cost.owning.annual for _ in percents)
        series.append(Series(name="owned", kind=SeriesKind.LINE, x=percents, y=flat, color=7))
    for item in cost.renting:
        values = item.by_share_of_hours
        name = RENTAL_NAMES[item.kind]
        series.append(Series(name=name, kind=SeriesKind.LINE, x=percents, y=values, dashed=not item.by_the_hour))
        if item.kind == "on_demand" and item.break_even is not None and item.break_even <= 1:
            at = percent_text(item.break_even)
            notes.append(Annotation(text=f"break-even at {at}", x=_PERCENT * item.break_even))
    return Chart(
        key="break_even",
        title=_break_even_title(cost),
        x=Axis(title="Share of the hours of a year that devices are needed", unit="%", low=0.0, high=float(_PERCENT)),
        y=Axis(title="Cost of a year", unit=cost.currency),
        series=tuple(series),
        annotations=tuple(notes),
        caption="Owned: equivalent annual cost. Commitments are paid for all hours, on demand and spot for hours "
        f"of use.{price_note(cost.owning)}",
    )


def _break_even_title(cost: TotalCost) -> str:
    on_demand = next((item for item in cost.renting if item.kind == "on_demand"), None)
    if on_demand is None or on_demand.break_even is None:
        return "What a year costs, by hours of use"
    if on_demand.break_even > 1:
        return "Renting on demand stays cheaper than owning at these prices"
    return f"Owning pays from {percent_text(on_demand.break_even)} of the hours on"
