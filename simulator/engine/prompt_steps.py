"""Steps that carry prompts are longer: how often they come, in spells how long, and what that does to the pace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.lengths import Array
from simulator.engine.load_curve import LoadCurve

_EPSILON = float(np.finfo(np.float64).eps)
# Below this the window factor's closed form loses its digits, and is 1 to within them.
_SMALL = _EPSILON ** (1 / 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSteps:
    """A lane that alternates between plain steps and spells of steps with prompts (arrays of one shape).

    decode_s : plain step; prompt_step_s : step that carries prompts [s]
    prefill_s : what one prompt adds to the steps it is in [s]
    time_share : of time spent in steps with prompts, below 1 when stable
    relaxation_s : correlation time of that alternation [s]
    size_variance : squared coefficient of variation of the prompt tokens in one such step
    """

    decode_s: Array
    prompt_step_s: Array
    prefill_s: Array
    time_share: Array
    relaxation_s: Array
    size_variance: Array

    @property
    def length_biased_s(self) -> Array:
        """Mean length of the step that a moment in time falls into: long steps are met more often [s]."""
        prompts_s = (self.prompt_step_s - self.decode_s) * (1 + self.size_variance)
        return self.decode_s + self.time_share * prompts_s

    @property
    def step_s(self) -> Array:
        """Mean step: time over number of steps [s]."""
        return self.step_at(self.time_share)

    def step_at(self, time_share: Array) -> Array:
        """Mean step over a stretch that spends ``time_share`` of its time in steps with prompts [s]."""
        return 1 / (time_share / self.prompt_step_s + (1 - time_share) / self.decode_s)

    @property
    def pace_variance_s(self) -> Array:
        """Asymptotic variance of completed steps, relative to their mean, times elapsed time [s]."""
        difference = self.step_s * (1 / self.decode_s - 1 / self.prompt_step_s)
        return difference**2 * self.time_share * (1 - self.time_share) * 2 * self.relaxation_s


def prompt_steps(curve: LoadCurve, *, sequences: Array, rates_per_s: Array) -> PromptSteps:
    """The alternation at ``sequences`` decoding and an arrival rate (broadcast together).

    Prompts keep the lane in prompt steps like an M/G/1 server: a share p = lambda D of the time, D the time per
    prompt. Its busy share over a long time t has variance lambda D^2 (1 + cv^2) / t (alternating renewal), which
    an exponential correlation p (1 - p) exp(-t / tau) matches with tau = D (1 + cv^2) / (2 (1 - p)).

    References
    ----------
    [Kleinrock1975] section 5.8, busy period; [Cox1962] section 7.2, alternating renewal.
    """
    mix, states = curve.mix, np.arange(curve.slots + 1)
    decode_s, prefill_s, tokens = (
        np.interp(sequences, states, values) for values in (curve.decode_s, curve.prefill_s, curve.prompt_step_tokens)
    )
    steps_per_prompt = mix.new_prompt_tokens / tokens
    prompt_step_s = decode_s + prefill_s / steps_per_prompt
    per_prompt_s = prompt_step_s * steps_per_prompt
    share = np.minimum(rates_per_s * per_prompt_s, 1 - _EPSILON)
    return PromptSteps(
        decode_s=decode_s,
        prompt_step_s=prompt_step_s,
        prefill_s=prefill_s,
        time_share=share,
        relaxation_s=per_prompt_s * (1 + mix.isl.cv**2) / (2 * (1 - share)),
        # A prompt longer than the budget is cut into steps of one size; several prompts in a step even out.
        size_variance=np.where(steps_per_prompt > 1, 0.0, mix.isl.cv**2 * steps_per_prompt),
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
