"""What moves a plan, or the cost of owning it: one input at a time, low to high, and which change breaks it first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import exp, inf, log

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.fleet import Sized, fleet_price
from simulator.planner.fleet.resizing import Resizer, resizer
from simulator.planner.money.market import plan_rule
from simulator.planner.money.tco import Books, owning_cost
from simulator.planner.money.tco_records import OwningBar, TotalCost
from simulator.planner.search.question import Question
from simulator.planner.serving.shapes import DEVIATE_80
from simulator.planner.studies.length_curves import (
    RELATIVE_END,
    LengthCurve,
    answer_curve,
    capacities_at_speed_per_s,
    capacities_per_s,
    prompt_curve,
)
from simulator.records import dataclass
from simulator.specs.base import Note
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


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TornadoBar:
    """What one input does to devices and cost when it alone moves from its low to its high end.

    elastic : the input changes devices; otherwise only money
    """

    name: str
    low: str
    high: str
    devices_low: int
    devices_high: int
    cost_per_hour_low: float | None
    cost_per_hour_high: float | None

    @property
    def costs_per_hour(self) -> tuple[float | None, float | None]:
        """Costs at both ends."""
        return self.cost_per_hour_low, self.cost_per_hour_high

    @property
    def swing(self) -> float:
        """Range of cost where it is known, otherwise of devices."""
        if self.cost_per_hour_low is not None and self.cost_per_hour_high is not None:
            return abs(self.cost_per_hour_high - self.cost_per_hour_low)
        return float(abs(self.devices_high - self.devices_low))


@dataclass(frozen=True, slots=True, kw_only=True)
class BreaksFirst:
    """The input whose adverse change overloads the planned fleet soonest, and by how much it may change."""

    name: str
    margin: float
    detail: Note


# Ends of the bars in shares of the whole, for fractions; relative for rates and lengths. Chosen, not measured.
SHARE_END = 0.1
_LARGEST_UTILIZATION = 0.98
_LARGEST_EXPONENT = 700.0
"""Beyond it the exponential is no number; so is what fits it no limit that anybody meets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """One end of a bar: what it is called, and the capacity, rate and price of a device there.

    prefill_factor : of the capacity of a pool for prompts, where that changes otherwise than the other pool's
    """

    shown: str
    capacity_per_s: float
    rate_per_s: float
    price: float | None
    prefill_factor: float | None = None


def _bar(name: str, low: _End, high: _End, *, fleet: Resizer, most: int) -> TornadoBar:
    """Where an end cannot be served at all, the bar ends at ``most`` devices."""

    def devices(end: _End) -> int:
        if end.capacity_per_s <= 0:
            return most
        factor = end.capacity_per_s / fleet.capacity_per_s
        return int(fleet.devices_for(end.rate_per_s, capacity_factor=factor, prefill_factor=end.prefill_factor))

    counts = devices(low), devices(high)
    costs = [None if end.price is None else count * end.price for end, count in zip((low, high), counts, strict=True)]
    return TornadoBar(
        name=name,
        low=low.shown,
        high=high.shown,
        devices_low=counts[0],
        devices_high=counts[1],
        cost_per_hour_low=costs[0],
        cost_per_hour_high=costs[1],
    )


def _price_ends(question: Question, sized: Sized) -> tuple[float, float] | None:
    """Cheapest and dearest offers that the plan could take, for an accelerator of the fleet."""
    if sized.cost.per_hour is None:
        # Part of it is paid for, or no price of it is known.
        return None
    price = fleet_price(sized.housing, prices=question.prices, rule=plan_rule(question.spec))
    return (price.low, price.high) if price is not None and price.providers > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """The recommended fleet, and how its ends are made.

    steady_per_s : capacity of a replica of each part in the steady state; by simulation that of ``resizer`` may be less
        [1/s]
    """

    question: Question
    sized: Sized
    resizer: Resizer
    steady_per_s: tuple[float, ...]

    @property
    def rate_per_s(self) -> float:
        return self.question.demand.planned_rate_per_s

    def end(
        self, shown: str, *, capacity: float | None = None, rate: float | None = None, price: float | None = None
    ) -> _End:
        """An end where what is not given stays as planned."""
        return _End(
            shown=shown,
            capacity_per_s=self.resizer.capacity_per_s if capacity is None else capacity,
            rate_per_s=self.rate_per_s if rate is None else rate,
            price=self.resizer.price_per_hour if price is None else price,
        )

    def of_lengths(self, planned_tokens: float, *, curve: LengthCurve, scale: float, prompts: bool) -> _End:
        """An end with other lengths; a pool for prompts takes time in proportion to prompts, none for answers."""
        capacity = self.resizer.capacity_per_s * curve.share(scale)
        end = self.end(f"{_figure(max(1.0, planned_tokens * scale))} tokens", capacity=capacity)
        return replace(end, prefill_factor=1 / scale if prompts else 1.0)

    def of_hits(self, share: float) -> _End:
        """An end with another share of prompt tokens in the prefix cache; more of them are never more work."""
        mix = self.question.demand.mix
        changed = capacities_per_s(self.question, self.sized, mix=replace(mix, prefix_hit_fraction=share))
        end = self.of_parts(percent_text(share), changed, better=share > mix.prefix_hit_fraction)
        return replace(end, prefill_factor=(1 - mix.prefix_hit_fraction) / (1 - share))

    def of_kernels(self, factor: float, *, compute: bool) -> _End:
        """An end where kernels reach another MFU (or MBU); faster ones never carry less."""
        compute_factor, memory_factor = (factor, 1.0) if compute else (1.0, factor)
        found = capacities_at_speed_per_s(self.question, self.sized, compute=compute_factor, memory=memory_factor)
        return self.of_parts(f"x {factor:.2f}", found, better=factor > 1)

    def of_load(self, utilization: float) -> _End:
        """An end with another highest load."""
        changed = capacities_per_s(self.question, self.sized, utilization=utilization)
        return self.of_parts(percent_text(utilization), changed, better=utilization > self.question.policy.utilization)

    def of_parts(self, shown: str, changed_per_s: tuple[float, ...], *, better: bool) -> _End:
        """An end where a replica of each part sustains that; none less for the better, none more for the worse."""
        limit = max if better else min
        shares = [limit(now / then, 1.0) for now, then in zip(changed_per_s, self.steady_per_s, strict=True)]
        end = self.end(shown, capacity=self.resizer.capacity_per_s * shares[-1])
        return replace(end, prefill_factor=shares[0])


