"""One kind of replica: can it serve at all (or by how much not), and how much within its objectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import exp

import numpy as np

from simulator.engine.lanes.limits import SlotLimit, kv_tokens_for_one, slots_of
from simulator.engine.lanes.load_curve import LaneSteps, LoadCurve, Saturation, lanes, load_curves
from simulator.engine.lanes.steady_state import SteadyState
from simulator.errors import Option, RoofcastError
from simulator.kernels.timing import Provenance
from simulator.operators.transformer import is_encoder_only
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.step import PROVENANCE_SHARE
from simulator.planner.records import Candidate, Rejection, refused, reject
from simulator.planner.serving.capacity import Capacity, KnownSteps, Latencies, Missed, Replica, Role, priced_lanes
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.specs.question.techniques import SpeculationSpec
from simulator.traffic.lengths import Array, RequestMix


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPolicy:
    """How far a replica may be loaded.

    deviate : standard deviations of their logarithm by which steps may be slower than predicted while objectives hold
    """

    utilization: float
    deviate: float = 0.0
    profiles: str | None = None
    max_quality_loss: float | None = None


_GIVEN_LIMIT = ("that `max_model_len` allows", "a larger `max_model_len`")


def check_context(model: ModelSpec, *, mix: RequestMix, max_model_len: int | None) -> None:
    """Refuse requests that the model cannot take on any hardware."""
    if is_encoder_only(model) and mix.osl.mean_tokens > 1:
        raise RoofcastError(
            f"{model.name} is an encoder, whose answer is its one pass: {mix.osl.mean_tokens:g} tokens cannot be "
            "generated; allowed: 1",
            field=Option("osl_tokens"),
            code="no_decode",
            hint=f"`osl_tokens` 1, and `isl_tokens` of at most {model.max_position_embeddings}",
        ).offering({"osl_tokens": 1})
    positions = model.max_position_embeddings
    if max_model_len is not None and positions is not None and max_model_len > positions:
        raise RoofcastError(
            f"{max_model_len} is more than {model.name} has positions; allowed: 1 to {positions}",
            field=Option("max_model_len"),
            code="context_too_long",
        )
    # What an encoder gives takes no position.
    tokens = mix.isl.mean_tokens + (0 if is_encoder_only(model) else mix.osl.mean_tokens)
    limit = max_model_len or positions
    if limit is not None and tokens > limit:
        room = int(limit - tokens + mix.isl.mean_tokens)
        shorter = f"`isl_tokens` {room}" if room > 0 else "fewer `osl_tokens`"
        own = max_model_len is None or max_model_len == positions
        of, more = (f"positions of {model.name}", "plan for a model with a longer context") if own else _GIVEN_LIMIT
        raise RoofcastError(
            f"a mean request of {tokens:.0f} tokens is longer than the {limit} {of}",
            field=Option("isl_tokens"),
            code="context_too_long",
            hint=f"{shorter} fit, or {more}",
        ).offering({"isl_tokens": room} if room > 0 else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of replica of a fleet: of the only one, or of one of two pools; with what later questions need.

    curve, steps : of one lane, and of the priced steps that it was made of; role : the pool's, empty for the only kind
    """

    candidate: Candidate
    replica: Replica
    curve: LoadCurve
    steps: KnownSteps
    role: Role = ""

    def confirmed(self, capacity_per_s: float) -> Part:
        """This part with another capacity, and that share of the rate that saturates it."""
        share = capacity_per_s / self.replica.saturation_per_s
        return replace(self, replica=replace(self.replica, capacity_per_s=capacity_per_s, utilization=share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A candidate that fits, with what one lane of it costs for a mix of requests.

    step_margin : how many times as long as in ``steps`` the steps of ``curve`` take
    """

    candidate: Candidate
    deployment: Deployment
    memory: MemoryPlan
    curve: LoadCurve
    steps: KnownSteps
    step_margin: float = 1.0

    def slowed(self, factor: float) -> Prepared:
        """This replica with steps that take ``factor`` times as long."""
        if factor == 1.0:
            return self
        return replace(self, curve=self.curve.slowed(factor), step_margin=self.step_margin * factor)


def prepare(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, policy: LoadPolicy, prefill_pool: bool = False
) -> Prepared | Rejection:
    """Deploy a candidate and price its steps, or say why it cannot hold one request."""
    (found,) = prepare_all((candidate,), model=model, mix=mix, policy=policy, prefill_pool=prefill_pool)
    return found


def prepare_all(
    tried: Sequence[Candidate], *, model: ModelSpec, mix: RequestMix, policy: LoadPolicy, prefill_pool: bool = False
) -> list[Prepared | Rejection]:
    """``prepare`` of several candidates: the steps of those on one platform are priced together."""
    found: list[_Stepped | Rejection] = []
    for _, same in groupby(tried, key=lambda candidate: id(candidate.platform.hardware)):
        found += _priced(tuple(same), model=model, mix=mix, policy=policy, prefill_pool=prefill_pool)
    curves = iter(load_curves([item[2:4] for item in found if not isinstance(item, Rejection)]))
    return [
        item if isinstance(item, Rejection) else _with_slots(candidate, item, next(curves))
        for candidate, item in zip(tried, found, strict=True)
    ]


_Stepped = tuple[Deployment, MemoryPlan, LaneSteps, Array, KnownSteps]
"""A deployment and its memory, the steps of a lane and the times of their cases [s], and what is known of these."""


def _priced(
    tried: tuple[Candidate, ...], *, model: ModelSpec, mix: RequestMix, policy: LoadPolicy, prefill_pool: bool
) -> list[_Stepped | Rejection]:
    found = [_deployed(candidate, model=model, policy=policy, prefill_pool=prefill_pool) for candidate in tried]
    try:
        priced = iter(priced_lanes([item for item in found if not isinstance(item, Rejection)], mix=mix))
    except RoofcastError as error:
        if len(tried) == 1:
            return [refused(tried[0], error)]
        # Which of them has no price, each says alone.
        return [
            item
            for candidate in tried
            for item in _priced((candidate,), model=model, mix=mix, policy=policy, prefill_pool=prefill_pool)
        ]
    return [item if isinstance(item, Rejection) else (*item, *next(priced)) for item in found]


def deployed(candidate: Candidate, *, model: ModelSpec, policy: LoadPolicy, prefill_pool: bool = False) -> Deployment:
    """A candidate's deployment. Raises RoofcastError for what the engine or the hardware cannot do."""
    return deploy(
        model=model,
        hardware=candidate.platform.hardware,
        parallelism=candidate.parallelism,
        precision=candidate.precision,
        techniques=candidate.techniques,
        engine=candidate.engine,
        profiles=policy.profiles,
        prefill_pool=prefill_pool,
    )


def _deployed(
    candidate: Candidate, *, model: ModelSpec, policy: LoadPolicy, prefill_pool: bool
) -> tuple[Deployment, MemoryPlan] | Rejection:
    """A candidate's deployment and what its memory holds, or why it is none."""
    if policy.max_quality_loss is not None:
        below = quality_refusal(candidate, model=model, allowed=policy.max_quality_loss)
        if below:
            return below
    try:
        deployment = deployed(candidate, model=model, policy=policy, prefill_pool=prefill_pool)
    except RoofcastError as error:
        return refused(candidate, error)
    memory = memory_plan(deployment)
    return memory_refusal(candidate, memory) or (deployment, memory)


def _with_slots(candidate: Candidate, found: _Stepped, curve: LoadCurve) -> Prepared | Rejection:
    deployment, memory, _, _, steps = found
    refusal = slot_refusal(candidate, memory, curve=curve)
    return refusal or Prepared(candidate=candidate, deployment=deployment, memory=memory, curve=curve, steps=steps)


def part_of(
    found: Prepared,
    *,
    limit: Saturation,
    capacity: Capacity,
    objectives: tuple[ObjectiveSpec, ...],
    step_margin: float = 1.0,
    role: Role = "",
) -> Part:
    """The replica of a prepared candidate; step_margin : factor on its predicted steps for ``capacity`` to hold."""
    count = lanes(found.deployment)
    unloaded, at_capacity = lane_latencies(
        capacity.state, objectives=objectives, saturation_per_s=limit.rate_per_s, count=count
    )
    replica = Replica(
        deployment=found.deployment,
        memory=found.memory,
        slots=slots_of(found.curve.mix, limits=found.curve.limits)[0] * count,
        slot_limit=limit.limit,
        saturated_sequences=limit.sequences * count,
        saturation_per_s=limit.rate_per_s * count,
        capacity_per_s=capacity.rate_per_s * count,
        step_margin=step_margin,
        utilization=capacity.rate_per_s / limit.rate_per_s,
        binding=capacity.binding,
        unloaded=unloaded,
        at_capacity=at_capacity,
    )
    return Part(candidate=found.candidate, replica=replica, curve=found.curve, steps=found.steps, role=role)


def _latencies(
    state: SteadyState, *, objectives: tuple[ObjectiveSpec, ...], saturation_per_s: float, count: int
) -> Iterator[Latencies]:
    ttft_s, tpot_s, e2e_s = (state.percentile_s(metric, 95.0) for metric in LatencyMetric)
    asked_s = [state.percentile_s(item.metric, item.percentile) for item in objectives]
    for index, rate in enumerate(state.rates_per_s):
        yield Latencies(
            rate_per_s=float(rate) * count,
            mean_sequences=float(state.mean_sequences[index]) * count,
            ttft_mean_s=float(state.ttft_mean_s[index]),
            tpot_mean_s=float(state.tpot_mean_s[index]),
            e2e_mean_s=float(state.e2e_mean_s[index]),
            ttft_p95_s=float(ttft_s[index]),
            tpot_p95_s=float(tpot_s[index]),
            e2e_p95_s=float(e2e_s[index]),
            objectives_s=tuple(float(values[index]) for values in asked_s),
            kv_utilization=float(state.kv_utilization[index]),
            prompt_share=float(state.prompt_share[index]),
            slot_wait_probability=float(state.slot_wait_probability[index]),
            load=float(rate / saturation_per_s),
        )


def lane_latencies(
    state: SteadyState, *, objectives: tuple[ObjectiveSpec, ...], saturation_per_s: float, count: int = 1
) -> tuple[Latencies, ...]:
    """Latencies of ``count`` equal lanes at each rate of one lane's state; rates and sequences are of all of them."""
    return tuple(_latencies(state, objectives=objectives, saturation_per_s=saturation_per_s, count=count))


def quality_refusal(candidate: Candidate, *, model: ModelSpec, allowed: float) -> Rejection | None:
    """The refusal of answers that lose more than is allowed, as far as is published."""
    # Published figures are read only where a floor asks for them.
    from simulator.techniques.quality import answer_quality

    quality = answer_quality(model, candidate.precision, candidate.techniques)
    if quality.within(allowed):
        return None
    unknown, field = quality.loss is None, Option("max_quality_loss")
    reason = Note("loses_unknown" if unknown else "loses_more", {"loss": quality.loss, "allowed": allowed})
    excess = float("inf") if quality.loss is None else quality.loss - allowed
    return reject(candidate, "quality", reason, field=field, excess=excess)


def memory_refusal(candidate: Candidate, memory: MemoryPlan) -> Rejection | None:
    """The refusal of weights that do not fit."""
    if memory.shortfall_bytes <= 0:
        return None
    reason = Note("does_not_fit", {"memory": memory})
    return reject(candidate, "memory", reason, field="memory", excess=memory.shortfall_bytes / memory.budget_bytes)


def slot_refusal(candidate: Candidate, memory: MemoryPlan, *, curve: LoadCurve) -> Rejection | None:
    """A lane that cannot run one sequence: its token budget or its share of the cache is too small."""
    if curve.slots > 0:
        return None
    limits = curve.limits
    if curve.limit is SlotLimit.TOKEN_BUDGET:
        budget, taken = (round(limits.round_steps * count) for count in (limits.batched_tokens, limits.sequence_tokens))
        short, field = taken + 1 - budget, Option("max_num_batched_tokens")
        reason = Note("few_step_tokens", {"budget": budget, "short": short, "least": taken + 1, "taken": taken})
        return reject(candidate, "token_budget", reason, field=field, excess=short / budget)
    needed = kv_tokens_for_one(curve.mix, limits=limits)
    short_bytes = (needed - limits.kv_tokens) * memory.kv_bytes_per_token
    known = {"held": memory.kv_capacity_tokens, "mean": curve.mix.decode_context_tokens}
    reason = Note("holds_no_request", {**known, "needed": needed, "short_bytes": short_bytes})
    return reject(candidate, "slots", reason, field="memory", excess=short_bytes / memory.budget_bytes)


def missed_objective(candidate: Candidate, missed: Missed, *, margin: float = 1.0) -> Rejection:
    """The refusal of a candidate that misses an objective even without load; margin : of its steps over predicted."""
    item, times = missed.objective, missed.excess
    known = {"objective": item, "idle_s": times * item.bound_s, "times": times, "margin": margin}
    return reject(candidate, "objective", Note("idle_above", known), field="objectives", excess=times - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestSteps:
    """The priced steps nearest to a replica's batch: places of the plain and of the prompt-carrying one."""

    plain: int
    prompts: int
    prompt_share: float

    def log_sigma(self, steps: KnownSteps, speculation: SpeculationSpec | None) -> float:
        """Standard deviation of log(measured / predicted) of the mean step."""
        sigma, share = steps.log_sigma, self.prompt_share
        kernels = (1 - share) * sigma[self.plain] + share * sigma[self.prompts]
        if speculation is None:
            return float(kernels)
        from simulator.techniques.speculation.acceptance import pace_sigma

        return float(np.hypot(kernels, (1 - share) * pace_sigma(speculation)))

    def known(self, steps: KnownSteps) -> Provenance:
        """How well the worse of those that take part of the time is known: a prefill pool generates nothing."""
        shares = {self.plain: 1 - self.prompt_share, self.prompts: self.prompt_share}
        run = [case for case, share in shares.items() if share >= PROVENANCE_SHARE]
        return Provenance(int(steps.provenance[run].max()))


def nearest_steps(curve: LoadCurve, *, sequences: float, prompt_share: float, limit: SlotLimit) -> NearestSteps:
    """The priced steps nearest to ``sequences`` at once; prompt_share : of the time, with steps that carry prompts."""
    plain = int(np.argmin(np.abs(curve.nodes - max(1.0, sequences))))
    # Where prompts saturate the token budget, full steps are what counts; otherwise those with the usual company.
    kind = 2 if limit is SlotLimit.TOKEN_BUDGET else 1
    return NearestSteps(plain=plain, prompts=plain + kind * len(curve.nodes), prompt_share=prompt_share)


def saturated_log_sigma(found: Prepared, limit: Saturation) -> float:
    """Spread of the steps of a candidate whose lanes are full, before it is known how far they are loaded."""
    prefill_s = float(np.interp(limit.sequences, np.arange(found.curve.slots + 1), found.curve.prefill_s))
    share = min(limit.rate_per_s * prefill_s, 1.0) if found.curve.mix.decode_steps > 0 else 1.0
    near = nearest_steps(found.curve, sequences=limit.sequences, prompt_share=share, limit=limit.limit)
    return near.log_sigma(found.steps, found.candidate.techniques.speculation)


def step_margin(found: Prepared, limit: Saturation, policy: LoadPolicy) -> float:
    """How many times as long as predicted the steps of a candidate may take while its capacity holds."""
    return exp(policy.deviate * saturated_log_sigma(found, limit)) if policy.deviate else 1.0
