"""Total cost of a fleet: bought and operated over its life in the books, against rented by the hour.

Every amount is in the currency of the price list. Years are counted from the day of purchase; cash moves at the end of
its year. Amounts are not rounded: reports round what they show. Energy of a fleet and the emissions that follow from it
stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, sqrt

from simulator.errors import ProfileError
from simulator.planner.capacity_plan import BoughtFleet, CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.money import market
from simulator.planner.money.tco_records import CostLine, Owning, Renting, RentKind, TokenYear, TotalCost, cash_flows
from simulator.planner.records import Demand
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import OfferSpec, PriceProfile, same_currency
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import MONTHS_PER_YEAR
from simulator.units import DAYS_PER_YEAR, HOURS_PER_YEAR, KILO, MEGA, SECONDS_PER_HOUR

RENTALS: tuple[RentKind, ...] = ("planned", "on_demand", "reserved_1y", "reserved_3y", "spot")
"""The plan's own price and every term that a fleet can stay on; a capacity block ends after days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What the cost of a fleet follows from: the tokens of its year, a price list, and figures of owning."""

    fleet: Fleet
    tokens: TokenYear
    prices: PriceProfile
    ownership: OwnershipProfile

    @property
    def years(self) -> int:
        """Years of depreciation, over which ways to pay are compared."""
        return int(self.ownership.depreciation_years.value)


PASSING = ("spot", "capacity_block")
"""Rents that no fleet stays on."""


def commitment_months(item: Renting) -> int:
    """How long a rent binds; nothing for the plan's own price, which keeps within its horizon [months]."""
    return 0 if item.kind == "planned" else market.COMMITMENT_MONTHS.get(item.kind, 0)


def annuity_factor(rate: float, years: int) -> float:
    """Present value of one a year for ``years`` years, each paid at the end of its year [years].

    (1 - (1 + r)^-n) / r, and n without interest.

    Reference: [Brealey2020] chapter 2, "Valuing annuities".
    """
    return (1 - (1 + rate) ** -years) / rate if rate else float(years)


def token_year(demand: Demand, *, prompt_share: float) -> TokenYear:
    """Tokens of a year at the mean demand that reaches accelerators; a prompt counts once, with all its answers."""
    requests = demand.requests_per_s * demand.computed_fraction * SECONDS_PER_HOUR * HOURS_PER_YEAR
    return TokenYear(
        input_millions=requests * demand.mix.isl.mean_tokens / MEGA,
        output_millions=requests * demand.answers_per_request * demand.mix.osl.mean_tokens / MEGA,
        prompt_share=prompt_share,
        mean_load=demand.mean_load,
    )


def dynamic_w(fleet: Fleet) -> float:
    """What accelerators draw less when idle than at the planned load [W]; hosts, fans and switches draw the same."""
    pairs = zip(fleet.housing, fleet.kinds, strict=True)
    return sum(item.devices * above_idle_w(accelerator, server) for item, (accelerator, server) in pairs)


def above_idle_w(accelerator: AcceleratorSpec, server: ServerSpec | None) -> float:
    """What one draws less when idle than at the planned load [W]."""
    expected_w = accelerator.limit_w if server is None else server.expected_device_w(accelerator)
    return expected_w - accelerator.idle_w


def mean_power_w(fleet: Fleet, *, mean_load: float) -> float:
    """Power of a fleet that runs around the clock, over all hours of its demand [W]."""
    return fleet.typical_w - dynamic_w(fleet) * (1 - mean_load)


def _capex(books: Books, offer: OfferSpec) -> tuple[CostLine, ...]:
    fleet, ownership, price = books.fleet, books.ownership, offer.per_device or 0.0
    servers = fleet.devices * price
    shares = (("network", ownership.network_fraction.value), ("storage", ownership.storage_fraction.value))
    shelf = shelved(fleet, ownership=ownership)
    failing = ownership.failures_per_device_year.value * fleet.devices
    kept = Note("kept", {"shelf": shelf, "failing": failing, "days": ownership.replacement_days.value})
    paid = {"devices": fleet.devices, "price": price, "prices": books.prices, "provider": offer.provider}
    bought = [
        CostLine(name="servers", amount=servers, basis=Note("paid", paid)),
        *(
            CostLine(name=name, amount=servers * share, basis=Note("of_servers", {"share": share}))
            for name, share in shares
        ),
        CostLine(name="spare parts", amount=shelf * price, basis=kept),
    ]
    share = ownership.integration_fraction.value
    everything = sum(line.amount for line in bought)
    basis = Note("of_lines_above", {"share": share})
    return (*bought, CostLine(name="integration", amount=everything * share, basis=basis))


