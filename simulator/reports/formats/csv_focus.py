"""The cost of a fleet's first year, month by month, in the columns of the FinOps cost specification (FOCUS 1.2).

Every way to pay is a file of its own, named in SubAccountId too: nothing adds up alternatives. Months start when that
way's fleet is in use. Figures are a forecast, so that BilledCost is what would be billed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from datetime import date
from io import StringIO

from simulator.planner.money.tco import RENTALS
from simulator.planner.money.tco_records import Renting, RentKind
from simulator.planner.studies.growth import month_later
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
_PRICING = {"spot": "Dynamic", "reserved_1y": "Committed", "reserved_3y": "Committed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    """One row before it is spelled out: ``billed`` is cash, ``effective`` the month's share of it."""

    scenario: str
    category: str
    description: str
    service: str
    provider: str
    pricing: str
    billed: float
    effective: float
    quantity: float
    unit: str
    unit_price: float


def _rented(item: Renting, *, devices: int) -> _Charge:
    monthly = item.annual / MONTHS_PER_YEAR
    return _Charge(
        scenario=scenario_name(item.kind),
        category="Usage",
        description=f"{devices} accelerators, all hours",
        service="Accelerator hours",
        provider=item.provider,
        pricing=_PRICING.get(item.kind, "Standard"),
        billed=monthly,
        effective=monthly,
        quantity=devices * HOURS_PER_MONTH,
        unit="Device-Hours",
        unit_price=item.per_device_hour,
    )


def _owning(studies: Studies, *, month: int) -> Iterator[_Charge]:
    """Capital is billed in the first month and takes effect over its life; operation month by month."""
    owning = studies.cost.owning
    if owning is None:
        return
    life = owning.years * MONTHS_PER_YEAR
    for line in owning.capex:
        billed = line.amount if month == 0 else 0.0
        residual = owning.residual if line.name == "servers" else 0.0
        effective = (line.amount - residual) / life
        if billed or effective:
            yield _owned(studies, "Purchase", line.name, note_text(line.basis), billed=billed, effective=effective)
    for line in owning.opex:
        if line.amount:
            monthly = line.amount / MONTHS_PER_YEAR
            yield _owned(studies, "Usage", line.name, note_text(line.basis), billed=monthly, effective=monthly)


def _owned(studies: Studies, category: str, name: str, basis: str, *, billed: float, effective: float) -> _Charge:
    owning = studies.cost.owning
    power_kwh = studies.energy.facility_kwh / MONTHS_PER_YEAR
    electricity = name == "electricity"
    return _Charge(
        scenario=OWNED,
        category=category,
        description=f"{name}: {basis}",
        service=name.capitalize(),
        provider=owning.offer.provider if owning is not None and name == "servers" else "own",
        pricing="Standard",
        billed=billed,
        effective=effective,
        quantity=power_kwh if electricity else 1.0,
        unit="kWh" if electricity else "Months",
        unit_price=studies.prices.power_per_kwh if electricity else billed,
    )


def _amount(value: float) -> str:
    return f"{value:.10g}" if abs(value) < KILO else f"{value:.6f}"


def _row(charge: _Charge, studies: Studies, *, start: date, end: date) -> tuple[str, ...]:
    fleet = studies.plan.best
    tags = {"model": fleet.replica.deployment.model.name, "hardware": fleet.hardware, "plan": studies.input_hash[:12]}
    period = (f"{start.isoformat()}T00:00:00Z", f"{end.isoformat()}T00:00:00Z")
    paid = _amount(charge.billed)
    said = (charge.category, charge.description, "AI and Machine Learning", charge.service, charge.provider)
    priced = (charge.pricing, _amount(charge.quantity), charge.unit, _amount(charge.unit_price))
    whose = ("", f"{fleet.hardware}-fleet", charge.scenario, json.dumps(tags, sort_keys=True))
    costs = (paid, _amount(charge.effective), paid, paid, studies.currency)
    return (*costs, *period, *period, *said, *priced, *whose)


def scenario_name(kind: RentKind) -> str:
    """``rent-1y`` of a kind of renting."""
    return f"rent-{kind.removeprefix('reserved_').replace('_', '-')}"


OWNED = "own"
SCENARIOS = (*map(scenario_name, RENTALS), OWNED)
"""Every alternative that may have a file."""


def file_name(scenario: str) -> str:
    """Name of the file of an alternative's costs."""
    return f"costs-{scenario}.csv"


def _year(studies: Studies, in_use: date, months: Sequence[tuple[_Charge, ...]]) -> str:
    """The charges of whole months, from the first day of one on which the fleet is in use."""
    first = in_use if in_use.day == 1 else month_later(in_use.replace(day=1), 1)
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for month, charges in enumerate(months):
        start, end = month_later(first, month), month_later(first, month + 1)
        for charge in charges:
            writer.writerow(_row(charge, studies, start=start, end=end))
    return stream.getvalue()


def cost_files(studies: Studies) -> dict[str, str]:
    """A file of each way to pay by its name: renting from the start of the plan, owning from the day of arrival."""
    found = {}
    for item in studies.cost.renting:
        charges = [(_rented(item, devices=studies.cost.devices),)] * MONTHS_PER_YEAR
        found[file_name(scenario_name(item.kind))] = _year(studies, studies.start, charges)
    if studies.cost.owning is not None:
        owned = [tuple(_owning(studies, month=month)) for month in range(MONTHS_PER_YEAR)]
        found[file_name(OWNED)] = _year(studies, studies.arrival, owned)
    return found