_Pair = tuple[str, _End, _End]


def _demand_pairs(fleet: _Fleet) -> list[_Pair]:
    mix, rate = fleet.question.demand.mix, fleet.rate_per_s
    down, up = 1 - RELATIVE_END, 1 + RELATIVE_END
    prompts, answers = (make(fleet.question, fleet.sized) for make in (prompt_curve, answer_curve))
    of_prompts, of_answers = (
        [fleet.of_lengths(mean, curve=curve, scale=scale, prompts=curve is prompts) for scale in (down, up)]
        for mean, curve in ((mix.isl.mean_tokens, prompts), (mix.osl.mean_tokens, answers))
    )
    hit = mix.prefix_hit_fraction
    of_hits = [fleet.of_hits(share) for share in (min(hit + SHARE_END, 1 - SHARE_END), max(hit - SHARE_END, 0.0))]
    of_rates = [fleet.end(f"{_figure(rate * factor)}/s", rate=rate * factor) for factor in (down, up)]
    return [
        ("request rate", of_rates[0], of_rates[1]),
        ("prompt length", of_prompts[0], of_prompts[1]),
        ("answer length", of_answers[0], of_answers[1]),
        ("prefix cache hits", of_hits[0], of_hits[1]),
    ]


def _supply_pairs(fleet: _Fleet) -> list[_Pair]:
    capacity, used = fleet.resizer.capacity_per_s * fleet.resizer.step_margin, fleet.question.policy.utilization
    factor = exp(DEVIATE_80 * fleet.resizer.log_sigma)
    looser, tighter = min(used + SHARE_END, _LARGEST_UTILIZATION), max(used - SHARE_END, SHARE_END)
    faster = fleet.end(f"x {1 / factor:.2f}", capacity=capacity * factor)
    slower = fleet.end(f"x {factor:.2f}", capacity=capacity / factor)
    ends = (1 + RELATIVE_END, 1 - RELATIVE_END)
    of_mfu, of_mbu = ([fleet.of_kernels(end, compute=compute) for end in ends] for compute in (True, False))
    pairs = [
        ("step time (80 % interval)", faster, slower),
        ("MFU of the kernels", of_mfu[0], of_mfu[1]),
        ("MBU of the kernels", of_mbu[0], of_mbu[1]),
        ("highest load of a replica", fleet.of_load(looser), fleet.of_load(tighter)),
    ]
    prices = _price_ends(fleet.question, fleet.sized)
    if prices is not None:
        low, high = (fleet.end(f"{price:,.2f}", price=price) for price in prices)
        pairs.append(("price of a device-hour", low, high))
    return pairs


def tornado(question: Question, sized: Sized) -> tuple[TornadoBar, ...]:
    """Bars of the recommended fleet, widest first: the same set-up evaluated with the changed input and sized again."""
    fleet = _Fleet(
        question=question, sized=sized, resizer=resizer(sized), steady_per_s=capacities_per_s(question, sized)
    )
    kept = fleet.resizer
    most = int(kept.devices(kept.replicas(fleet.rate_per_s)) / SHARE_END)
    pairs = [*_demand_pairs(fleet), *_supply_pairs(fleet)]
    bars = [_bar(name, low, high, fleet=kept, most=most) for name, low, high in pairs]
    return tuple(sorted(bars, key=lambda bar: bar.swing, reverse=True))


def breaks_first(question: Question, sized: Sized) -> tuple[BreaksFirst, ...]:
    """Adverse changes by how little of them overloads the planned replicas with their spares down, soonest first.

    From the elasticity of a replica's capacity between the plan and the adverse end of each bar: far from the plan
    that is a tangent, not a prediction.
    """
    rate = question.demand.planned_rate_per_s
    kept = resizer(sized)
    own, *others = kept.slacks(rate, replicas=sized.replicas)
    slack = min([own, *others])
    up = 1 + RELATIVE_END
    # A pool of its own computes prompts, in a time that grows with them at least in proportion.
    curves = (("prompt length", prompt_curve, others), ("answer length", answer_curve, ()))
    found = [("request rate", slack - 1), ("step time", slack * kept.step_margin - 1)]
    for name, curve, beside in curves:
        less = curve(question, sized).share(up)
        elasticity = -log(less) / log(up) if 0 < less < 1 else 0.0
        exponent = log(own) / elasticity if elasticity > 0 else inf
        margin = exp(exponent) - 1 if exponent < _LARGEST_EXPONENT else inf
        found.append((name, min([margin, *(other - 1 for other in beside)])))
    details = {
        "request rate": Note("more_requests"),
        "step time": Note("slower_steps", {"margin": exp(DEVIATE_80 * kept.log_sigma) - 1}),
        "prompt length": Note("longer_prompts"),
        "answer length": Note("longer_answers"),
    }
    return tuple(
        BreaksFirst(name=name, margin=margin, detail=details[name])
        for name, margin in sorted(found, key=lambda item: item[1])
        if margin != inf
    )
