"""The usual search: every candidate of a platform evaluated and sized, as one kind of replica and as two pools.

Replicas are remembered with the load curves that were priced for them: another rate, number of spares or price asks
nothing new of a replica, and other objectives or another highest load are asked of its load curve. Of two pools, the
replicas of each are priced once, then paired, and the best pairs worked out in full. Unlike pools are on two kinds of
accelerator: both serve one checkpoint in one release of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import chain
from math import inf
from threading import Lock
from typing import Generic, TypeVar

from simulator.errors import RoofcastError
from simulator.planner.fleet.fleet import Sized, Trial, size, spare_replicas
from simulator.planner.fleet.records import housing_of
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import Candidate, Platform, Rejection, refused, shared_by_pools
from simulator.planner.search.candidates import USUAL_DP_SIZES, candidates, pool_candidates
from simulator.planner.search.question import Question, check_decodes
from simulator.planner.serving.capacity import Capacity, Missed
from simulator.planner.serving.disaggregated import (
    Made,
    Pair,
    PoolReplica,
    decode_capacity,
    evaluate_pair,
    evaluate_pools,
    link_of,
    pool_replicas,
    prefill_capacity,
)
from simulator.planner.serving.replica import LoadPolicy, Prepared, missed_objective, prepare_all
from simulator.planner.serving.shapes import Aggregated, Shape, evaluate_prepared, replicas_for
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.lengths import RequestMix

Answer = TypeVar("Answer")

KEPT = 1024
"""Outcomes that are kept, some 40 kB each: a few questions about all accelerators, or one of many set-ups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A candidate and what is asked of it.

    policy : without its highest load and margin where ``objectives`` is None, which asks for the load curve only
    """

    candidate: Candidate
    model: Same[ModelSpec]
    mix: RequestMix
    objectives: tuple[ObjectiveSpec, ...] | None
    policy: LoadPolicy


class _Kept(Generic[Answer]):
    """KEPT answers; those that nobody asked for longest are forgotten first."""

    def __init__(self) -> None:
        self._answers: dict[_Asked, Answer] = {}
        self._lock = Lock()

    def get(self, asked: Sequence[_Asked], work_out: Callable[[list[_Asked]], list[Answer]]) -> list[Answer]:
        """Answers to all that is asked; those that are not known are worked out together."""
        known = [self._answers.get(item) for item in asked]
        missing = [item for item, answer in zip(asked, known, strict=True) if answer is None]
        new = iter(work_out(missing) if missing else [])
        answers = [next(new) if answer is None else answer for answer in known]
        with self._lock:
            for item, answer, before in zip(asked, answers, known, strict=True):
                # Asked for again it is the newest: what is evaluated beside it would push it out before it is read.
                if before is not None:
                    self._answers.pop(item, None)
                self._answers[item] = answer
            while len(self._answers) > KEPT:
                del self._answers[next(iter(self._answers))]
        return answers

    def of(self, model: ModelSpec) -> dict[_Asked, Answer]:
        """What is known of one model."""
        return {asked: answer for asked, answer in self._answers.items() if asked.model.held is model}

    def add(self, answers: Mapping[_Asked, Answer]) -> None:
        """Answers that another process worked out."""
        self._answers.update(answers)


_OUTCOMES: _Kept[Aggregated | Rejection] = _Kept()
_OF_POOLS: _Kept[Shape | Rejection] = _Kept()
_PREPARED: _Kept[Prepared | Rejection] = _Kept()
Remembered = tuple[
    Mapping[_Asked, Aggregated | Rejection], Mapping[_Asked, Shape | Rejection], Mapping[_Asked, Prepared | Rejection]
]


def remembered(model: ModelSpec) -> Remembered:
    """Outcomes of a model's replicas and pools, and the load curves that were priced for them."""
    return _OUTCOMES.of(model), _OF_POOLS.of(model), _PREPARED.of(model)


def remember(found: Remembered) -> None:
    """Count as evaluated what another process evaluated."""
    _OUTCOMES.add(found[0])
    _OF_POOLS.add(found[1])
    _PREPARED.add(found[2])


@lru_cache(maxsize=1)
def _made(model: Same[ModelSpec], mix: RequestMix, policy: LoadPolicy) -> Made:
    """Replicas of pools, each priced once whatever it is paired with, under whichever rate and objectives."""
    return Made()


