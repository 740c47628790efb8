"""The cost of a fleet's first year, month by month, in the columns of the FinOps cost specification (FOCUS 1.2).

Every way to pay is a file of its own, named in SubAccountId too: nothing adds up alternatives. Months start when that
way's fleet is in use. Figures are a forecast: BilledCost is what would be billed. Beside accelerators that exist
they hold what has to be obtained, and the electricity of the existing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from datetime import date
from io import StringIO

from simulator.planner.money.tco import RENTALS
from simulator.planner.money.tco_records import CostLine, Renting, RentKind, TotalCost
from simulator.planner.studies.growth import month_later
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.studies.stock_money import obtained_costs, stock_money
from simulator.records import dataclass
from simulator.reports.studies import Studies
from simulator.reports.words.fields import note_text
from simulator.specs.question.plan_values import MONTHS_PER_YEAR
from simulator.units import HOURS_PER_MONTH, KILO

COLUMNS = (
    *("BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingCurrency"),
    *("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"),
    *("ChargeCategory", "ChargeDescription", "ServiceCategory", "ServiceName", "ProviderName"),
    *("PricingCategory", "PricingQuantity", "PricingUnit", "ListUnitPrice"),
    *("RegionId", "ResourceId", "SubAccountId", "Tags"),
)
ELECTRICITY = "Electricity"
_PRICING = {"spot": "Dynamic", "reserved_1y": "Committed", "reserved_3y": "Committed"}


Charge = tuple[tuple[str, ...], tuple[str, ...]]
"""A row but for its periods: the columns before them and those behind."""


def _charge(
    studies: Studies,
    scenario: str,
    *,
    hardware: str,
    description: str,
    service: str,
    billed: float,
    effective: float | None = None,
    category: str = "Usage",
    provider: str = "own",
    pricing: str = "Standard",
    priced: tuple[float, str, float] | None = None,
) -> Charge:
    """``billed`` is cash, ``effective`` the month's share of it where that is another amount.

    priced : quantity, its unit and the price of one; electricity by the kWh, anything else by the month where None
    """
    per_kwh, paid = studies.prices.power_per_kwh, _amount(billed)
    if service == ELECTRICITY:
        priced = (billed / per_kwh if per_kwh else 0.0, "kWh", per_kwh)
    quantity, unit, unit_price = priced or (1.0, "Months", billed)
    model = studies.plan.best.replica.deployment.model.name
    tags = {"model": model, "hardware": hardware, "plan": studies.input_hash[:12]}
    said = (category, description, "AI and Machine Learning", service, provider, pricing)
    whose = ("", f"{hardware}-fleet", scenario, json.dumps(tags, sort_keys=True))
    costs = (paid, paid if effective is None else _amount(effective), paid, paid, studies.currency)
    return costs, (*said, _amount(quantity), unit, _amount(unit_price), *whose)


def _rented(studies: Studies, item: Renting, *, hardware: str, devices: int) -> Charge:
    return _charge(
        studies,
        scenario_name(item.kind),
        hardware=hardware,
        description=f"{devices} accelerators, all hours",
        service="Accelerator hours",
        provider=item.provider,
        pricing=_PRICING.get(item.kind, "Standard"),
        billed=item.annual / MONTHS_PER_YEAR,
        priced=(devices * HOURS_PER_MONTH, "Device-Hours", item.per_device_hour),
    )


def _owning(studies: Studies, item: _Obtained, *, month: int) -> Iterator[Charge]:
    """Capital is billed in the first month and takes effect over its life; operation month by month."""
    owning = item.cost.owning
    if owning is None:
        return
    life = owning.years * MONTHS_PER_YEAR
    for line in owning.capex:
        billed = line.amount if month == 0 else 0.0
        residual = owning.residual if line.name == "servers" else 0.0
        effective = (line.amount - residual) / life
        if billed or effective:
            yield _owned(studies, item, "Purchase", line, billed=billed, effective=effective)
    for line in owning.opex:
        if line.amount:
            yield _owned(studies, item, "Usage", line, billed=line.amount / MONTHS_PER_YEAR)


def _owned(
    studies: Studies, item: _Obtained, category: str, line: CostLine, *, billed: float, effective: float | None = None
) -> Charge:
    owning, name = item.cost.owning, line.name
    return _charge(
        studies,
        OWNED,
        hardware=item.hardware,
        category=category,
        description=f"{name}: {note_text(line.basis)}",
        service=name.capitalize(),
        provider=owning.offer.provider if owning is not None and name == "servers" else "own",
        billed=billed,
        effective=effective,
    )


def _existing(studies: Studies, scenario: str) -> tuple[Charge, ...]:
    """The electricity of accelerators that exist; nothing where none do."""
    stock = studies.plan.study(StockPlan)
    if stock is None or stock.bought == stock.devices:
        return ()
    mean_load = studies.plan.demand.mean_load
    found = stock_money(stock, mean_load=mean_load, prices=studies.prices, ownership=studies.ownership)
    monthly = found.existing_electricity_per_year / MONTHS_PER_YEAR
    charge = _charge(
        studies,
        scenario,
        hardware=" + ".join(share.hardware for share in stock.shares if share.from_stock),
        description=f"electricity of {stock.devices - stock.bought} existing accelerators",
        service=ELECTRICITY,
        billed=monthly,
    )
    return (charge,)


def _amount(value: float) -> str:
    return f"{value:.10g}" if abs(value) < KILO else f"{value:.6f}"


def scenario_name(kind: RentKind) -> str:
    """``rent-1y`` of a kind of renting."""
    return f"rent-{kind.removeprefix('reserved_').replace('_', '-')}"


OWNED = "own"
SCENARIOS = (*map(scenario_name, RENTALS), OWNED)
"""Every alternative that may have a file."""


def file_name(scenario: str) -> str:
    """Name of the file of an alternative's costs."""
    return f"costs-{scenario}.csv"


