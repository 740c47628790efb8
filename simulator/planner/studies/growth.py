"""Demand that grows: what it needs in which month, and by when that has to be ordered."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta
from typing import ClassVar

from simulator.errors import Option, ProfileError, RoofcastError
from simulator.planner.capacity_plan import PlanBasis, StudyContext
from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.resizing import Resizer, resizer
from simulator.planner.money.market import purchase_offer
from simulator.planner.records import Study
from simulator.planner.search.question import Question
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.question.plan_values import DEFAULT_HORIZON_MONTHS, MONTHS_PER_YEAR
from simulator.units import GIGA, HOURS_PER_MONTH, KILO, percent_text


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandBand:
    """A named growth: ``rate_per_month`` is the relative growth of demand each month (0.05 is 5 %)."""

    name: str
    rate_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthMonth:
    """Demand and devices of one month for every band, in the order of ``Growth.bands``."""

    month: int
    date: str
    rates_per_s: tuple[float, ...]
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityStep:
    """More devices are needed from ``date`` on (base band); order by ``order_by``, which may be past (``late``)."""

    date: str
    order_by: str
    devices_before: int
    devices_after: int
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(Study):
    """Demand over the horizon, what it needs when, and when to order it. Dates are ISO.

    bridge_until : the day on which what is ordered at the start arrives; bridge_devices : needed beyond the fleet on
    the last month's day before it (base band), which nothing but rental can bring
    rent : what renting the devices that each month needs comes to over the horizon, for every band; rent_now : the
    fleet of the start alone; at the plan's price of an accelerator-hour, None without one
    in_stock : accelerators of its kind that exist, which nobody has to order
    beside_per_s : of the demand that other fleets go on to carry [1/s]; rates are those beyond it
    """

    key: ClassVar[str] = "growth"

    start: str
    bands: tuple[DemandBand, ...]
    months: tuple[GrowthMonth, ...]
    steps: tuple[CapacityStep, ...]
    lead_time_days: float
    lead_time_source: str | Note
    bridge_until: str
    bridge_devices: int
    rent: tuple[float, ...] | None
    rent_now: float | None
    in_stock: int = 0
    beside_per_s: float = 0.0

    @property
    def horizon_months(self) -> int:
        """Months that are looked ahead."""
        return self.months[-1].month

    @property
    def base(self) -> DemandBand:
        """The expected one, in the middle."""
        return self.bands[len(self.bands) // 2]

    @property
    def arrival(self) -> str:
        """The day on which what is bought at the start is in use."""
        return (date.fromisoformat(self.start) + timedelta(days=self.lead_time_days)).isoformat()

    def in_place(self, day: str, *, now: int) -> int:
        """Devices in place on ``day``: those of the last step by then, ``now`` and what exists before the first."""
        return ([max(now, self.in_stock)] + [step.devices_after for step in self.steps if step.date <= day])[-1]


# Of published lead times of 3 to 12 months for accelerators: assumed, set your own with --lead-time.
DEFAULT_LEAD_TIME_DAYS = 180
LEAD_TIME_SOURCE = Note("lead_time_assumed")
ORDER_EVERY_MONTHS = 3
# Ends of the band around the growth that was given. Assumed.
_LOW, _HIGH = 1 / 2, 3 / 2


def month_later(start: date, months: int) -> date:
    """The day so many months after ``start``, in a shorter month its last one."""
    years, month = divmod(start.month - 1 + months, MONTHS_PER_YEAR)
    year = start.year + years
    return date(year, month + 1, min(start.day, monthrange(year, month + 1)[1]))


def _month(
    fleet: Resizer, *, start: date, month: int, rate_per_s: float, beside_per_s: float, bands: tuple[DemandBand, ...]
) -> GrowthMonth:
    rates = tuple(rate_per_s * (1 + band.rate_per_month) ** month - beside_per_s for band in bands)
    devices = fleet.devices_for(rates)
    return GrowthMonth(
        month=month,
        date=month_later(start, month).isoformat(),
        rates_per_s=rates,
        devices=tuple(int(count) for count in devices),
    )


def capacity_steps(
    months: tuple[GrowthMonth, ...], *, start: date, band: int, lead_time_days: int, in_stock: int = 0
) -> list[CapacityStep]:
    """Orders for a quarter at a time: each brings what its last month needs, in place when first more is needed."""
    steps: list[CapacityStep] = []
    have = max(months[0].devices[band], in_stock)
    for first in range(0, len(months), ORDER_EVERY_MONTHS):
        quarter = months[first : first + ORDER_EVERY_MONTHS]
        need = max(month.devices[band] for month in quarter)
        if need <= have:
            continue
        in_use = date.fromisoformat(next(month.date for month in quarter if month.devices[band] > have))
        order_by = in_use - timedelta(days=lead_time_days)
        steps.append(
            CapacityStep(
                date=in_use.isoformat(),
                order_by=order_by.isoformat(),
                devices_before=have,
                devices_after=need,
                late=order_by < start,
            )
        )
        have = need
    return steps


def _bridge_devices(months: tuple[GrowthMonth, ...], *, until: date, band: int, in_stock: int) -> int:
    """Devices beyond the first month's, and those that exist, that are needed before ``until``."""
    have = max(months[0].devices[band], in_stock)
    return max([have, *(item.devices[band] for item in months if date.fromisoformat(item.date) < until)]) - have