def _prepare(asked: list[_Asked]) -> list[Prepared | Rejection]:
    first = asked[0]
    return prepare_all([item.candidate for item in asked], model=first.model.held, mix=first.mix, policy=first.policy)


def _worked_out(asked: list[_Asked]) -> list[Aggregated | Rejection]:
    first = asked[0]
    assert first.objectives is not None
    unloaded = replace(first.policy, utilization=0.0, deviate=0.0)
    prepared = _PREPARED.get([replace(item, objectives=None, policy=unloaded) for item in asked], _prepare)
    return evaluate_prepared(prepared, objectives=first.objectives, policy=first.policy)


def _pools_worked_out(asked: list[_Asked]) -> list[Shape | Rejection]:
    first, objectives = asked[0], asked[0].objectives
    made = _made(first.model, first.mix, first.policy)
    assert objectives is not None
    # Replicas of all pools are priced together, before they are paired.
    for place, decodes in ((0, False), (-1, True)):
        parts = [item.candidate.parts[place] for item in asked]
        pool_replicas(parts, made, decodes=decodes, model=first.model.held, mix=first.mix, policy=first.policy)
    return [
        evaluate_pools(
            item.candidate, model=first.model.held, mix=first.mix, objectives=objectives, policy=first.policy, made=made
        )
        for item in asked
    ]


def evaluate_once(
    candidate: Candidate,
    *,
    model: ModelSpec,
    mix: RequestMix,
    objectives: tuple[ObjectiveSpec, ...],
    policy: LoadPolicy,
) -> Shape | Rejection:
    """What a candidate sustains, remembered; plans that differ in the rate to carry share it."""
    asked = _Asked(candidate=candidate, model=Same(model), mix=mix, objectives=objectives, policy=policy)
    if len(candidate.parts) > 1:
        return _OF_POOLS.get((asked,), _pools_worked_out)[0]
    return _OUTCOMES.get((asked,), _worked_out)[0]