def _year(in_use: date, months: Sequence[tuple[Charge, ...]]) -> str:
    """The charges of whole months, from the first day of one on which the fleet is in use."""
    first = in_use if in_use.day == 1 else month_later(in_use.replace(day=1), 1)
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for month, charges in enumerate(months):
        start, end = month_later(first, month), month_later(first, month + 1)
        period = (f"{start.isoformat()}T00:00:00Z", f"{end.isoformat()}T00:00:00Z")
        writer.writerows((*costs, *period, *period, *rest) for costs, rest in charges)
    return stream.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Obtained:
    """Accelerators that are paid for, and what each way to pay for them costs."""

    hardware: str
    cost: TotalCost


def _obtained(studies: Studies) -> list[_Obtained]:
    """The new fleet; where something exists what is obtained beside it."""
    plan = studies.plan
    stock = plan.study(StockPlan)
    if stock is None:
        return [_Obtained(hardware=plan.best.hardware, cost=studies.cost)]
    names = [" + ".join(name for name, _ in share.by_kind) for share in stock.shares if share.bought]
    costs = obtained_costs(plan, prices=studies.prices, ownership=studies.ownership)
    return [_Obtained(hardware=name, cost=cost) for name, cost in zip(names, costs, strict=True)]


def cost_files(studies: Studies) -> dict[str, str]:
    """A file of each way to pay by its name: renting from the start of the plan, owning from the day of arrival."""
    found, items = {}, _obtained(studies)
    for kind in RENTALS:
        rents = [(item, rent) for item in items for rent in item.cost.renting if rent.kind == kind]
        if rents and len(rents) == len(items):
            name = scenario_name(kind)
            paid = (_rented(studies, rent, hardware=item.hardware, devices=item.cost.devices) for item, rent in rents)
            charges = (*paid, *_existing(studies, name))
            found[file_name(name)] = _year(studies.start, [charges] * MONTHS_PER_YEAR)
    if all(item.cost.owning is not None for item in items):
        existing, arrival = _existing(studies, OWNED), studies.arrival if items else studies.start
        owned = [
            (*(charge for item in items for charge in _owning(studies, item, month=month)), *existing)
            for month in range(MONTHS_PER_YEAR)
        ]
        found[file_name(OWNED)] = _year(arrival, owned)
    return found
