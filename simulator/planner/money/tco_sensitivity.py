"""What moves the cost of owning: one figure of the bill at a time from its low to its high end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.length_curves import RELATIVE_END
from simulator.planner.money.tco import Books, owning_cost
from simulator.planner.money.tco_records import OwningBar, TotalCost
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import PriceProfile
from simulator.units import percent_text

# Ends of the residual and of the cost of capital, in points. Chosen, not measured, as RELATIVE_END is.
RESIDUAL_END, RATE_END = 0.1, 0.03


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
    books, offer = Books(fleet=plan.best, tokens=cost.tokens, prices=prices, ownership=ownership), cost.owning.offer

    def at_price(value: float) -> float:
        return owning_cost(books, offer=offer.model_copy(update={"per_device": value})).annual

    def of_kwh(value: float) -> float:
        listed = prices.model_copy(update={"power_per_kwh": value})
        return owning_cost(replace(books, prices=listed), offer=offer).annual

    def of(figure: str, value: float) -> float:
        changed = getattr(ownership, figure).model_copy(update={"value": value})
        return owning_cost(replace(books, ownership=ownership.model_copy(update={figure: changed})), offer=offer).annual

    space, support = ownership.colocation_per_kw_month.value, ownership.support_fraction_per_year.value
    residual, rate = ownership.residual_fraction.value, ownership.discount_rate.value
    of_space, of_support = partial(of, "colocation_per_kw_month"), partial(of, "support_fraction_per_year")
    of_residual, of_rate = partial(of, "residual_fraction"), partial(of, "discount_rate")
    bars = [
        _relative("purchase price of an accelerator", offer.per_device or 0.0, at_price, shown="{:,.0f}".format),
        _relative("price of a kWh", prices.power_per_kwh, of_kwh, shown="{:.3f}".format),
        _relative("colocation of a kW a month", space, of_space, shown="{:,.0f}".format),
        _relative("support a year, of servers", support, of_support, shown=percent_text),
        _points("residual, of servers", residual, of_residual, by=RESIDUAL_END),
        _points("cost of capital", rate, of_rate, by=RATE_END),
    ]
    return sorted(bars, key=lambda bar: -bar.swing)
