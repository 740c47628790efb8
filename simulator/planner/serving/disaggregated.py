"""Two pools in place of one kind of replica: prefill replicas compute prompts, decode replicas go on with them.

Objectives on TTFT bound the load of the prefill pool, those on TPOT the load of the decode pool, and those on E2E both:
then the pair of loads is taken that needs the fewest devices. Capacities are for requests at random moments, as those
of aggregated replicas are; latencies of a fleet are those of prefill replicas that take turns.

Speculation: the decode pool guesses. A drafter with a cache of its own needs the prompt in it, so that prefill replicas
then hold and run the drafter too, and send its cache along; they never verify a guess.

Reference: [Patel2024a], [Zhong2024]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from simulator.engine.lanes.load_curve import Saturation, lane_step_s, lane_steps, lanes, load_curves, saturation
from simulator.engine.lanes.steady_state import SteadyState
from simulator.engine.pools import Pool, slower_network, transfer_link
from simulator.errors import RoofcastError
from simulator.phases.deployment import without_speculation
from simulator.phases.step import estimate_step
from simulator.planner.records import Candidate, Rejection, refused
from simulator.planner.serving.capacity import (
    Capacity,
    KnownSteps,
    Missed,
    StatesOf,
    bounded_limits,
    capacity_within,
    excess_of,
    worst_of,
)
from simulator.planner.serving.pool_states import (
    Link,
    Transfer,
    both_pools,
    decode_curve,
    decode_mix,
    decode_state,
    prefill_mix,
    prefill_state,
    rows_at,
)
from simulator.planner.serving.replica import (
    LoadPolicy,
    Part,
    Prepared,
    deployed,
    missed_objective,
    part_of,
    prepare_all,
    step_margin,
)
from simulator.planner.serving.shapes import Counts, Shape
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.traffic.lengths import Array, RequestMix

_LOADS = 12
"""Loads of either pool that are tried together where an objective depends on both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregated(Shape):
    """A pool of replicas that compute prompts, and one of replicas that go on with them."""

    pair: Candidate
    prefill: Part
    decode: Part
    link: Link

    @property
    def candidate(self) -> Candidate:
        """The candidate of both pools."""
        return self.pair

    @property
    def parts(self) -> tuple[Part, ...]:
        """Prefill, then decode."""
        return (self.prefill, self.decode)

    def states(self, rates_per_s: Sequence[Array], *, replicas: Sequence[Array]) -> SteadyState:
        """See ``Shape``: prefill replicas, a scheduler each rank of attention, take turns at the requests."""
        first, second = self.prefill.replica.deployment, self.decode.replica.deployment
        ahead = prefill_state(
            self.prefill.curve,
            rates_per_s=rates_per_s[0] / lanes(first),
            link=self.link,
            streams=replicas[0] * first.parallelism.dp_size,
        )
        return both_pools(ahead, decode_state(self.decode.curve, rates_per_s=rates_per_s[1] / lanes(second)))

    def prompt_share(self, money: Sequence[float]) -> float:
        """What the prefill pool costs."""
        return money[0] / sum(money)

    def transfer_at(self, rate_per_s: float, counts: Counts) -> Transfer | None:
        """See ``Shape``; the link is that of one prefill replica."""
        mix, of_lane = self.prefill.curve.mix, rate_per_s / counts[0] / lanes(self.prefill.replica.deployment)
        busy = self.link.load(np.array([of_lane]), mix=mix)
        return Transfer(
            link=self.link.name,
            prompt_s=self.link.prompt_s(mix),
            token_s=self.link.token_s,
            busy_fraction=float(busy[0]),
        )

    def confirmed(self, rate_per_s: float, counts: Counts) -> Shape:
        """See ``Shape``."""
        prefill, decode = (part.confirmed(rate_per_s / count) for part, count in zip(self.parts, counts, strict=True))
        return replace(self, prefill=prefill, decode=decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReplica:
    """A replica of one pool, priced, and the rate that saturates a lane of it; both with the margin of the plan."""

    found: Prepared
    limit: Saturation

    @property
    def as_predicted(self) -> PoolReplica:
        """This replica without a margin."""
        found = self.found.slowed(1 / self.found.step_margin)
        return PoolReplica(found=found, limit=saturation(found.curve))

    def decode_states(self, rates_per_s: Array) -> SteadyState:
        """State of a lane of a replica that decodes."""
        return decode_state(self.found.curve, rates_per_s=rates_per_s)

    @property
    def devices(self) -> int:
        """Accelerators of the replica."""
        return self.found.deployment.parallelism.devices

    @property
    def lanes(self) -> int:
        """Schedulers' batches of the replica."""
        return lanes(self.found.deployment)


def _drafts_with_cache(candidate: Candidate, *, model: ModelSpec, policy: LoadPolicy) -> bool:
    """Whether guesses come from a drafter that keeps keys and values of its own."""
    if candidate.techniques.speculation is None:
        return False
    try:
        speculation = deployed(candidate, model=model, policy=policy).speculation
    except RoofcastError:
        return False
    return speculation is not None and (speculation.draft is not None or speculation.kv_bytes_per_token > 0)


def _drafted_prompts(found: Prepared) -> Prepared:
    """A prefill replica whose drafter reads every prompt after the model: nothing is guessed, nothing verified."""
    from simulator.phases.draft_cost import prompt_draft_s

    deployment, mix = found.deployment, found.curve.mix
    steps = lane_steps(mix, limits=bounded_limits(deployment, found.memory, mix=mix))
    shape = steps.at.step
    plain = estimate_step(without_speculation(deployment), shape)
    prompts = replace(shape, decode_sequences=np.zeros_like(shape.decode_sequences))
    (curve,) = load_curves([(steps, lane_step_s(plain) + prompt_draft_s(deployment, prompts))])
    return replace(found, curve=curve, steps=KnownSteps.of(plain))


def _priced(
    tried: Sequence[Candidate], *, decodes: bool, model: ModelSpec, mix: RequestMix, policy: LoadPolicy
) -> list[PoolReplica | Rejection]:
    """Replicas that go on with prompts computed elsewhere, or that compute prompts and send their KV cache on, a
    drafter's cache with it."""
    drafts = [not decodes and _drafts_with_cache(candidate, model=model, policy=policy) for candidate in tried]
    asked = [
        candidate
        if decodes or drafted or candidate.techniques.speculation is None
        else replace(candidate, techniques=candidate.techniques.model_copy(update={"speculation": None}))
        for candidate, drafted in zip(tried, drafts, strict=True)
    ]
    own = decode_mix(mix) if decodes else prefill_mix(mix)

    def finished(item: Prepared | Rejection, drafted: bool) -> PoolReplica | Rejection:
        if isinstance(item, Rejection):
            return item
        item = replace(item, curve=decode_curve(item.curve)) if decodes else item
        return _with_margin(_drafted_prompts(item) if drafted else item, policy)

    found = prepare_all(asked, model=model, mix=own, policy=policy, prefill_pool=not decodes)
    return list(map(finished, found, drafts))


class Made:
    """What came of the candidates of one model, mix and policy in a pool: their replicas (the flag says whether they
    decode), and what these sustain alone within objectives by their places (prompts over a link)."""

    def __init__(self) -> None:
        self.replicas: dict[tuple[Candidate, bool], PoolReplica | Rejection] = {}
        self.capacities: dict[
            tuple[Candidate, Link | None, tuple[tuple[int, ObjectiveSpec], ...]], Capacity | Missed
        ] = {}


def pool_replicas(
    tried: Sequence[Candidate], made: Made, *, decodes: bool, model: ModelSpec, mix: RequestMix, policy: LoadPolicy
) -> list[PoolReplica | Rejection]:
    """Replicas of either pool, each priced once whatever it is paired with, those of one call together."""
    new = [candidate for candidate in dict.fromkeys(tried) if (candidate, decodes) not in made.replicas]
    for candidate, replica in zip(new, _priced(new, decodes=decodes, model=model, mix=mix, policy=policy), strict=True):
        made.replicas[candidate, decodes] = replica
    return [made.replicas[candidate, decodes] for candidate in tried]


def _with_margin(found: Prepared, policy: LoadPolicy) -> PoolReplica:
    slow = found.slowed(step_margin(found, saturation(found.curve), policy))
    return PoolReplica(found=slow, limit=saturation(slow.curve))


def link_of(prefill: PoolReplica, decode: PoolReplica) -> Link:
    """The link between any two replicas of the pools: the network of their servers, or within one domain without it.

    Raises RoofcastError: nothing is known that reaches from one pool to the other.
    """
    server = slower_network(*(item.found.candidate.platform.server for item in (prefill, decode)))
    name, bytes_per_s = transfer_link(
        *(Pool(deployment=item.found.deployment, replicas=1) for item in (prefill, decode)),
        link="nic" if server else "scale_up",
        server=server,
    )
    # All devices send at once; the side with more of the cache on each sets the pace.
    token_bytes = max(item.found.memory.kv_bytes_per_token for item in (prefill, decode))
    state_bytes = max(item.found.memory.state_bytes_per_sequence for item in (prefill, decode))
    return Link(name=name, token_s=token_bytes / bytes_per_s, request_s=state_bytes / bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prefill and a decode replica, the link between them, and how to ask either for its state at rates of a lane."""

    prefill: PoolReplica
    decode: PoolReplica
    link: Link

    def prefill_states(self, rates_per_s: Array) -> SteadyState:
        """State of a lane of the prefill replica."""
        return prefill_state(self.prefill.found.curve, rates_per_s=rates_per_s, link=self.link)

    @property
    def prefill_saturation_per_s(self) -> float:
        """Rate of a lane at which the prompts, or the link, take all of the time [1/s]."""
        mix = self.prefill.found.curve.mix
        by_link = float(self.link.load(np.ones(1), mix=mix)[0])
        return self.prefill.limit.rate_per_s / max(1.0, by_link * self.prefill.limit.rate_per_s)


def _alone(
    key: tuple[Candidate, Link | None],
    states: StatesOf,
    made: Made,
    *,
    saturation_per_s: float,
    objectives: Mapping[int, ObjectiveSpec],
    policy: LoadPolicy,
) -> Capacity | Missed:
    """A pool's capacity within ``objectives``, those of all that it alone decides, by their places among them."""
    asked = (*key, tuple(objectives.items()))
    if asked not in made.capacities:
        places, own = tuple(objectives), tuple(objectives.values())
        found = capacity_within(
            states, saturation_per_s=saturation_per_s, objectives=own, utilization=policy.utilization
        )
        if isinstance(found, Capacity) and found.binding is not None:
            found = replace(found, binding=places[found.binding])
        made.capacities[asked] = found
    return made.capacities[asked]


def _on(metric: LatencyMetric, objectives: tuple[ObjectiveSpec, ...]) -> Mapping[int, ObjectiveSpec]:
    return {place: item for place, item in enumerate(objectives) if item.metric is metric}


def prefill_capacity(
    pair: Pair, made: Made, *, objectives: tuple[ObjectiveSpec, ...], policy: LoadPolicy
) -> Capacity | Missed:
    """Highest rate of a lane of the prefill pool within the objectives on TTFT."""
    key, limit_per_s = (pair.prefill.found.candidate, pair.link), pair.prefill_saturation_per_s
    own = _on(LatencyMetric.TTFT, objectives)
    return _alone(key, pair.prefill_states, made, saturation_per_s=limit_per_s, objectives=own, policy=policy)


def decode_capacity(
    decode: PoolReplica, made: Made, *, objectives: tuple[ObjectiveSpec, ...], policy: LoadPolicy
) -> Capacity | Missed:
    """Highest rate of a lane of the decode pool within the objectives on TPOT."""
    key, limit_per_s = (decode.found.candidate, None), decode.limit.rate_per_s
    own = _on(LatencyMetric.TPOT, objectives)
    return _alone(key, decode.decode_states, made, saturation_per_s=limit_per_s, objectives=own, policy=policy)


def _together(
    pair: Pair, first: Capacity, second: Capacity, *, objectives: tuple[ObjectiveSpec, ...]
) -> tuple[Capacity, Capacity] | Missed:
    """Both capacities lowered until the objectives on E2E hold as well, with the fewest devices for a rate."""
    joint = excess_of(both_pools(first.state, second.state), objectives)
    if not len(objectives) or (joint[:, 1] <= 1).all():
        return first, second
    if (joint[:, 0] > 1).any():
        return worst_of(joint[:, 0], objectives)
    loads = np.linspace(1 / _LOADS, 1, _LOADS)
    prefill_rates, decode_rates = loads * first.rate_per_s, loads * second.rate_per_s
    at = np.array([divmod(place, _LOADS) for place in range(_LOADS**2)])
    ahead = rows_at(pair.prefill_states(prefill_rates), at[:, 0])
    after = rows_at(pair.decode.decode_states(decode_rates), at[:, 1])
    excess = excess_of(both_pools(ahead, after), objectives)
    devices = pair.prefill.devices / (prefill_rates[at[:, 0]] * pair.prefill.lanes)
    devices = devices + pair.decode.devices / (decode_rates[at[:, 1]] * pair.decode.lanes)
    best = int(np.argmin(np.where((excess <= 1).all(axis=0), devices, np.inf)))
    if (excess[:, best] > 1).any():
        return worst_of(excess[:, best], objectives)
    binding = int(np.argmax(joint[:, 1]))
    chosen = float(prefill_rates[at[best, 0]]), float(decode_rates[at[best, 1]])
    idle = [float(item.state.rates_per_s[0]) for item in (first, second)]
    return (
        Capacity(rate_per_s=chosen[0], binding=binding, state=pair.prefill_states(np.array([idle[0], chosen[0]]))),
        Capacity(
            rate_per_s=chosen[1], binding=binding, state=pair.decode.decode_states(np.array([idle[1], chosen[1]]))
        ),
    )


def evaluate_pair(
    candidate: Candidate, pair: Pair, first: Capacity, second: Capacity, *, objectives: tuple[ObjectiveSpec, ...]
) -> Disaggregated | Rejection:
    """A pair of pools as one candidate; what requests see idle and at capacity is of both pools."""
    held = _together(pair, first, second, objectives=objectives)
    if isinstance(held, Missed):
        return missed_objective(candidate, held)
    slow, pair = pair, replace(pair, prefill=pair.prefill.as_predicted, decode=pair.decode.as_predicted)
    ahead, after = (
        replace(found, state=states(found.state.rates_per_s))
        for found, states in zip(held, (pair.prefill_states, pair.decode.decode_states), strict=True)
    )
    prefill = replace(pair.prefill.limit, rate_per_s=pair.prefill_saturation_per_s)
    seen, seen_by_prefill = (both_pools(ahead.state, after.state, of_prefill=place) for place in (False, True))
    return Disaggregated(
        pair=candidate,
        prefill=part_of(
            pair.prefill.found,
            limit=prefill,
            capacity=replace(ahead, state=seen_by_prefill),
            objectives=objectives,
            step_margin=slow.prefill.found.step_margin,
            role="prefill",
        ),
        decode=part_of(
            pair.decode.found,
            limit=pair.decode.limit,
            capacity=replace(after, state=seen),
            objectives=objectives,
            step_margin=slow.decode.found.step_margin,
            role="decode",
        ),
        link=pair.link,
    )


def evaluate_pools(
    candidate: Candidate,
    *,
    model: ModelSpec,
    mix: RequestMix,
    objectives: tuple[ObjectiveSpec, ...],
    policy: LoadPolicy,
    made: Made | None = None,
) -> Disaggregated | Rejection:
    """What the two pools of ``candidate`` sustain, or why they cannot serve; see ``pool_replicas``."""
    prompter, decoder = candidate.parts
    made = Made() if made is None else made
    (prefill,) = pool_replicas((prompter,), made, decodes=False, model=model, mix=mix, policy=policy)
    if isinstance(prefill, Rejection):
        reason = Note("prompts_rejected", {"reason": prefill.reason})
        return replace(prefill, candidate=candidate, label=candidate.label, reason=reason)
    (decode,) = pool_replicas((decoder,), made, decodes=True, model=model, mix=mix, policy=policy)
    if isinstance(decode, Rejection):
        return replace(decode, candidate=candidate, label=candidate.label)
    try:
        pair = Pair(prefill=prefill, decode=decode, link=link_of(prefill, decode))
    except RoofcastError as error:
        return refused(candidate, error)
    first = prefill_capacity(pair, made, objectives=objectives, policy=policy)
    second = decode_capacity(decode, made, objectives=objectives, policy=policy)
    if isinstance(first, Missed):
        return missed_objective(candidate, first)
    if isinstance(second, Missed):
        return missed_objective(candidate, second)
    return evaluate_pair(candidate, pair, first, second, objectives=objectives)
