"""What a replica sustains over lengths of prompts and answers, and where its kernels reach other MFU and MBU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, log

import numpy as np

from simulator.planner.fleet.fleet import Sized
from simulator.planner.records import Candidate, Platform, Rejection
from simulator.planner.search.question import Question
from simulator.planner.serving.shapes import Shape, evaluate
from simulator.records import dataclass
from simulator.traffic.lengths import Array, LengthDistribution, RequestMix

RELATIVE_END = 0.2
"""How far lengths are moved either way, relative to the plan's. Chosen, not measured."""
_SCALES = (1 - RELATIVE_END, 1 - RELATIVE_END / 2, 1.0, 1 + RELATIVE_END / 2, 1 + RELATIVE_END)


def scaled_lengths(lengths: LengthDistribution, factor: float) -> LengthDistribution:
    """A distribution, stretched; no request has less than one token."""
    mean_tokens = min(max(1.0, lengths.mean_tokens * factor), max(lengths.longest_tokens, lengths.mean_tokens))
    return replace(lengths, mean_tokens=mean_tokens).within(lengths.longest_tokens)


def capacities_per_s(
    question: Question,
    sized: Sized,
    *,
    mix: RequestMix | None = None,
    utilization: float | None = None,
    candidate: Candidate | None = None,
) -> tuple[float, ...]:
    """Rates of a replica of each part under another mix, highest load or on changed kernels, 0 where they cannot serve
    [1/s]."""
    policy, tried = question.policy, candidate or sized.evaluated.candidate
    if utilization is not None:
        policy = replace(policy, utilization=utilization)
    evaluated: Callable[..., Shape | Rejection] = evaluate
    if tried.prefill is not None:
        from simulator.planner.serving.disaggregated import evaluate_pools

        evaluated = evaluate_pools
    outcome = evaluated(
        tried, model=question.model, mix=mix or question.demand.mix, objectives=question.objectives, policy=policy
    )
    if isinstance(outcome, Rejection):
        return (0.0,) * len(tried.parts)
    return tuple(part.replica.capacity_per_s for part in outcome.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthCurve:
    """Capacity over the scale of one kind of length, as a share of the planned one.

    Kernels come in whole tiles, waves and captured batch sizes, and capacities are searched in steps, so that single
    lengths jump by one or two percent: a curve of the second degree in logarithms is laid through five of them.
    coefficients : of log(scale) and of its square; served : least and largest scale that can be served at all
    """

    coefficients: tuple[float, float]
    served: tuple[float, float]

    def share(self, scale: float) -> float:
        """Capacity at a scale over that at 1, 0 beyond what can be served. More tokens never count as less work."""
        if not self.served[0] <= scale <= self.served[1]:
            return 0.0
        first, second = self.coefficients
        share = exp(first * log(scale) + second * log(scale) ** 2)
        return max(share, 1.0) if scale < 1 else min(share, 1.0)


def _slopes(x: Array, logarithms: Array) -> tuple[float, float]:
    """Slopes at both ends of ``x``, linear between them and nowhere above 0, whose integral fits best."""
    low, high = float(x.min()), float(x.max())
    of_low, of_high = (high * x - x**2 / 2) / (high - low), (x**2 / 2 - low * x) / (high - low)
    best, least = (0.0, 0.0), float(((logarithms - logarithms.mean()) ** 2).sum())
    for kept in ((0, 1), (0,), (1,)):
        columns = np.stack([np.ones_like(x), *((of_low, of_high)[place] for place in kept)], axis=1)
        found = np.linalg.lstsq(columns, logarithms, rcond=None)[0]
        missed = float(((columns @ found - logarithms) ** 2).sum())
        if (found[1:] <= 0).all() and missed < least:
            slopes = np.zeros(2)
            slopes[list(kept)] = found[1:]
            best, least = (float(slopes[0]), float(slopes[1])), missed
    return best


def fitted_curve(capacities: dict[float, float]) -> LengthCurve:
    """Least squares through positive capacities by scale, never rising: noise must not bend a level curve up."""
    scales, values = np.array(list(capacities)), np.array(list(capacities.values()))
    served = (float(scales.min()), float(scales.max()))
    if len(scales) < 2:
        return LengthCurve(coefficients=(0.0, 0.0), served=served)
    x = np.log(scales)
    low, high = float(x.min()), float(x.max())
    at_low, at_high = _slopes(x, np.log(values))
    return LengthCurve(
        coefficients=((at_low * high - at_high * low) / (high - low), (at_high - at_low) / (2 * (high - low))),
        served=served,
    )


def prompt_curve(question: Question, sized: Sized) -> LengthCurve:
    """Capacity over the scale of prompt lengths."""
    mix = question.demand.mix
    return _curve(question, sized, {scale: replace(mix, isl=scaled_lengths(mix.isl, scale)) for scale in _SCALES})


def answer_curve(question: Question, sized: Sized) -> LengthCurve:
    """Capacity over the scale of answer lengths."""
    mix = question.demand.mix
    return _curve(question, sized, {scale: replace(mix, osl=scaled_lengths(mix.osl, scale)) for scale in _SCALES})


def _curve(question: Question, sized: Sized, mixes: dict[float, RequestMix]) -> LengthCurve:
    found = {scale: capacities_per_s(question, sized, mix=mix)[-1] for scale, mix in mixes.items()}
    return fitted_curve({scale: capacity for scale, capacity in found.items() if capacity > 0})


def _at_speed(platform: Platform, *, compute: float, memory: float) -> Platform:
    """A platform whose arithmetic and memory are that many times as fast. Kernels are priced as shares of these peaks,
    so that this is what another MFU or MBU of theirs comes to; launches, links and the host stay."""
    hardware = platform.hardware
    paced = {"memory_bytes_per_s": hardware.memory_bytes_per_s * memory}
    return replace(platform, hardware=hardware.model_copy(update={**hardware.arithmetic_at(compute), **paced}))


def capacities_at_speed_per_s(
    question: Question, sized: Sized, *, compute: float = 1.0, memory: float = 1.0
) -> tuple[float, ...]:
    """`capacities_per_s` with kernels that reach so many times their MFU and MBU."""
    candidate = sized.evaluated.candidate.on_platforms(lambda item: _at_speed(item, compute=compute, memory=memory))
    return capacities_per_s(question, sized, candidate=candidate)
