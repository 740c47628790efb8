"""How many sequences decode at once, and how long an arrival waits for a slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.lengths import Array
from simulator.engine.load_curve import LoadCurve
from simulator.engine.prompt_steps import PromptSteps, prompt_steps
from simulator.engine.queueing import gg1_wait_mean_s

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOccupancy:
    """Stationary law of the decoding sequences, per arrival rate.

    mean, variance : of sequences in slots; wait_probability : that all slots are taken
    conditional_wait_s : mean wait of those that wait [s]; idle_probability : nothing decodes
    load : offered load of the full lane (below 1 when stable)
    """

    mean: Array
    variance: Array
    wait_probability: Array
    conditional_wait_s: Array
    idle_probability: Array
    load: Array


def slot_occupancy(curve: LoadCurve, *, rates_per_s: Array, dispersion: Array | None = None) -> SlotOccupancy:
    """Birth-death chain with births lambda and deaths n / ((O - 1) T(n)), T(n) = S(n) / (1 - lambda W(n)).

    Exact for Poisson arrivals and smooth service up to the slots, for any answer length distribution. Burstier
    arrivals or a fluctuating pace enter as ``dispersion`` v (variance over mean of the chain's noise, 1 for Poisson),
    by which the log-weights are divided (diffusion). Beyond the slots the tail is geometric and its wait is scaled
    by (ca^2 + cs^2) / 2 as in Allen-Cunneen.

    References
    ----------
    [Cohen1979] generalised processor sharing; [Kleinrock1976] section 2.8, diffusion; [Allen1990].
    """
    mix, slots = curve.mix, curve.slots
    if mix.decode_steps == 0 or slots == 0:
        return _nothing_decodes(rates_per_s, full=slots == 0)
    noise = np.ones_like(rates_per_s) if dispersion is None else dispersion
    sequences = np.arange(1, slots + 1)
    left_for_decode = np.maximum(1 - rates_per_s[:, None] * curve.prefill_s[1:], _EPSILON)
    deaths = sequences * left_for_decode / (mix.decode_steps * curve.decode_s[1:])
    logs = np.zeros((len(rates_per_s), slots + 1))
    np.cumsum(np.log(rates_per_s[:, None] / deaths), axis=1, out=logs[:, 1:])
    logs /= noise[:, None]
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    load = rates_per_s / deaths[:, -1]
    # The geometric tail's ratio load^(1 / v), kept below 1 where the lane is unstable and flagged so elsewhere.
    tail = np.maximum(-np.expm1(np.log(load) / noise), _EPSILON)
    weights[:, -1] /= tail
    shares = weights / weights.sum(axis=1, keepdims=True)
    states = np.arange(slots + 1)
    mean = shares @ states
    variability = (mix.arrival_cv**2 + mix.osl.cv**2) / 2
    return SlotOccupancy(
        mean=mean,
        variance=np.maximum(shares @ states**2 - mean**2, 0.0),
        wait_probability=shares[:, -1],
        conditional_wait_s=variability / (deaths[:, -1] * tail),
        idle_probability=shares[:, 0],
        load=load,
    )


def _nothing_decodes(rates_per_s: Array, *, full: bool) -> SlotOccupancy:
    zero = np.zeros_like(rates_per_s)
    blocked = np.full_like(rates_per_s, float(full))
    return SlotOccupancy(
        mean=zero,
        variance=zero,
        wait_probability=blocked,
        conditional_wait_s=zero,
        idle_probability=1 - blocked,
        load=blocked,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """A lane at each arrival rate: its occupancy, its steps, and the waits that follow (arrays over rates).

    occupancy : sequences in slots; steps : the alternation of steps at the mean occupancy
    room_prompts : prompts beside the own one that the token budget of a step still takes
    budget_load : share of the prompt capacity in use; budget_wait_s : mean wait for it [s]
    busy : probability that an arrival meets a running step that its wait for the budget does not already count
    """

    rates_per_s: Array
    occupancy: SlotOccupancy
    steps: PromptSteps
    room_prompts: Array
    budget_load: Array
    budget_wait_s: Array
    busy: Array

    @property
    def company_prompts(self) -> Array:
        """Mean number of others' prompts in the step scheduled ahead and in the own one.

        Those of the own step arrived during the step in flight, those of the step ahead during the one before.
        """
        own = np.minimum(self.rates_per_s * self.steps.length_biased_s, self.room_prompts)
        return self.busy * (self.rates_per_s * self.steps.step_s + own)


def lane_state(curve: LoadCurve, *, rates_per_s: Array) -> LaneState:
    """Occupancy, steps and waits of a lane at each arrival rate [1/s].

    The chain is solved twice: the pace at its first mean says how noisy the second is.
    """
    mix = curve.mix
    occupancy = slot_occupancy(curve, rates_per_s=rates_per_s)
    steps = prompt_steps(curve, sequences=occupancy.mean, rates_per_s=rates_per_s)
    dispersion = (1 + mix.arrival_cv**2 + rates_per_s * steps.pace_variance_s) / 2
    occupancy = slot_occupancy(curve, rates_per_s=rates_per_s, dispersion=dispersion)
    steps = prompt_steps(curve, sequences=occupancy.mean, rates_per_s=rates_per_s)
    full_s = np.interp(occupancy.mean, np.arange(curve.slots + 1), curve.full_prompt_s)
    room = np.maximum(curve.limits.batched_tokens - occupancy.mean, 1.0) / mix.new_prompt_tokens - 1
    # The wait for the budget already holds the step in flight where that step works on one long prompt.
    counted = rates_per_s * full_s / np.maximum(room + 1, 1.0)
    decodes = mix.decode_steps > 0
    running = 1 - occupancy.idle_probability if decodes else np.minimum(rates_per_s * full_s, 1.0)
    budget_wait_s = gg1_wait_mean_s(
        arrival_rate_per_s=rates_per_s, service_mean_s=full_s, service_cv=mix.isl.cv, arrival_cv=mix.arrival_cv
    )
    return LaneState(
        rates_per_s=rates_per_s,
        occupancy=occupancy,
        steps=steps,
        room_prompts=np.maximum(room, 0.0),
        budget_load=rates_per_s * full_s,
        budget_wait_s=budget_wait_s,
        busy=running * np.maximum(1 - counted, 0.0),
    )