def _rent(months: tuple[GrowthMonth, ...], *, per_device_hour: float) -> tuple[float, ...]:
    """Money for the devices of each month up to the last, whose need begins after the horizon, for every band."""
    used = zip(*(month.devices for month in months[:-1]), strict=True)
    return tuple(sum(devices) * per_device_hour * HOURS_PER_MONTH for devices in used)


def _check_end(rate_per_s: float, *, months: int, monthly: float) -> None:
    """Refuse a forecast that leaves the world."""
    most = KILO * GIGA
    if rate_per_s > most:
        raise RoofcastError(
            f"reaches {rate_per_s:.3g} requests/s in its high band after {months} months; at most {most:.0g}",
            field=Option("growth"),
            code="out_of_range",
            hint=f"it reads as {percent_text(monthly)} a month; growth slows: a shorter `horizon`, or a lower rate "
            "such as 5%/month",
        )


def _lead_time(question: Question, sized: Sized) -> tuple[int, str | Note]:
    """Days from order to use, and who says so: the question, the seller of the purchase price, or nobody.

    Of two kinds of accelerator the later one's.
    """
    if question.spec.lead_time is not None:
        return question.spec.lead_time, "given"
    return max((_offered_lead_time(question, item.hardware) for item in sized.housing), key=lambda found: found[0])


def _offered_lead_time(question: Question, hardware: str) -> tuple[int, str | Note]:
    try:
        offer = purchase_offer(question.prices, hardware=hardware)
    except ProfileError:
        return DEFAULT_LEAD_TIME_DAYS, LEAD_TIME_SOURCE
    if offer.lead_time_days is None:
        return DEFAULT_LEAD_TIME_DAYS, LEAD_TIME_SOURCE
    return offer.lead_time_days, f"{offer.provider}, {offer.date}"


def growth_of(question: Question, sized: Sized, *, basis: PlanBasis) -> Growth | None:
    """Months, bands and orders of the chosen fleet; None where no growth was given, or a fleet beside it grows.

    The replica keeps its set-up; rates grow geometrically, d(m) = d(0) (1 + g)^m, in the low and the high band with
    half and one and a half times g.

    Raises RoofcastError: the high band leaves what a plan takes as a rate.
    """
    spec, in_stock, beside = question.spec, basis.in_stock, basis.beside_per_s
    if spec.growth is None or beside is None:
        return None
    start = spec.start or date.today()
    horizon = spec.horizon or DEFAULT_HORIZON_MONTHS
    lead_days, lead_source = _lead_time(question, sized)
    bands = (
        DemandBand(name="low", rate_per_month=spec.growth * _LOW),
        DemandBand(name="base", rate_per_month=spec.growth),
        DemandBand(name="high", rate_per_month=spec.growth * _HIGH),
    )
    arrives = start + timedelta(days=lead_days)
    rate, fleet = basis.whole_per_s or question.demand.planned_rate_per_s, resizer(sized)
    _check_end(rate * (1 + bands[-1].rate_per_month) ** horizon, months=horizon, monthly=spec.growth)
    price = sized.cost.per_device_hour
    months = tuple(
        _month(fleet, start=start, month=month, rate_per_s=rate, beside_per_s=beside, bands=bands)
        for month in range(horizon + 1)
    )
    return Growth(
        start=start.isoformat(),
        bands=bands,
        months=months,
        steps=tuple(capacity_steps(months, start=start, band=1, lead_time_days=lead_days, in_stock=in_stock)),
        lead_time_days=float(lead_days),
        lead_time_source=lead_source,
        bridge_until=arrives.isoformat(),
        bridge_devices=_bridge_devices(months, until=arrives, band=1, in_stock=in_stock),
        in_stock=in_stock,
        beside_per_s=beside,
        rent=None if price is None else _rent(months, per_device_hour=price),
        rent_now=None if price is None else sized.devices * price * HOURS_PER_MONTH * horizon,
    )


def study(context: StudyContext) -> Growth | None:
    """What the recommended fleet needs over the horizon."""
    return growth_of(context.question, context.shown[0], basis=context.plan.basis)
