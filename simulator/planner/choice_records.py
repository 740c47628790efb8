"""What a plan says about the options it chose from: search, Pareto set, gap, stock, pools. Data only."""

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
    """A fleet that no other fleet beats in cost, latency and power at once.

    cost_per_hour : None where no price is known; typical_w : of the whole fleet; latencies hold with the spares down
    quality : what is known about the answers of this number format
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoSet:
    """Points by rising cost; ``considered`` fleets were compared in ``axes``."""

    axes: tuple[str, ...]
    considered: int
    points: tuple[ParetoPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapStep:
    """One change and what it does on top of the changes before it.

    flags : what to write for it; devices : needed after it
    saved_devices : fewer than before (None: nothing served before)
    alone_devices : needed with this change only, None where it cannot serve alone
    quality : its price in the quality of answers, or that they stay as published
    quality_loss : the same as a published figure, a fraction; 0 where answers stay, None where nothing is published
    cost_per_hour : of the fleet after it, None where no price is known
    assumes : what is taken for granted that nobody gave, such as how many guesses are accepted
    """

    name: str
    flags: str
    hardware: str
    label: str
    devices: int
    saved_devices: int | None
    alone_devices: int | None
    quality: str
    quality_loss: float | None = None
    cost_per_hour: float | None = None
    assumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """From the fleet that the question needs to the one that the budget allows.

    budget_devices : allowed, None where no budget was given; start_devices : needed as asked (None: nothing serves,
        and the first step is what makes it possible)
    steps : changes that leave answers as published, then the others, each in the order of what they save
    end_devices : after all of them
    remaining_devices : still above the budget, 0 where it is closed, None where nothing serves
    needed_prefix_hit : share of prompt tokens in the prefix cache that would close what remains; None where nothing
        remains or no share would
    needed_cache_hit : share of requests answered without an accelerator that would, all else as asked
    """

    budget_devices: int | None
    start_hardware: str
    start_label: str
    start_devices: int | None
    steps: tuple[GapStep, ...]
    end_devices: int | None
    remaining_devices: int | None
    needed_prefix_hit: float | None
    needed_cache_hit: float | None = None

    @property
    def closed(self) -> bool:
        """The changes fit into the budget."""
        return self.remaining_devices == 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
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
class PoolPlan:
    """Two pools by prompt length against one: ``saved_devices`` is negative where splitting costs devices."""

    threshold_tokens: float
    pools: tuple[Pool, ...]
    saved_devices: int
