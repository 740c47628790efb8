"""Requests that differ in prompt, answer, moment of arrival and company, evenly spread instead of drawn."""

from __future__ import annotations

from enum import IntEnum
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np

from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix, normal_points, uniform_points

SAMPLES = 256
_DEVIATES = 2048
_EPSILON = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


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
    """Of the sampled requests: prompt tokens, those that are computed, and steps after the first token [SAMPLES]."""

    prompt_tokens: Array
    new_tokens: Array
    decode_steps: Array


@lru_cache(maxsize=64)
def sampled_lengths(mix: RequestMix) -> SampledLengths:
    """The same requests meet every lane of a plan."""
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

    References
    ----------
    [Kleinrock1975] section 3.4, an unlimited number of servers.
    """
    stays = np.maximum(sampled_lengths(mix).decode_steps, 1.0)
    own, others = stays[:, None], stays[None, :]
    met = np.minimum(own, others)
    covariance = (own * met - met**2 / 2).mean(axis=1)
    square = (own * others * met - (own + others) * met**2 / 2 + met**3 / 3).mean(axis=1)
    correlation: Array = covariance / np.sqrt(2 * stays * square)
    return correlation


def uniform(draw: Draw) -> Array:
    """Evenly spread numbers in (0, 1) of the sampled requests [SAMPLES]."""
    points: Array = uniform_points(SAMPLES)[draw]
    return points


def normal(draw: Draw) -> Array:
    """The same as standard normal deviates [SAMPLES]."""
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
    between: Array = deviates[low] + (place - low) * rises[low]
    return between


def delayed_s(draw: Draw, *, probability: Array, conditional_mean_s: Array) -> Array:
    """Waits of the sampled requests: exponential for those that wait, none for the others [rates, SAMPLES] [s]."""
    finite_s = np.where(np.isfinite(conditional_mean_s), conditional_mean_s, 0.0)
    ratio = np.maximum(probability, _TINY)[:, None] / (1 - uniform(draw))
    waits: Array = np.where(ratio > 1, finite_s[:, None] * np.log(ratio), 0.0)
    return waits
