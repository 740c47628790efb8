"""What requests cost one replica as its batch grows. One lane is one scheduler's batch: as many as pipeline stages.

Load curves of several replicas stand side by side as arrays, so that one evaluation answers for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.limits import (
    LaneLimits,
    SlotLimit,
    decoding_share,
    held_tokens,
    lane_limits,
    priced_nodes,
    slots_of,
)
from simulator.engine.lanes.pricing import (
    SIZE_WEIGHTS,
    LaneCosts,
    NodeSteps,
    Places,
    PricedNodes,
    PromptCosts,
    StepTimes,
    node_steps,
    padded,
    prompt_costs,
    stack_costs,
)
from simulator.engine.lanes.queueing import arrival_rate_per_s
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.phases.step import StepEstimate
from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix

_TINY = float(np.finfo(np.float64).tiny)
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """Step times of a lane over the number of decoding sequences n = 0..slots (arrays of that length).

    decode_s : a step of n sequences that only decode; at n = 0 the least a step takes [s]
    prefill_s : what one request's prompt adds to the steps of all n sequences, with one of every rank in step [s]
    delaying : share of a prompt's own time that this is, below 1 where a pipeline hides some of it
    prompt_step_tokens : prompt tokens of a step that has any
    size_variance : squared coefficient of variation of what the prompts of such a step add to it
    room_tokens : prompt tokens of a step on average while all are as full as can be
    full_prompt_s : time per prompt meanwhile [s]
    slots_used : share of full slots that decode: less than a whole one of the last, and fewer while prompts that fit no
        step wait for others to end
    costs : the same for prompts of any length
    nodes : the n that were priced; cases of the StepShape are those of ``lane_pricing``, node by node
    slots : sequences that decode at once; limit : what bounds them
    ranks : that compute prompts in step; together : prompts of all, and times of sampled steps of so many
    """

    mix: RequestMix
    limits: LaneLimits
    slots: int
    limit: SlotLimit
    decode_s: Array
    prefill_s: Array
    delaying: Array
    prompt_step_tokens: Array
    size_variance: Array
    room_tokens: Array
    full_prompt_s: Array
    slots_used: float
    costs: PromptCosts
    nodes: Array
    ranks: int = 1
    together: tuple[Array, Array] | None = None

    def slowed(self, factor: float) -> LoadCurve:
        """This lane with steps ``factor`` times as long; what requests cost the host stays."""
        return replace(
            self,
            decode_s=factor * self.decode_s,
            prefill_s=factor * self.prefill_s,
            full_prompt_s=factor * self.full_prompt_s,
            costs=self.costs.scaled(factor),
            together=self.together and (self.together[0], factor * self.together[1]),
        )

    @property
    def rates_per_s(self) -> Array:
        """Arrival rate that keeps n sequences decoding on average, for n = 1..slots [1/s]. Reference: [Little1961]"""
        return arrival_rate_per_s(
            sequences=np.arange(1, self.slots + 1),
            decode_steps=self.mix.decode_steps,
            decode_s=self.decode_s[1:],
            prefill_s=self.prefill_s[1:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSteps:
    """The steps that a lane's load curve is made of, before they are priced; ``slots`` is 0 where no request fits."""

    mix: RequestMix
    limits: LaneLimits
    slots: int
    slots_used: float
    limit: SlotLimit
    at: NodeSteps

    def curve(self, seconds: Array, *, rounds: tuple[Array, Array] | None = None) -> LoadCurve:
        """The load curve from the times of the cases of ``at.step`` (see ``lane_step_s``) [s]. Costs of prompts are
        expectations over the tokens that meet in a step, because a step's time is convex in them.

        rounds : of its pipeline where it decodes, see ``rounds_of``
        """
        if self.limits.ranks > 1:
            return self.in_step(seconds)
        steps, new_tokens, stages = self.at, self.mix.new_prompt_tokens, self.limits.stages
        priced = alone = stage = steps.priced(seconds if stages == 1 else seconds[0])
        if stages > 1:
            stage = steps.priced(seconds[1])
            priced = _beside_others(alone, stage)
        nodes, every, plain_s = steps.nodes, np.arange(self.slots + 1.0, dtype=np.float64), priced.plain_s
        added_s = np.maximum(priced.shared_s - priced.beside_s, 0.0)
        mean_added_s, mean_tokens = SIZE_WEIGHTS @ added_s, SIZE_WEIGHTS @ steps.size_tokens
        # A prompt beyond the budget comes in pieces, each of them a step.
        prompts_s, all_tokens = (SIZE_WEIGHTS @ (each * steps.pieces) for each in (added_s, steps.size_tokens))
        size_variance = SIZE_WEIGHTS @ (added_s / np.maximum(mean_added_s, _TINY)) ** 2 - 1
        own_s = delay_s = prompts_s * new_tokens / all_tokens
        delaying = np.ones_like(own_s)
        if rounds is not None:
            # Never quite hidden: a share of nothing would say nothing of what it is a share of.
            delay_s = np.maximum(rounds[1], _LEAST_SHARE * own_s)
            delay_s[0] = own_s[0]
            plain_s = np.where(nodes > stages, rounds[0].mean(axis=0), plain_s)
            delaying = np.where(own_s > 0, np.minimum(delay_s / np.maximum(own_s, _TINY), 1.0), 1.0)
        full_prompt_s = (stage.full_s + (self.limits.round_steps - 1) * stage.beside_s) * new_tokens / steps.room_tokens
        room_tokens, slots_used = self.limits.room_tokens(every), self.slots_used
        if self.limits.whole_prompts:
            from simulator.engine.lanes.whole_prompts import in_line  # not needed where prompts are split

            waiting, taken, kept = in_line(
                self.mix, nodes, limits=self.limits, slots=self.slots, room_tokens=steps.room_tokens
            )
            slots_used = slots_used * kept
            full_prompt_s = full_prompt_s + waiting * plain_s
            room_tokens = new_tokens / np.interp(every, nodes, taken)
        return LoadCurve(
            mix=self.mix,
            limits=self.limits,
            slots=self.slots,
            limit=self.limit,
            decode_s=np.interp(every, nodes, plain_s),
            prefill_s=np.interp(every, nodes, delay_s),
            delaying=np.interp(every, nodes, delaying),
            prompt_step_tokens=np.interp(every, nodes, mean_tokens),
            size_variance=np.interp(every, nodes, np.maximum(size_variance, 0.0)),
            room_tokens=room_tokens,
            full_prompt_s=np.interp(every, nodes, full_prompt_s),
            slots_used=slots_used,
            costs=prompt_costs(priced),
            nodes=nodes,
        )

    def in_step(self, seconds: Array) -> LoadCurve:
        """The curve of one rank that steps with others; ``seconds`` [2, cases]: of a step, and its shared part [s]."""
        alone = replace(self, limits=replace(self.limits, ranks=1)).curve(seconds[0])
        if self.slots == 0:
            return alone
        from simulator.engine.lanes.ranks import RankSteps, prompts_in_step, shared_by_tokens

        tokens = self.limits.sequence_tokens
        own, shared = self.at.priced(seconds[0] - seconds[1]), self.at.priced(seconds[1])
        group = RankSteps(
            mix=self.mix,
            ranks=self.limits.ranks,
            own=own,
            own_costs=prompt_costs(own),
            shared=shared_by_tokens(shared, prompt_costs(shared), sequence_tokens=tokens),
            sequence_tokens=tokens,
            apart=self.at.apart,
        )
        if self.mix.decode_steps == 0:
            together = prompts_in_step(group, budget=float(self.limits.batched_tokens))
            return replace(alone, ranks=self.limits.ranks, costs=group.costs(), together=together)

        def at(values: Array) -> Array:
            return np.interp(np.arange(self.slots + 1), group.nodes, values)

        if self.mix.prefix_hit_fraction == 1:  # prompts come with their cache and delay nobody
            return replace(alone, limits=self.limits, decode_s=at(group.plain_s(group.own_plain_s()).mean(axis=0)))
        found = group.taken_together()
        return replace(
            alone,
            limits=self.limits,
            decode_s=at(found.plain_s),
            prefill_s=at(found.delay_s),
            prompt_step_tokens=at(found.step_tokens),
            size_variance=at(found.size_variance),
            costs=group.costs(),
        )


