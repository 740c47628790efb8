"""What serves side by side where something exists: each fleet with its share of the demand, and all of them."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from simulator.kernels.timing import Provenance
from simulator.planner.fleet.replica_load import LatencyRange
from simulator.planner.records import Study, total_of
from simulator.planner.serving.shapes import Counts, Shape, operating_steps
from simulator.planner.verification.records import FleetVerification
from simulator.records import INSIDE, dataclass
from simulator.specs.base import Note
from simulator.units import HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What requests see of a fleet with its spares gone [s]; ``chances`` : that each objective of the plan holds."""

    ttft_p95_s: float
    tpot_p95_s: float
    objectives_s: tuple[float, ...]
    ranges: LatencyRange
    chances: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetShare:
    """One of several fleets side by side, each with its share of the demand.

    from_stock, bought : devices that exist and devices to be bought; kept_by_kind, by_kind : both by accelerator
    rate_per_s : of the planned peak
    cost_per_hour : of the bought devices only, None where no price is known; maximum_w : nameplate
    serving, counts, spare : what serves, and replicas and spares of each of its parts; no part of the answer
    seen : what requests see with the spares gone, its 80 % intervals, and the probability that each objective holds
    simulated : the same in the event simulation, None where that was not asked
    """

    hardware: str
    label: str
    replicas: int
    spares: int
    devices: int
    from_stock: int
    bought: int
    by_kind: tuple[tuple[str, int], ...]
    kept_by_kind: tuple[tuple[str, int], ...] = field(metadata=INSIDE)
    rate_per_s: float
    capacity_per_s: float
    cost_per_hour: float | None
    typical_w: float
    maximum_w: float
    serving: Shape = field(compare=False, repr=False, metadata=INSIDE)
    counts: Counts = field(compare=False, repr=False, metadata=INSIDE)
    spare: Counts = field(compare=False, repr=False, metadata=INSIDE)
    seen: Seen | None = None
    simulated: FleetVerification | None = None

    @property
    def replica_rate_per_s(self) -> float:
        """Rate on one replica of the last part [1/s]."""
        return self.rate_per_s / self.counts[-1]

    @property
    def busy_devices(self) -> int:
        """Accelerators of replicas and spares: others only fill up servers."""
        return self.serving.devices(self.counts) + self.serving.devices(self.spare)

    @property
    def log_sigma(self) -> float:
        """Standard deviation of log(measured / predicted) of its step times, those of the part that is known least."""
        return max(operating_steps(part).log_sigma for part in self.serving.parts)

    @property
    def provenance(self) -> str:
        """How its step times are known, those of the part that is known least."""
        return max(Provenance[operating_steps(part).provenance.upper()] for part in self.serving.parts).label

    @property
    def load(self) -> float:
        """Rate at the planned peak over what the fleet can carry [-]."""
        return self.rate_per_s / self.capacity_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StockPlan(Study):
    """Existing accelerators first, then what has to be obtained. ``unused`` names stock that stays idle and why."""

    key: ClassVar[str] = "stock"

    shares: tuple[FleetShare, ...]
    unused: tuple[Note, ...]

    @property
    def warnings(self) -> tuple[Note, ...]:
        """Warnings of fleets that miss their objectives in the event simulation."""
        missed = [item.simulated for item in self.shares if item.simulated and not item.simulated.holds]
        return tuple(Note("not_confirmed", {"reason": found.reason}) for found in missed[:1])

    @property
    def devices(self) -> int:
        """Accelerators in use."""
        return sum(share.devices for share in self.shares)

    @property
    def provenance(self) -> str:
        """How the step times of the fleet that is known least are known."""
        return max(Provenance[share.provenance.upper()] for share in self.shares).label

    @property
    def idle_devices(self) -> int:
        """Accelerators in use that only fill up servers."""
        return self.devices - sum(share.busy_devices for share in self.shares)

    @property
    def bought(self) -> int:
        """Accelerators to obtain."""
        return sum(share.bought for share in self.shares)

    @property
    def cost_per_hour(self) -> float | None:
        """Cost of what has to be obtained, in the price list's currency; None where a price is unknown."""
        return total_of([share.cost_per_hour for share in self.shares])

    @property
    def chances(self) -> tuple[float, ...]:
        """Chances that each objective holds in the fleet that is least sure of it."""
        return tuple(map(min, zip(*(share.seen.chances for share in self.shares if share.seen), strict=True)))

    @property
    def cost_per_month(self) -> float | None:
        """Cost of a month of 730 hours."""
        return None if self.cost_per_hour is None else self.cost_per_hour * HOURS_PER_MONTH

    @property
    def typical_w(self) -> float:
        """Expected power of all that is in use."""
        return sum(share.typical_w for share in self.shares)

    @property
    def maximum_w(self) -> float:
        """Nameplate power of all that is in use."""
        return sum(share.maximum_w for share in self.shares)
