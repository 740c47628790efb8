"""A gauge: a bound, what is predicted against it with its 80 % interval, and the probability that it holds. The bound
stands at the same place of every gauge, so that gauges side by side compare at a glance."""

from __future__ import annotations

from simulator.records import dataclass
from simulator.reports.content.quantities import chance_text, seconds_text

_BOUND_AT = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A p95 and the ends of its 80 % interval beside its bound [s], infinite where there is none; its chance to hold.
    Places are shares of the gauge's width; what lies beyond its end stands there."""

    bound_s: float
    value_s: float
    ends_s: tuple[float, float]
    chance: float

    def place(self, value_s: float) -> float:
        """Where a latency stands."""
        return min(max(_BOUND_AT * value_s / self.bound_s, 0.0), 1.0)

    @property
    def bar(self) -> float:
        """How far the prediction reaches."""
        return self.place(self.value_s)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the interval begins, and how wide it is."""
        low, high = map(self.place, self.ends_s)
        return low, high - low

    @property
    def odds_text(self) -> str:
        """``97 % likely``."""
        return f"{chance_text(self.chance)} likely"

    @property
    def bound_text(self) -> str:
        """``≤ 1.00 s``."""
        return f"≤ {seconds_text(self.bound_s)}"
