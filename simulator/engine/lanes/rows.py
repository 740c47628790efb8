"""Lanes side by side: load curves of several replicas as arrays, so that one evaluation answers for all of them.

A row is one lane at one arrival rate. What a row comes to depends on its lane and rate alone, not on its company. Steps
that carry prompts are longer: how often they come, how long they are, and what that does to the pace.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from simulator.engine.lanes.load_curve import LoadCurve, held_tokens
from simulator.engine.lanes.pricing import LaneCosts, Places, PromptCostsAt, padded, stack_costs
from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSequence:
    """A quantity of every lane over its sequences n = 0, 1, ..., slots, [lanes, most slots + 1], and its steps up."""

    values: Array
    rises: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Load curves for one mix of requests. Numbers are arrays over the lanes, as in ``LoadCurve`` and ``LaneLimits``.

    held_tokens : of cache that a running sequence holds
    """

    mix: RequestMix
    slots: Places
    batched_tokens: Array
    kv_tokens: Array
    held_tokens: Array
    request_s: Array
    prompt_token_s: Array
    decode_s: PerSequence
    prefill_s: PerSequence
    prompt_step_tokens: PerSequence
    size_variance: PerSequence
    full_prompt_s: PerSequence
    costs: LaneCosts


def _per_sequence(arrays: Sequence[Array]) -> PerSequence:
    values = padded(arrays)
    rises = np.zeros_like(values)
    np.subtract(values[:, 1:], values[:, :-1], out=rises[:, :-1])
    return PerSequence(values=values, rises=rises)


