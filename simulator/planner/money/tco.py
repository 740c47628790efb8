"""Total cost of a fleet: bought and operated over its life in the books, against rented by the hour.

Every amount is in the currency of the price list. Years are counted from the day of purchase; cash moves at the end of
its year. Amounts are not rounded: reports round what they show.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import ProfileError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.market import PriceRule, market_price, plan_rule
from simulator.planner.money.tco_records import CostLine, Owning, Renting, TokenYear, TotalCost, cash_flows
from simulator.planner.records import Demand
from simulator.specs.loading import list_hardware
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import OfferKind, OfferSpec, PriceProfile, same_currency
from simulator.specs.question.plan_values import MONTHS_PER_YEAR
from simulator.units import HOURS_PER_YEAR, KILO, MEGA, SECONDS_PER_HOUR, percent_text

RENTALS: tuple[OfferKind, ...] = ("on_demand", "reserved_1y", "reserved_3y", "spot")
"""Kinds of renting that a fleet can stay on; a capacity block ends after days."""


def annuity_factor(rate: float, years: int) -> float:
    """Present value of one a year for ``years`` years, each paid at the end of its year [years].

    (1 - (1 + r)^-n) / r, and n without interest.

    References
    ----------
    [Brealey2020] chapter 2, "Valuing annuities".
    """
    return (1 - (1 + rate) ** -years) / rate if rate else float(years)


def token_year(demand: Demand, *, prompt_share: float) -> TokenYear:
    """Tokens of a year at the mean demand that reaches accelerators."""
    requests = demand.served_mean_rate_per_s * SECONDS_PER_HOUR * HOURS_PER_YEAR
    return TokenYear(
        input_millions=requests * demand.mix.isl.mean_tokens / MEGA,
        output_millions=requests * demand.mix.osl.mean_tokens / MEGA,
        prompt_share=prompt_share,
    )


def purchase_offer(prices: PriceProfile, *, hardware: str) -> OfferSpec:
    """The purchase price to plan with: the one the list marks, or else the median of whole servers, the dearer of two.

    Bare cards count where no server has a price.

    Raises
    ------
    ProfileError
        The list has none for this accelerator.
    """
    offers = [offer for offer in prices.offers if offer.hardware == hardware and offer.per_device is not None]
    if not offers:
        raise ProfileError(
            f"the price list {prices.name} holds no purchase price of {hardware}",
            field="offers",
            code="missing_price",
            hint="add an offer of kind purchase with per_device to your price list (`prices` FILE)",
        )
    marked = [offer for offer in offers if offer.default]
    usable = marked or [offer for offer in offers if offer.server_included] or offers
    return sorted(usable, key=lambda item: item.per_device or 0.0)[len(usable) // 2]


def _capex(fleet: Fleet, *, offer: OfferSpec, ownership: OwnershipProfile, currency: str) -> tuple[CostLine, ...]:
    price = offer.per_device or 0.0
    servers = fleet.devices * price
    shares = (
        ("network", ownership.network_fraction.value),
        ("storage", ownership.storage_fraction.value),
        ("spare parts", ownership.spare_parts_fraction.value),
    )
    bought = [
        CostLine(name="servers", amount=servers, basis=f"{fleet.devices} x {price:,.2f} {currency} ({offer.provider})"),
        *(
            CostLine(name=name, amount=servers * share, basis=f"{percent_text(share)} of servers")
            for name, share in shares
        ),
    ]
    share = ownership.integration_fraction.value
    everything = sum(line.amount for line in bought)
    basis = f"{percent_text(share)} of the lines above"
    return (*bought, CostLine(name="integration", amount=everything * share, basis=basis))


def _opex(fleet: Fleet, *, prices: PriceProfile, ownership: OwnershipProfile, servers: float) -> tuple[CostLine, ...]:
    """Electricity of the expected power at the meter, space per nameplate power, and people per server."""
    kwh = fleet.typical_w * prices.pue * HOURS_PER_YEAR / KILO
    space_kw = fleet.maximum_w / KILO
    # Of single devices nobody says how many share a host: one a replica is the most there can be.
    machines = fleet.servers if fleet.servers is not None else fleet.replicas + fleet.spares
    machine = "servers" if fleet.servers is not None else "replicas, a host each,"
    support, licence = ownership.support_fraction_per_year.value, ownership.licence_per_device_year.value
    colocation = ownership.colocation_per_kw_month.value
    return (
        CostLine(
            name="electricity",
            amount=kwh * prices.power_per_kwh,
            basis=f"{fleet.typical_w / KILO:,.1f} kW x PUE {prices.pue:g} x 8,760 h x {prices.power_per_kwh:g} a kWh",
        ),
        CostLine(
            name="colocation",
            amount=space_kw * colocation * MONTHS_PER_YEAR,
            basis=f"{space_kw:,.1f} kW nameplate x {colocation:,.0f} a month",
        ),
        CostLine(name="support", amount=servers * support, basis=f"{percent_text(support)} of servers"),
        CostLine(name="licences", amount=fleet.devices * licence, basis=f"{fleet.devices} x {licence:,.0f}"),
        CostLine(
            name="staff",
            amount=machines / ownership.servers_per_fte.value * ownership.staff_per_fte_year.value,
            basis=f"{machines} {machine} / {ownership.servers_per_fte.value:g} a person",
        ),
    )


def owning_cost(
    fleet: Fleet,
    *,
    tokens: TokenYear,
    prices: PriceProfile,
    ownership: OwnershipProfile,
    offer: OfferSpec | None = None,
) -> Owning:
    """What buying and operating the fleet costs, at the price list's purchase price unless ``offer`` is another.

    Raises
    ------
    ProfileError
        No purchase price is known, or prices and ownership figures are in different currencies.

    References
    ----------
    [Brealey2020] chapter 6, "Equivalent annual cash flows".
    """
    same_currency(prices.currency, ownership.currency, first_name="the price list", second_name="the ownership profile")
    offer = offer or purchase_offer(prices, hardware=fleet.hardware)
    capex = _capex(fleet, offer=offer, ownership=ownership, currency=prices.currency)
    opex = _opex(fleet, prices=prices, ownership=ownership, servers=capex[0].amount)
    years, rate = int(ownership.depreciation_years.value), ownership.discount_rate.value
    residual = capex[0].amount * ownership.residual_fraction.value
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
        per_device_hour=annual / (fleet.devices * HOURS_PER_YEAR),
        per_million_input_tokens=tokens.input_price(annual),
        per_million_output_tokens=tokens.output_price(annual),
    )


def implied_offer(
    fleet: Fleet, *, tokens: TokenYear, prices: PriceProfile, ownership: OwnershipProfile
) -> OfferSpec | None:
    """The purchase price at which the ownership figures come to the published cost of owning an accelerator-hour.

    An estimate for accelerators whose price nobody publishes; None where no cost of owning is published either. The
    cost is linear in the price, so that two prices give the line. It reflects the largest buyers: others pay more.
    """
    published = ownership.owning_reference_per_device_hour.get(fleet.hardware)
    if published is None:
        return None

    def at(price: float) -> OfferSpec:
        return OfferSpec(
            hardware=fleet.hardware,
            kind="purchase",
            provider="estimate, no published price",
            per_device=price,
            date=published.date,
            source=published.source,
            note=f"implied by the published cost of owning, {published.value:g} {ownership.currency} an "
            "accelerator-hour for the largest buyers; get a quote",
        )

    def cost(price: float) -> float:
        found = owning_cost(fleet, tokens=tokens, prices=prices, ownership=ownership, offer=at(price))
        return found.per_device_hour

    one, two = cost(1.0), cost(2.0)
    price = 1 + (published.value - one) / (two - one)
    return at(price) if price > 0 else None


def _owning(
    fleet: Fleet, *, tokens: TokenYear, prices: PriceProfile, ownership: OwnershipProfile
) -> tuple[Owning | None, str]:
    """Owning and "", or None and why it has no price."""
    try:
        return owning_cost(fleet, tokens=tokens, prices=prices, ownership=ownership), ""
    except ProfileError as error:
        if error.code != "missing_price":
            raise
        reason = str(error)
    offer = implied_offer(fleet, tokens=tokens, prices=prices, ownership=ownership)
    if offer is None:
        return None, reason
    estimate = owning_cost(fleet, tokens=tokens, prices=prices, ownership=ownership, offer=offer)
    return replace(estimate, estimated=True), ""


def _renting(
    fleet: Fleet,
    *,
    rule: PriceRule,
    tokens: TokenYear,
    prices: PriceProfile,
    ownership: OwnershipProfile,
    owning: Owning | None,
) -> Renting | None:
    offer = market_price(prices, hardware=fleet.hardware, rule=rule)
    if offer is None:
        return None
    annual = fleet.devices * offer.per_hour * HOURS_PER_YEAR * (1 + ownership.cloud_extra_fraction.value)
    years = int(ownership.depreciation_years.value)
    return Renting(
        kind=rule.kind,
        offer=offer,
        annual=annual,
        total=annual * years,
        present_value=annual * annuity_factor(ownership.discount_rate.value, years),
        per_million_input_tokens=tokens.input_price(annual),
        per_million_output_tokens=tokens.output_price(annual),
        break_even=owning.annual / annual if owning is not None else None,
    )


def _strangers(prices: PriceProfile) -> str:
    """Names in a price list that no accelerator has: one of them may be the one that is missing."""
    unknown = sorted({offer.hardware for offer in prices.offers} - set(list_hardware()))
    return f"; no accelerator is called {', '.join(unknown)}" if unknown else ""


def total_cost(plan: CapacityPlan, *, prices: PriceProfile, ownership: OwnershipProfile) -> TotalCost:
    """Owning and every kind of renting for the plan's fleet.

    Raises
    ------
    ProfileError
        Neither a purchase price nor a rental price is known (``missing_price``), or currencies differ.
    """
    fleet = plan.best
    same_currency(prices.currency, ownership.currency, first_name="the price list", second_name="the ownership profile")
    tokens = token_year(plan.demand, prompt_share=fleet.prompt_share)
    owning, reason = _owning(fleet, tokens=tokens, prices=prices, ownership=ownership)
    found = (
        _renting(
            fleet,
            rule=replace(plan_rule(plan.spec), kind=kind),
            tokens=tokens,
            prices=prices,
            ownership=ownership,
            owning=owning,
        )
        for kind in RENTALS
    )
    renting = tuple(item for item in found if item is not None)
    if not renting and (owning is None or owning.estimated):
        raise ProfileError(
            f"the price list {prices.name} holds no price of {fleet.hardware} at all",
            field="offers",
            code="missing_price",
            hint="add an offer to a list of your own, extends: default keeps these, and name it with `prices` FILE"
            + _strangers(prices),
        )
    return TotalCost(
        currency=prices.currency,
        devices=fleet.devices,
        tokens=tokens,
        owning=owning,
        owning_unpriced=reason,
        renting=renting,
        flows=cash_flows(owning, renting, years=int(ownership.depreciation_years.value)),
    )
