"""The answer: a capacity plan, its studies, what the event simulation said about its fleets, and what would change it.

What would change the choice is the fleet beside the chosen one, by how much that is dearer, and what the range of
listed prices does to the ranking. Which question asks for each study, and where it is computed, stands in ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized, fleet_price
from simulator.planner.fleet.records import KNOWN, Fleet
from simulator.planner.money.market import PriceRule, plan_rule, provider_kinds
from simulator.planner.records import Demand, FamilyFound, Rejection, SearchSummary, Study
from simulator.planner.search.question import Question
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note
from simulator.specs.money.prices import OfferKind, PriceOf, PriceProfile
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import ObjectiveSpec

if TYPE_CHECKING:
    from simulator.planner.verification.records import Finalists, FleetVerification


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The fleet that would be chosen next.

    known : its kernels are measured or calibrated; doubt : of this fleet, see ``Fleet``; best_doubt : of the chosen one
    cost_change : from the chosen fleet's cost as a share of it, negative where that is dearer and better known
    break_even_change : of the chosen fleet's devices as a share of them, for this one to be chosen
    price_above : of an hour of the chosen fleet's accelerator, of two kinds on average, for the same; None without one
    """

    hardware: str
    label: str
    devices: int
    cost_per_hour: float
    known: bool
    doubt: float
    best_doubt: float
    cost_change: float
    break_even_change: float
    price_above: float | None


def elsewhere(fleets: Sequence[Fleet]) -> list[Fleet]:
    """Those of ``fleets`` (best first) on other accelerators; without a price only where none has one."""
    best, *others = fleets
    found = [fleet for fleet in others if fleet.hardware != best.hardware]
    return [fleet for fleet in found if fleet.cost.per_hour is not None] or found


def better_known(fleets: Sequence[Fleet]) -> Fleet | None:
    """The cheapest fleet elsewhere whose kernels are known, where those of the chosen one are not; else None."""
    if fleets[0].provenance in KNOWN:
        return None
    return next((fleet for fleet in elsewhere(fleets) if fleet.provenance in KNOWN), None)


def rival_of(fleets: Sequence[Fleet]) -> Rival | None:
    """The rival of the first of ``fleets``: the cheapest, the best known, or the next; None without a price."""
    best, others = fleets[0], elsewhere(fleets)
    if best.cost.per_hour is None or not others or others[0].cost.per_hour is None:
        return None
    cheapest = min(others, key=lambda fleet: fleet.cost.per_hour or 0.0)
    passed_over = cheapest if (cheapest.cost.per_hour or 0.0) < best.cost.per_hour else None
    found = passed_over or better_known(fleets) or others[0]
    cost, price = found.cost.per_hour or 0.0, best.cost.per_device_hour
    break_even = cost * (1 + found.doubt) / (best.cost.per_hour * (1 + best.doubt))
    return Rival(
        hardware=found.hardware,
        label=found.label,
        devices=found.devices,
        cost_per_hour=cost,
        known=found.provenance in KNOWN,
        doubt=found.doubt,
        best_doubt=best.doubt,
        cost_change=cost / best.cost.per_hour - 1,
        break_even_change=break_even - 1,
        price_above=None if price is None else price * break_even,
    )


