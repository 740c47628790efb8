"""Requests of a mix, drawn; the mix of requests, measured; and the same requests at another rate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf
from statistics import NormalDist

import numpy as np

from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.requests import NO_PREFIX, Floats, Ints, Requests, make_requests

PREFIX_GROWTH = 1.02
"""Ratio between neighbouring lengths of cached prefixes; a request takes the one that is nearest to its share."""


def _cached_prefixes(prompts: Ints, *, fraction: float, block_size_tokens: int) -> tuple[Ints, Ints, Ints]:
    """Prefix list of each request, and lists that are beginnings of one another, so that the longest serves all."""
    blocks = np.rint(fraction * prompts / block_size_tokens).astype(np.int64)
    powers = np.arange(1 + int(np.log(max(int(blocks.max()), 1)) / np.log(PREFIX_GROWTH)))
    lengths = np.unique(np.append(PREFIX_GROWTH**powers, (0, blocks.max())).astype(np.int64))
    lists = np.searchsorted((lengths[1:] + lengths[:-1]) / 2, blocks, side="right")
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.concatenate([np.arange(length) for length in lengths])
    return np.where(lengths[lists] > 0, lists, NO_PREFIX), starts, ids


@cache
def _quantiles(count: int) -> Floats:
    """Standard normal deviates at the middle of ``count`` equally likely strata."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse((place + 1 / 2) / count) for place in range(count)])


def _even_normals(count: int, rng: np.random.Generator) -> Floats:
    """Those deviates in random order.

    Samples then do not differ in their lengths, only in who comes when: otherwise one huge prompt would be most of what
    differs between seeds.
    """
    return rng.permutation(_quantiles(count))


def _even_tokens(lengths: LengthDistribution, *, count: int, rng: np.random.Generator) -> Ints:
    if lengths.cv == 0:
        return np.full(count, max(1, round(lengths.mean_tokens)), dtype=np.int64)
    return np.maximum(np.rint(lengths.at(_even_normals(count, rng))), 1).astype(np.int64)


def requests_of_mix(
    mix: RequestMix, *, rate_per_s: float, count: int, seed: int, block_size_tokens: int = 16
) -> Requests:
    """``count`` requests with gamma gaps of the mix's burstiness and lengths that are the quantiles of their
    distribution in random order; the same for the same seed.

    The share of prompt tokens that the mix finds in the prefix cache are whole blocks of one shared text (rounded),
    as long as the cache keeps them.
    """
    rng = np.random.default_rng([seed, count])
    shape = 1 / mix.arrival_cv**2
    arrival_s = np.cumsum(rng.gamma(shape, 1 / (shape * rate_per_s), count))
    prompts, outputs = (_even_tokens(lengths, count=count, rng=rng) for lengths in (mix.isl, mix.osl))
    if mix.context_tokens < inf:
        outputs = np.maximum(np.minimum(outputs, int(mix.context_tokens) - prompts), 1)
    if mix.prefix_hit_fraction == 0:
        return make_requests(arrival_s=arrival_s, prompt_tokens=prompts, output_tokens=outputs)
    lists, starts, ids = _cached_prefixes(
        prompts, fraction=mix.prefix_hit_fraction, block_size_tokens=block_size_tokens
    )
    return make_requests(
        arrival_s=arrival_s,
        prompt_tokens=prompts,
        output_tokens=outputs,
        prefix_list=lists,
        list_start=starts,
        block_ids=ids,
    )


def mix_of_requests(requests: Requests) -> RequestMix:
    """Means and coefficients of variation of requests; what the prefix cache will find is not known and left out."""

    def measured(tokens: Ints) -> LengthDistribution:
        return LengthDistribution(mean_tokens=float(tokens.mean()), cv=float(tokens.std() / tokens.mean()))

    return RequestMix(isl=measured(requests.prompt_tokens), osl=measured(requests.output_tokens))


def mean_rate_per_s(requests: Requests) -> float:
    """Requests over the time in which they are sent [1/s]."""
    return len(requests) / max(float(requests.stage_end_s[-1]), float(np.finfo(np.float64).tiny))


def at_rate(requests: Requests, *, rate_per_s: float) -> Requests:
    """The same requests in the same pattern at another mean rate: common random numbers across rates."""
    factor = mean_rate_per_s(requests) / rate_per_s
    return replace(requests, arrival_s=requests.arrival_s * factor, stage_end_s=requests.stage_end_s * factor)
