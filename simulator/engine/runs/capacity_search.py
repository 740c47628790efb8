"""The highest rate that meets objectives, by bisection on the event simulation with common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, exp, inf, isfinite, log, log2, sqrt

import numpy as np

from simulator.engine.runs.rate_simulation import RatePoint, Served, simulate_rate
from simulator.errors import InfeasibleError, Option, missing_field
from simulator.kernels.intervals import DEVIATE
from simulator.kernels.timing import Provenance
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.requests import Requests
from simulator.traffic.workload_requests import build_requests
from simulator.units import MEGA

RequestSource = Callable[[int, int], Requests]
"""(count, seed) -> that many requests at any rate, the same for the same seed."""
Progress = Callable[[int, int], None]

RESOLUTION = 0.01
"""The answer is at most this share below a rate that was seen to fail."""
STEP = 1.25
IDLE_SHARE = 0.002
"""Share of the saturation rate at which a deployment counts as idle."""
SMALL_STEP = 1.05
COMPANY_TIMES = 20
LONGER = 1.25
"""Runs are repeated where they should have been this many times as long."""
LEAST_REQUESTS, MOST_REQUESTS = 2_000, 20_000
FEWEST_TIMES = 5
"""Requests of a run per sequence where more are held at once than MOST_REQUESTS fill well: at 3 times a rate is 3 % too
low, at 5 it is as with 20."""
FEWEST_REQUESTS, MOST_TOKENS = 200, 100 * MEGA
"""Requests of a run at least, and tokens that the runs of a rate generate where more would only lengthen them: some
seconds, compiled."""
LONGEST_REQUESTS = 80_000
"""Most requests of the runs of a rate that are longer for their queue alone: all together they show one that grows by
1.5 % of the arrivals, and a search with them takes a second compiled, a hundred times as long in Python."""
NEAR_SATURATION = 0.9
# Student's t that leaves 10 % on either side, by degrees of freedom from 1 (then the normal deviate).
_STUDENT_80 = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372)
_NORMAL_80 = 1.282


@dataclass(slots=True)
class RateSearch:
    """Rates visited so far; a rate is never simulated twice."""

    served: Served
    samples: Sequence[Requests]
    objectives: tuple[ObjectiveSpec, ...]
    progress: Progress | None
    expected: int
    points: dict[float, RatePoint]
    pooled: bool

    def at(self, rate_per_s: float) -> RatePoint:
        """What clients see at a rate, simulated where it was not visited yet."""
        if rate_per_s not in self.points:
            self.points[rate_per_s] = simulate_rate(
                self.served,
                samples=self.samples,
                rate_per_s=rate_per_s,
                objectives=self.objectives,
                growth_share=RESOLUTION,
                pooled=self.pooled,
            )
            if self.progress is not None:
                self.progress(len(self.points), max(self.expected, len(self.points) + 1))
        return self.points[rate_per_s]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCapacity:
    """What a deployment sustains.

    rate_per_s : highest mean rate seen to meet every objective; low, high : 80 % interval from the scatter of seeds
    failing_per_s : lowest rate seen to fail; binding : the objective that fails there, None for a growing queue
    steady_per_s : the steady-state estimate that the search started from, and saturation_per_s its saturation rate
    points : every rate visited, ascending; at_capacity : that of ``rate_per_s``; search : which a narrower or wider
        question goes on with
    """

    rate_per_s: float
    low_per_s: float
    high_per_s: float
    failing_per_s: float
    binding: ObjectiveSpec | None
    steady_per_s: float
    saturation_per_s: float
    points: tuple[RatePoint, ...]
    seeds: int
    requests: int
    search: RateSearch = field(repr=False, compare=False)

    @property
    def at_capacity(self) -> RatePoint:
        """The point at the highest rate that holds."""
        return next(point for point in self.points if point.rate_per_s == self.rate_per_s)

    @property
    def fewest_requests(self) -> int:
        """Requests of a run that fill what decodes at once often enough: the rate times the time that each takes for
        its answer (Little's law), known to LONGER as the length of runs is."""
        answer_s = self.at_capacity.e2e.mean_s - self.at_capacity.ttft.mean_s
        return ceil(FEWEST_TIMES / LONGER * self.rate_per_s * answer_s)

    def at_scale(self, scale: float) -> float:
        """The highest rate that holds where all times of the deployment are that many times as long [1/s].

        It does then at a rate what it does now at ``scale`` times the rate, within bounds as much shorter: rates
        visited answer for it too. Left out: clients whose patience or pauses do not grow with it.
        """
        shorter = {item: item.model_copy(update={"bound_s": item.bound_s / scale}) for item in self.search.objectives}
        points = {rate: point.within(shorter) for rate, point in self.search.points.items()}
        search = replace(self.search, objectives=tuple(shorter.values()), points=points, progress=None)
        rates = sorted(points)
        visited = (pair for pair in pairwise(rates) if points[pair[0]].holds and not points[pair[1]].holds)
        start_per_s = rates[-1] if points[rates[-1]].holds else rates[0]
        bracket = next(visited, None) or _bracket(
            search, saturation_per_s=self.saturation_per_s, start_per_s=start_per_s, step=SMALL_STEP
        )
        return _bisect(search, bracket=bracket)[0] / scale

    def times(self, groups: float) -> SimulatedCapacity:
        """Capacity of so many such deployments side by side, which share the arrivals: every rate in proportion."""
        rates = ("rate_per_s", "low_per_s", "high_per_s", "failing_per_s", "steady_per_s", "saturation_per_s")
        points = tuple(replace(point, rate_per_s=groups * point.rate_per_s) for point in self.points)
        return replace(self, points=points, **{name: groups * getattr(self, name) for name in rates})


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyGuess:
    """Steady-state estimate: rate within the objectives, saturation rate [1/s], and the batch at the first.

    full_sequences : the batch that a search may come to
    """

    rate_per_s: float
    saturation_per_s: float
    mean_sequences: float
    full_sequences: float


def _bracket(search: RateSearch, *, saturation_per_s: float, start_per_s: float, step: float) -> tuple[float, float]:
    """A rate that holds and one that fails, found in growing steps from the first rate."""
    rate = start_per_s
    if search.at(rate).holds:
        while search.at(rate * step).holds:
            rate, step = rate * step, step * STEP
        return rate, rate * step
    if search.at(rate / step).holds:
        return rate / step, rate
    # Before a long way down, a short run says whether there is anything at its end.
    idle = IDLE_SHARE * saturation_per_s
    alone = simulate_rate(search.served, samples=search.samples[:1], rate_per_s=idle, objectives=search.objectives)
    if not alone.holds:
        raise _misses_idle(alone)
    rate = rate / step
    while rate > idle:
        step *= STEP
        if search.at(rate / step).holds:
            return rate / step, rate
        rate /= step
    raise _misses_idle(search.at(rate))


def _misses_idle(point: RatePoint) -> InfeasibleError:
    worst = max(point.objectives, key=lambda check: check.excess, default=None)
    if worst is None or worst.holds:
        return InfeasibleError("even an idle deployment does not keep up", field=Option("slo"), code="saturated")
    objective = worst.objective
    if not isfinite(worst.value_s):
        return InfeasibleError(
            f"an idle deployment leaves {point.unanswered_fraction:.2g} of the requests without an answer",
            field=Option("slo"),
            code="objective",
            hint="they are longer than its context or cache, or take longer than workload.timeout_s",
        )
    return InfeasibleError(
        f"{objective.metric.upper()} p{objective.percentile:g} of an idle deployment is {worst.value_s:.4g} s, above "
        f"{objective.bound_s:g} s",
        field=Option("slo"),
        code="objective",
        hint="loosen the bound, or use faster hardware, more tensor parallelism or a smaller model",
    )


def _bisect(search: RateSearch, *, bracket: tuple[float, float]) -> tuple[float, float]:
    low, high = bracket
    while high / low > 1 + RESOLUTION:
        middle = sqrt(low * high)
        if search.at(middle).holds:
            low = middle
        else:
            high = middle
    return low, high


def _seed_rate(points: Sequence[RatePoint], *, seed: int, low: float) -> float:
    """Where one run's worst percentile crosses its bound: log-linear between the visited rates next to it [1/s]."""
    rates = [log(point.rate_per_s) for point in points]
    excess = [point.excess_of(seed) for point in points]
    for before in range(len(points) - 1):
        here, there = excess[before], excess[before + 1]
        if here <= 1 < there and points[before + 1].rate_per_s >= low / STEP:
            if not np.isfinite(there) or here <= 0:
                return points[before].rate_per_s
            share = -log(here) / (log(there) - log(here))
            return exp(rates[before] + share * (rates[before + 1] - rates[before]))
    return low


def student_80(freedom: int) -> float:
    """Student's t that leaves 10 % on either side, for 1 or more degrees of freedom; beyond 10 the normal deviate."""
    return _STUDENT_80[freedom - 1] if freedom <= len(_STUDENT_80) else _NORMAL_80


def _seed_interval(points: Sequence[RatePoint], *, seeds: int, rate_per_s: float) -> tuple[float, float]:
    """80 % interval of the mean capacity from the capacities of single runs (Student's t in log rate)."""
    logs = np.log([_seed_rate(points, seed=seed, low=rate_per_s) for seed in range(seeds)])
    half = student_80(seeds - 1) * float(logs.std(ddof=1)) / sqrt(seeds) if seeds > 1 else 0.0
    # A capacity is known to the resolution of the search at best.
    half = max(half, RESOLUTION)
    return rate_per_s * exp(-half), rate_per_s * exp(half)


def affordable_requests(*, seeds: int, osl_tokens: float) -> float:
    """Requests of a run that ``seeds`` such runs may have where their answers are long."""
    return MOST_TOKENS / (seeds * max(osl_tokens, 1.0))


def requests_for(sequences: float, *, affordable: float = inf, percentile: float = 95.0) -> int:
    """Requests of a run long enough to fill the batches many times over, which hold that many ``sequences``, and with
    as many beyond a higher ``percentile`` as LEAST_REQUESTS have beyond p95; fewer where no more are ``affordable``."""
    fewest, beyond = FEWEST_TIMES * sequences, max((100 - 95) / max(100 - percentile, 1 / MOST_REQUESTS), 1.0)
    wanted = min(max(COMPANY_TIMES * sequences, LEAST_REQUESTS * beyond), max(MOST_REQUESTS, fewest))
    return int(min(wanted, max(affordable, fewest, FEWEST_REQUESTS)))


def _queue_requests(capacity: SimulatedCapacity, objectives: tuple[ObjectiveSpec, ...]) -> int:
    """Requests of a run in which a queue that grows by RESOLUTION of the arrivals passes the bound that it counts in;
    in shorter ones a rate beyond saturation holds (13 % beyond in 2,000 under a TTFT of 10 s). 0 where no queue limits.
    """
    if capacity.binding is not None and (
        capacity.binding.metric == "tpot" or capacity.rate_per_s < NEAR_SATURATION * capacity.saturation_per_s
    ):
        return 0
    bound_s = min((item.bound_s for item in objectives if item.metric != "tpot"), default=inf)
    return int(min(bound_s * capacity.rate_per_s / RESOLUTION, LONGEST_REQUESTS / capacity.seeds))


def _found(search: RateSearch, *, guess: SteadyGuess, low: float, high: float) -> SimulatedCapacity:
    points = tuple(search.points[rate] for rate in sorted(search.points))
    seeds = len(search.samples)
    low_rate, high_rate = _seed_interval(points, seeds=seeds, rate_per_s=low)
    failing = search.points[high]
    return SimulatedCapacity(
        rate_per_s=low,
        low_per_s=low_rate,
        high_per_s=high_rate,
        failing_per_s=high,
        binding=None if all(check.holds for check in failing.objectives) else failing.binding,
        steady_per_s=guess.rate_per_s,
        saturation_per_s=guess.saturation_per_s,
        points=points,
        seeds=seeds,
        requests=len(search.samples[0]),
        search=search,
    )


def searched_capacity(
    served: Served,
    *,
    guess: SteadyGuess,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    lanes_in_all: int,
    affordable: float = inf,
    seeds: int = 5,
    first_seed: int = 0,
    requests: int | None = None,
    progress: Progress | None = None,
) -> SimulatedCapacity:
    """The highest mean rate at which every objective holds and the queue does not grow [1/s].

    All rates meet the same requests, closer together or further apart, so that the search is free of noise between
    rates; percentiles are over all ``seeds`` runs of ``requests`` each, warm-up left out. Without ``requests`` the runs
    are long enough for the batch at capacity, which ``lanes_in_all`` share; where the first ``guess`` of it was too
    small, or only longer ones would show a queue that grows, the search goes on from its answer with those. Raises
    InfeasibleError where even an idle deployment misses an objective.
    """

    def found(count: int, *, start_per_s: float, step: float, pooled: bool = False) -> SimulatedCapacity:
        search = RateSearch(
            served=served,
            samples=[source(count, first_seed + seed) for seed in range(seeds)],
            objectives=objectives,
            progress=progress,
            expected=2 + ceil(log2(log(step) / RESOLUTION)),
            points={},
            pooled=pooled,
        )
        bracket = _bracket(search, saturation_per_s=guess.saturation_per_s, start_per_s=start_per_s, step=step)
        low, high = _bisect(search, bracket=bracket)
        return _found(search, guess=guess, low=low, high=high)

    strictest = max((item.percentile for item in objectives), default=0.0)
    count = requests or requests_for(guess.mean_sequences, affordable=affordable, percentile=strictest)
    capacity = found(count, start_per_s=guess.rate_per_s, step=STEP)
    if requests is not None:
        return capacity
    filled = requests_for(capacity.at_capacity.mean_batch * lanes_in_all, affordable=affordable)
    longer = max(filled, min(_queue_requests(capacity, objectives), int(affordable)))
    if longer <= LONGER * count:
        return capacity
    queued = longer > filled
    start_per_s = min(capacity.rate_per_s, guess.saturation_per_s) if queued else capacity.rate_per_s
    return found(longer, start_per_s=start_per_s, step=SMALL_STEP, pooled=queued)


_ANY_RATE_PER_S = 1.0


def _stages(workload: WorkloadSpec, count: int) -> tuple[StageSpec, ...]:
    """The workload's stages in the same proportions, as long as it takes to send about ``count`` requests."""
    count = -(-count // workload.answers_per_request)
    if not workload.stages:
        return (StageSpec(rate_per_s=_ANY_RATE_PER_S, duration_s=count / _ANY_RATE_PER_S),)
    factor = count / sum(stage.rate_per_s * stage.duration_s for stage in workload.stages)
    # Not validated anew: at a very high rate they are shorter than a user's own stage may be.
    return tuple(stage.model_copy(update={"duration_s": stage.duration_s * factor}) for stage in workload.stages)


def workload_source(workload: WorkloadSpec, *, block_size_tokens: int, context_tokens: float = inf) -> RequestSource:
    """A function from (count, seed) to about ``count`` requests; those of a trace do not depend on the seed."""
    if workload.arrival == "trace" and workload.trace is None:
        raise missing_field("arrival trace needs the file", field="workload.trace")

    def source(count: int, seed: int) -> Requests:
        staged = workload.model_copy(update={"stages": _stages(workload, count), "seed": seed})
        return build_requests(staged, block_size_tokens=block_size_tokens, context_tokens=context_tokens)

    return source


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityInterval:
    """80 % interval of a capacity [1/s]; ``low`` is 0 where slower steps miss an objective even when idle.

    log_sigma : of log(measured / predicted) of step times, the engine's own spread included
    provenance : how well the worse of the two kinds of step is known
    """

    low_per_s: float
    high_per_s: float
    log_sigma: float
    provenance: Provenance


def interval_of(
    capacity: SimulatedCapacity, *, log_sigma: float, provenance: Provenance, at_scale: Callable[[float], float]
) -> CapacityInterval:
    """The interval of a capacity; ``at_scale`` searches again with all steps that many times as long [1/s]."""
    rate = capacity.rate_per_s
    slow, fast = (at_scale(exp(sign * DEVIATE * log_sigma)) for sign in (1, -1))
    chance_low, chance_high = log(rate / capacity.low_per_s), log(capacity.high_per_s / rate)
    low = 0.0 if slow <= 0 else rate * exp(-sqrt(max(log(rate / slow), 0.0) ** 2 + chance_low**2))
    high = rate * exp(sqrt(max(log(fast / rate), 0.0) ** 2 + chance_high**2)) if fast > 0 else capacity.high_per_s
    return CapacityInterval(low_per_s=low, high_per_s=high, log_sigma=log_sigma, provenance=provenance)
