"""Lanes at arrival rates: how many sequences decode at once, and how long an arrival waits for a slot.

A row is one lane at one rate; what it comes to depends on these alone, not on its company. Steps that carry prompts are
longer: how often they come, how long they are, and what that does to the pace.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.engine.lanes.load_curve import Lanes, LoadCurve, PerSequence, stack
from simulator.engine.lanes.pricing import Places, PromptCostsAt
from simulator.engine.lanes.prompt_queue import batch_dispersion, prompt_lengths
from simulator.engine.lanes.queueing import (
    arrivals_in_turns,
    busy_servers_probability,
    followers,
    smooth_arrivals_factor,
    wait_probability,
)
from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix

_EPSILON = float(np.finfo(np.float64).eps)


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
    stages: Array
    ranks: Array

    @property
    def mix(self) -> RequestMix:
        """Lengths of the requests that all lanes serve."""
        return self.lanes.mix

    @property
    def decodes(self) -> bool:
        """Whether anything runs beyond its first token."""
        return self.mix.decode_steps > 0 and bool(self.slots.any())

    @property
    def prompts_apart(self) -> NDArray[np.bool_]:
        """Whether the lane of each row computes prompts in steps of their own."""
        return self.lanes.prompts_apart[self.of]

    def room_tokens(self, decoding: Array) -> Array:
        """Prompt tokens of a step that is as full as can be beside ``decoding`` sequences in each row."""
        return self.at(self.lanes.room_tokens, decoding)

    def beside(self, decoding: Array) -> Array:
        """What of ``decoding``, sequences or seconds of a plain step in each row, goes on in a step with prompts."""
        return np.where(self.prompts_apart, 0.0, decoding)

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
        lanes=lanes,
        of=of,
        rates_per_s=rates_per_s,
        slots=lanes.slots[of],
        batched_tokens=lanes.batched_tokens[of],
        stages=lanes.stages[of],
        ranks=lanes.ranks[of],
    )


def rows_of_one(curve: LoadCurve, *, rates_per_s: ArrayLike) -> LaneRows:
    """One lane at several arrival rates [1/s]."""
    rates = np.atleast_1d(np.asarray(rates_per_s, dtype=np.float64))
    return lane_rows(stack((curve,)), of=np.zeros(len(rates), dtype=np.intp), rates_per_s=rates)


# Formulas of stationary queues are held at this load beyond it; lanes that come near are flagged as saturated.
HIGHEST_LOAD = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSteps:
    """A lane whose steps are plain or carry prompts (arrays of one shape).

    decode_s : plain step; beside_s : of it, what goes on beside prompts; prompt_step_s : step that carries prompts [s]
    others_s : of a step, until those ahead of it in a pipeline end [s]
    prefill_s : what one prompt adds to the steps of all [s]; load : share of time that prompts add
    time_share : of time spent in steps with prompts, below 1 when stable
    size_variance : squared coefficient of variation of what prompts add to a step that has any
    """

    decode_s: Array
    beside_s: Array
    prompt_step_s: Array
    others_s: Array | float
    prefill_s: Array
    load: Array
    time_share: Array
    size_variance: Array

    @property
    def length_biased_s(self) -> Array:
        """Mean length of the step that a moment in time falls into: long steps are met more often [s]."""
        prompts_s = (self.prompt_step_s - self.beside_s) * (1 + self.size_variance)
        return self.decode_s + self.time_share * (prompts_s + self.beside_s - self.decode_s)

    @property
    def step_s(self) -> Array:
        """Mean step: time over number of steps [s]."""
        return 1 / (self.time_share / self.prompt_step_s + (1 - self.time_share) / self.decode_s)


def carrying_prompts(
    *,
    rates_per_s: Array,
    decode_s: Array,
    beside_s: Array,
    prefill_s: Array,
    steps_per_prompt: Array,
    size_variance: Array,
    others_s: Array | float = 0.0,
) -> PromptSteps:
    """Steps of lanes, each prompt of ``prefill_s`` spread over ``steps_per_prompt`` of them (see `prompt_steps`)."""
    prompt_step_s = beside_s + prefill_s / steps_per_prompt
    return PromptSteps(
        decode_s=decode_s,
        beside_s=beside_s,
        prompt_step_s=prompt_step_s,
        others_s=others_s,
        prefill_s=prefill_s,
        load=np.minimum(rates_per_s * prefill_s, HIGHEST_LOAD),
        time_share=np.minimum(rates_per_s * (prompt_step_s - others_s) * steps_per_prompt, 1 - _EPSILON),
        size_variance=size_variance,
    )


def prompt_steps(rows: LaneRows, *, sequences: Array) -> PromptSteps:
    """Plain and prompt-carrying steps of lanes at their arrival rates, with ``sequences`` decoding in each row.

    Prompts keep the lane in prompt steps a share p = lambda D of the time, D the time of the steps one prompt is in.
    The prompts of a step arrived during an earlier one, so that long steps follow long ones: with rho = lambda g, g
    what one more prompt adds, their number has v = (1 + rho^2 c^2) / (1 - rho^2) times the variance of a Poisson number
    of its mean m. Taken as negative binomial, v^(-m / (v - 1)) of the steps have none.

    Reference: [Little1961]; [Cox1962] section 7.2, alternating renewal; [Greenwood1920].
    """
    lanes, rates_per_s, mix = rows.lanes, rows.rates_per_s, rows.mix
    curves = (lanes.decode_s, lanes.prefill_s, lanes.full_prompt_s, lanes.prompt_step_tokens, lanes.size_variance)
    decode_s, prefill_s, full_s, tokens, size_variance = (rows.at(values, sequences) for values in curves)
    # The first prompt of a step that reads the weights for itself takes longer than those beside it.
    more = np.minimum(rates_per_s * np.minimum(prefill_s, full_s), HIGHEST_LOAD) ** 2
    beyond = more * (1 + mix.isl.cv**2) / (1 - more)
    stages, delaying = rows.stages, rows.at(lanes.delaying, sequences)
    arrivals = sequences / stages / max(mix.decode_steps, 1.0)
    met = np.where(rows.prompts_apart, arrivals_in_turns(arrivals), arrivals)
    some = -np.expm1(-met * np.log1p(beyond) / np.maximum(beyond, _EPSILON))
    seldom = np.where(met > 0, np.maximum(some, _EPSILON) / np.maximum(-np.expm1(-met), _EPSILON), 1.0)
    square = 1 + beyond / (1 + met + mix.isl.cv**2)
    return carrying_prompts(
        rates_per_s=rates_per_s,
        decode_s=decode_s,
        beside_s=rows.beside(decode_s),
        prefill_s=prefill_s,
        # Of the steps of a pipeline that carry prompts, those whose prompts others hide delay nobody.
        steps_per_prompt=delaying
        * np.maximum(seldom * mix.new_prompt_tokens / tokens, mix.new_prompt_tokens / rows.batched_tokens),
        others_s=decode_s * (1 - 1 / stages),
        size_variance=np.maximum((1 + size_variance) * square * seldom - 1, 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOccupancy:
    """Stationary law of the decoding sequences, per arrival rate.

    mean, variance : of sequences in slots; wait_probability : that all slots are taken
    conditional_wait_s : mean wait of those that wait [s]; idle_probability : nothing decodes
    load : arrivals over what the full lane serves (below 1 when stable)
    """

    mean: Array
    variance: Array
    wait_probability: Array
    conditional_wait_s: Array
    idle_probability: Array
    load: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """Deaths from 1 sequence on [rows, sequences] [1/s]; from 0 logs of (births + deaths) / births, and of weights."""

    deaths: Array
    changes: Array
    logs: Array


def _chain(rows: LaneRows) -> _Chain:
    mix, lanes, rates_per_s, of = rows.mix, rows.lanes, rows.rates_per_s, rows.of
    sequences = np.arange(1, int(rows.slots.max()) + 1)
    decode_s, prefill_s = (curve.values[of, 1 : len(sequences) + 1] for curve in (lanes.decode_s, lanes.prefill_s))
    deaths = sequences * np.maximum(1 - rates_per_s[:, None] * prefill_s, _EPSILON) / (mix.decode_steps * decode_s)
    logs, changes = np.zeros((2, len(rates_per_s), len(sequences) + 1))
    np.cumsum(np.log(rates_per_s[:, None] / deaths), axis=1, out=logs[:, 1:])
    np.log(1 + deaths / rates_per_s[:, None], out=changes[:, 1:])
    return _Chain(deaths=deaths, changes=changes, logs=logs + changes)  # weights of Poisson noise, times the changes


def slot_occupancy(rows: LaneRows, *, dispersion: Array | None = None, chain: _Chain | None = None) -> SlotOccupancy:
    """Birth-death chain with births lambda and deaths n / ((O - 1) T(n)), T(n) = S(n) / (1 - lambda W(n)).

    Exact for Poisson arrivals and smooth service up to the slots, for any answer length distribution. Burstier
    arrivals or a fluctuating pace enter as ``dispersion`` v (variance over mean of the chain's noise, 1 for Poisson):
    a diffusion of drift lambda - mu_n and variance v (lambda + mu_n), whose mean does not depend on v. Beyond the slots
    prompts wait outside and interrupt nobody, so that the lane serves its saturation, 1 / ((O - 1) S / n + W), and v is
    that of arrivals and departures: a geometric tail, with a wait scaled by (ca^2 + cs^2) / 2 as in Allen-Cunneen.
    chain : of the same rows, where it is known.

    Reference: [Cohen1979] generalised processor sharing; [Kleinrock1976] section 2.8, diffusion; [Allen1990].
    """
    mix, lanes, rates_per_s = rows.mix, rows.lanes, rows.rates_per_s
    if not rows.decodes:
        return _nothing_decodes(rates_per_s, full=not rows.slots.any())
    noise = np.ones_like(rates_per_s) if dispersion is None else dispersion
    chain = _chain(rows) if chain is None else chain
    deaths, logs = chain.deaths, chain.logs / noise[:, None] - chain.changes
    sequences = np.arange(1, deaths.shape[1] + 1)
    if (rows.slots < len(sequences)).any():
        logs[:, 1:][sequences > rows.slots[:, None]] = -np.inf
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    each = np.arange(len(rates_per_s))
    last_prefill_s = lanes.prefill_s.values[rows.of, rows.slots]
    left = np.maximum(1 - rates_per_s * last_prefill_s, _EPSILON)
    served_per_s = 1 / (left / (lanes.slots_used[rows.of] * deaths[each, rows.slots - 1]) + last_prefill_s)
    load = rates_per_s / served_per_s
    stable = np.minimum(load, 1 - _EPSILON)
    # Departures of many slots are about as random as a Poisson stream, however evenly arrivals come.
    arriving = mix.arrival_cv**2 / rows.ranks
    noise_beyond = np.maximum(arriving, (1 + arriving) / 2)
    weights[each, rows.slots] /= -np.expm1(np.log(stable) / noise_beyond)
    mean, square, idle, full = _shares(rows, weights)
    return SlotOccupancy(
        mean=mean,
        variance=np.maximum(square - mean**2, 0.0),
        wait_probability=full,
        conditional_wait_s=(arriving + mix.osl.cv**2) / 2 / (served_per_s * (1 - stable)),
        idle_probability=idle,
        load=load,
    )


def _shares(rows: LaneRows, weights: Array) -> tuple[Array, Array, Array, Array]:
    """Mean and mean square of the sequences under unscaled ``weights`` [rows, sequences], the share of stages that is
    free and that of full lanes. Lane by lane, because a sum's last digit depends on how many numbers it is of."""
    mean, square, idle, full = (np.empty(len(weights)) for _ in range(2 + 2))
    states = np.arange(weights.shape[1])
    for slots, place in rows.spans():
        own, known = weights[place, : slots + 1], states[: slots + 1]
        shares = own / own.sum(axis=1, keepdims=True)
        mean[place], square[place] = shares @ known, shares @ known**2
        free = np.maximum(1 - known / rows.stages[place.start], 0.0)
        idle[place], full[place] = shares @ free, shares[:, -1]
    return mean, square, idle, full


def _nothing_decodes(rates_per_s: Array, *, full: bool) -> SlotOccupancy:
    zero, share = np.zeros_like(rates_per_s), np.full_like(rates_per_s, float(full))
    nothing = {"mean": zero, "variance": zero, "conditional_wait_s": zero}
    return SlotOccupancy(**nothing, wait_probability=share, idle_probability=1 - share, load=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """A lane at each arrival rate: its occupancy, its steps, and the waits that follow (arrays over rates).

    occupancy : sequences in slots, as plain steps see them; dispersion : variance over mean of what drives them
    steps : plain and prompt-carrying steps at the mean occupancy
    room_prompts : prompts beside the own one that the token budget of a step still takes
    budget_load : share of the prompt capacity in use
    budget_wait_probability, budget_conditional_s : of waiting for it, and the mean wait then [s]
    idle_probability : that an arrival finds nothing running
    rows : the lanes and rates; costs : of prompts beside the mean occupancy
    """

    rows: LaneRows
    costs: PromptCostsAt
    rates_per_s: Array
    occupancy: SlotOccupancy
    dispersion: Array
    steps: PromptSteps
    room_prompts: Array
    budget_load: Array
    budget_wait_probability: Array
    budget_conditional_s: Array
    idle_probability: Array


def _service_variability(rows: LaneRows, costs: PromptCostsAt, *, sequences: Array, decode_s: Array) -> Array:
    """Squared coefficient of variation of the time that one prompt takes of full steps. Few points of a long tail miss
    its variance, by which that of the times is scaled back."""
    if rows.mix.isl.cv == 0:
        return np.zeros_like(sequences)
    lengths = prompt_lengths(rows.mix)
    room = rows.room_tokens(sequences)[:, None]
    times_s = costs.added_by_s(lengths) + rows.beside(decode_s)[:, None] * lengths / room
    missed = (rows.mix.isl.cv * lengths.mean()) ** 2 / max(float(lengths.var()), _EPSILON)
    variability: Array = missed * times_s.var(axis=1) / times_s.mean(axis=1) ** 2
    return variability


def lane_states(rows: LaneRows) -> LaneState:
    """Occupancy, steps and waits of lanes at their arrival rates.

    The chain is solved twice: the share of prompts at its first mean says how noisy the second is. The token budget is
    a queue that serves as many prompts side by side as fit into a step; its wait is that of as many servers.

    Reference: [Sakasegawa1977] wait with several servers; [Allen1990] and [Kramer1976] variability.
    """
    mix, rates_per_s = rows.mix, rows.rates_per_s
    chain = _chain(rows) if rows.decodes else None
    occupancy = slot_occupancy(rows, chain=chain)
    steps = prompt_steps(rows, sequences=occupancy.mean)
    dispersion = batch_dispersion(mix, load=steps.load, ranks=rows.ranks)
    occupancy = slot_occupancy(rows, dispersion=dispersion, chain=chain)
    steps = prompt_steps(rows, sequences=occupancy.mean)
    full_s = rows.at(rows.lanes.full_prompt_s, occupancy.mean)
    per_step = rows.room_tokens(occupancy.mean) / mix.new_prompt_tokens
    load = rates_per_s * full_s
    stable = np.minimum(load, 1 - _EPSILON)
    costs = rows.prompt_costs(occupancy.mean)
    variability = _service_variability(rows, costs, sequences=occupancy.mean, decode_s=steps.decode_s)
    own_s = steps.beside_s / np.minimum(per_step, 1.0) + steps.prefill_s
    idle = 1 - stable
    if mix.decode_steps > 0:
        idle = occupancy.idle_probability * followers(rates_per_s * own_s / rows.stages, arrival_cv=mix.arrival_cv).none
    service_cv = np.sqrt(variability)
    # Both are one for Poisson arrivals.
    less = smooth_arrivals_factor(load=stable, service_cv=service_cv, arrival_cv=mix.arrival_cv)
    seldom = wait_probability(load=stable, service_cv=service_cv, arrival_cv=mix.arrival_cv) / stable
    waits = seldom * busy_servers_probability(load=stable, servers=np.maximum(per_step, 1.0))
    conditional_s = full_s * (1 + variability) / 2 / (1 - stable) * less / seldom
    if rows.lanes.whole_tokens.any():
        from simulator.engine.lanes.whole_prompts import behind_those_that_wait

        waits, conditional_s = behind_those_that_wait(
            rows, occupancy.mean, steps.decode_s, load=stable, waits=waits, conditional_s=conditional_s
        )
    return LaneState(
        rows=rows,
        costs=costs,
        rates_per_s=rates_per_s,
        occupancy=occupancy,
        dispersion=dispersion,
        steps=steps,
        room_prompts=np.maximum(per_step - 1, 0.0),
        budget_load=load,
        budget_wait_probability=waits,
        budget_conditional_s=conditional_s,
        idle_probability=idle,
    )
