"""The load that would verify a planned replica: its share of the peak, with the planned lengths, long enough."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from statistics import NormalDist

import numpy as np

from simulator.planner.fleet.records import Fleet
from simulator.planner.records import Demand
from simulator.traffic.lengths import LengthDistribution, RequestMix

_STAYS = 5
"""Stays of a request, at its 95th percentile, that a measurement lasts; its warm-up lasts one."""
_LEAST_PROMPTS = 200
_QUANTILES = 200


def shared_tokens(mix: RequestMix) -> int:
    """Tokens of one prefix that all prompts begin with, which makes the planned share of hits."""
    prompt = max(1, round(mix.isl.mean_tokens))
    return min(prompt - 1, round(mix.prefix_hit_fraction * mix.isl.mean_tokens))


def sent_rate_per_s(fleet: Fleet, demand: Demand) -> float:
    """Rate of a load test: one replica's share of the peak, all of it where two pools are loaded together [1/s]."""
    return demand.planned_rate_per_s / (1 if len(fleet.pools) > 1 else fleet.replicas)


def measured_s(fleet: Fleet) -> float:
    """How long the measurement lasts [s]."""
    return _STAYS * fleet.degraded.e2e_p95_s


def sent_requests(fleet: Fleet, demand: Demand) -> tuple[int, int]:
    """Requests of the warm-up and of the measurement, of several answers to a prompt those to whole prompts."""
    rate, each = sent_rate_per_s(fleet, demand), demand.answers_per_request
    warm_up, measured = rate * fleet.degraded.e2e_p95_s, max(_LEAST_PROMPTS, ceil(rate * measured_s(fleet)))
    return max(1, ceil(warm_up / each)) * each, ceil(measured / each) * each


def sent_mix(demand: Demand) -> RequestMix:
    """What the client sends: prompts that several answers share are found by all but the first of these."""
    hit = demand.mix.prefix_hit_fraction
    return replace(demand.mix, prefix_hit_fraction=max(0.0, 1 - (1 - hit) * demand.answers_per_request))


def new_tokens(mix: RequestMix) -> list[int]:
    """Lengths of what is new of a prompt, each as likely as the others."""
    return sent_tokens(mix.isl, share=1 - shared_tokens(mix) / mix.isl.mean_tokens)


def sent_tokens(lengths: LengthDistribution, *, share: float = 1.0) -> list[int]:
    """Lengths at evenly spaced probabilities, each multiplied by ``share`` and at least 1; one where all are alike."""
    deviates = [NormalDist().inv_cdf((place + 1 / 2) / _QUANTILES) for place in range(_QUANTILES)]
    values = np.maximum(1, np.rint(share * lengths.at(np.array(deviates)))).astype(int)
    found: list[int] = (values if lengths.cv else values[:1]).tolist()
    return found
