"""Requests that differ in prompt, answer, moment of arrival and company, evenly spread instead of drawn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from simulator.engine.lengths import Array, normal_points, uniform_points
from simulator.engine.load_curve import LoadCurve
from simulator.engine.occupancy import LaneState
from simulator.engine.prompt_steps import prompt_steps, window_factor

SAMPLES = 256
_EPSILON = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


class _Row(IntEnum):
    """Which row of the evenly spread points drives what."""

    ANSWER = 0
    PROMPT = 1
    RESIDUAL = 2
    SLOT_WAIT = 3
    BUDGET_WAIT = 4
    OCCUPANCY = 5
    PROMPT_SHARE = 6
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


def sampled_requests(curve: LoadCurve, lane: LaneState) -> RequestSamples:
    """TTFT, TPOT and decode time of the same 256 requests at every rate."""
    ttft_s = _ttft_s(curve, lane)
    answers = curve.mix.osl.at(normal_points(SAMPLES)[_Row.ANSWER])
    if curve.mix.decode_steps == 0 or curve.slots == 0:
        return RequestSamples(ttft_s=ttft_s, tpot_s=np.zeros_like(ttft_s), decode_s=np.zeros_like(ttft_s))
    # Few points of a long tail miss its mean a little; scaling them back keeps Little's law exact.
    steps = (answers - 1) * (curve.mix.decode_steps / (answers - 1).mean())
    tpot_s = _tpot_s(curve, lane, decode_steps=np.maximum(steps, 1.0))
    return RequestSamples(ttft_s=ttft_s, tpot_s=tpot_s, decode_s=steps * tpot_s)


def _tpot_s(curve: LoadCurve, lane: LaneState, *, decode_steps: Array) -> Array:
    """TPOT of sampled requests: how full the lane was during each, and how many prompts it happened to meet [s].

    Occupancy and the share of prompt steps, averaged over a request's stay, vary less the longer it stays.
    """
    occupancy, rates = lane.occupancy, lane.rates_per_s[:, None]
    normal = normal_points(SAMPLES)
    stay_s = decode_steps * lane.steps.step_s[:, None]
    # Crowding slows departures, so that a full lane stays full for longer than one mean stay.
    slowing = (occupancy.mean / np.maximum(np.maximum(occupancy.variance, occupancy.mean), _TINY))[:, None]
    deviation = np.sqrt(occupancy.variance[:, None] * window_factor(slowing * decode_steps / curve.mix.decode_steps))
    seen = np.minimum(occupancy.mean + 1, curve.slots)[:, None] + deviation * normal[_Row.OCCUPANCY]
    steps = prompt_steps(curve, sequences=np.clip(seen, 1.0, curve.slots), rates_per_s=rates)
    spread = np.sqrt(steps.time_share * (1 - steps.time_share) * window_factor(stay_s / steps.relaxation_s))
    return steps.step_at(np.clip(steps.time_share + spread * normal[_Row.PROMPT_SHARE], 0.0, 1.0))


def _ttft_s(curve: LoadCurve, lane: LaneState) -> Array:
    """TTFT of sampled requests: host, steps in flight and scheduled ahead, slot, budget, own and shared prompts [s]."""
    mix, limits, occupancy, steps = curve.mix, curve.limits, lane.occupancy, lane.steps
    uniform, normal = uniform_points(SAMPLES), normal_points(SAMPLES)
    prompts = mix.isl.at(normal[_Row.PROMPT])
    chunks = np.maximum(prompts * mix.new_prompt_tokens / mix.isl.mean_tokens / limits.batched_tokens, 1.0)
    own_s = steps.decode_s[:, None] * chunks + steps.prefill_s[:, None] * prompts / mix.isl.mean_tokens
    in_flight_s = _in_flight_s(lane)
    # The step scheduled ahead comes whole; its own prompts are counted with the company below.
    ahead_s = lane.busy[:, None] * (in_flight_s * uniform[_Row.RESIDUAL] + steps.decode_s[:, None])
    slot_s = _delayed_s(uniform[_Row.SLOT_WAIT], occupancy.wait_probability, occupancy.conditional_wait_s)
    conditional_s = lane.budget_wait_s / np.maximum(lane.budget_load, _TINY)
    budget_s = _delayed_s(uniform[_Row.BUDGET_WAIT], np.minimum(lane.budget_load, 1.0), conditional_s)
    host_s = limits.request_s + limits.prompt_token_s * prompts
    ttft_s: Array = host_s + ahead_s + slot_s + budget_s + own_s + _company_s(curve, lane, in_flight_s=in_flight_s)
    return ttft_s


def _in_flight_s(lane: LaneState) -> Array:
    """Length of the step that an arrival falls into: plain or with prompts, and then more likely with long ones [s]."""
    steps = lane.steps
    log_variance = np.log1p(steps.size_variance)[:, None]
    # Weighting a log-normal by its size shifts it up by its log-variance.
    size = np.exp(np.sqrt(log_variance) * normal_points(SAMPLES)[_Row.IN_FLIGHT_SIZE] + log_variance / 2)
    size = np.minimum(size, np.maximum(1 + lane.room_prompts, 1.0)[:, None])
    carries_prompts = uniform_points(SAMPLES)[_Row.IN_FLIGHT_KIND] < steps.time_share[:, None]
    prompts_s = (steps.prompt_step_s - steps.decode_s)[:, None] * size
    in_flight_s: Array = steps.decode_s[:, None] + np.where(carries_prompts, prompts_s, 0.0)
    return in_flight_s


def _company_s(curve: LoadCurve, lane: LaneState, *, in_flight_s: Array) -> Array:
    """What others' prompts add: none, or a log-normal with the two moments of a compound Poisson sum [s]."""
    rates = lane.rates_per_s[:, None]
    own = np.minimum(rates * in_flight_s, lane.room_prompts[:, None])
    count = np.maximum(lane.busy[:, None] * (rates * lane.steps.step_s[:, None] + own), _EPSILON)
    some = -np.expm1(-count)
    square_ratio = (1 + (1 + curve.mix.isl.cv**2) / count) * some
    log_variance = np.log(np.maximum(square_ratio, 1.0))
    normal = normal_points(SAMPLES)[_Row.COMPANY_SIZE]
    prompts = count / some * np.exp(np.sqrt(log_variance) * normal - log_variance / 2)
    met = uniform_points(SAMPLES)[_Row.COMPANY] < some
    company_s: Array = np.where(met, prompts, 0.0) * lane.steps.prefill_s[:, None]
    return company_s


def _delayed_s(uniform: Array, wait_probability: Array, conditional_mean_s: Array) -> Array:
    """Exponential waits of those that wait, at stratified points: [rates, SAMPLES] [s]."""
    finite_s = np.where(np.isfinite(conditional_mean_s), conditional_mean_s, 0.0)
    ratio = np.maximum(wait_probability, _TINY)[:, None] / (1 - uniform)
    waits: Array = np.where(ratio > 1, finite_s[:, None] * np.log(ratio), 0.0)
    return waits
