"""What total cost is made of: bills, years, owning and renting. Data only; every amount in one currency."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.money.prices import OfferKind, OfferSpec
from simulator.specs.question.plan_values import MONTHS_PER_YEAR

RentKind = OfferKind | Literal["planned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line of a bill and how it was made."""

    name: str
    amount: float
    basis: Note


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenYear:
    """Tokens that the mean demand asks for in a year, in millions, and the share of time that prompts take.

    mean_load : mean demand over the planned one
    """

    input_millions: float
    output_millions: float
    prompt_share: float
    mean_load: float

    def input_price(self, cost_per_year: float) -> float:
        """Money per million input tokens, by the share of time that prompts take."""
        return cost_per_year * self.prompt_share / self.input_millions

    def output_price(self, cost_per_year: float) -> float:
        """Money per million output tokens, by the rest of the time."""
        return cost_per_year * (1 - self.prompt_share) / self.output_millions


@dataclass(frozen=True, slots=True, kw_only=True)
class Owning:
    """Buying the fleet: ``capex`` at the start, ``opex`` each year, ``residual`` back at the end of ``years``.

    offer : whose price
    present_value : capex + discounted opex - discounted residual
    annual : the same every year with the same present value (equivalent annual cost)
    depreciation_per_year : straight line to the residual; per_device_hour : annual over devices and hours
    """

    offer: OfferSpec
    capex: tuple[CostLine, ...]
    opex: tuple[CostLine, ...]
    residual: float
    years: int
    discount_rate: float
    depreciation_per_year: float
    present_value: float
    annual: float
    per_device_hour: float
    per_million_input_tokens: float
    per_million_output_tokens: float

    @property
    def quoted(self) -> bool:
        """Somebody quoted the price to the owner of the list; published ones only say what to expect."""
        return self.offer.quote or self.offer.default

    @property
    def capex_total(self) -> float:
        """Paid at the start."""
        return sum(line.amount for line in self.capex)

    @property
    def opex_total(self) -> float:
        """Paid every year."""
        return sum(line.amount for line in self.opex)

    @property
    def total(self) -> float:
        """Undiscounted: capex + opex of all years - residual."""
        return self.capex_total + self.years * self.opex_total - self.residual

    @property
    def monthly(self) -> float:
        """Equivalent annual cost by the month."""
        return self.annual / MONTHS_PER_YEAR

    @property
    def undiscounted(self) -> tuple[CostLine, ...]:
        """Operation over all years, line by line, without those that cost nothing."""
        return tuple(
            replace(line, name=f"{line.name} {self.years} y", amount=line.amount * self.years)
            for line in self.opex
            if line.amount
        )


SHARES_OF_HOURS = tuple(place / 20 for place in range(21))
"""Of a year, at which ways to pay are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renting:
    """Renting all devices all hours of the year at one kind of price.

    kind : the term, or ``planned`` for the plan's own price, whatever terms it is made of
    per_device_hour : on average where accelerators are of several kinds; provider, date, source : of those prices
    break_even : share of the hours above which owning is cheaper than renting by the hour at this price; above 1 owning
    never is; None where owning is not priced
    """

    kind: RentKind
    per_device_hour: float
    provider: str
    date: str
    source: str
    annual: float
    total: float
    present_value: float
    per_million_input_tokens: float
    per_million_output_tokens: float
    break_even: float | None

    @property
    def by_the_hour(self) -> bool:
        """Paid for hours of use; commitments are paid for all hours."""
        return self.kind in ("on_demand", "spot")

    def year_at(self, share: float) -> float:
        """What a year costs where devices are used ``share`` of its hours."""
        return self.annual * (share if self.by_the_hour else 1.0)

    @property
    def by_share_of_hours(self) -> tuple[float, ...]:
        """``year_at`` by SHARES_OF_HOURS."""
        return tuple(map(self.year_at, SHARES_OF_HOURS))


@dataclass(frozen=True, slots=True, kw_only=True)
class YearFlow:
    """Cash out of owning in one year (negative: money back), discounted, added up, and that of renting.

    renting : per rental of ``TotalCost.renting``, in its order
    """

    year: int
    owning: float
    discounted: float
    cumulative: float
    renting: tuple[float, ...]
    renting_cumulative: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalCost:
    """What the fleet costs in every way that has a price. ``owning`` is None, with the reason, where none has.

    rent : what the plan is charged with, one of ``renting``; None where it has no price
    lasting : the cheapest of ``renting`` that carries a fleet as long as an owned one, which owning has to beat; of a
    term that was asked for the rent
    break_even_price : of an accelerator with its share of a server, below which owning costs less than ``lasting``
    """

    currency: str
    devices: int
    tokens: TokenYear
    owning: Owning | None
    owning_unpriced: str
    renting: tuple[Renting, ...]
    rent: Renting | None
    lasting: Renting | None
    break_even_price: float | None
    flows: tuple[YearFlow, ...]

    @property
    def years(self) -> int:
        """Horizon [years]."""
        return len(self.flows) - 1

    @property
    def priced(self) -> bool:
        """Whether any way to pay has a price."""
        return self.owning is not None or bool(self.renting)

    @property
    def buys(self) -> bool:
        """Whether to buy: a quote saves, or nothing is rented. A published price decides nothing."""
        if self.owning is None:
            return False
        return self.lasting is None or (self.owning.quoted and (self.owning_saves or 0.0) > 0)

    @property
    def owning_saves(self) -> float | None:
        """Present value of ``lasting`` above that of owning; None where one of them is not priced."""
        rent = self.lasting
        return None if rent is None or self.owning is None else rent.present_value - self.owning.present_value


@dataclass(frozen=True, slots=True, kw_only=True)
class OwningBar:
    """Equivalent annual cost of owning where one figure alone moves; ``low`` and ``high`` name its ends."""

    name: str
    low: str
    high: str
    annual_low: float
    annual_high: float

    @property
    def swing(self) -> float:
        """Range of the annual cost."""
        return abs(self.annual_high - self.annual_low)


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
