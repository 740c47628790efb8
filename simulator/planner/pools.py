"""Short and long prompts on fleets of their own, against one fleet for all."""

from __future__ import annotations

from dataclasses import replace
from math import log, log1p, sqrt
from statistics import NormalDist

from simulator.engine.lengths import LengthDistribution
from simulator.errors import RoofcastError
from simulator.planner.candidates import platforms
from simulator.planner.choice_records import Pool, PoolPlan
from simulator.planner.fleet import Sized
from simulator.planner.records import Demand
from simulator.planner.search import Question
from simulator.planner.trials import try_platforms

# Where the prompts are split: at the mean, and at two and four times it.
_THRESHOLDS = (1.0, 2.0, 4.0)


def truncated_lengths(lengths: LengthDistribution, *, low: float, high: float) -> tuple[float, LengthDistribution]:
    """Share of a log-normal in [low, high) and the lengths in it by their first two moments.

    References
    ----------
    [Johnson1994] section 14.3, partial moments of the log-normal.
    """
    variance = log1p(lengths.cv**2)
    sigma, mu = sqrt(variance), log(lengths.mean_tokens) - variance / 2
    normal = NormalDist().cdf

    def partial(order: int) -> float:
        ends = [
            (log(edge) - mu - order * variance) / sigma if 0 < edge < float("inf") else (-1 if edge <= 0 else 1) * 40.0
            for edge in (low, high)
        ]
        return lengths.moment(order) * (normal(ends[1]) - normal(ends[0]))

    share = partial(0)
    mean = partial(1) / share
    spread = max(partial(2) / share - mean**2, 0.0)
    return share, LengthDistribution(mean_tokens=max(mean, 1.0), cv=sqrt(spread) / mean)


def _part(demand: Demand, *, low: float, high: float) -> Demand:
    share, isl = truncated_lengths(demand.mix.isl, low=low, high=high)
    return replace(demand, mean_rate_per_s=demand.mean_rate_per_s * share, mix=replace(demand.mix, isl=isl))


def _cheapest(question: Question) -> Sized | None:
    trial = try_platforms(question, platforms(question.spec)).trial
    return min(trial.sized, key=lambda item: item.rank, default=None)


def _pool(item: Sized, demand: Demand, *, low: float, high: float) -> Pool:
    return Pool(
        from_tokens=low,
        to_tokens=None if high == float("inf") else high,
        rate_per_s=demand.planned_rate_per_s,
        isl_mean_tokens=demand.mix.isl.mean_tokens,
        hardware=item.evaluated.candidate.platform.hardware.name,
        label=item.evaluated.candidate.label,
        replicas=item.replicas,
        spares=item.spares,
        devices=item.devices,
        cost_per_hour=item.cost.per_hour,
    )


def _split(question: Question, threshold: float) -> tuple[Pool, ...] | None:
    pools = []
    for low, high in ((0.0, threshold), (threshold, float("inf"))):
        demand = _part(question.demand, low=low, high=high)
        best = _cheapest(replace(question, demand=demand))
        if best is None:
            return None
        pools.append(_pool(best, demand, low=low, high=high))
    return tuple(pools)


def _total(pools: tuple[Pool, ...]) -> tuple[bool, float, int]:
    costs = [pool.cost_per_hour for pool in pools]
    known = all(cost is not None for cost in costs)
    return not known, sum(cost or 0.0 for cost in costs), sum(pool.devices for pool in pools)


def pools_of(question: Question, *, devices: int) -> PoolPlan | None:
    """The best of a few splits of the prompts by length; ``devices`` is what one pool for all needs.

    Answers are taken as independent of prompts, each pool keeps its own spares and its own set-up. None where no
    split can serve.
    """
    isl = question.demand.mix.isl
    if isl.cv == 0:
        raise RoofcastError(
            "all prompts have one length, so that nothing can be split", field="--pools", code="no_effect"
        )
    found = [(threshold, _split(question, threshold)) for threshold in (isl.mean_tokens * x for x in _THRESHOLDS)]
    serving = [(threshold, pools) for threshold, pools in found if pools is not None]
    if not serving:
        return None
    threshold, pools = min(serving, key=lambda pair: _total(pair[1]))
    return PoolPlan(
        threshold_tokens=threshold, pools=pools, saved_devices=devices - sum(pool.devices for pool in pools)
    )