SHOWN_PAIRS = 3
"""Pairs of a platform and number format that are worked out in full and shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """A pair with the capacities that either pool has alone; ``expense`` : what the demand takes at least."""

    candidate: Candidate
    pair: Pair
    first: Capacity
    second: Capacity
    expense: float


class _Pools:
    """Pairs of two accelerators, which may be one. Their expense is counted in accelerators there, of two in money.

    below : of unlike pools only the best is worked out where it takes more than this
    """

    def __init__(self, question: Question, prefill: Platform, decode: Platform, *, below: float) -> None:
        self._question, self._ends, self._below = question, (prefill, decode), below
        self._made = _made(Same(question.model), question.demand.mix, question.policy)
        self._rejections: list[Rejection] = []
        self._tried = 0

    def trial(self, *, large: bool = False) -> Trial:
        """The best pairs within each group of candidates that are alike."""
        sized: list[Sized] = []
        spec, model, (prefill, decode) = self._question.spec, self._question.model, self._ends
        ahead = _by_format(pool_candidates(spec, model=model, platform=prefill, beside=decode, large=large))
        after = _by_format(pool_candidates(spec, model=model, platform=decode, beside=prefill, large=large))
        for key, group in after.items():
            decodes = self._replicas(group, decodes=True) if key in ahead else []
            prefills = self._replicas(ahead[key], decodes=False) if decodes else []
            sized += self._best(self._priced(prefills, decodes))
        refused = tuple(self._rejections)
        return Trial(sized=tuple(sized), rejections=refused, more=max(0, self._tried - len(sized) - len(refused)))

    @property
    def _unlike(self) -> bool:
        return self._ends[0].hardware.name != self._ends[1].hardware.name

    def _replicas(self, tried: Sequence[Candidate], *, decodes: bool) -> list[PoolReplica]:
        """Those that can be deployed and hold a request; the others are refused."""
        question, found, role = self._question, [], "decode" if decodes else "prefill"
        model, mix, policy = question.model, question.demand.mix, question.policy
        for made in pool_replicas(tried, self._made, decodes=decodes, model=model, mix=mix, policy=policy):
            if isinstance(made, Rejection):
                self._rejections.append(replace(made, label=f"{role} {made.label}"))
            else:
                found.append(made)
        return found

    def _priced(self, ahead: list[PoolReplica], after: list[PoolReplica]) -> list[_Priced]:
        """Every pair within the objectives that each pool decides alone, the least expense first."""
        question, found = self._question, []
        for decode in after:
            second = decode_capacity(decode, self._made, objectives=question.objectives, policy=question.policy)
            for prefill in ahead:
                candidate = replace(decode.found.candidate, prefill=prefill.found.candidate)
                self._tried += 1
                try:
                    pair = Pair(prefill=prefill, decode=decode, link=link_of(prefill, decode))
                except RoofcastError as error:
                    self._rejections.append(refused(candidate, error))
                    continue
                first = prefill_capacity(pair, self._made, objectives=question.objectives, policy=question.policy)
                if isinstance(first, Missed):
                    self._rejections.append(missed_objective(candidate, first))
                elif isinstance(second, Missed):
                    self._rejections.append(missed_objective(candidate, second))
                else:
                    expense = self._expense(pair, first, second)
                    found.append(_Priced(candidate=candidate, pair=pair, first=first, second=second, expense=expense))
        return sorted(found, key=lambda item: item.expense)

    @cached_property
    def _prices(self) -> tuple[float, ...]:
        """What an accelerator of either end counts: 1 each where they are alike, infinitely much without a price."""
        if not self._unlike:
            return (1.0, 1.0)
        prices, rule = self._question.prices, plan_rule(self._question.spec)
        found = [market_price(prices, hardware=item.hardware.name, rule=rule) for item in self._ends]
        return tuple(inf if price is None else price.per_hour for price in found)

    def _expense(self, pair: Pair, first: Capacity, second: Capacity) -> float:
        """In whole servers, with spares; objectives on E2E may take more."""
        spec, rate, pools = self._question.spec, self._question.demand.planned_rate_per_s, (pair.prefill, pair.decode)
        totals, devices = list[int](), [pool.devices for pool in pools]
        for pool, capacity, end in zip(pools, (first, second), self._ends, strict=True):
            count = replicas_for(rate, capacity_per_s=capacity.rate_per_s * pool.lanes)
            totals.append(count + spare_replicas(pool.devices, server=end.server, replicas=count, spec=spec, pools=2))
        each = [(place,) for place in range(len(pools))] if self._unlike else [tuple(range(len(pools)))]
        return sum(
            self._prices[places[0]]
            * housing_of(
                self._ends[places[0]],
                tuple(totals[place] for place in places),
                devices=tuple(devices[place] for place in places),
                round_to=spec.round_to,
            ).devices
            for places in each
        )

    def _taken(self, fleet: Sized) -> float:
        if not self._unlike:
            return fleet.devices
        return inf if fleet.cost.per_hour is None else fleet.cost.per_hour

    def _best(self, priced: list[_Priced]) -> list[Sized]:
        """The best few as fleets. What E2E objectives take beyond the least is worked out in order of the least."""
        question = self._question
        sized: list[Sized] = []
        for item in priced:
            least = min(map(self._taken, sized), default=inf)
            if len(sized) >= SHOWN_PAIRS and item.expense >= least:
                break
            if self._unlike and sized and item.expense > min(least, self._below):
                break
            outcome = evaluate_pair(item.candidate, item.pair, item.first, item.second, objectives=question.objectives)
            if isinstance(outcome, Rejection):
                self._rejections.append(outcome)
                continue
            sized.append(size(outcome, demand=question.demand, spec=question.spec, prices=question.prices))
        return sorted(sized, key=lambda fleet: fleet.rank)[:SHOWN_PAIRS]


def _by_format(tried: Sequence[Candidate]) -> dict[tuple[object, ...], list[Candidate]]:
    """Candidates that can be paired: of one number format, technique and engine, so that their caches are alike."""
    alike: dict[tuple[object, ...], list[Candidate]] = {}
    for candidate in tried:
        key = (candidate.precision, shared_by_pools(candidate.techniques), candidate.engine)
        alike.setdefault(key, []).append(candidate)
    return alike


def try_pair(question: Question, prefill: Platform, decode: Platform, *, below: float = inf) -> Trial:
    """The best pairs of pools for every number format; larger degrees where all usual are too small. See ``_Pools``."""
    trial = _Pools(question, prefill, decode, below=below).trial()
    if trial.sized or question.spec.tp_size or not trial.all_too_small:
        return trial
    return trial.with_more(_Pools(question, prefill, decode, below=below).trial(large=True))


# Pipeline depths tried on hardware that was asked for by name and is too small otherwise.
PIPELINE_DEPTHS = (2, 4, 8)


def usual_search(question: Question, tried: Sequence[Platform]) -> Trial:
    """Evaluate the candidates of every platform: in one go those that each will ask for first."""
    spec, model, alone = question.spec, question.model, "aggregated" in question.serving
    usual = [candidates(spec, model=model, platform=platform) if alone else () for platform in tried]
    evaluate_together(question, tuple(chain(*usual)))
    trial = Trial()
    for platform, own in zip(tried, usual, strict=True):
        trial = trial.with_more(try_platform(question, platform, own))
    return trial


def evaluate_together(question: Question, tried: Sequence[Candidate]) -> None:
    """Have ``evaluate_once`` know them: worked out together they take less time."""
    model, mix, objectives, policy = Same(question.model), question.demand.mix, question.objectives, question.policy
    asked = [_Asked(candidate=item, model=model, mix=mix, objectives=objectives, policy=policy) for item in tried]
    if len(asked) <= KEPT:
        _OUTCOMES.get([item for item in asked if len(item.candidate.parts) == 1], _worked_out)
        _OF_POOLS.get([item for item in asked if len(item.candidate.parts) > 1], _pools_worked_out)


def try_platform(question: Question, platform: Platform, usual: tuple[Candidate, ...]) -> Trial:
    """Evaluate a platform's ``usual`` candidates, as one kind of replica, as two pools, or both ways."""
    trial = _try_replicas(question, platform, usual) if "aggregated" in question.serving else Trial()
    if "disaggregated" in question.serving:
        check_decodes(question, "serving")
        trial = trial.with_more(try_pair(question, platform, platform))
    return trial


