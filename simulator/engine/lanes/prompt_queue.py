"""A lane that only computes prompts, as a prefill pool's do: steps as full as what waits makes them, and the wait.

Whoever comes during a step is computed in the next one, as far as the token budget goes. Waits follow from how a step
grows with its prompts, and from how evenly these come: in turns each of k lanes gets every k-th. Requests that differ
in prompt, answer, moment of arrival and company are evenly spread instead of drawn.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from functools import cache, lru_cache
from math import erf, log1p, sqrt
from statistics import NormalDist

import numpy as np

from simulator.engine.lanes.load_curve import LoadCurve
from simulator.engine.lanes.queueing import wait_probability
from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix, normal_points, uniform_points

SAMPLES = 256


_DEVIATES = 2048


class Draw(IntEnum):
    """Which row of the evenly spread points drives what."""

    ANSWER = 0
    PROMPT = 1
    RESIDUAL = 2
    SLOTS = 3
    BUDGET_WAIT = 4
    OCCUPANCY = 5
    LATER_PROMPTS = 6
    IN_FLIGHT_KIND = 7
    COMPANY = 8
    COMPANY_SIZE = 9
    IN_FLIGHT_SIZE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLengths:
    """Lengths of sampled requests: prompt tokens, those computed, and steps after the first token [SAMPLES]."""

    prompt_tokens: Array
    new_tokens: Array
    decode_steps: Array


@lru_cache(maxsize=64)
def sampled_lengths(mix: RequestMix) -> SampledLengths:
    """Lengths of sampled requests; every lane of a plan meets the same ones."""
    prompts = mix.isl.at(normal(Draw.PROMPT))
    steps = np.zeros(SAMPLES)
    if mix.decode_steps > 0:
        answers = mix.osl.at(normal(Draw.ANSWER))
        # Few points of a long tail miss its mean a little; scaling them back keeps Little's law exact.
        steps = np.minimum(
            (answers - 1) * (mix.decode_steps / (answers - 1).mean()), np.maximum(mix.context_tokens - prompts - 1, 0.0)
        )
    return SampledLengths(
        prompt_tokens=prompts,
        new_tokens=np.maximum(prompts * (mix.new_prompt_tokens / mix.isl.mean_tokens), 1.0),
        decode_steps=steps,
    )


@lru_cache(maxsize=64)
def company_correlation(mix: RequestMix) -> Array:
    """Correlation of how many arrive during each sampled answer with how many decode beside it on average [SAMPLES].

    Poisson arrivals that stay for S, seen for a time T: an arrival at t is there for min(S, T - t) of it, which gives
    the covariance E[T m - m^2 / 2] / T with m = min(S, T), and the average a variance of
    2 E[T S m - (T + S) m^2 / 2 + m^3 / 3] / T^2, both for one arrival a unit of time. 0.61 where all stay equally long.

    Reference: [Kleinrock1975] section 3.4, an unlimited number of servers.
    """
    stays = np.maximum(sampled_lengths(mix).decode_steps, 1.0)
    own, others = stays[:, None], stays[None, :]
    met = np.minimum(own, others)
    covariance = (own * met - met**2 / 2).mean(axis=1)
    square = (own * others * met - (own + others) * met**2 / 2 + met**3 / 3).mean(axis=1)
    correlation: Array = covariance / np.sqrt(2 * stays * square)
    return correlation


def batch_dispersion(mix: RequestMix, *, load: Array, ranks: Array | float = 1.0) -> Array:
    """Variance over mean of the decoding sequences that arrivals and prompt steps cause, for a step time without slope.

    While prompts are computed nobody finishes, but others arrive: seen by the decoding sequences, requests join in
    batches B as large as the number served in a busy period of prompts, E[B^2] / E[B] = (1 + rho c^2) / (1 - rho)^2
    for Poisson arrivals. For batches that join an unlimited lane, variance over mean is
    1 + (E[B^2] / E[B] - 1) E[min(O, O')] / E[O], where O and O' are two answers: of log-normal ones 1 - erf(s / 2) with
    s^2 their log-variance. Other arrivals than Poisson enter by their squared coefficient of variation (heuristic).
    Of ``ranks`` that take turns each gets every so-manyth request of a batch.

    Reference: [Kleinrock1975] section 5.9, number served in a busy period; [Tijms2003] section 1.1.3, batch arrivals.
    """
    square_ratio = (mix.arrival_cv**2 + load * mix.isl.cv**2) / (1 - load) ** 2 / ranks
    overlap = 1 - erf(sqrt(log1p(mix.osl.cv**2)) / 2)
    return np.maximum(1 + (square_ratio - 1) * overlap, _LEAST_DISPERSION)


@lru_cache(maxsize=64)
def prompt_lengths(mix: RequestMix) -> Array:
    """New tokens of evenly spread prompts; every lane of a plan serves the same."""
    return mix.isl.at(normal_points(_LENGTHS)[0]) * (mix.new_prompt_tokens / mix.isl.mean_tokens)


def uniform(draw: Draw) -> Array:
    """Evenly spread numbers in (0, 1) of the sampled requests [SAMPLES]."""
    points: Array = uniform_points(SAMPLES)[draw]
    return points


def normal(draw: Draw) -> Array:
    """Standard normal deviates of one draw [SAMPLES]."""
    points: Array = normal_points(SAMPLES)[draw]
    return points


def compound_s(draw: Draw, *, none: Array, mean_s: Array, variance: Array) -> Array:
    """Zero with probability ``none``, else log-normal, with this mean and variance in all [s]."""
    some = np.maximum(1 - none, _EPSILON)
    conditional_s = np.maximum(mean_s / some, np.sqrt(_TINY))  # its square is a number still
    log_variance = np.log(np.maximum((variance + mean_s**2) / (some * conditional_s**2), 1.0))
    place = np.clip((uniform(draw) - none) / some, 1 / (2 * SAMPLES), 1 - 1 / (2 * SAMPLES))
    size_s = conditional_s * np.exp(np.sqrt(log_variance) * _normal_deviate(place) - log_variance / 2)
    return np.where(uniform(draw) > none, size_s, 0.0)


@cache
def _deviates() -> tuple[Array, Array]:
    """Standard normal deviates in the middle of evenly spaced probabilities, and how far it is to the next."""
    grid = (np.arange(_DEVIATES) + 1 / 2) / _DEVIATES
    inverse = NormalDist().inv_cdf
    deviates = np.array([inverse(float(value)) for value in grid])
    return deviates, np.diff(deviates)


def _normal_deviate(probability: Array) -> Array:
    """Standard normal deviate at each probability, from a table."""
    deviates, rises = _deviates()
    place = np.minimum(np.maximum(probability * _DEVIATES - 1 / 2, 0.0), _DEVIATES - 1)
    low = np.minimum(place.astype(np.intp), _DEVIATES - 2)
    return deviates[low] + (place - low) * rises[low]


def delayed_s(draw: Draw, *, probability: Array, conditional_mean_s: Array) -> Array:
    """Waits of the sampled requests: exponential for those that wait, none for the others [rates, SAMPLES] [s]."""
    finite_s = np.where(np.isfinite(conditional_mean_s), conditional_mean_s, 0.0)
    ratio = np.maximum(probability, _TINY)[:, None] / (1 - uniform(draw))
    return np.where(ratio > 1, finite_s[:, None] * np.log(ratio), 0.0)


_LENGTHS = 64
_POINTS = 24
_ROUNDS = 2
_FULL_STEPS = 64.0
# Long steps make most of the waits: the time that a prompt adds is taken from the mean step to thrice the one seen.
_TAIL = 3.0
_EPSILON = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
# Arrivals smoother than Poisson damp fluctuations, but steps still start and end at whole requests.
_LEAST_DISPERSION = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBatches:
    """Time over a number of mean prompts, ascending from one to a full step and on to many (arrays of that length).

    step_s : of the step, or of the full steps, that take them [s]; variance : of that time over their lengths [s^2]
    """

    prompts: Array
    step_s: Array
    variance: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedLoad:
    """A lane of prompts at each arrival rate, Poisson arrivals (arrays over rates).

    busy : share of the time; prompt_s : step time per prompt; added_s : what one more adds to the steps seen [s]
    variability : squared coefficient of variation of a prompt's time
    rest_s : of the step in flight; wait_s : until the own step, both for those who find the lane busy [s]
    """

    busy: Array
    prompt_s: Array
    added_s: Array
    variability: Array
    rest_s: Array
    wait_s: Array


def side_by_side(pieces: Array, *, stages: Array | float) -> Array:
    """Share of their times that so many steps of one prompt take, which follow each other through the stages [-]."""
    return (1 + (pieces - 1) / stages) / pieces


def _alone_s(curve: LoadCurve, new_tokens: Array) -> Array:
    """Time of each prompt in steps of its own [s]."""
    chunks = np.ceil(new_tokens * curve.ranks / curve.limits.batched_tokens)
    alone_s: Array = curve.decode_s[0] * chunks + curve.costs.added_by_s(new_tokens, sequences=np.zeros(1))[0]
    return alone_s * side_by_side(chunks, stages=curve.limits.stages)


def prompt_batches(curve: LoadCurve) -> PromptBatches:
    """Steps of one to as many prompts as the budget takes, and full steps, of ``full_prompt_s`` for each prompt. The
    lengths of m prompts together vary 1 / sqrt(m) as much as those of one."""
    tokens = sampled_lengths(curve.mix).new_tokens
    budget, mean_tokens = curve.limits.batched_tokens, tokens.mean()
    most = max(float(budget / mean_tokens), 1.0, float(curve.ranks))
    prompts = np.geomspace(1, most, _POINTS) if most > 1 else np.ones(1)
    if curve.together is not None:
        prompts, step_s = curve.together
    else:
        number = prompts[:, None]
        met = np.maximum(mean_tokens * number * (1 + (tokens / mean_tokens - 1) / np.sqrt(number)), 1.0)
        step_s = curve.decode_s[0] * np.maximum(met / budget, 1.0)
        step_s = step_s + curve.costs.of_several().added_by_s(met, sequences=np.zeros(len(prompts)))
    mean_s = step_s.mean(axis=1)
    # Several prompts do not have each other as context, as one of their length would.
    stages = curve.limits.stages
    missed = float(stages * curve.full_prompt_s[0] * most / mean_s[-1])
    scaled_s = mean_s * missed ** ((prompts - 1) / (most - 1) if most > 1 else np.ones(1))
    # Few points of a long tail miss its variance, by which that of the times is scaled back.
    beyond = (curve.mix.isl.cv * mean_tokens) ** 2 / max(float(tokens.var()), _EPSILON)
    variance = beyond * (step_s.std(axis=1) / mean_s * scaled_s) ** 2
    # What does not fit a step takes full ones.
    full = np.geomspace(1, _FULL_STEPS, _POINTS)[1:]
    # Stages of a pipeline work side by side: the next step starts when the first of them is free.
    return PromptBatches(
        prompts=np.append(prompts, full * prompts[-1]),
        # One that barely fits a step is rounded up to two; more of them are not.
        step_s=np.maximum.accumulate(np.append(scaled_s, full * scaled_s[-1])) / stages,
        variance=np.append(variance, full * variance[-1]) / stages**2,
    )


def _prompts_in_step(batches: PromptBatches, *, rates_per_s: Array, gap_square: Array) -> Array:
    """Mean prompts of a step, of which some are filled by who waited and the others by one that found none running.

    1 / m = 1 - w + w / n, with w the share of arrivals that wait and n the mean number that come during a step in which
    any come: x / (1 - exp(-x)) of Poisson arrivals, x = lambda L, for which that is m = x + exp(-x). Where they come
    more evenly (``gap_square``, of the variability of gaps) fewer wait, and n is between that and max(1, x), as far as
    the variance of the count is below Poisson's.
    """
    expected = rates_per_s[:, None] * batches.step_s
    square, gap = batches.variance / batches.step_s**2, gap_square[:, None]
    load = np.minimum(expected / batches.prompts, 1.0)
    waits = wait_probability(load=load, service_cv=np.sqrt(square * batches.prompts), arrival_cv=np.sqrt(gap))
    poisson = np.maximum(expected / np.maximum(-np.expm1(-expected), _EPSILON), 1.0)
    even = np.maximum(expected, 1.0)
    spread = np.minimum((gap + expected * square) / (1 + expected * square), 1.0)
    together = even + spread * (poisson - even)
    excess = batches.prompts - 1 / (1 - waits + waits / together)
    enough = excess >= 0
    last = len(batches.prompts) - 1
    high = np.where(enough.any(axis=1), enough.argmax(axis=1), last)
    low = np.maximum(high - 1, 0)
    row = np.arange(len(rates_per_s))
    rise = excess[row, high] - excess[row, low]
    share = np.where(rise > 0, -excess[row, low] / np.where(rise > 0, rise, 1.0), 1.0)
    share = np.clip(share, 0.0, 1.0)
    found: Array = batches.prompts[low] + share * (batches.prompts[high] - batches.prompts[low])
    return found


def batched_load(curve: LoadCurve, *, rates_per_s: Array, streams: Array | float = 1.0) -> BatchedLoad:
    """How busy a lane of prompts is, and how long those wait who find it so, if arrivals are Poisson.

    streams : lanes that take turns at the arrivals; their steps then hold fewer prompts each (``_prompts_in_step``)

    A step L of N prompts is a + g N. Those that come during it make the next one, so that its second moment is that of
    a branching sum, E[L^2] (1 - rho^2) = a^2 + 2 a g m + g^2 (lambda L + q) + v m, with rho = lambda g, q the share of
    steps that start with one arrival, and v a prompt's variance. An arrival waits for the rest E[L^2] / 2 L of the step
    in flight and for those of before, rho as much: with a = 0 exactly the mean wait of M/G/1. g is taken where the
    steps are that arrivals see, which are the longer ones.

    Reference: [Kleinrock1975] sections 5.2 (residual life) and 5.6.
    """
    batches = prompt_batches(curve)
    places, most = batches.prompts, float(batches.prompts[-1])

    def at(prompts: Array, values: Array) -> Array:
        return np.interp(prompts, places, values)

    gap_square = np.minimum(curve.mix.arrival_cv**2 / (streams + np.zeros_like(rates_per_s)), 1.0)
    prompts = _prompts_in_step(batches, rates_per_s=rates_per_s, gap_square=gap_square)
    step_s = at(prompts, batches.step_s)
    prompt_s = np.maximum(step_s / prompts, curve.full_prompt_s[0])
    busy = np.minimum(rates_per_s * prompt_s, 1 - _EPSILON)
    alone = prompts * (1 - busy)
    seen, rest_s, added_s, load = prompts, step_s, prompt_s, busy
    for _ in range(_ROUNDS):
        # A step that holds all prompts it can has none beyond it: one more then costs what each of them does.
        more = np.maximum(_TAIL * seen - prompts, 0.0)
        longer_s = at(prompts + more, batches.step_s) - at(prompts, batches.step_s)
        added_s = np.where(more > 0, longer_s / np.where(more > 0, more, 1.0), prompt_s)
        variance = at(seen, batches.variance / places)
        load = np.minimum(rates_per_s * added_s, busy)
        fixed_s = step_s - added_s * prompts
        spread = added_s**2 * (gap_square * rates_per_s * step_s + alone) + variance * prompts
        square = (fixed_s**2 + 2 * fixed_s * added_s * prompts + spread) / (1 - load**2)
        rest_s = np.maximum(square, step_s**2) / (2 * step_s)
        seen = np.clip(2 * rates_per_s * rest_s, prompts, most / _TAIL)
    return BatchedLoad(
        busy=busy,
        prompt_s=prompt_s,
        added_s=added_s,
        variability=at(prompts, batches.variance / places) / prompt_s**2,
        rest_s=rest_s,
        wait_s=rest_s * (1 + load),
    )


def _gap_cv(curve: LoadCurve, *, rates_per_s: Array, streams: Array, seen: Array) -> Array:
    """Variability of the gaps between the arrivals of a lane, every ``streams``-th of the demand's. The front end holds
    each prompt for a time per token, which displaces arrivals that come evenly; the less, the more of them make a step
    (``seen``)."""
    host_s = curve.limits.host_s(sampled_lengths(curve.mix).prompt_tokens)
    demanded = curve.mix.arrival_cv**2
    displaced = 2 * (rates_per_s * host_s.std()) ** 2 / np.maximum(seen, 1.0)
    gap_cv: Array = np.sqrt(np.minimum(demanded / streams + displaced, max(demanded, 1.0)))
    return gap_cv


def _others(time_s: Array, *, rates_per_s: Array, gap_cv: Array) -> Array:
    """``arrivals_after_one`` of an exponential time: 2 x^2 / (v + 2 x), for more of them come in the long ones."""
    expected, missing = rates_per_s * time_s, np.maximum(1 - gap_cv**2, 0.0)
    return 2 * expected**2 / np.maximum(missing + 2 * expected, _TINY)


def prompt_ttft_s(curve: LoadCurve, *, rates_per_s: Array, streams: Array | float = 1.0) -> Array:
    """TTFT of evenly spread requests at each rate of a lane that only computes prompts, [rates, SAMPLES] [s].

    Host time + wait + own step, in which those ride along who come during the rest of the step in flight, as far as
    the budget takes them. streams : lanes that take turns at the arrivals, one for random moments; with k of them the
    gaps of each are sums of k of the demand's, and for Poisson arrivals each is a queue E_k/G/1.

    Who finds the lane busy waits for the rest of its step; of those who come during that step, before or after, each
    makes the own step longer. How many that are, and how much the steps' lengths vary, goes with how evenly they come.

    Range: against the event simulation of 1 to 36 lanes in turns at 0.4 to 0.95 busy (24 cells, a 70B and a DeepSeek-V3
    pool) the mean is within 3 % on average and 8 % at worst, p95 within 9 % and 18 %, mostly too low. Of equal prompts,
    whose waits are bounded, the mean is up to 17 % and p95 up to 42 % too high. Ranks in step (36 random pools): mean
    within 12 % on average, p95 14 %; at worst, prompts of several steps, 61 % too low. Left out: that a cache which is
    too small loses what few prompts share.

    Reference: [Kramer1976]; [Cox1962] section 4.2.
    """
    if curve.ranks > 1:
        # Ranks in step are one lane, whose step is that of the slowest.
        limits = replace(curve.limits, batched_tokens=curve.limits.batched_tokens * curve.ranks)
        curve = replace(curve, limits=limits, full_prompt_s=curve.full_prompt_s / curve.ranks)
        rates_per_s, streams = rates_per_s * curve.ranks, np.maximum(np.asarray(streams) / curve.ranks, 1.0)
    limits, lengths = curve.limits, sampled_lengths(curve.mix)
    lane = batched_load(curve, rates_per_s=rates_per_s, streams=streams)
    every = np.broadcast_to(np.asarray(streams, dtype=np.float64), rates_per_s.shape)
    gap_cv = _gap_cv(curve, rates_per_s=rates_per_s, streams=every, seen=rates_per_s * lane.rest_s)
    waits = wait_probability(load=lane.busy, service_cv=np.sqrt(lane.variability), arrival_cv=gap_cv)
    ahead = _others(lane.rest_s, rates_per_s=rates_per_s, gap_cv=gap_cv)
    ahead_s = (lane.wait_s - lane.rest_s) * ahead / np.maximum(rates_per_s * lane.rest_s, _TINY)
    full_step_s = curve.full_prompt_s[0] * limits.batched_tokens / curve.mix.new_prompt_tokens
    room = max(limits.batched_tokens / float(lengths.new_tokens.mean()) - 1, 0.0)
    rest_s = np.minimum(lane.rest_s, full_step_s / 2)
    behind = np.minimum(_others(rest_s, rates_per_s=rates_per_s, gap_cv=gap_cv), room)
    delay_s = lane.rest_s + ahead_s + behind * lane.added_s
    queued_s = delayed_s(Draw.BUDGET_WAIT, probability=waits, conditional_mean_s=delay_s)
    return limits.host_s(lengths.prompt_tokens) + queued_s + _alone_s(curve, lengths.new_tokens)