def stack(curves: Sequence[LoadCurve]) -> Lanes:
    """Lanes that serve the same requests, side by side; all of them have slots, or none has."""
    mix, limits = curves[0].mix, [curve.limits for curve in curves]
    return Lanes(
        mix=mix,
        slots=np.array([curve.slots for curve in curves], dtype=np.intp),
        batched_tokens=np.array([float(limit.batched_tokens) for limit in limits]),
        kv_tokens=np.array([limit.kv_tokens for limit in limits]),
        held_tokens=np.array([held_tokens(mix, limits=limit) for limit in limits]),
        request_s=np.array([limit.request_s for limit in limits]),
        prompt_token_s=np.array([limit.prompt_token_s for limit in limits]),
        decode_s=_per_sequence([curve.decode_s for curve in curves]),
        prefill_s=_per_sequence([curve.prefill_s for curve in curves]),
        prompt_step_tokens=_per_sequence([curve.prompt_step_tokens for curve in curves]),
        size_variance=_per_sequence([curve.size_variance for curve in curves]),
        full_prompt_s=_per_sequence([curve.full_prompt_s for curve in curves]),
        costs=stack_costs([curve.costs for curve in curves]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """Lanes at arrival rates, one row each (arrays over rows).

    of : the lane of each row, ascending; rates_per_s : arrivals of that lane [1/s]
    """

    lanes: Lanes
    of: Places
    rates_per_s: Array
    slots: Places
    batched_tokens: Array

    @property
    def mix(self) -> RequestMix:
        """Of the requests that all lanes serve."""
        return self.lanes.mix

    @property
    def decodes(self) -> bool:
        """Whether anything runs beyond its first token."""
        return self.mix.decode_steps > 0 and bool(self.slots.any())

    def part(self, rows: slice) -> LaneRows:
        """Some of the rows."""
        return lane_rows(self.lanes, of=self.of[rows], rates_per_s=self.rates_per_s[rows])

    def at(self, curve: PerSequence, sequences: Array) -> Array:
        """A quantity at one number of sequences in each row, linear between whole numbers."""
        low = np.minimum(np.maximum(sequences, 0.0).astype(np.intp), self.slots)
        beyond = np.minimum(sequences, self.slots) - low
        found: Array = curve.rises[self.of, low] * beyond + curve.values[self.of, low]
        return found

    def at_each(self, sequences: Array, *curves: PerSequence) -> list[Array]:
        """Quantities at many numbers of sequences in each row, [rows, numbers]."""
        low = np.minimum(sequences.astype(np.intp), self.slots[:, None] - 1)
        share = sequences - low
        low += (self.of * curves[0].values.shape[1])[:, None]
        return [curve.values.ravel()[low] + share * curve.rises.ravel()[low] for curve in curves]

    def prompt_costs(self, sequences: Array) -> PromptCostsAt:
        """What prompts cost beside one number of decoding sequences in each row."""
        return self.lanes.costs.at(self.of, sequences)

    def spans(self) -> list[tuple[int, slice]]:
        """Slots of each lane that has rows, and the rows."""
        starts = np.flatnonzero(np.concatenate(([True], self.of[1:] != self.of[:-1])))
        ends = np.append(starts[1:], len(self.of))
        return [
            (int(self.slots[start]), slice(start, end))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]


def lane_rows(lanes: Lanes, *, of: Places, rates_per_s: Array) -> LaneRows:
    """Rows of ``lanes`` at arrival rates [1/s]; ``of``, ascending, says which lane each is of."""
    return LaneRows(
        lanes=lanes, of=of, rates_per_s=rates_per_s, slots=lanes.slots[of], batched_tokens=lanes.batched_tokens[of]
    )


def rows_of_one(curve: LoadCurve, *, rates_per_s: ArrayLike) -> LaneRows:
    """One lane at several arrival rates [1/s]."""
    rates = np.atleast_1d(np.asarray(rates_per_s, dtype=np.float64))
    return lane_rows(stack((curve,)), of=np.zeros(len(rates), dtype=np.intp), rates_per_s=rates)


_EPSILON = float(np.finfo(np.float64).eps)
# Formulas of stationary queues are held at this load beyond it; lanes that come near are flagged as saturated.
HIGHEST_LOAD = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSteps:
    """A lane whose steps are plain or carry prompts (arrays of one shape).

    decode_s : plain step; prompt_step_s : step that carries prompts [s]
    prefill_s : what one prompt adds to the steps it is in [s]; load : share of time that prompts add
    time_share : of time spent in steps with prompts, below 1 when stable
    size_variance : squared coefficient of variation of what prompts add to a step that has any
    """

    decode_s: Array
    prompt_step_s: Array
    prefill_s: Array
    load: Array
    time_share: Array
    size_variance: Array

    @property
    def length_biased_s(self) -> Array:
        """Mean length of the step that a moment in time falls into: long steps are met more often [s]."""
        prompts_s = (self.prompt_step_s - self.decode_s) * (1 + self.size_variance)
        return self.decode_s + self.time_share * prompts_s

    @property
    def step_s(self) -> Array:
        """Mean step: time over number of steps [s]."""
        return 1 / (self.time_share / self.prompt_step_s + (1 - self.time_share) / self.decode_s)


def carrying_prompts(
    *, rates_per_s: Array, decode_s: Array, prefill_s: Array, steps_per_prompt: Array, size_variance: Array
) -> PromptSteps:
    """Steps of lanes whose prompts of ``prefill_s`` are each spread over so many steps (see ``prompt_steps``)."""
    prompt_step_s = decode_s + prefill_s / steps_per_prompt
    return PromptSteps(
        decode_s=decode_s,
        prompt_step_s=prompt_step_s,
        prefill_s=prefill_s,
        load=np.minimum(rates_per_s * prefill_s, HIGHEST_LOAD),
        time_share=np.minimum(rates_per_s * prompt_step_s * steps_per_prompt, 1 - _EPSILON),
        size_variance=size_variance,
    )


def prompt_steps(rows: LaneRows, *, sequences: Array) -> PromptSteps:
    """Plain and prompt-carrying steps of lanes at their arrival rates, with ``sequences`` decoding in each row.

    Prompts keep the lane in prompt steps a share p = lambda D of the time, D the time of the steps one prompt is in.
    The prompts of a step arrived during an earlier one, so that long steps follow long ones: the variance of step
    lengths is a geometric series in rho^2, with rho = lambda W the share of time that prompts add.

    Reference: [Little1961]; [Cox1962] section 7.2, alternating renewal.
    """
    lanes, rates_per_s = rows.lanes, rows.rates_per_s
    decode_s, prefill_s, tokens, size_variance = (
        rows.at(values, sequences)
        for values in (lanes.decode_s, lanes.prefill_s, lanes.prompt_step_tokens, lanes.size_variance)
    )
    load = np.minimum(rates_per_s * prefill_s, HIGHEST_LOAD)
    return carrying_prompts(
        rates_per_s=rates_per_s,
        decode_s=decode_s,
        prefill_s=prefill_s,
        steps_per_prompt=lanes.mix.new_prompt_tokens / tokens,
        size_variance=(1 + size_variance) / (1 - load**2) - 1,
    )
