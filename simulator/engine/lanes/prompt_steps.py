"""Steps that carry prompts are longer: how often they come, how long they are, and what that does to the pace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.lanes.rows import LaneRows
from simulator.traffic.lengths import Array

_EPSILON = float(np.finfo(np.float64).eps)
# Below this the window factor's closed form loses its digits, and is 1 to within them.
_SMALL = _EPSILON ** (1 / 4)
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


def prompt_steps(rows: LaneRows, *, sequences: Array) -> PromptSteps:
    """Plain and prompt-carrying steps of lanes at their arrival rates, with ``sequences`` decoding in each row.

    Prompts keep the lane in prompt steps a share p = lambda D of the time, D the time of the steps one prompt is in.
    The prompts of a step arrived during an earlier one, so that long steps follow long ones: the variance of step
    lengths is a geometric series in rho^2, with rho = lambda W the share of time that prompts add.

    References
    ----------
    [Little1961]; [Cox1962] section 7.2, alternating renewal.
    """
    lanes, rates_per_s = rows.lanes, rows.rates_per_s
    decode_s, prefill_s, tokens, size_variance = (
        rows.at(values, sequences)
        for values in (lanes.decode_s, lanes.prefill_s, lanes.prompt_step_tokens, lanes.size_variance)
    )
    steps_per_prompt = lanes.mix.new_prompt_tokens / tokens
    prompt_step_s = decode_s + prefill_s / steps_per_prompt
    share = np.minimum(rates_per_s * prompt_step_s * steps_per_prompt, 1 - _EPSILON)
    load = np.minimum(rates_per_s * prefill_s, HIGHEST_LOAD)
    return PromptSteps(
        decode_s=decode_s,
        prompt_step_s=prompt_step_s,
        prefill_s=prefill_s,
        load=load,
        time_share=share,
        size_variance=(1 + size_variance) / (1 - load**2) - 1,
    )


def window_factor(relaxations: Array) -> Array:
    """Variance of the time average of an exponentially correlated process over ``relaxations`` correlation times [-].

    2 (x - 1 + e^-x) / x^2: 1 for a short window, 2 / x for a long one.

    References
    ----------
    [Papoulis1991] section 12-1.
    """
    x = np.maximum(relaxations, _SMALL)
    factor: Array = 2 * (x - 1 + np.exp(-x)) / x**2
    return factor
