"""Requests that differ in prompt, answer, moment of arrival and company, evenly spread instead of drawn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np

from simulator.engine.lanes.occupancy import LaneState
from simulator.engine.lanes.prompt_steps import HIGHEST_LOAD, window_factor
from simulator.engine.lanes.queueing import arrivals_after_one
from simulator.traffic.lengths import Array, RequestMix, normal_points, uniform_points

SAMPLES = 256
_DEVIATES = 2048
_EPSILON = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


class _Row(IntEnum):
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
class RequestSamples:
    """Latencies of the sampled requests [rates, SAMPLES] [s]; E2E = TTFT + decode_s."""

    ttft_s: Array
    tpot_s: Array
    decode_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrivals:
    """What the sampled requests meet until their first token [rates, SAMPLES] [s].

    ttft_s : in all; joined_s : from the end of the step in flight at arrival (or from arrival where none is)
    """

    ttft_s: Array
    joined_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """Of the sampled requests: prompt tokens, those that are computed, and steps after the first token [SAMPLES]."""

    prompt_tokens: Array
    new_tokens: Array
    decode_steps: Array


@lru_cache(maxsize=64)
def _lengths(mix: RequestMix) -> _Lengths:
    """The same requests meet every lane of a plan."""
    prompts = mix.isl.at(normal_points(SAMPLES)[_Row.PROMPT])
    steps = np.zeros(SAMPLES)
    if mix.decode_steps > 0:
        answers = mix.osl.at(normal_points(SAMPLES)[_Row.ANSWER])
        # Few points of a long tail miss its mean a little; scaling them back keeps Little's law exact.
        steps = (answers - 1) * (mix.decode_steps / (answers - 1).mean())
    return _Lengths(
        prompt_tokens=prompts,
        new_tokens=np.maximum(prompts * (mix.new_prompt_tokens / mix.isl.mean_tokens), 1.0),
        decode_steps=steps,
    )


def sampled_prompts(mix: RequestMix) -> tuple[Array, Array]:
    """Tokens of the prompts of the sampled requests, and those of them that are computed [SAMPLES]."""
    lengths = _lengths(mix)
    return lengths.prompt_tokens, lengths.new_tokens


def sampled_queue_waits_s(*, probability: Array, conditional_mean_s: Array) -> Array:
    """Waits of the sampled requests: exponential for those that wait, none for the others [rates, SAMPLES] [s]."""
    return _delayed_s(uniform_points(SAMPLES)[_Row.BUDGET_WAIT], probability, conditional_mean_s)


def sampled_requests(lane: LaneState) -> RequestSamples:
    """TTFT, TPOT and decode time of the same 256 requests in every row."""
    mix = lane.rows.mix
    arrivals = _arrivals(lane)
    if not lane.rows.decodes:
        nothing = np.zeros_like(arrivals.ttft_s)
        return RequestSamples(ttft_s=arrivals.ttft_s, tpot_s=nothing, decode_s=nothing)
    steps = _lengths(mix).decode_steps
    tpot_s = _tpot_s(lane, decode_steps=np.maximum(steps, 1.0), joined_s=arrivals.joined_s)
    return RequestSamples(ttft_s=arrivals.ttft_s, tpot_s=tpot_s, decode_s=steps * tpot_s)


def _sequences_met(lane: LaneState, *, decode_steps: Array) -> Array:
    """Sequences that decode beside each sampled request, itself included, averaged over its stay.

    Those that join in one batch with it stay with it; occupancy averaged over a stay varies less the longer it is.
    """
    occupancy = lane.occupancy
    # Crowding slows departures, so that a full lane stays full for longer than one mean stay.
    slowing = (occupancy.mean / np.maximum(np.maximum(occupancy.variance, occupancy.mean), _TINY))[:, None]
    stays = slowing * decode_steps / lane.rows.mix.decode_steps
    deviation = np.sqrt(occupancy.variance[:, None] * window_factor(stays))
    slots = lane.rows.slots[:, None]
    mean = np.minimum((occupancy.mean + lane.dispersion)[:, None], slots)
    met: Array = mean + deviation * normal_points(SAMPLES)[_Row.OCCUPANCY]
    np.maximum(met, 1.0, out=met)
    np.minimum(met, slots, out=met)
    return met


def _tpot_s(lane: LaneState, *, decode_steps: Array, joined_s: Array) -> Array:
    """TPOT of sampled requests: their plain steps, and the prompts of those that arrive meanwhile [s].

    Prompts that arrive while a request decodes stretch its steps, which lets more arrive: a busy period that starts
    with its k plain steps, of mean rho b / (1 - rho) and variance lambda b E[W^2] / (1 - rho)^3 beyond them. Steps
    hold what arrived two steps before, so that who arrived during its own prompt's steps counts as well, as far as
    those were longer than usual. A step takes no more than the full budget.

    References
    ----------
    [Kleinrock1975] section 5.8, delay busy period.
    """
    rows, rates = lane.rows, lane.rates_per_s[:, None]
    lanes, mix = rows.lanes, rows.mix
    met = _sequences_met(lane, decode_steps=decode_steps)
    plain_s, prefill_s, full_s = rows.at_each(met, lanes.decode_s, lanes.prefill_s, lanes.full_prompt_s)
    fullest_s = full_s * np.maximum(rows.batched_tokens[:, None] - met, 1.0) / mix.new_prompt_tokens
    load = np.minimum(rates * prefill_s, HIGHEST_LOAD)
    # An answer of two tokens ends before the prompts that came during its own can be in its way.
    before_s = np.where(decode_steps > 1, joined_s - 2 * lane.steps.step_s[:, None], 0.0)
    exposed_s = np.maximum(decode_steps * plain_s + before_s, plain_s)
    added_s = _compound_s(
        uniform_points(SAMPLES)[_Row.LATER_PROMPTS],
        none=np.exp(-rates * exposed_s),
        mean_s=load * exposed_s / (1 - load),
        variance=rates * exposed_s * prefill_s**2 * (1 + mix.isl.cv**2) / (1 - load) ** 3,
    )
    tpot_s: Array = np.minimum(plain_s + added_s / decode_steps, np.maximum(fullest_s, plain_s))
    return tpot_s


def _compound_s(uniform: Array, *, none: Array, mean_s: Array, variance: Array) -> Array:
    """Zero with probability ``none``, else log-normal, with this mean and variance in all [s]."""
    some = np.maximum(1 - none, _EPSILON)
    conditional_s = np.maximum(mean_s / some, _TINY)
    log_variance = np.log(np.maximum((variance + mean_s**2) / (some * conditional_s**2), 1.0))
    place = np.clip((uniform - none) / some, 1 / (2 * SAMPLES), 1 - 1 / (2 * SAMPLES))
    size_s = conditional_s * np.exp(np.sqrt(log_variance) * _normal_deviate(place) - log_variance / 2)
    return np.where(uniform > none, size_s, 0.0)


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
    between: Array = deviates[low] + (place - low) * rises[low]
    return between


def _arrivals(lane: LaneState) -> _Arrivals:
    """TTFT = host + slot + (nothing where idle, else the longer of: alignment with steps, wait for the budget) + own.

    An engine that schedules asynchronously has one step prepared when a request arrives, which it waits out after the
    rest of the one in flight. The step ahead holds who arrived during the step before, the own step who arrives
    during the one in flight.
    """
    rows, occupancy, steps = lane.rows, lane.occupancy, lane.steps
    lanes, mix = rows.lanes, rows.mix
    uniform = uniform_points(SAMPLES)
    prompts, new_tokens = _lengths(mix).prompt_tokens, _lengths(mix).new_tokens
    room = np.maximum(rows.batched_tokens - occupancy.mean, 1.0)[:, None]
    own_s = steps.decode_s[:, None] * np.ceil(new_tokens / room)
    own_s = own_s + lane.costs.added_by_s(new_tokens)
    in_flight_s = _in_flight_s(lane)
    rest_s = in_flight_s * uniform[_Row.RESIDUAL]
    aligned_s = rest_s + steps.decode_s[:, None] + _company_s(lane, in_flight_s=in_flight_s)
    # Nobody waits for the budget of an idle lane, so that those who find it busy wait the more often.
    waits = np.minimum(lane.budget_wait_probability / np.maximum(1 - lane.idle_probability, _EPSILON), 1.0)
    budget_s = _delayed_s(uniform[_Row.BUDGET_WAIT], waits, lane.budget_conditional_s)
    idle = uniform[_Row.SLOTS] < lane.idle_probability[:, None]
    wait_s = np.where(idle, 0.0, np.maximum(aligned_s, budget_s))
    slot_s = _delayed_s(uniform[_Row.SLOTS], occupancy.wait_probability, occupancy.conditional_wait_s)
    host_s = lanes.request_s[rows.of][:, None] + lanes.prompt_token_s[rows.of][:, None] * prompts
    return _Arrivals(ttft_s=host_s + slot_s + wait_s + own_s, joined_s=np.maximum(wait_s - rest_s, 0.0) + own_s)


def _in_flight_s(lane: LaneState) -> Array:
    """Length of the step that an arrival falls into: plain or with prompts, and then more likely with long ones [s]."""
    steps = lane.steps
    log_variance = np.log1p(steps.size_variance)[:, None]
    # Weighting a log-normal by its size shifts it up by its log-variance.
    size = np.exp(np.sqrt(log_variance) * normal_points(SAMPLES)[_Row.IN_FLIGHT_SIZE] + log_variance / 2)
    size = np.minimum(size, np.maximum(1 + lane.room_prompts, 1.0)[:, None])
    recent = arrivals_after_one(steps.time_share, arrival_cv=lane.rows.mix.arrival_cv)
    carries_prompts = uniform_points(SAMPLES)[_Row.IN_FLIGHT_KIND] < recent[:, None]
    prompts_s = (steps.prompt_step_s - steps.decode_s)[:, None] * size
    in_flight_s: Array = steps.decode_s[:, None] + np.where(carries_prompts, prompts_s, 0.0)
    return in_flight_s


def _company_s(lane: LaneState, *, in_flight_s: Array) -> Array:
    """What others' prompts add to the step ahead and to the own one, as far as the budget takes them [s].

    None, or a log-normal with the two moments of a compound Poisson sum; the step in which those of the step ahead
    arrived varies in length itself.
    """
    steps, rates = lane.steps, lane.rates_per_s[:, None]
    room = lane.room_prompts[:, None]
    cv = lane.rows.mix.arrival_cv
    ahead = np.minimum(arrivals_after_one(rates * steps.step_s[:, None], arrival_cv=cv), room + 1)
    count = np.maximum(ahead + np.minimum(arrivals_after_one(rates * in_flight_s, arrival_cv=cv), room), _EPSILON)
    some = -np.expm1(-count)
    length_variance = np.maximum(steps.length_biased_s / steps.step_s - 1, 0.0)[:, None]
    square_ratio = (1 + (1 + lane.rows.mix.isl.cv**2) / count + length_variance * (ahead / count) ** 2) * some
    log_variance = np.log(np.maximum(square_ratio, 1.0))
    normal = normal_points(SAMPLES)[_Row.COMPANY_SIZE]
    prompts = count / some * np.exp(np.sqrt(log_variance) * normal - log_variance / 2)
    met = uniform_points(SAMPLES)[_Row.COMPANY] < some
    company_s: Array = np.where(met, prompts, 0.0) * steps.prefill_s[:, None]
    return company_s


def _delayed_s(uniform: Array, wait_probability: Array, conditional_mean_s: Array) -> Array:
    """Exponential waits of those that wait, at stratified points: [rates, SAMPLES] [s]."""
    finite_s = np.where(np.isfinite(conditional_mean_s), conditional_mean_s, 0.0)
    ratio = np.maximum(wait_probability, _TINY)[:, None] / (1 - uniform)
    waits: Array = np.where(ratio > 1, finite_s[:, None] * np.log(ratio), 0.0)
    return waits