def spare_accelerators(devices: int, *, ownership: OwnershipProfile) -> int:
    """Accelerators on the shelf: those that fail while one is replaced, and a safety stock for more of them.

    m + z sqrt(m), rounded up, with m = devices x failures a year x days to replace one / 365: a Poisson number of
    failures with the stock covering the share of months that z stands for, by the normal approximation.

    Reference: [Silver2017] section 6.7, "Safety stock based on a probability of no stockout".
    """
    years = ownership.replacement_days.value / DAYS_PER_YEAR
    mean = devices * ownership.failures_per_device_year.value * years
    return ceil(mean + ownership.spare_stock_factor.value * sqrt(mean))


def shelved(fleet: Fleet, *, ownership: OwnershipProfile) -> int:
    """``spare_accelerators`` of every kind of a fleet: one does not stand in for another."""
    return sum(spare_accelerators(item.devices, ownership=ownership) for item in fleet.housing)


def _opex(books: Books, *, servers: float) -> tuple[CostLine, ...]:
    """Electricity of the mean power at the meter, space per nameplate power, and people per server."""
    fleet, prices, ownership = books.fleet, books.prices, books.ownership
    power_w = mean_power_w(fleet, mean_load=books.tokens.mean_load)
    kwh = power_w * prices.pue * HOURS_PER_YEAR / KILO
    space_kw = fleet.maximum_w / KILO
    # Of single devices nobody says how many share a host: one a replica is the most there can be.
    machines = fleet.servers if fleet.servers is not None else fleet.hosts
    machine = "staff_of_servers" if fleet.servers is not None else "staff_of_hosts"
    support, licence = ownership.support_fraction_per_year.value, ownership.licence_per_device_year.value
    colocation = ownership.colocation_per_kw_month.value
    each = Note("each", {"count": fleet.devices, "amount": licence})
    people = max(ownership.staff_minimum_fte.value, machines / ownership.servers_per_fte.value)
    return (
        CostLine(
            name="electricity",
            amount=kwh * prices.power_per_kwh,
            basis=Note("energy", {"power_w": power_w, "prices": prices}),
        ),
        CostLine(
            name="colocation",
            amount=space_kw * colocation * MONTHS_PER_YEAR,
            basis=Note("space", {"power_w": fleet.maximum_w, "colocation": colocation}),
        ),
        CostLine(name="support", amount=servers * support, basis=Note("of_servers", {"share": support})),
        CostLine(name="licences", amount=fleet.devices * licence, basis=each),
        CostLine(
            name="staff",
            amount=people * ownership.staff_per_fte_year.value,
            basis=Note(machine, {"people": people, "machines": machines, "ownership": ownership}),
        ),
    )


def owning_cost(books: Books, *, offer: OfferSpec | None = None) -> Owning:
    """What buying and operating the fleet costs, at the price list's purchase price unless ``offer`` is another.

    Raises ProfileError: no purchase price is known, or prices and ownership figures are in different currencies.
    Reference: [Brealey2020] chapter 6, "Equivalent annual cash flows".
    """
    same_currency(books.prices.currency, ownership=books.ownership.currency)
    if offer is None:
        housing = books.fleet.housing
        each = ((market.purchase_offer(books.prices, hardware=item.hardware), item.devices) for item in housing)
        offer = market.mean_offer(list(each))
    capex = _capex(books, offer)
    opex = _opex(books, servers=capex[0].amount)
    years, rate = books.years, books.ownership.discount_rate.value
    residual = capex[0].amount * books.ownership.residual_fraction.value
    paid, yearly = sum(line.amount for line in capex), sum(line.amount for line in opex)
    factor = annuity_factor(rate, years)
    present_value = paid + yearly * factor - residual * (1 + rate) ** -years
    annual = present_value / factor
    return Owning(
        offer=offer,
        capex=capex,
        opex=opex,
        residual=residual,
        years=years,
        discount_rate=rate,
        depreciation_per_year=(paid - residual) / years,
        present_value=present_value,
        annual=annual,
        per_device_hour=annual / (books.fleet.devices * HOURS_PER_YEAR),
        per_million_input_tokens=books.tokens.input_price(annual),
        per_million_output_tokens=books.tokens.output_price(annual),
    )