def _try_replicas(question: Question, platform: Platform, tried: tuple[Candidate, ...]) -> Trial:
    """Replicas that do both phases; where all are too small, larger tensor and then pipeline degrees or experts over
    several servers."""
    spec, model = question.spec, question.model
    trial = _evaluate(question, tried)
    if not trial.sized and not spec.tp_size and trial.all_too_small:
        larger = candidates(spec, model=model, platform=platform, large=True)
        evaluate_together(question, larger)
        tried, trial = tried + larger, trial.with_more(_evaluate(question, larger))
    if not trial.sized and spec.hardware and not spec.pp_size and trial.all_too_small:
        depths = tuple(depth for depth in PIPELINE_DEPTHS if depth <= model.num_hidden_layers)
        largest = spec.tp_size or (max((candidate.parallelism.tp_size for candidate in tried), default=1),)
        deeper = spec.model_copy(update={"pp_size": depths, "tp_size": largest})
        larger = candidates(deeper, model=model, platform=platform)
        if model.has_experts and not spec.dp_size:
            over_servers = spec.model_copy(update={"dp_size": USUAL_DP_SIZES})
            larger += candidates(over_servers, model=model, platform=platform)
        evaluate_together(question, larger)
        trial = trial.with_more(_evaluate(question, larger))
    return trial


def evaluate_all(question: Question, tried: Sequence[Candidate]) -> Trial:
    """Size every candidate that can serve; nothing is left out."""
    evaluate_together(question, tried)
    trial = Trial()
    for candidate in tried:
        trial = trial.with_more(_evaluate(question, (candidate,)))
    return trial


def _evaluate(question: Question, tried: Sequence[Candidate]) -> Trial:
    """Size every candidate, the smallest tensor-parallel degree first. Degrees above one that gives less per device
    without an objective being the reason are left out, unless asked for."""
    sized, rejections, best = list[Sized](), list[Rejection](), dict[str, float]()
    for candidate in tried:
        before = best.get(candidate.family, 0.0)
        if before == inf:
            continue
        outcome = evaluate_once(
            candidate,
            model=question.model,
            mix=question.demand.mix,
            objectives=question.objectives,
            policy=question.policy,
        )
        if isinstance(outcome, Rejection):
            rejections.append(outcome)
            continue
        sized.append(size(outcome, demand=question.demand, spec=question.spec, prices=question.prices))
        per_device = outcome.replica.capacity_per_s / outcome.replica.devices
        declines = outcome.replica.binding is None and per_device < before and not question.spec.tp_size
        best[candidate.family] = inf if declines else max(per_device, before)
    return Trial(sized=tuple(sized), rejections=tuple(rejections))
