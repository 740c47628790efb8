"""What would change a plan's choice: the fleet that stands beside the chosen one, and by how much it is dearer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.kernels.timing import Provenance
from simulator.planner.fleet.records import Fleet

KNOWN = frozenset({Provenance.MEASURED.label, Provenance.CALIBRATED.label})
"""Kernels that were measured on the very accelerator, or fitted to such measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The fleet that would be chosen next.

    known : it is the cheapest whose kernels are measured or calibrated, where those of the chosen fleet are not
    more_fraction : of devices that the chosen fleet would have to take more for both to cost the same
    price_above : of an hour of the chosen fleet's accelerator, for the same; None for pools of several kinds
    """

    hardware: str
    label: str
    devices: int
    cost_per_hour: float
    known: bool
    more_fraction: float
    price_above: float | None


def elsewhere(fleets: Sequence[Fleet]) -> list[Fleet]:
    """Of ``fleets`` (best first) those of other accelerators; those without a price only where none has one."""
    best, *others = fleets
    found = [fleet for fleet in others if fleet.accelerators != best.accelerators]
    return [fleet for fleet in found if fleet.cost.per_hour is not None] or found


def better_known(fleets: Sequence[Fleet]) -> Fleet | None:
    """The cheapest fleet elsewhere whose kernels are known, where those of the chosen one are not; else None."""
    if fleets[0].provenance in KNOWN:
        return None
    return next((fleet for fleet in elsewhere(fleets) if fleet.provenance in KNOWN), None)


def rival_of(fleets: Sequence[Fleet]) -> Rival | None:
    """Of the chosen fleet, the first of ``fleets`` (best first); None where nothing else has a price."""
    best, others, known = fleets[0], elsewhere(fleets), better_known(fleets)
    cost, found = best.cost.per_hour, known or next(iter(others), None)
    if cost is None or found is None or found.cost.per_hour is None:
        return None
    ratio = found.cost.per_hour / cost
    price = best.cost.per_device_hour
    return Rival(
        hardware=found.hardware,
        label=found.label,
        devices=found.devices,
        cost_per_hour=found.cost.per_hour,
        known=known is not None,
        more_fraction=ratio - 1,
        price_above=None if price is None or len(best.housing) > 1 else price * ratio,
    )