def break_even_price(books: Books, rent: Renting) -> float | None:
    """Price of an accelerator with its share of a server at which owning is worth what the rent is; None below zero.
    The present value of owning is linear in the price, so that two prices give the line."""

    def value(price: float) -> float:
        named = {"hardware": books.fleet.hardware, "provider": "", "date": books.prices.date, "source": ""}
        return owning_cost(books, offer=OfferSpec(kind="purchase", per_device=price, **named)).present_value

    one, two = value(1.0), value(2.0)
    price = 1 + (rent.present_value - one) / (two - one)
    return price if price > 0 else None


def _renting(books: Books, *, kind: RentKind, rule: market.PriceRule, owning: Owning | None) -> Renting | None:
    ownership, tokens = books.ownership, books.tokens
    asked = rule if kind == "planned" else replace(rule, kind=kind)
    found = [
        (item, market.market_price(books.prices, hardware=item.hardware, rule=asked)) for item in books.fleet.housing
    ]
    # A survey sells nothing: it prices a plan where nobody's offer is known, and is no way to pay.
    sold = [(item, price) for item, price in found if price and (kind == "planned" or not price.surveyed)]
    if len(sold) < len(found):
        return None
    per_hour = sum(item.devices * price.per_hour for item, price in sold)
    annual = per_hour * HOURS_PER_YEAR * (1 + ownership.cloud_extra_fraction.value)
    return Renting(
        kind=kind,
        per_device_hour=per_hour / books.fleet.devices,
        provider=" + ".join(dict.fromkeys(price.provider for _, price in sold)),
        date=max(price.date for _, price in sold),
        source="; ".join(dict.fromkeys(price.source for _, price in sold)),
        annual=annual,
        total=annual * books.years,
        present_value=annual * annuity_factor(ownership.discount_rate.value, books.years),
        per_million_input_tokens=tokens.input_price(annual),
        per_million_output_tokens=tokens.output_price(annual),
        break_even=owning.annual / annual if owning is not None else None,
    )


def _rentals(books: Books, *, spec: PlanSpec, owning: Owning | None = None) -> tuple[Renting, ...]:
    """Every way to rent the fleet that has a price; a term that was asked for is the plan's price already."""
    terms = RENTALS if spec.price_kind is None else RENTALS[1:]
    found = (_renting(books, kind=kind, rule=market.plan_rule(spec), owning=owning) for kind in terms)
    return tuple(item for item in found if item is not None)


def _lasting(renting: Sequence[Renting], *, spec: PlanSpec, years: int) -> Renting | None:
    """What a fleet that is never withdrawn costs least: on demand, or a commitment no longer than an owned one lasts;
    of two alike the plan's own. A term that was asked for is the only one."""

    def lasts(item: Renting) -> bool:
        if spec.price_kind is not None:
            return item.kind == spec.price_kind
        return item.kind not in PASSING and commitment_months(item) <= years * MONTHS_PER_YEAR

    return min(filter(lasts, renting), key=lambda item: item.present_value, default=None)


def bought_fleet(
    fleets: Sequence[Fleet], *, demand: Demand, prices: PriceProfile, ownership: OwnershipProfile, spec: PlanSpec
) -> BoughtFleet | None:
    """The fleet that is cheapest to own at the quotes, beside the cheapest to rent; None where none was quoted.

    Raises ProfileError: prices and ownership figures are in different currencies.
    """
    quoted = {offer.hardware for offer in prices.offers if offer.per_device and offer.quote}
    each = [
        Books(fleet=item, tokens=token_year(demand, prompt_share=item.prompt_share), prices=prices, ownership=ownership)
        for item in fleets
    ]
    owned = [
        (owning_cost(books), books.fleet)
        for books in each
        if quoted.issuperset(item.hardware for item in books.fleet.housing)
    ]
    rented = [
        (rent, books.fleet)
        for books in each
        if (rent := _lasting(_rentals(books, spec=spec), spec=spec, years=books.years))
    ]
    if not owned or not rented:
        return None
    owning, fleet = min(owned, key=lambda item: item[0].annual * (1 + item[1].doubt))
    rent, rival = min(rented, key=lambda item: item[0].annual * (1 + item[1].doubt))
    return BoughtFleet(
        hardware=fleet.hardware,
        accelerators=tuple(item.hardware for item in fleet.housing),
        setup=fleet.label,
        devices=fleet.devices,
        provider=owning.offer.provider,
        capital=owning.capex_total,
        per_hour=owning.annual / HOURS_PER_YEAR,
        years=owning.years,
        rent_hardware=rival.hardware,
        rent_kind=rent.kind,
        rent_per_hour=rent.annual / HOURS_PER_YEAR,
        chosen=owning.annual * (1 + fleet.doubt) < rent.annual * (1 + rival.doubt),
    )


