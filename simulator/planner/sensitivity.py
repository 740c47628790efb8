"""What moves a plan: one input at a time from its low to its high end, and which adverse change breaks it first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf, log

from simulator.engine.lengths import LengthDistribution, RequestMix
from simulator.planner.feasibility import Policy, evaluate
from simulator.planner.fleet import Sized
from simulator.planner.limits import DEVIATE_80, operating_steps
from simulator.planner.records import Rejection
from simulator.planner.resizing import Resizer, resizer
from simulator.planner.risk_records import BreaksFirst, TornadoBar
from simulator.planner.search import Question

# Ends of the bars: relative for rates and lengths, in shares of the whole for fractions. Chosen, not measured.
RELATIVE_END = 0.2
SHARE_END = 0.1
_LARGEST_UTILIZATION = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """One end of a bar: what it is called, and the capacity, rate and price of a device there."""

    shown: str
    capacity_per_s: float
    rate_per_s: float
    price: float | None


def _scaled(lengths: LengthDistribution, factor: float) -> LengthDistribution:
    return LengthDistribution(mean_tokens=max(1.0, lengths.mean_tokens * factor), cv=lengths.cv)


def _capacity_per_s(question: Question, sized: Sized, *, mix: RequestMix, utilization: float | None = None) -> float:
    """Of the same replica under another mix or utilisation, 0 where it cannot serve."""
    policy = question.policy
    if utilization is not None:
        policy = Policy(utilization=utilization, profiles=policy.profiles)
    outcome = evaluate(
        sized.evaluated.candidate, model=question.model, mix=mix, objectives=question.objectives, policy=policy
    )
    return 0.0 if isinstance(outcome, Rejection) else outcome.replica.capacity_per_s


def _bar(name: str, low: _End, high: _End, *, fleet: Resizer, most: int) -> TornadoBar:
    """Where an end cannot be served at all, the bar ends at ``most`` devices."""

    def devices(end: _End) -> int:
        if end.capacity_per_s <= 0:
            return most
        replicas = fleet.replicas(end.rate_per_s, capacity_factor=end.capacity_per_s / fleet.capacity_per_s)
        return int(fleet.devices(replicas))

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
    """Cheapest and dearest offer of the kind that was planned with, for this accelerator."""
    hardware = sized.evaluated.candidate.platform.hardware.name
    offers = [
        offer.per_hour
        for offer in question.prices.offers
        if offer.hardware == hardware and offer.kind == question.spec.price_kind and offer.per_hour is not None
    ]
    return (min(offers), max(offers)) if len(offers) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """The recommended fleet, and how its ends are made."""

    question: Question
    sized: Sized
    resizer: Resizer

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

    def of_mix(self, shown: str, mix: RequestMix) -> _End:
        """An end with other requests."""
        return self.end(shown, capacity=_capacity_per_s(self.question, self.sized, mix=mix))

    def of_load(self, utilization: float) -> _End:
        """An end with another highest load."""
        mix = self.question.demand.mix
        capacity = _capacity_per_s(self.question, self.sized, mix=mix, utilization=utilization)
        return self.end(f"{utilization:.0%}", capacity=capacity)


_Pair = tuple[str, _End, _End]


def _demand_pairs(fleet: _Fleet) -> list[_Pair]:
    mix, rate = fleet.question.demand.mix, fleet.rate_per_s
    down, up = 1 - RELATIVE_END, 1 + RELATIVE_END
    prompts, answers = ([_scaled(lengths, factor) for factor in (down, up)] for lengths in (mix.isl, mix.osl))
    of_prompts = [fleet.of_mix(f"{item.mean_tokens:.4g} tokens", replace(mix, isl=item)) for item in prompts]
    of_answers = [fleet.of_mix(f"{item.mean_tokens:.4g} tokens", replace(mix, osl=item)) for item in answers]
    hit = mix.prefix_hit_fraction
    hits = (min(hit + SHARE_END, 1 - SHARE_END), max(hit - SHARE_END, 0.0))
    of_hits = [fleet.of_mix(f"{share:.0%}", replace(mix, prefix_hit_fraction=share)) for share in hits]
    of_rates = [fleet.end(f"{rate * factor:.4g}/s", rate=rate * factor) for factor in (down, up)]
    return [
        ("request rate", of_rates[0], of_rates[1]),
        ("prompt length", of_prompts[0], of_prompts[1]),
        ("answer length", of_answers[0], of_answers[1]),
        ("prefix cache hits", of_hits[0], of_hits[1]),
    ]


def _supply_pairs(fleet: _Fleet) -> list[_Pair]:
    capacity, used = fleet.resizer.capacity_per_s, fleet.question.policy.utilization
    factor = exp(DEVIATE_80 * fleet.resizer.log_sigma)
    looser, tighter = min(used + SHARE_END, _LARGEST_UTILIZATION), max(used - SHARE_END, SHARE_END)
    faster = fleet.end(f"x {1 / factor:.2f}", capacity=capacity * factor)
    slower = fleet.end(f"x {factor:.2f}", capacity=capacity / factor)
    pairs = [
        ("step time (80 % interval)", faster, slower),
        ("highest load of a replica", fleet.of_load(looser), fleet.of_load(tighter)),
    ]
    prices = _price_ends(fleet.question, fleet.sized)
    if prices is not None:
        low, high = (fleet.end(f"{price:.4g}", price=price) for price in prices)
        pairs.append(("price of a device-hour", low, high))
    return pairs


def tornado(question: Question, sized: Sized) -> tuple[TornadoBar, ...]:
    """Bars of the recommended fleet, the widest first.

    The replica keeps its set-up and is evaluated again with the changed input; the fleet is sized again.
    """
    fleet = _Fleet(question=question, sized=sized, resizer=resizer(sized))
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
    mix, rate = question.demand.mix, question.demand.planned_rate_per_s
    capacity = sized.evaluated.replica.capacity_per_s
    slack = sized.replicas * capacity / rate
    up = 1 + RELATIVE_END
    sigma = operating_steps(sized.evaluated).log_sigma
    longer = (
        ("prompt length", replace(mix, isl=_scaled(mix.isl, up))),
        ("answer length", replace(mix, osl=_scaled(mix.osl, up))),
    )
    found = [("request rate", slack - 1), ("step time", slack - 1)]
    for name, changed in longer:
        less = _capacity_per_s(question, sized, mix=changed)
        elasticity = -log(less / capacity) / log(up) if 0 < less < capacity else 0.0
        found.append((name, exp(log(slack) / elasticity) - 1 if elasticity > 0 else inf))
    lost = (slack - 1) / slack
    details = {
        "request rate": "more requests at the peak",
        "step time": f"slower steps (80 % interval: {exp(DEVIATE_80 * sigma) - 1:.0%})",
        "prompt length": "longer prompts",
        "answer length": "longer answers",
        "replicas": "of the replicas lost beyond the spares",
    }
    found.append(("replicas", lost))
    return tuple(
        BreaksFirst(name=name, margin=margin, detail=details[name])
        for name, margin in sorted(found, key=lambda item: item[1])
        if margin != inf
    )
