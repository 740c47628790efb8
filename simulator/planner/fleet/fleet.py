"""A candidate sized for a demand: replicas and spares of each part, whole servers, one bill and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING

from simulator.kernels.timing import Provenance
from simulator.planner.fleet import records
from simulator.planner.money.market import MarketPrice, PriceRule, market_price, mean_price, plan_rule
from simulator.planner.records import NO_TECHNIQUES, Demand, Platform, Rejection
from simulator.planner.serving.capacity import Latencies, Limit
from simulator.planner.serving.replica import Part
from simulator.planner.serving.shapes import (
    DEVIATE_80,
    Counts,
    Shape,
    at_counts_of_all,
    limiting_resource,
    operating_steps,
    replicas_for,
)
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.money.prices import PriceProfile
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.units import HOURS_PER_MONTH, MEGA, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from simulator.techniques.quality import AnswerQuality


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized(records.Housed):
    """A fleet before its latencies and limits are worked out: enough to rank it.

    counts, spare : replicas of each part that the demand needs, and beyond them; housing : of each kind of accelerator
    prompt_share : of the money that prompts take; doubt : see ``Fleet``
    """

    evaluated: Shape
    counts: Counts
    spare: Counts
    housing: tuple[records.Housing, ...]
    cost: records.FleetCost
    prompt_share: float
    doubt: float = 0.0

    @property
    def replicas(self) -> int:
        """Replicas of the last part, which generates."""
        return self.counts[-1]

    @property
    def spares(self) -> int:
        """Spares of the last part."""
        return self.spare[-1]

    @property
    def totals(self) -> Counts:
        """Replicas of each part with its spares."""
        return tuple(count + spares for count, spares in zip(self.counts, self.spare, strict=True))

    def counts_with(self, replicas: int, *, rate_per_s: float) -> Counts:
        """Replicas of each part where the last has so many: its own with the spares down or up; of another size those
        that keep the ratio that the rate asks for."""
        for own in (self.counts, self.totals):
            if own[-1] == replicas:
                return own
        return self.evaluated.counts(rate_per_s, replicas=replicas)

    @property
    def rank(self) -> tuple[bool, float, int, str, str]:
        """Order of preference: known prices by cost with its doubt, then fewer devices, then names."""
        candidate, known = self.evaluated.candidate, self.cost.per_hour is not None
        counted = (self.cost.per_hour or 0.0) * (1 + self.doubt)
        return (not known, counted, self.devices, candidate.hardware, candidate.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of candidates: fleets of those that serve, refusals of the others; ``more`` were tried and beaten."""

    sized: tuple[Sized, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    more: int = 0

    @property
    def all_too_small(self) -> bool:
        """Whether nothing but memory was in the way."""
        return all(rejection.code in ("memory", "slots") for rejection in self.rejections)

    def with_more(self, other: Trial) -> Trial:
        """Two trials as one."""
        return Trial(
            sized=self.sized + other.sized, rejections=self.rejections + other.rejections, more=self.more + other.more
        )


def _platforms(shape: Shape) -> dict[str, tuple[Platform, list[int]]]:
    """Every kind of accelerator of a shape, and the parts that are on it."""
    found: dict[str, tuple[Platform, list[int]]] = {}
    for place, part in enumerate(shape.parts):
        platform = part.candidate.platform
        found.setdefault(platform.hardware.name, (platform, []))[1].append(place)
    return found


def housed(shape: Shape, totals: Counts, *, round_to: str) -> tuple[records.Housing, ...]:
    """Servers, idle accelerators and power of so many replicas; of each kind of accelerator on its own."""
    return tuple(
        records.housing_of(
            platform,
            tuple(totals[place] for place in places),
            devices=tuple(shape.parts[place].replica.devices for place in places),
            round_to=round_to,
        )
        for platform, places in _platforms(shape).values()
    )


def spare_replicas(devices: int, *, server: ServerSpec | None, replicas: int, spec: PlanSpec, pools: int = 1) -> int:
    """Spares as asked: a number, whole servers, for an availability of ``pools`` up together, or the default of one.

    devices, server : of one replica
    """
    if spec.spares is not None:
        return spec.spares
    in_server = max(1, server.accelerators_per_server // devices) if server is not None else 1
    wanted = [] if spec.server_spares is None else [spec.server_spares * in_server]
    if spec.availability is not None:
        # Few plans have a target.
        from simulator.planner.fleet.availability import (
            DEFAULT_MTTR_HOURS,
            DEVICE_MTBF_HOURS,
            replica_unavailability,
            spares_for,
        )

        down = replica_unavailability(
            devices=devices,
            mtbf_hours=spec.mtbf_hours or DEVICE_MTBF_HOURS,
            mttr_hours=spec.mttr_hours or DEFAULT_MTTR_HOURS,
        )
        target = (spec.availability / 100) ** (1 / pools)
        wanted.append(spares_for(replicas=replicas, unavailability=down, target=target))
    return max(wanted, default=records.DEFAULT_SPARES)


def spares_of(shape: Shape, counts: Counts, *, spec: PlanSpec) -> Counts:
    """Spares beside so many replicas of each part."""
    return tuple(
        spare_replicas(
            part.replica.devices, server=part.candidate.platform.server, replicas=count, spec=spec, pools=len(counts)
        )
        for part, count in zip(shape.parts, counts, strict=True)
    )


def size(shape: Shape, *, demand: Demand, spec: PlanSpec, prices: PriceProfile, counts: Counts | None = None) -> Sized:
    """Replicas, spares, servers and cost for a demand; ``counts`` where so many were simulated."""
    counts = counts or shape.counts(demand.planned_rate_per_s)
    return sized_as(shape, counts, spares_of(shape, counts, spec=spec), demand=demand, spec=spec, prices=prices)


def with_doubt(sized: Sequence[Sized]) -> list[Sized]:
    """Fleets by rank, best first, with what counts against those whose kernels were not measured.

    That is the margin for slower steps once more, of the cheapest such fleet of a kind for all of them. On today's
    accelerators whole runs are 13 % off where kernels are extrapolated or assumed and 7 % where they are calibrated,
    and lie in the 80 % interval three times in four instead of seven in eight: the margin by itself is not enough.
    """
    found, doubts = [], dict[tuple[str, int], float]()
    for item in sorted(sized, key=lambda item: item.rank):
        candidate, parts = item.evaluated.candidate, item.evaluated.parts
        doubt = 0.0
        if any(operating_steps(part).provenance not in records.KNOWN for part in parts):
            margin = max(part.replica.step_margin for part in parts) - 1
            doubt = doubts.setdefault((candidate.hardware, len(parts)), margin)
        found.append(item if doubt == item.doubt else replace(item, doubt=doubt))
    return sorted(found, key=lambda item: item.rank)


def sized_as(
    shape: Shape, counts: Counts, spare: Counts, *, demand: Demand, spec: PlanSpec, prices: PriceProfile
) -> Sized:
    """A fleet of so many replicas and spares: its servers and its cost."""
    totals = tuple(count + more for count, more in zip(counts, spare, strict=True))
    housing = housed(shape, totals, round_to=spec.round_to)
    rule = plan_rule(spec)
    offers = {item.hardware: market_price(prices, hardware=item.hardware, rule=rule) for item in housing}
    money = []
    for part, total in zip(shape.parts, totals, strict=True):
        offer = offers[part.candidate.hardware]
        price = offer.per_hour if len(offers) > 1 and offer is not None else 1.0
        money.append(total * part.replica.devices * price)
    share = shape.prompt_share(money)
    return Sized(
        evaluated=shape,
        counts=counts,
        spare=spare,
        housing=housing,
        cost=fleet_cost(
            prices=prices,
            bill=[(offers[item.hardware], item.devices) for item in housing],
            demand=demand,
            prompt_share=share,
        ),
        prompt_share=share,
    )


def quality_of(shape: Shape) -> AnswerQuality:
    """What is published about the answers of a replica."""
    from simulator.techniques.quality import answer_quality

    candidate = shape.candidate
    return answer_quality(shape.replica.deployment.model, candidate.precision, candidate.techniques)


def _changed_answers(shape: Shape) -> Note | None:
    """What is published about answers that may differ from the model's own; None where they do not."""
    candidate = shape.candidate
    if candidate.precision == PrecisionSpec() and candidate.techniques == NO_TECHNIQUES:
        return None
    found = quality_of(shape)
    return None if found.loss == 0 else found.note


def _limit(limits: Sequence[Limit], parts: Sequence[Part]) -> Limit:
    """Of all parts; in one word where they share it."""
    if len({(limit.resource, limit.objective) for limit in limits}) == 1:
        return limits[-1]
    return replace(limits[-1], of_pools=tuple((part.role, limit) for part, limit in zip(parts, limits, strict=True)))


def _pools(sized: Sized, limits: Sequence[Limit], *, rate_per_s: float) -> tuple[records.FleetPool, ...]:
    each = zip(sized.evaluated.parts, sized.counts, sized.spare, limits, strict=True)
    return tuple(
        records.FleetPool(
            role=part.role,
            replica=part.replica,
            label=part.candidate.label,
            replicas=count,
            spares=spares,
            limit=limit,
            load=rate_per_s / count / part.replica.saturation_per_s,
        )
        for part, count, spares, limit in each
    )


def complete(sized: Sized, *, demand: Demand, objectives: tuple[ObjectiveSpec, ...], spec: PlanSpec) -> records.Fleet:
    """Latencies at the planned rate, the limiting resource, the interval and the power of a sized fleet. Servers draw
    their own typical and maximum power; single devices their TDP, host not included."""
    (fleet,) = complete_all((sized,), demand=demand, objectives=objectives, spec=spec)
    return fleet


def complete_all(
    found: Sequence[Sized], *, demand: Demand, objectives: tuple[ObjectiveSpec, ...], spec: PlanSpec
) -> list[records.Fleet]:
    """``complete`` of several fleets for one demand."""
    seen = at_counts_of_all(
        [(sized.evaluated, (sized.totals, sized.counts)) for sized in found],
        demand.planned_rate_per_s,
        objectives=objectives,
    )
    return [
        _completed(sized, (at_peak, degraded), demand=demand, objectives=objectives, spec=spec)
        for sized, (at_peak, degraded) in zip(found, seen, strict=True)
    ]


def _completed(
    sized: Sized,
    seen: tuple[Latencies, Latencies],
    *,
    demand: Demand,
    objectives: tuple[ObjectiveSpec, ...],
    spec: PlanSpec,
) -> records.Fleet:
    shape, rate, candidate = sized.evaluated, demand.planned_rate_per_s, sized.evaluated.candidate
    steps = [operating_steps(part) for part in shape.parts]
    limits = [limiting_resource(part, at, objectives=objectives) for part, at in zip(shape.parts, steps, strict=True)]

    def devices(sign: int) -> int:
        """Where the steps take as much less or more as the 80 % intervals say."""
        totals = tuple(
            replicas_for(rate, capacity_per_s=part.replica.predicted_per_s * exp(sign * DEVIATE_80 * at.log_sigma))
            + spares
            for part, at, spares in zip(shape.parts, steps, sized.spare, strict=True)
        )
        return sum(item.devices for item in housed(shape, totals, round_to=spec.round_to))

    at_peak, degraded = seen
    return records.Fleet(
        label=candidate.label,
        pools=_pools(sized, limits, rate_per_s=rate),
        housing=sized.housing,
        cost=sized.cost,
        prompt_share=sized.prompt_share,
        doubt=sized.doubt,
        limit=_limit(limits, shape.parts),
        at_peak=at_peak,
        degraded=degraded,
        # What is planned for slower steps lies within, also where latencies take more of a replica than its steps do.
        devices_low=min(devices(1), sized.devices),
        devices_high=max(devices(-1), sized.devices),
        provenance=max(Provenance[at.provenance.upper()] for at in steps).label,
        serving=shape,
        log_sigma=max(at.log_sigma for at in steps),
        scheme=candidate.precision.scheme,
        quality=_changed_answers(shape),
        transfer=shape.transfer_at(rate, sized.counts),
    )


def fleet_cost(
    *, prices: PriceProfile, bill: Sequence[tuple[MarketPrice | None, int]], demand: Demand, prompt_share: float
) -> records.FleetCost:
    """Money for the accelerators of a ``bill``, each kind with its price, that serve the mean demand.

    Input and output prices split the bill by the share of time that prompts take (``prompt_share``), so that
    input price x input tokens + output price x output tokens is the bill; ``all_in`` puts all of it on the output. A
    request's prompt counts once, whatever the number of its answers.
    """
    priced = [(price, devices) for price, devices in bill if price is not None]
    if len(priced) < len(bill):
        return records.FleetCost(currency=prices.currency, terms=(), offer="unknown price")
    per_hour = sum(devices * price.per_hour for price, devices in priced)
    requests_per_hour = demand.requests_per_s * demand.computed_fraction * SECONDS_PER_HOUR
    output_millions = requests_per_hour * demand.answers_per_request * demand.mix.osl.mean_tokens / MEGA
    input_millions = requests_per_hour * demand.mix.isl.mean_tokens / MEGA
    single = len(priced) == 1
    return records.FleetCost(
        currency=prices.currency,
        terms=tuple(dict.fromkeys(term for price, _ in priced for term in price.terms)),
        per_device_hour=priced[0][0].per_hour if single else per_hour / sum(devices for _, devices in priced),
        offer=" + ".join(dict.fromkeys(str(price) for price, _ in priced)),
        per_hour=per_hour,
        per_month=per_hour * HOURS_PER_MONTH,
        per_million_output_tokens=per_hour * (1 - prompt_share) / output_millions,
        per_million_input_tokens=per_hour * prompt_share / input_millions,
        per_million_output_tokens_all_in=per_hour / output_millions,
        per_million_requests=per_hour / requests_per_hour * MEGA,
        prices=tuple(price for price, _ in priced),
    )


def fleet_price(housing: Sequence[records.Housing], *, prices: PriceProfile, rule: PriceRule) -> MarketPrice | None:
    """What an accelerator of a fleet costs by a rule, on average where they are of two kinds; None without a price."""
    found = [(market_price(prices, hardware=item.hardware, rule=rule), item.devices) for item in housing]
    priced = [(price, devices) for price, devices in found if price is not None]
    return mean_price(priced) if len(priced) == len(found) else None
