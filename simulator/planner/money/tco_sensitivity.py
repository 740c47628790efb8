"""What moves the cost of owning: one figure of the bill at a time from its low to its high end."""

from __future__ import annotations

from collections.abc import Callable

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.length_curves import RELATIVE_END
from simulator.planner.money.tco import owning_cost
from simulator.planner.money.tco_records import Owning, OwningBar, TotalCost
from simulator.records import dataclass
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import OfferSpec, PriceProfile
from simulator.units import percent_text

# Ends of the residual and of the cost of capital, in points. Chosen, not measured, as RELATIVE_END is.
RESIDUAL_END, RATE_END = 0.1, 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bill:
    """The inputs of the bill."""

    plan: CapacityPlan
    cost: TotalCost
    prices: PriceProfile
    ownership: OwnershipProfile
    offer: OfferSpec

    def annual(
        self,
        *,
        prices: PriceProfile | None = None,
        ownership: OwnershipProfile | None = None,
        offer: OfferSpec | None = None,
    ) -> float:
        """Equivalent annual cost, with what is given in place of the plan's own inputs."""
        found: Owning = owning_cost(
            self.plan.best,
            tokens=self.cost.tokens,
            prices=prices or self.prices,
            ownership=ownership or self.ownership,
            offer=offer or self.offer,
        )
        return found.annual

    def figure(self, name: str, value: float) -> float:
        """Annual cost with another value of one figure of the ownership profile."""
        changed = getattr(self.ownership, name).model_copy(update={"value": value})
        return self.annual(ownership=self.ownership.model_copy(update={name: changed}))

    def price(self, value: float) -> float:
        """Annual cost with another purchase price."""
        return self.annual(offer=self.offer.model_copy(update={"per_device": value}))

    def listed(self, name: str, value: float) -> float:
        """Annual cost with another value of one figure of the price list."""
        return self.annual(prices=self.prices.model_copy(update={name: value}))


def _relative(name: str, base: float, at: Callable[[float], float], *, shown: Callable[[float], str]) -> OwningBar:
    low, high = base * (1 - RELATIVE_END), base * (1 + RELATIVE_END)
    return OwningBar(name=name, low=shown(low), high=shown(high), annual_low=at(low), annual_high=at(high))


def _points(name: str, base: float, at: Callable[[float], float], *, by: float) -> OwningBar:
    low, high = max(base - by, 0.0), min(base + by, 1.0)
    ends = (percent_text(low), percent_text(high))
    return OwningBar(name=name, low=ends[0], high=ends[1], annual_low=at(low), annual_high=at(high))


def owning_bars(
    plan: CapacityPlan, *, cost: TotalCost, prices: PriceProfile, ownership: OwnershipProfile
) -> list[OwningBar]:
    """One bar a figure, widest first; none where owning is not priced."""
    if cost.owning is None:
        return []
    bill = _Bill(plan=plan, cost=cost, prices=prices, ownership=ownership, offer=cost.owning.offer)
    fixed = ownership.colocation_per_kw_month.value
    bars = [
        _relative("purchase price of an accelerator", bill.offer.per_device or 0.0, bill.price, shown="{:,.0f}".format),
        _relative(
            "price of a kWh",
            prices.power_per_kwh,
            lambda value: bill.listed("power_per_kwh", value),
            shown="{:.3f}".format,
        ),
        _relative(
            "colocation of a kW a month",
            fixed,
            lambda value: bill.figure("colocation_per_kw_month", value),
            shown="{:,.0f}".format,
        ),
        _relative(
            "support a year, of servers",
            ownership.support_fraction_per_year.value,
            lambda value: bill.figure("support_fraction_per_year", value),
            shown=percent_text,
        ),
        _points(
            "residual, of servers",
            ownership.residual_fraction.value,
            lambda value: bill.figure("residual_fraction", value),
            by=RESIDUAL_END,
        ),
        _points(
            "cost of capital",
            ownership.discount_rate.value,
            lambda value: bill.figure("discount_rate", value),
            by=RATE_END,
        ),
    ]
    return sorted(bars, key=lambda bar: -bar.swing)
