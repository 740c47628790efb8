"""Every pair of a prefill and a decode replica on one platform: which of them need the fewest devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.errors import RoofcastError
from simulator.planner.fleet.fleet import Sized, replicas_for, size
from simulator.planner.records import Rejection
from simulator.planner.search.candidates import Candidate, Platform, candidates
from simulator.planner.search.question import Question
from simulator.planner.search.search import Trial
from simulator.planner.serving.disaggregated import (
    Pair,
    PoolReplica,
    decode_capacity,
    decode_replica,
    evaluate_pair,
    prefill_capacity,
    prefill_replica,
    refused_pair,
    transfer_of,
    without_guesses,
)
from simulator.planner.serving.feasibility import missed_objective
from simulator.planner.serving.replica_capacity import Capacity, Missed

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
    """Replicas of both pools on one platform, each priced once, whatever it is paired with."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.rejections: list[Rejection] = []
        self.tried = 0

    def replicas(self, tried: tuple[Candidate, ...], *, decodes: bool) -> list[tuple[Candidate, PoolReplica]]:
        """Those that can be deployed and hold a request; the others are refused."""
        question, make, found = self._question, decode_replica if decodes else prefill_replica, []
        for candidate in tried if decodes else map(without_guesses, tried):
            made = make(candidate, model=question.model, mix=question.demand.mix, policy=question.policy)
            if isinstance(made, Rejection):
                role = "decode" if decodes else "prefill"
                self.rejections.append(replace(made, label=f"{role} {made.label}"))
            else:
                found.append((candidate, made))
        return found

    def priced(
        self,
        ahead: list[tuple[Candidate, PoolReplica]],
        after: list[tuple[Candidate, PoolReplica]],
    ) -> list[_Priced]:
        """Every pair within the objectives that each pool decides alone, the fewest devices first."""
        found: list[_Priced] = []
        first_of: dict[tuple[int, float], Capacity | Missed] = {}
        for decoder, decode in after:
            second = decode_capacity(decode, objectives=self._question.objectives, policy=self._question.policy)
            for place, (prompter, prefill) in enumerate(ahead):
                candidate = replace(decoder, prefill=prompter)
                self.tried += 1
                try:
                    pair = Pair(prefill=prefill, decode=decode, transfer=transfer_of(prefill, decode))
                except RoofcastError as error:
                    self.rejections.append(refused_pair(candidate, code=error.code, message=error.message))
                    continue
                key = (place, pair.transfer.token_s)
                if key not in first_of:
                    first_of[key] = prefill_capacity(
                        pair, objectives=self._question.objectives, policy=self._question.policy
                    )
                priced = self._priced(candidate, pair, first_of[key], second)
                if priced is not None:
                    found.append(priced)
        return sorted(found, key=lambda item: item.devices)

    def _priced(
        self,
        candidate: Candidate,
        pair: Pair,
        first: Capacity | Missed,
        second: Capacity | Missed,
    ) -> _Priced | None:
        if isinstance(first, Missed):
            self.rejections.append(missed_objective(candidate, first))
            return None
        if isinstance(second, Missed):
            self.rejections.append(missed_objective(candidate, second))
            return None
        rate = self._question.demand.planned_rate_per_s
        devices = [
            replicas_for(rate, capacity_per_s=capacity.rate_per_s * pool.lanes) * pool.devices
            for capacity, pool in ((first, pair.prefill), (second, pair.decode))
        ]
        return _Priced(candidate=candidate, pair=pair, first=first, second=second, devices=sum(devices))

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


def _by_format(tried: tuple[Candidate, ...]) -> list[tuple[Candidate, ...]]:
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
            "answers of one token leave nothing to decode", field="--serving", code="no_effect", hint="--osl above 1"
        )
    trial = try_pairs(question, _by_format(candidates(spec, model=model, platform=platform)))
    if not trial.sized and not spec.tp and all(item.code in ("memory", "slots") for item in trial.rejections):
        larger = try_pairs(question, _by_format(candidates(spec, model=model, platform=platform, large=True)))
        return Trial(sized=larger.sized, rejections=trial.rejections + larger.rejections, more=trial.more + larger.more)
    return trial


def try_pairs(question: Question, groups: list[tuple[Candidate, ...]]) -> Trial:
    """The best pairs within each group of candidates."""
    sized: list[Sized] = []
    pools = _Pools(question)
    for group in groups:
        after = pools.replicas(group, decodes=True)
        ahead = pools.replicas(group, decodes=False) if after else []
        sized += pools.best(pools.priced(ahead, after))
    refused = tuple(pools.rejections)
    return Trial(sized=tuple(sized), rejections=refused, more=max(0, pools.tried - len(sized) - len(refused)))