def _beside_others(alone: PricedNodes, stage: PricedNodes) -> PricedNodes:
    """Steps of a pipeline: until each stage has served all under way, and one with prompts as long at least."""
    plain_s = np.maximum(alone.plain_s, alone.steps.under_way * stage.plain_s)
    least_s = alone.beside_s if alone.steps.apart else plain_s
    shared_s, full_s, fresh_s = (
        np.maximum(each, least_s) for each in (alone.shared_s, alone.full_s, alone.fresh_full_s)
    )
    return replace(alone, plain_s=plain_s, beside_s=least_s, shared_s=shared_s, full_s=full_s, fresh_full_s=fresh_s)


def lane_steps(mix: RequestMix, *, limits: LaneLimits) -> LaneSteps:
    """What has to be priced of a lane under ``limits``."""
    places, limit = slots_of(mix, limits=limits)
    share = decoding_share(mix, limits=limits, batched_tokens=limits.batched_tokens, steps_ahead=limits.steps_ahead)
    decoding = float(places if limit is SlotLimit.TOKEN_BUDGET else places * share)
    slots = ceil(decoding)
    nodes = priced_nodes(slots) if mix.decode_steps > 0 else np.zeros(1)
    guessed = (limits.round_steps * limits.sequence_tokens - 1) * nodes / limits.stages
    batched_tokens = limits.round_steps * limits.batched_tokens - guessed
    if limits.whole_prompts:
        from simulator.engine.lanes.whole_prompts import step_tokens

        batched_tokens = step_tokens(mix, limits=limits, nodes=nodes, batched_tokens=batched_tokens)
    return LaneSteps(
        mix=mix,
        limits=limits,
        slots=slots,
        slots_used=decoding / max(slots, 1),
        limit=limit,
        at=node_steps(
            mix=mix,
            nodes=nodes,
            batched_tokens=batched_tokens,
            graph_sequences=limits.graph_sequences,
            apart=limits.prompts_apart and mix.decode_steps > 0,
            stages=limits.stages,
        ),
    )


