"""Prefill and decode pools in steady state: each pool's own queue, and what a request sees of both.

A prompt waits for its prefill replica and is computed, its KV cache crosses the link, and one sequence joins a decode
replica. Nothing flows back, so that the pools are two queues in a row. Left out: transfers layer by layer while the
prompt is still computed, and that departures of one pool come a little more evenly than requests do.

Reference: [Patel2024a], [Qin2024], [Zhong2024]
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.load_curve import LoadCurve
from simulator.engine.lanes.occupancy import lane_states, rows_of_one
from simulator.engine.lanes.prompt_queue import SAMPLES, prompt_ttft_s, sampled_lengths
from simulator.engine.lanes.queueing import gg1_wait_mean_s
from simulator.engine.lanes.steady_state import RequestSamples, SteadyState, sampled_requests, state_of
from simulator.engine.pools import HAND_OVER_S
from simulator.records import dataclass
from simulator.traffic.lengths import Array, LengthDistribution, RequestMix

_FIELDS = tuple(item.name for item in fields(SteadyState))
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What KV caches move over between the pools.

    name : what it is; token_s : time for the cache of one prompt token [s]; request_s : for a state of a sequence that
    does not grow, as recurrent layers have [s]
    """

    name: str
    token_s: float
    request_s: float = 0.0

    def prompt_s(self, mix: RequestMix) -> float:
        """What a mean prompt takes [s]."""
        return self.request_s + mix.isl.mean_tokens * self.token_s

    def load(self, rate_per_s: Array, *, mix: RequestMix) -> Array:
        """Share of the time in which the link of one prefill replica is taken, at the rate of one of its schedulers."""
        return rate_per_s * self.prompt_s(mix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How KV caches move from a prefill pool to a decode pool.

    link : between the pools; prompt_s : of a mean prompt's cache [s]; token_s : of it for each token [s]
    busy_fraction : of the link of a prefill replica
    """

    link: str
    prompt_s: float
    token_s: float
    busy_fraction: float


def prefill_mix(mix: RequestMix) -> RequestMix:
    """What a prefill replica sees: prompts that end with their first token."""
    return replace(mix, osl=LengthDistribution(mean_tokens=1.0))


def decode_mix(mix: RequestMix) -> RequestMix:
    """What a decode replica sees: requests whose prompts are in its cache."""
    return replace(mix, prefix_hit_fraction=1.0)


def decode_curve(curve: LoadCurve) -> LoadCurve:
    """A lane without prompts: whoever arrives joins the next step, and has passed the front end elsewhere."""
    return replace(
        curve,
        # Not zero: what prompts add is divided by itself.
        prefill_s=_EPSILON * curve.decode_s,
        size_variance=np.zeros_like(curve.size_variance),
        costs=curve.costs.scaled(0.0),
        limits=replace(curve.limits, request_s=0.0, prompt_token_s=0.0, prompts_apart=False),
    )


def prefill_state(curve: LoadCurve, *, rates_per_s: Array, link: Link, streams: Array | float = 1.0) -> SteadyState:
    """A lane of the prefill pool; TTFT ends when the KV cache has arrived at the decode pool [s].

    streams : schedulers that take turns at the arrivals, round robin; one for arrivals at random moments (see
    ``prompt_ttft_s``, which says how well it agrees with the event simulation). The wait for the link is that of a
    single server with Poisson arrivals: an upper bound, for a replica sends no faster than it computes.

    Reference: [Kleinrock1975] section 5.6, mean wait of M/G/1.
    """
    mix = curve.mix
    prompts = sampled_lengths(mix).prompt_tokens
    ttft_s = prompt_ttft_s(curve, rates_per_s=rates_per_s, streams=streams)
    ttft_s = ttft_s + HAND_OVER_S + link.request_s + link.token_s * prompts
    busy = link.load(rates_per_s, mix=mix)
    own_s = link.prompt_s(mix)
    if own_s > 0:
        ttft_s = (
            ttft_s
            + gg1_wait_mean_s(
                arrival_rate_per_s=np.minimum(busy, 1 - _EPSILON) / own_s,
                service_mean_s=own_s,
                service_cv=mix.isl.cv,
                arrival_cv=1.0,
            )[:, None]
        )
    nothing = np.zeros_like(ttft_s)
    requests = RequestSamples(ttft_s=ttft_s, tpot_s=nothing, decode_s=nothing)
    state = state_of(lane_states(rows_of_one(curve, rates_per_s=rates_per_s)), requests)
    saturated = state.saturated | (busy >= 1)
    return replace(state, saturated=saturated, ttft_mean_s=np.where(saturated, np.inf, state.ttft_mean_s))


def decode_state(curve: LoadCurve, *, rates_per_s: Array) -> SteadyState:
    """A lane of the decode pool (see ``decode_curve``): TTFT is the wait to join, E2E the whole stay [s]. Waiting for a
    slot or for the running step delays the second token, so that it counts in TPOT."""
    lane = lane_states(rows_of_one(curve, rates_per_s=rates_per_s))
    requests = sampled_requests(lane)
    state = state_of(lane, requests)
    wait_s = np.maximum(requests.ttft_s - lane.steps.decode_s[:, None], 0.0)
    steps = requests.decode_s / np.maximum(requests.tpot_s, _EPSILON)
    stay_s, tpot_s = wait_s + requests.decode_s, requests.tpot_s + wait_s / np.maximum(steps, 1.0)
    return replace(
        state,
        ttft_mean_s=np.where(state.saturated, np.inf, wait_s.mean(axis=1)),
        tpot_mean_s=np.where(state.saturated, np.inf, tpot_s.mean(axis=1)),
        e2e_mean_s=np.where(state.saturated, np.inf, stay_s.mean(axis=1)),
        sorted_ttft_s=np.sort(wait_s, axis=1),
        sorted_tpot_s=np.sort(tpot_s, axis=1),
        sorted_e2e_s=np.sort(stay_s, axis=1),
    )


@cache
def _scattered() -> NDArray[np.intp]:
    """Places 0..SAMPLES-1 with their binary digits reversed: pairs (i, scattered[i]) fill a square evenly.

    Reference: [Hammersley1964] the two-dimensional set.
    """
    places, digits = np.arange(SAMPLES), SAMPLES.bit_length() - 1
    reverse = np.zeros_like(places)
    for digit in range(digits):
        reverse |= ((places >> digit) & 1) << (digits - 1 - digit)
    return reverse


def rows_at(state: SteadyState, rows: NDArray[np.intp]) -> SteadyState:
    """Some of the rates of a state, in any order."""
    return SteadyState(**{name: getattr(state, name)[rows] for name in _FIELDS})


def both_pools(prefill: SteadyState, decode: SteadyState, *, of_prefill: bool = False) -> SteadyState:
    """What requests see of two pools, rate by rate: TTFT of the first, TPOT of the second, E2E of both in a row. The
    pools' waits do not know of each other. Occupancy and cache are those of the decode or of the prefill pool."""
    base = prefill if of_prefill else decode
    return replace(
        base,
        saturated=prefill.saturated | decode.saturated,
        ttft_mean_s=prefill.ttft_mean_s,
        tpot_mean_s=decode.tpot_mean_s,
        e2e_mean_s=prefill.ttft_mean_s + decode.e2e_mean_s,
        sorted_ttft_s=prefill.sorted_ttft_s,
        sorted_tpot_s=decode.sorted_tpot_s,
        sorted_e2e_s=np.sort(prefill.sorted_ttft_s + decode.sorted_e2e_s[:, _scattered()], axis=1),
    )
