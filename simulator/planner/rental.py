"""Renting for a load that changes over the day: reserved below, on demand above, spot where its loss is survived."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi

import numpy as np

from simulator.planner.cost import choose_offer
from simulator.planner.fleet import Sized
from simulator.planner.resizing import Resizer, resizer
from simulator.planner.risk_records import RentalMix, RentalShare
from simulator.planner.search import Question
from simulator.specs.plan_values import HOURS_PER_DAY
from simulator.specs.prices import OfferKind
from simulator.units import HOURS_PER_MONTH

# A raised cosine with its peak in the early afternoon and nights at two fifths of it. Assumed, not measured: chat
# services of one region look like this, global ones are flatter; --load-profile gives your own.
_PEAK_HOUR = 14
_TROUGH = 0.4
PROFILE_SOURCE = "default, assumed: raised cosine over the day, night at 40 % of the peak"
_RESERVED: tuple[OfferKind, ...] = ("reserved_3y", "reserved_1y")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Price:
    kind: OfferKind
    per_hour: float


def default_profile() -> tuple[float, ...]:
    """Demand by hour over its peak."""
    middle, swing = (1 + _TROUGH) / 2, (1 - _TROUGH) / 2
    return tuple(middle + swing * cos(2 * pi * (hour - _PEAK_HOUR) / HOURS_PER_DAY) for hour in range(HOURS_PER_DAY))


def _prices(question: Question, hardware: str) -> dict[OfferKind, _Price]:
    found: dict[OfferKind, _Price] = {}
    kinds: tuple[OfferKind, ...] = ("on_demand", "spot", *_RESERVED)
    for kind in kinds:
        offer = choose_offer(question.prices, hardware=hardware, kind=kind)
        if offer is not None and offer.per_hour is not None:
            found[kind] = _Price(kind=kind, per_hour=offer.per_hour)
    return found


def _layer_hours(devices: np.ndarray) -> np.ndarray:
    """Hours a day for which the j-th device is in use, j = 1 .. the most."""
    levels = np.arange(1, int(devices.max()) + 1)
    hours: np.ndarray = (devices[None, :] >= levels[:, None]).sum(axis=1)
    return hours


def _share(kind: str, price: float, hours: np.ndarray, *, all_day: bool) -> RentalShare | None:
    if not len(hours):
        return None
    paid = np.full(len(hours), HOURS_PER_DAY) if all_day else hours
    mean_devices = float(paid.sum()) / HOURS_PER_DAY
    return RentalShare(
        kind=kind,
        per_device_hour=price,
        devices=len(hours),
        mean_devices=mean_devices,
        per_month=mean_devices * price * HOURS_PER_MONTH,
    )


def _shares(hours: np.ndarray, prices: dict[OfferKind, _Price], *, spot_devices: int) -> tuple[RentalShare, ...]:
    """Each device the cheapest way for the hours it is used: reserved is paid all day, the others by the hour."""
    reserved = min((prices[kind] for kind in _RESERVED if kind in prices), key=lambda item: item.per_hour, default=None)
    hourly = prices.get("on_demand")
    if hourly is None or reserved is None:
        only = hourly or reserved
        assert only is not None, "the caller checks that something is offered"
        found = [_share(only.kind, only.per_hour, hours, all_day=only is reserved)]
        return tuple(item for item in found if item is not None)
    keep = hours * hourly.per_hour >= HOURS_PER_DAY * reserved.per_hour
    elastic = hours[~keep]
    spot = prices.get("spot")
    # The devices that are used least go on spot, as many as the fleet can lose at once.
    on_spot = min(spot_devices, len(elastic)) if spot is not None and spot.per_hour < hourly.per_hour else 0
    parts = [
        _share(reserved.kind, reserved.per_hour, hours[keep], all_day=True),
        _share("on_demand", hourly.per_hour, elastic[: len(elastic) - on_spot], all_day=False),
        _share("spot", spot.per_hour, elastic[len(elastic) - on_spot :], all_day=False) if spot and on_spot else None,
    ]
    return tuple(item for item in parts if item is not None)


def _needed(fleet: Resizer, rates_per_s: np.ndarray) -> np.ndarray:
    return fleet.devices(fleet.replicas(rates_per_s)).astype(np.int64)


def rental_of(question: Question, sized: Sized) -> RentalMix | None:
    """Cheapest mix of the offers that the price list has for the chosen accelerator; None where it has none.

    A device that is used h hours a day is worth reserving from h / 24 >= reserved price / on-demand price on. Spot
    devices can be taken away, so only as many as the spares cover. The comparison is the planned peak rented around
    the clock. Left out: minimum terms, ramp-up time, spot interruptions beyond the spares.
    """
    hardware = sized.evaluated.candidate.platform.hardware.name
    prices = _prices(question, hardware)
    if not any(kind in prices for kind in ("on_demand", *_RESERVED)):
        return None
    given = question.spec.load_profile
    shape = np.array(given or default_profile())
    shape = shape / shape.max()
    fleet = resizer(sized)
    devices = _needed(fleet, question.demand.planned_rate_per_s * shape)
    spot_devices = sized.spares * fleet.devices_per_replica
    shares = _shares(_layer_hours(devices), prices, spot_devices=spot_devices)
    flat = prices.get(question.spec.price_kind) or next(iter(prices.values()))
    missing = [kind for kind in ("on_demand", "spot", *_RESERVED) if kind not in prices]
    notes = [f"the price list has no {' and no '.join(missing)} offer for {hardware}"] if missing else []
    if "spot" in prices:
        notes.append(f"spot is used for at most {spot_devices} devices, which the spares can replace")
    return RentalMix(
        profile=tuple(float(value) for value in shape),
        profile_source="given" if given else PROFILE_SOURCE,
        devices=tuple(int(count) for count in devices),
        shares=shares,
        per_month=sum(share.per_month for share in shares),
        flat_per_month=float(devices.max()) * flat.per_hour * HOURS_PER_MONTH,
        flat_kind=flat.kind,
        notes=tuple(notes),
    )