def total_cost(plan: CapacityPlan, *, prices: PriceProfile, ownership: OwnershipProfile) -> TotalCost:
    """Owning and every kind of renting for the plan's fleet, as far as prices are known.

    Raises ProfileError: currencies differ.
    """
    fleet = plan.best
    same_currency(prices.currency, ownership=ownership.currency)
    tokens = token_year(plan.demand, prompt_share=fleet.prompt_share)
    books = Books(fleet=fleet, tokens=tokens, prices=prices, ownership=ownership)
    owning, reason = None, ""
    try:
        owning = owning_cost(books)
    except ProfileError as error:
        if error.code != "missing_price":
            raise
        reason = f"{error.message}; {error.hint}"
    renting = _rentals(books, spec=plan.spec, owning=owning)
    rent = next((item for item in renting if item.kind == (plan.spec.price_kind or "planned")), None)
    lasting = _lasting(renting, spec=plan.spec, years=books.years)
    return TotalCost(
        currency=prices.currency,
        devices=fleet.devices,
        tokens=tokens,
        owning=owning,
        owning_unpriced=reason,
        renting=renting,
        rent=rent,
        lasting=lasting,
        break_even_price=None if lasting is None else break_even_price(books, lasting),
        flows=cash_flows(owning, renting, years=books.years),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyCarbon:
    """A year of the fleet at the mean power of its demand (`mean_power_w`).

    it_kwh, facility_kwh : of the machines, and at the meter (times PUE)
    j_per_output_token, j_per_token : at the meter, per generated token and per token in or out
    location_t, market_t : by the grid's mean, and by the contracts in place [t CO2e a year]
    embodied_t : of making all accelerators, once; None where no figure is known
    """

    it_kwh: float
    facility_kwh: float
    j_per_output_token: float
    j_per_token: float
    location_t: float
    market_t: float
    embodied_t: float | None
    g_per_million_output_tokens: float


def energy_and_carbon(plan: CapacityPlan, *, prices: PriceProfile, ownership: OwnershipProfile) -> EnergyCarbon:
    """Energy of a year and its emissions, location-based and market-based.

    Reference: [GHG2015] GHG Protocol Scope 2 Guidance, chapter 6 (both methods are reported).
    """
    fleet = plan.best
    tokens = token_year(plan.demand, prompt_share=fleet.prompt_share)
    it_kwh = mean_power_w(fleet, mean_load=plan.demand.mean_load) * HOURS_PER_YEAR / KILO
    facility_kwh = it_kwh * prices.pue
    joules = facility_kwh * KILO * SECONDS_PER_HOUR
    location_kg = facility_kwh * ownership.grid_location_kg_per_kwh.value
    embodied = [
        figure.value * item.devices
        for item in fleet.housing
        if (figure := ownership.embodied_kg_per_device.get(item.hardware)) is not None
    ]
    return EnergyCarbon(
        it_kwh=it_kwh,
        facility_kwh=facility_kwh,
        j_per_output_token=joules / (tokens.output_millions * MEGA),
        j_per_token=joules / ((tokens.input_millions + tokens.output_millions) * MEGA),
        location_t=location_kg / KILO,
        market_t=facility_kwh * ownership.grid_market_kg_per_kwh.value / KILO,
        embodied_t=sum(embodied) / KILO if len(embodied) == len(fleet.housing) else None,
        g_per_million_output_tokens=location_kg * KILO / tokens.output_millions,
    )
