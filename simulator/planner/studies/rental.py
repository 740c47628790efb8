"""Renting for a load that changes by the hour: reserved below, on demand above, spot where its loss is survived."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.records import Fleet
from simulator.planner.fleet.resizing import resizer
from simulator.planner.load_profile import load_shape
from simulator.planner.money.market import MarketPrice, market_price, plan_rule
from simulator.planner.money.tco import token_year
from simulator.planner.records import Study
from simulator.planner.search.question import Question
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.money.prices import OfferKind
from simulator.specs.question.plan_values import HOURS_PER_DAY, MONTHS_PER_YEAR
from simulator.units import HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalShare:
    """Devices rented one way: how many at most, how many are paid for on average, cost a month."""

    hardware: str
    kind: str
    per_device_hour: float
    devices: int
    mean_devices: float
    per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalMix(Study):
    """Cheapest way to rent a load that changes by the hour, against renting the peak all the time.

    profile : demand over its peak by hour, of a day or of a week from Monday; devices : needed in each of those hours
    per_month : of all shares; per_million_* : tokens of the mean demand at that bill
    """

    key: ClassVar[str] = "rental"

    profile: tuple[float, ...]
    profile_source: Note
    devices: tuple[int, ...]
    shares: tuple[RentalShare, ...]
    per_month: float
    flat_per_month: float
    flat_kind: str
    notes: tuple[Note, ...]
    per_million_input_tokens: float
    per_million_output_tokens: float

    @property
    def saved_fraction(self) -> float:
        """What the mix costs less than renting the peak all the time, as a share of that."""
        return 1 - self.per_month / self.flat_per_month

    @property
    def period(self) -> str:
        """What the profile is of."""
        return "week" if len(self.profile) > HOURS_PER_DAY else "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prices:
    """Of an accelerator: the cheapest lasting one, which is paid for all hours, and those by the hour."""

    lasting: MarketPrice
    on_demand: MarketPrice | None
    spot: MarketPrice | None


def _prices(question: Question, hardware: str) -> _Prices | None:
    """None where nothing lasting is offered."""
    rule = plan_rule(question.spec)

    def found(kind: OfferKind | None) -> MarketPrice | None:
        return market_price(question.prices, hardware=hardware, rule=replace(rule, kind=kind))

    lasting = found(None)
    return None if lasting is None else _Prices(lasting=lasting, on_demand=found("on_demand"), spot=found("spot"))


def _layer_shares(devices: np.ndarray) -> np.ndarray:
    """Share of the time for which the j-th device is in use, j = 1 .. the most."""
    levels = np.arange(1, int(devices.max()) + 1)
    shares: np.ndarray = (devices[None, :] >= levels[:, None]).mean(axis=1)
    return shares


def _share(kind: str, price: MarketPrice, used: np.ndarray, *, all_hours: bool) -> RentalShare | None:
    if not len(used):
        return None
    mean_devices = float(len(used)) if all_hours else float(used.sum())
    return RentalShare(
        hardware=price.hardware,
        kind=kind,
        per_device_hour=price.per_hour,
        devices=len(used),
        mean_devices=mean_devices,
        per_month=mean_devices * price.per_hour * HOURS_PER_MONTH,
    )


def _shares(used: np.ndarray, prices: _Prices, *, spot_devices: int) -> tuple[RentalShare, ...]:
    """Each device the cheapest way for its share of the time: kept ones are paid always, the others by the hour."""
    lasting, hourly, spot = prices.lasting, prices.on_demand, prices.spot
    keep = np.ones(len(used), dtype=bool) if hourly is None else used * hourly.per_hour >= lasting.per_hour
    elastic = used[~keep]
    # The devices that are used least go on spot, as many as the fleet can lose at once.
    cheaper = spot is not None and hourly is not None and spot.per_hour < hourly.per_hour
    on_spot = min(spot_devices, len(elastic)) if cheaper else 0
    hourly_used = elastic[: len(elastic) - on_spot]
    parts = [
        _share("planned", lasting, used[keep], all_hours=True),
        _share("on_demand", hourly, hourly_used, all_hours=False) if hourly else None,
        _share("spot", spot, elastic[len(elastic) - on_spot :], all_hours=False) if spot and on_spot else None,
    ]
    return tuple(item for item in parts if item is not None)


def _notes(hardware: str, prices: _Prices, *, spot_devices: int) -> list[Note]:
    """What is not offered, and how far spot goes."""
    offered = {"on demand": prices.on_demand, "spot": prices.spot}
    missing = [name for name, price in offered.items() if price is None]
    notes = [Note("not_offered", {"kinds": missing, "hardware": hardware})] if missing else []
    if prices.spot is not None:
        notes.append(Note("spot_within_spares", {"devices": spot_devices}))
    return notes


def rental_of(question: Question, sized: Sized, *, fleet: Fleet) -> RentalMix | None:
    """Cheapest mix of the offers that the price list has for the chosen accelerators; None where it lacks one.

    A device that is used a share u of the time is worth keeping from u >= lasting price / on-demand price on, where the
    lasting price is the cheapest of on demand and the commitments within the horizon, as of the plan. Spot devices can
    be taken away, so only as many as the spares cover. The comparison is the planned peak rented around the clock. Left
    out: minimum terms, ramp-up time, spot interruptions beyond the spares.

    fleet : the same as ``sized``, completed

    Raises RoofcastError: the load profile contradicts the peak over the mean that was given.
    """
    priced = {item.hardware: _prices(question, item.hardware) for item in sized.housing}
    shape, source = load_shape(question.spec)
    resized, shares, notes, flat_per_month, kinds = resizer(sized), list[RentalShare](), list[Note](), 0.0, list[str]()
    by_kind = resized.devices_by_kind(question.demand.planned_rate_per_s * shape)
    for hardware, prices in priced.items():
        if prices is None:
            return None
        devices, spot_devices = by_kind[hardware].astype(np.int64), resized.spare_devices(hardware)
        shares += _shares(_layer_shares(devices), prices, spot_devices=spot_devices)
        flat = market_price(question.prices, hardware=hardware, rule=plan_rule(question.spec)) or prices.lasting
        flat_per_month += float(devices.max()) * flat.per_hour * HOURS_PER_MONTH
        kinds.append(flat.kind)
        notes += _notes(hardware, prices, spot_devices=spot_devices)
    per_month = sum(share.per_month for share in shares)
    tokens = token_year(question.demand, prompt_share=fleet.prompt_share)
    return RentalMix(
        profile=tuple(float(value) for value in shape),
        profile_source=source,
        devices=tuple(int(sum(counts)) for counts in zip(*by_kind.values(), strict=True)),
        shares=tuple(shares),
        per_month=per_month,
        flat_per_month=flat_per_month,
        flat_kind=" or ".join(dict.fromkeys(kinds)),
        notes=tuple(notes),
        per_million_input_tokens=tokens.input_price(per_month * MONTHS_PER_YEAR),
        per_million_output_tokens=tokens.output_price(per_month * MONTHS_PER_YEAR),
    )


def study(context: StudyContext) -> RentalMix | None:
    """The cheapest way to rent the recommended fleet."""
    return rental_of(context.question, context.shown[0], fleet=context.plan.best)
