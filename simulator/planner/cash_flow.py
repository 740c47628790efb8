"""Cash by year: owned, with its capital at the start and its residual at the end, and rented."""

from __future__ import annotations

from simulator.planner.tco_records import Owning, Renting, YearFlow


def cash_flows(owning: Owning | None, renting: tuple[Renting, ...], *, years: int) -> tuple[YearFlow, ...]:
    """Year 0, the day of purchase, to the last year in the books; every amount in the currency of its offers."""
    flows: list[YearFlow] = []
    cumulative = 0.0
    for year in range(years + 1):
        cash = discounted = 0.0
        if owning is not None:
            cash = owning.capex_total if year == 0 else owning.opex_total - (owning.residual if year == years else 0.0)
            discounted = cash / (1 + owning.discount_rate) ** year
        cumulative += cash
        flows.append(
            YearFlow(
                year=year,
                owning=cash,
                discounted=discounted,
                cumulative=cumulative,
                renting=tuple(item.annual if year else 0.0 for item in renting),
                renting_cumulative=tuple(item.annual * year for item in renting),
            )
        )
    return tuple(flows)
