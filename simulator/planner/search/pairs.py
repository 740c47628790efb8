"""Searching two pools: replicas of each are priced once, then paired, and the best pairs worked out in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.errors import Option, RoofcastError
from simulator.planner.candidate import Candidate, Platform, Rejection, not_deployable
from simulator.planner.fleet.fleet import Sized, Trial, size
from simulator.planner.search.candidates import candidates, in_pools
from simulator.planner.search.question import Question
from simulator.planner.serving.capacity import Capacity, Missed
from simulator.planner.serving.disaggregated import (
    Pair,
    PoolReplica,
    decode_capacity,
    decode_replica,
    evaluate_pair,
    link_of,
    prefill_capacity,
    prefill_replica,
)
from simulator.planner.serving.replica import missed_objective
from simulator.planner.serving.shapes import replicas_for

# Pairs of a platform and number format that are worked out in full and shown.
SHOWN_PAIRS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """A pair with the capacities that either pool has alone; ``devices`` : at least needed for the demand."""

    candidate: Candidate
    pair: Pair
    first: Capacity
    second: Capacity
    devices: int


class _Pools:
    """Replicas of both pools, each priced once, whatever it is paired with."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.rejections: list[Rejection] = []
        self.tried = 0

    def replicas(self, tried: Sequence[Candidate], *, decodes: bool) -> list[PoolReplica]:
        """Those that can be deployed and hold a request; the others are refused."""
        question, found = self._question, []
        make, role = (decode_replica, "decode") if decodes else (prefill_replica, "prefill")
        for candidate in tried:
            made = make(candidate, model=question.model, mix=question.demand.mix, policy=question.policy)
            if isinstance(made, Rejection):
                self.rejections.append(replace(made, label=f"{role} {made.label}"))
            else:
                found.append(made)
        return found

    def priced(self, ahead: list[PoolReplica], after: list[PoolReplica]) -> list[_Priced]:
        """Every pair within the objectives that each pool decides alone, the fewest devices first."""
        question, found = self._question, []
        first_of: dict[tuple[int, float], Capacity | Missed] = {}
        for decode in after:
            second = decode_capacity(decode, objectives=question.objectives, policy=question.policy)
            for place, prefill in enumerate(ahead):
                candidate = replace(decode.found.candidate, prefill=prefill.found.candidate)
                self.tried += 1
                try:
                    pair = Pair(prefill=prefill, decode=decode, link=link_of(prefill, decode))
                except RoofcastError as error:
                    self.rejections.append(not_deployable(candidate, error))
                    continue
                key = (place, pair.link.token_s)
                if key not in first_of:
                    first_of[key] = prefill_capacity(pair, objectives=question.objectives, policy=question.policy)
                first = first_of[key]
                if isinstance(first, Missed):
                    self.rejections.append(missed_objective(candidate, first))
                elif isinstance(second, Missed):
                    self.rejections.append(missed_objective(candidate, second))
                else:
                    found.append(self._priced(candidate, pair, first, second))
        return sorted(found, key=lambda item: item.devices)

    def _priced(self, candidate: Candidate, pair: Pair, first: Capacity, second: Capacity) -> _Priced:
        rate = self._question.demand.planned_rate_per_s
        devices = sum(
            replicas_for(rate, capacity_per_s=capacity.rate_per_s * pool.lanes) * pool.devices
            for capacity, pool in ((first, pair.prefill), (second, pair.decode))
        )
        return _Priced(candidate=candidate, pair=pair, first=first, second=second, devices=devices)

    def best(self, priced: list[_Priced]) -> list[Sized]:
        """The best few as fleets. What E2E objectives take beyond the least is worked out in order of the least."""
        question = self._question
        sized: list[Sized] = []
        for item in priced:
            if len(sized) >= SHOWN_PAIRS and item.devices >= min(fleet.devices for fleet in sized):
                break
            outcome = evaluate_pair(item.candidate, item.pair, item.first, item.second, objectives=question.objectives)
            if isinstance(outcome, Rejection):
                self.rejections.append(outcome)
                continue
            sized.append(size(outcome, demand=question.demand, spec=question.spec, prices=question.prices))
        return sorted(sized, key=lambda fleet: fleet.rank)[:SHOWN_PAIRS]


def _by_format(tried: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    """Candidates that can be paired: of one number format, technique and engine, so that their caches are alike."""
    alike: dict[tuple[object, ...], list[Candidate]] = {}
    for candidate in tried:
        key = (candidate.precision, candidate.techniques, candidate.engine)
        alike.setdefault(key, []).append(candidate)
    return [tuple(group) for group in alike.values()]


def try_pools(question: Question, platform: Platform) -> Trial:
    """The best pairs of pools of a platform for every number format; larger degrees where all usual are too small."""
    spec, model = question.spec, question.model
    if question.demand.mix.decode_steps < 1:
        raise RoofcastError(
            "answers of one token leave nothing to decode",
            field=Option("serving"),
            code="no_effect",
            hint="`osl_tokens` above 1",
        )
    trial = _try_pairs(question, candidates(spec, model=model, platform=platform))
    if not trial.sized and not spec.tp_size and trial.all_too_small:
        larger = _try_pairs(question, candidates(spec, model=model, platform=platform, large=True))
        return trial.with_more(larger)
    return trial


def _try_pairs(question: Question, tried: Sequence[Candidate]) -> Trial:
    """The best pairs within each group of candidates that are alike."""
    tried = [in_pools(candidate, profiles=question.policy.profiles) for candidate in tried]
    sized: list[Sized] = []
    pools = _Pools(question)
    for group in _by_format(tried):
        after = pools.replicas(group, decodes=True)
        ahead = pools.replicas(group, decodes=False) if after else []
        sized += pools.best(pools.priced(ahead, after))
    refused = tuple(pools.rejections)
    return Trial(sized=tuple(sized), rejections=refused, more=max(0, pools.tried - len(sized) - len(refused)))