def load_curves(priced: Sequence[tuple[LaneSteps, Array]]) -> list[LoadCurve]:
    """Load curves of lanes from the times of their steps [s]; pipelines go through their rounds side by side."""
    piped = [
        place
        for place, (lane, _) in enumerate(priced)
        if lane.limits.stages > 1 and lane.limits.ranks == 1 and lane.mix.decode_steps > 0
    ]
    rounds = dict(zip(piped, _rounds([priced[place] for place in piped]), strict=True)) if piped else {}
    return [lane.curve(seconds, rounds=rounds.get(place)) for place, (lane, seconds) in enumerate(priced)]


def _rounds(priced: Sequence[tuple[LaneSteps, Array]]) -> list[tuple[Array, Array]]:
    """``rounds_of`` pipelines whose steps are priced through all stages, and for one of them."""
    from simulator.engine.lanes.pipeline import pipeline, rounds_of  # not needed without stages

    steps = [[lane.at.priced(each) for each in seconds] for lane, seconds in priced]
    return rounds_of(
        [
            pipeline(lane.mix, *of, *map(prompt_costs, of), stages=lane.limits.stages)
            for (lane, _), of in zip(priced, steps, strict=True)
        ]
    )


def load_curve(step_times: StepTimes, *, mix: RequestMix, limits: LaneLimits) -> LoadCurve:
    """Price a lane's steps for every batch size in one call of ``step_times``."""
    steps = lane_steps(mix, limits=limits)
    return load_curves([(steps, step_times(steps.at.step))])[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """Where a lane stops keeping up: its rate [1/s], the batch there, and which limit the batch met."""

    rate_per_s: float
    sequences: float
    limit: SlotLimit


def saturation(curve: LoadCurve) -> Saturation:
    """Highest arrival rate a lane sustains: all slots are taken, or before that every step is full of prompts."""
    mix = curve.mix
    if curve.slots == 0:
        return Saturation(rate_per_s=0.0, sequences=0.0, limit=curve.limit)
    if mix.decode_steps == 0:
        return Saturation(rate_per_s=float(1 / curve.full_prompt_s[0]), sequences=0.0, limit=SlotLimit.TOKEN_BUDGET)
    filled = float(curve.slots)
    if not curve.limits.prompts_apart:
        every = np.arange(curve.slots + 1.0)
        beyond = every * mix.new_prompt_tokens - curve.limits.stages * mix.decode_steps * curve.room_tokens
        filled = float(np.interp(0.0, np.maximum.accumulate(beyond), every))
    sequences = min(float(curve.slots), filled)
    rates_per_s = np.concatenate(([0.0], curve.rates_per_s))
    by_slots = float(np.interp(curve.slots_used * sequences, np.arange(curve.slots + 1), rates_per_s))
    by_budget = float(1 / np.interp(sequences, np.arange(curve.slots + 1), curve.full_prompt_s))
    limit = SlotLimit.TOKEN_BUDGET if filled < curve.slots else curve.limit
    return Saturation(rate_per_s=min(by_slots, by_budget), sequences=sequences, limit=limit)


def lane_step_s(estimate: StepEstimate) -> Array:
    """Time of a step [s]; [2, cases] with that until a pipeline takes the next one, or with what ranks share of it."""
    if estimate.ranks_in_step > 1:
        from simulator.engine.lanes.ranks import shared_step_s

        return np.stack((estimate.step_s, shared_step_s(estimate)))
    return np.stack((estimate.step_s, estimate.interval_s)) if len(estimate.stage_s) > 1 else estimate.step_s


def lane_curve(deployment: Deployment, *, mix: RequestMix) -> LoadCurve:
    """What requests of a mix cost one lane of ``deployment`` as its batch grows."""
    from simulator.phases.draft_cost import per_token_step  # not needed by a plan without speculation

    limits = lane_limits(deployment, memory_plan(deployment), mix=mix)
    return load_curve(lambda step: per_token_step(deployment, step, seconds=lane_step_s), mix=mix, limits=limits)


def lanes(deployment: Deployment) -> int:
    """Lanes of one replica: a scheduler for each attention-data-parallel rank."""
    return deployment.parallelism.dp_size


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSequence:
    """A quantity of every lane over its sequences n = 0, 1, ..., slots, [lanes, most slots + 1], and its steps up."""

    values: Array
    rises: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Load curves for one mix of requests. Numbers are arrays over the lanes, as in ``LoadCurve`` and ``LaneLimits``.

    held_tokens : of cache that a running sequence holds; prompts_apart, stages : see ``LaneLimits``
    whole_tokens : that a step takes of whole prompts, 0 where they are split
    """

    mix: RequestMix
    slots: Places
    batched_tokens: Array
    sequence_tokens: Array
    kv_tokens: Array
    held_tokens: Array
    request_s: Array
    prompt_token_s: Array
    prompts_apart: NDArray[np.bool_]
    whole_tokens: Array
    stages: Array
    ranks: Array
    decode_s: PerSequence
    prefill_s: PerSequence
    delaying: PerSequence
    prompt_step_tokens: PerSequence
    size_variance: PerSequence
    room_tokens: PerSequence
    full_prompt_s: PerSequence
    slots_used: Array
    costs: LaneCosts


def _per_sequence(arrays: Sequence[Array]) -> PerSequence:
    values = padded(arrays)
    rises = np.zeros_like(values)
    np.subtract(values[:, 1:], values[:, :-1], out=rises[:, :-1])
    return PerSequence(values=values, rises=rises)


_OF_LIMITS = ("batched_tokens", "sequence_tokens", "kv_tokens", "request_s", "prompt_token_s")
_OF_CURVES = tuple(item.name for item in fields(Lanes) if item.type == "PerSequence")


def stack(curves: Sequence[LoadCurve]) -> Lanes:
    """Lanes that serve the same requests, side by side; all of them have slots, or none has."""
    mix, limits = curves[0].mix, [curve.limits for curve in curves]
    of_limits: Any = {name: np.array([getattr(limit, name) for limit in limits]) for name in _OF_LIMITS}
    of_curves: Any = {name: _per_sequence([getattr(curve, name) for curve in curves]) for name in _OF_CURVES}
    return Lanes(
        mix=mix,
        slots=np.array([curve.slots for curve in curves], dtype=np.intp),
        held_tokens=np.array([held_tokens(mix, limits=limit) for limit in limits]),
        prompts_apart=np.array([limit.prompts_apart and mix.decode_steps > 0 and limit.ranks == 1 for limit in limits]),
        whole_tokens=np.array([limit.whole_prompts * limit.round_steps * limit.batched_tokens for limit in limits]),
        stages=np.array([float(limit.stages) for limit in limits]),
        ranks=np.array([float(limit.ranks) for limit in limits]),
        slots_used=np.array([curve.slots_used for curve in curves]),
        costs=stack_costs([curve.costs for curve in curves]),
        **of_limits,
        **of_curves,
    )