MOST_RIVALS = 4
_ENDS: tuple[PriceOf, ...] = ("low", "median", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceCase:
    """The ranking at other prices.

    name : ``planned``; ``low``, ``median`` or ``high`` of every accelerator; a kind of provider alone
    hardware, setup, devices, cost_per_hour : of the fleet that is chosen then; next_* : of the next one elsewhere
    priced : fleets that have such a price; chosen_priced : whether the plan's is one of them
    """

    name: str
    hardware: str
    setup: str
    devices: int
    cost_per_hour: float
    next_hardware: str | None
    next_cost_per_hour: float | None
    priced: int
    chosen_priced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRival:
    """A fleet of another accelerator that the price of an accelerator-hour could make the cheapest.

    wins_below : price at which it would be chosen, doubt included; per_hour : as planned with, None where nobody
    lists one; low, low_provider : the lowest that is listed
    """

    hardware: str
    setup: str
    devices: int
    wins_below: float
    per_hour: float | None
    low: float | None
    low_provider: str | None

    @property
    def offered(self) -> bool:
        """Whether somebody asks less than the price at which it wins."""
        return self.low is not None and self.low < self.wins_below


@dataclass(frozen=True, slots=True, kw_only=True)
class BoughtFleet:
    """The cheapest fleet to own of those whose accelerators somebody quoted a purchase of.

    accelerators : its kinds; provider : who quotes; capital : at the start; per_hour : with operation over ``years``
    rent_hardware, rent_kind, rent_per_hour : of the fleet that costs least to rent for as long, by a term or as planned
    chosen : whether owning costs less than that, doubt included
    """

    hardware: str
    accelerators: tuple[str, ...]
    setup: str
    devices: int
    provider: str
    capital: float
    per_hour: float
    years: int
    rent_hardware: str
    rent_kind: OfferKind | Literal["planned"]
    rent_per_hour: float
    chosen: bool

    @property
    def change(self) -> float:
        """Share by which owning costs more than the rent, below zero where it costs less."""
        return self.per_hour / self.rent_per_hour - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRanking:
    """How far the recommendation rests on prices.

    loses_above : price of the chosen accelerator at which the next fleet is chosen, on average where there are two;
    None where nothing else has a price
    rivals : the next fleet, those that win at a listed price of theirs, and smaller ones that nobody prices
    bought : what owning would cost; None where nobody quoted a purchase
    """

    cases: tuple[PriceCase, ...]
    loses_above: float | None
    rivals: tuple[PriceRival, ...]
    bought: BoughtFleet | None = None

    @property
    def steady(self) -> bool:
        """The chosen accelerators are chosen wherever they have a price."""
        return len({case.hardware for case in self.cases if case.chosen_priced}) == 1


def _cost(fleet: Fleet, *, prices: PriceProfile, rule: PriceRule) -> float | None:
    price = fleet_price(fleet.housing, prices=prices, rule=rule)
    return None if price is None else price.per_hour * fleet.devices


def _case(name: str, fleets: Sequence[Fleet], *, prices: PriceProfile, rule: PriceRule) -> PriceCase | None:
    costs = [(_cost(fleet, prices=prices, rule=rule), fleet) for fleet in fleets]
    known = ((cost, fleet) for cost, fleet in costs if cost is not None)
    priced = sorted(known, key=lambda item: item[0] * (1 + item[1].doubt))
    if not priced:
        return None
    cost, best = priced[0]
    after = next(((other, fleet) for other, fleet in priced if fleet.hardware != best.hardware), None)
    return PriceCase(
        name=name,
        hardware=best.hardware,
        setup=best.label,
        devices=best.devices,
        cost_per_hour=cost,
        next_hardware=None if after is None else after[1].hardware,
        next_cost_per_hour=None if after is None else after[0],
        priced=len(priced),
        chosen_priced=costs[0][0] is not None,
    )


def _rival(fleet: Fleet, *, counted: float, prices: PriceProfile, rule: PriceRule) -> PriceRival:
    price = fleet_price(fleet.housing, prices=prices, rule=rule)
    return PriceRival(
        hardware=fleet.hardware,
        setup=fleet.label,
        devices=fleet.devices,
        wins_below=counted / (1 + fleet.doubt) / fleet.devices,
        per_hour=None if price is None else price.per_hour,
        low=None if price is None else price.low,
        low_provider=None if price is None else price.low_provider,
    )


def _rivals(fleets: Sequence[Fleet], *, prices: PriceProfile, rule: PriceRule) -> list[PriceRival]:
    best = fleets[0]
    counted = best.counted_per_hour or 0.0
    seen, found = {best.hardware}, []
    for fleet in fleets[1:]:
        if fleet.hardware not in seen:
            seen.add(fleet.hardware)
            found.append(_rival(fleet, counted=counted, prices=prices, rule=rule))
    first = found[:1] if found and found[0].per_hour is not None else []
    others = found[len(first) :]
    winning = [item for item in others if item.offered]
    unpriced = [item for item in others if item.per_hour is None and item.devices < best.devices]
    return [*first, *winning, *unpriced][:MOST_RIVALS]


def price_ranking(fleets: Sequence[Fleet], *, prices: PriceProfile, spec: PlanSpec) -> PriceRanking | None:
    """How the ranking of a plan's fleets, best first, depends on prices; None where the best has none."""
    best = fleets[0]
    if best.cost.per_hour is None:
        return None
    rule = plan_rule(spec)
    ends = [(end, replace(rule, of=end)) for end in _ENDS if end != (rule.of or "median")]
    kinds = [(kind, replace(rule, provider=kind)) for kind in provider_kinds()] if spec.provider is None else []
    found = (_case(name, fleets, prices=prices, rule=asked) for name, asked in [("planned", rule), *ends, *kinds])
    cases = [case for case in found if case is not None]
    after = next((item.counted_per_hour for item in fleets if item.hardware != best.hardware), None)
    return PriceRanking(
        cases=tuple(cases),
        loses_above=None if after is None else after / (1 + best.doubt) / best.devices,
        rivals=tuple(_rivals(fleets, prices=prices, rule=rule)),
    )


S = TypeVar("S", bound="Study")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBasis:
    """What studies of a plan are computed from, so that one that is wanted later needs no second search.

    question : resolved, and with the demand that the event simulation found for a trace
    shown : the plan's fleets before their latencies and limits were worked out, the chosen one first
    in_stock : accelerators of the chosen fleet's kind that exist, in use or not
    whole_per_s, beside_per_s : of a fleet beside others the demand of all, and what the others carry of it as it grows
        [1/s]; None where another of them grows
    """

    question: Question
    shown: tuple[Sized, ...]
    in_stock: int = 0
    whole_per_s: float | None = None
    beside_per_s: float | None = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """The answer: the chosen fleet, the best of every other option, what was refused and what it all rests on.

    spec : the question as it was asked
    basis : for studies that are made later; no part of the answer
    price_ranking : what the listed prices do to the order of the fleets; None where the chosen one has no price
    studies : one of each kind that was asked for and has an answer; ``study`` finds one by its class
    search : None where only the usual set-ups were tried; families : what was searched beside those,
        on the accelerators ``searched``
    verification, finalists : None where nothing was simulated
    parts : the fleets that serve side by side where something exists, each as a plan for its share of the demand, with
        the studies that were asked for
    """

    spec: PlanSpec
    demand: Demand
    objectives: tuple[ObjectiveSpec, ...]
    best: Fleet
    alternatives: tuple[Fleet, ...]
    rejections: tuple[Rejection, ...]
    candidates: int
    assumptions: tuple[Assumption, ...]
    warnings: tuple[Note, ...]
    basis: PlanBasis = field(compare=False, repr=False, metadata={"inside": True})
    price_ranking: PriceRanking | None = None
    search: SearchSummary | None = None
    families: tuple[FamilyFound, ...] = ()
    searched: tuple[str, ...] = ()
    studies: tuple[Study, ...] = ()
    verification: FleetVerification | None = None
    finalists: Finalists | None = None
    parts: tuple[CapacityPlan, ...] = field(default=(), compare=False, repr=False, metadata={"inside": True})

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """The chosen one and its alternatives."""
        return (self.best, *self.alternatives)

    @property
    def rival(self) -> Rival | None:
        """What would be chosen next: with evidence where the chosen fleet's kernels have none."""
        return rival_of(self.fleets)

    def study(self, kind: type[S]) -> S | None:
        """The study of this class; None where it was not asked for or has no answer."""
        return next((item for item in self.studies if isinstance(item, kind)), None)

    @property
    def serving(self) -> tuple[CapacityPlan, ...]:
        """What serves: where something exists each fleet side by side, as a plan for its share; else this one."""
        return self.parts or (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyContext:
    """What a study is computed from.

    allowed : fleets within the limits, best first, empty for a study that is made later; shown : the best of every
    accelerator, best first
    """

    plan: CapacityPlan
    question: Question
    shown: tuple[Sized, ...]
    allowed: tuple[Sized, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKind:
    """A kind of study.

    key : of its record (``Study.key``); options : of which each asks for it, where they are not called so too
    module : of the planner, that of its key unless given; has ``study(context)``, which returns the record, or None
        where there is no answer; of stock also ``parts(plan, spec)``, the fleets that serve side by side
    in_reports : every report has it, so it can be made later from the shown fleets alone
    of_serving : where something exists it is of each fleet that serves (``CapacityPlan.serving``), not of a new one
    """

    key: str
    options: tuple[str, ...] = ()
    module: str = ""
    in_reports: bool = False
    of_serving: bool = False

    def asked(self, spec: PlanSpec) -> bool:
        """Whether a question wants it."""
        return any(getattr(spec, option) for option in self.options or (self.key,))


STOCK = StudyKind(key="stock")
KINDS = (
    StudyKind(key="pareto"),
    StudyKind(key="gap", options=("explain_gap",), module="gap.closing"),
    STOCK,
    StudyKind(key="measured_rate", options=("measured_rps_per_gpu",)),
    StudyKind(key="kv_tiers"),
    StudyKind(key="encoder_pool", options=("encoder_hardware",)),
    StudyKind(key="length_split", options=("pools",)),
    StudyKind(key="resilience", options=("resilience", "availability"), in_reports=True, of_serving=True),
    StudyKind(key="growth", in_reports=True, of_serving=True),
    StudyKind(key="rental", in_reports=True),
    StudyKind(key="uncertainty", in_reports=True, of_serving=True),
)
"""Every study, in the order in which they are computed and listed."""


KEYS = tuple(kind.key for kind in KINDS)


def has_studies(spec: PlanSpec) -> bool:
    """Whether anything beside the plan was asked for."""
    return bool(spec.verify) or replays_trace(spec) or any(kind.asked(spec) for kind in KINDS)


def only_asked(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` without the studies that its question does not ask for."""
    wanted = {kind.key for kind in KINDS if kind.asked(plan.spec)}
    kept = tuple(item for item in plan.studies if item.key in wanted)
    return replace(plan, studies=kept, parts=tuple(map(only_asked, plan.parts)))
