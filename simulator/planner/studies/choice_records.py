"""What a plan says about the options it chose from: search, Pareto set, stock, length split. Data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary:
    """How wide the search was.

    candidates : replica set-ups screened with the vectorised steady state; feasible : of them that can serve
    finalists : of them that were priced again exactly, one by one, and sized as fleets
    axes : what was varied, with the number of values of each
    """

    candidates: int
    feasible: int
    finalists: int
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """A fleet that no other fleet beats in cost, latency, energy and quality at once.

    cost_per_hour : None where no price is known; typical_w : of the whole fleet; latencies hold with the spares down
    quality : what is known about the answers of this number format
    energy_per_output_token_j : typical power over the answers at the planned peak [J]
    quality_loss : published loss as a fraction, None where nothing is published
    """

    hardware: str
    label: str
    devices: int
    devices_per_replica: int
    replicas: int
    spares: int
    max_num_seqs: int
    max_num_batched_tokens: int
    cost_per_hour: float | None
    typical_w: float
    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float
    quality: str
    energy_per_output_token_j: float = 0.0
    quality_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoSet:
    """Points by rising cost; ``considered`` fleets were compared in ``axes``."""

    axes: tuple[str, ...]
    considered: int
    points: tuple[ParetoPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetShare:
    """One of several fleets side by side, each with its share of the demand.

    from_stock, bought : devices that exist and that have to be obtained; rate_per_s : of the planned peak
    cost_per_hour : of the bought devices only, None where no price is known
    """

    hardware: str
    label: str
    replicas: int
    spares: int
    devices: int
    from_stock: int
    bought: int
    rate_per_s: float
    capacity_per_s: float
    cost_per_hour: float | None
    typical_w: float

    @property
    def load(self) -> float:
        """Share of what it carries that its requests take at the planned peak."""
        return self.rate_per_s / self.capacity_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StockPlan:
    """Existing accelerators first, then what has to be obtained. ``unused`` names stock that stays idle and why."""

    shares: tuple[FleetShare, ...]
    unused: tuple[str, ...]

    @property
    def devices(self) -> int:
        """Accelerators in use."""
        return sum(share.devices for share in self.shares)

    @property
    def bought(self) -> int:
        """Accelerators to obtain."""
        return sum(share.bought for share in self.shares)

    @property
    def cost_per_hour(self) -> float | None:
        """Of what has to be obtained, in the price list's currency; None where a price is unknown."""
        costs = [share.cost_per_hour for share in self.shares]
        return None if None in costs else sum(cost or 0.0 for cost in costs)

    @property
    def typical_w(self) -> float:
        """Expected power of all that is in use."""
        return sum(share.typical_w for share in self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFleet:
    """Requests of one range of prompt lengths and the fleet that serves them.

    isl_mean_tokens, rate_per_s : of the requests in [from_tokens, to_tokens) (None: no upper end)
    """

    from_tokens: float
    to_tokens: float | None
    rate_per_s: float
    isl_mean_tokens: float
    hardware: str
    label: str
    replicas: int
    spares: int
    devices: int
    cost_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSplit:
    """One length at which the prompts were split: what both fleets take, None where one of them cannot serve.

    cost_per_hour : None also where a price is unknown
    """

    threshold_tokens: float
    devices: int | None
    cost_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSplit:
    """Two fleets by prompt length against one: what is saved is negative where splitting costs more.

    saved_per_hour : None where a price is unknown; splits : every length that was tried
    """

    threshold_tokens: float
    fleets: tuple[SplitFleet, ...]
    saved_devices: int
    saved_per_hour: float | None = None
    splits: tuple[TriedSplit, ...] = ()

    @property
    def better(self) -> bool:
        """Whether two fleets are the better choice: cheaper, or with unknown prices smaller."""
        return self.saved_devices > 0 if self.saved_per_hour is None else self.saved_per_hour > 0
