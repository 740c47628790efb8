"""Two pools in place of one kind of replica: what a prefill replica and a decode replica sustain together.

Objectives on TTFT bound the load of the prefill pool, those on TPOT the load of the decode pool, and those on E2E both:
then the pair of loads is taken that needs the fewest devices. Capacities are for requests at random moments, as those
of aggregated replicas are; latencies at a load are those of prefill replicas that take turns.

References
----------
[Patel2024a], [Zhong2024]

Speculation where prompts and answers have pools of their own: the decode pool guesses, the prefill pool does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from simulator.engine.lanes.load_curve import Saturation, lanes, saturation
from simulator.engine.lanes.steady_state import LatencyMetric, SteadyState
from simulator.engine.runs.disaggregation import transfer_link
from simulator.engine.runs.scheduling import Pool
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.planner.records import Latencies, Objective, Rejection
from simulator.planner.search.candidates import Candidate
from simulator.planner.serving.feasibility import Evaluated, Policy, Prepared, missed_objective, prepare, replica_of
from simulator.planner.serving.pool_states import (
    Transfer,
    both_pools,
    decode_curve,
    decode_mix,
    decode_state,
    prefill_mix,
    prefill_state,
    rows_at,
    turns,
)
from simulator.planner.serving.replica_capacity import (
    Capacity,
    Missed,
    capacity_within,
    excess_of,
    lane_latencies,
    worst_of,
)
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.model.architecture import ModelSpec
from simulator.traffic.lengths import Array, RequestMix


def without_guesses(candidate: Candidate) -> Candidate:
    """The candidate as a prefill replica: prompts give nothing to guess."""
    if candidate.techniques.speculation is None:
        return candidate
    return replace(candidate, techniques=candidate.techniques.model_copy(update={"speculation": None}))


def drafter_refusal(deployment: Deployment) -> str:
    """Why a decode pool cannot guess as ``deployment`` does; empty where it can.

    A drafter with a cache of its own needs the prompt in it. Either the prefill pool computes and sends that too, or
    the decode pool computes every prompt once more with the drafter; neither is priced.
    """
    speculation = deployment.speculation
    if speculation is None or (speculation.draft is None and speculation.kv_bytes_per_token == 0):
        return ""
    return (
        f"{speculation.plan.method} drafts with a cache of its own, which would need every prompt in the decode pool; "
        "allowed in a disaggregated fleet: methods without one, such as ngram"
    )


_LOADS = 12
"""Loads of either pool that are tried together where an objective depends on both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReplica:
    """A replica of one pool, priced, and the rate that saturates a lane of it."""

    found: Prepared
    limit: Saturation

    @property
    def devices(self) -> int:
        """Accelerators of the replica."""
        return self.found.deployment.parallelism.devices

    @property
    def lanes(self) -> int:
        """Schedulers' batches of the replica."""
        return lanes(self.found.deployment)


def refused_pair(candidate: Candidate, *, code: str, message: str) -> Rejection:
    """A pair of pools that cannot be."""
    hardware = candidate.platform.hardware.name
    return Rejection(hardware=hardware, label=candidate.label, code=code, message=message, excess=float("inf"))


def prefill_replica(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, policy: Policy
) -> PoolReplica | Rejection:
    """A replica that computes prompts and sends their KV cache on."""
    found = prepare(without_guesses(candidate), model=model, mix=prefill_mix(mix), policy=policy)
    return found if isinstance(found, Rejection) else PoolReplica(found=found, limit=saturation(found.curve))


def decode_replica(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, policy: Policy
) -> PoolReplica | Rejection:
    """A replica that goes on with prompts computed elsewhere."""
    found = prepare(candidate, model=model, mix=decode_mix(mix), policy=policy)
    if isinstance(found, Rejection):
        return found
    refusal = drafter_refusal(found.deployment)
    if refusal:
        return refused_pair(candidate, code="unsupported_option", message=refusal)
    found = replace(found, curve=decode_curve(found.curve))
    return PoolReplica(found=found, limit=saturation(found.curve))


def transfer_of(prefill: PoolReplica, decode: PoolReplica) -> Transfer:
    """The link between any two replicas of the pools: the network of their servers, or within one domain without it.

    Raises
    ------
    RoofcastError
        Nothing is known that reaches from one pool to the other.
    """
    server = prefill.found.candidate.platform.server
    pools = [Pool(deployment=item.found.deployment, replicas=1) for item in (prefill, decode)]
    spec = DisaggregationSpec(prefill_replicas=1, decode_replicas=1, link="nic" if server else "scale_up")
    link, bytes_per_s = transfer_link(pools[0], pools[1], link=spec.link, server=server)
    # All devices send at once; the side with more of the cache on each sets the pace.
    token_bytes = max(item.found.memory.kv_bytes_per_token for item in (prefill, decode))
    state_bytes = max(item.found.memory.state_bytes_per_sequence for item in (prefill, decode))
    return Transfer(
        link=link,
        token_s=token_bytes / bytes_per_s,
        lanes=prefill.found.deployment.parallelism.pp_size,
        request_s=state_bytes / bytes_per_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prefill and a decode replica, the link between them, and how to ask either for its state at rates of a lane."""

    prefill: PoolReplica
    decode: PoolReplica
    transfer: Transfer

    def prefill_states(self, rates_per_s: Array) -> SteadyState:
        """Of a lane of the prefill replica."""
        return prefill_state(self.prefill.found.curve, rates_per_s=rates_per_s, transfer=self.transfer)

    def decode_states(self, rates_per_s: Array) -> SteadyState:
        """Of a lane of the decode replica."""
        return decode_state(self.decode.found.curve, rates_per_s=rates_per_s)

    @property
    def prefill_saturation_per_s(self) -> float:
        """Rate of a lane at which the prompts, or the link, take all of the time [1/s]."""
        mix = self.prefill.found.curve.mix
        by_link = float(self.transfer.load(np.ones(1), mix=mix)[0])
        return self.prefill.limit.rate_per_s / max(1.0, by_link * self.prefill.limit.rate_per_s)


def _alone(
    states: partial[SteadyState],
    *,
    saturation_per_s: float,
    metric: LatencyMetric,
    objectives: tuple[Objective, ...],
    utilization: float,
) -> Capacity | Missed:
    """A pool's capacity within the objectives that it alone decides; ``binding`` counts in all objectives."""
    places = [place for place, item in enumerate(objectives) if item.metric is metric]
    own = tuple(objectives[place] for place in places)
    found = capacity_within(states, saturation_per_s=saturation_per_s, objectives=own, utilization=utilization)
    if isinstance(found, Missed) or found.binding is None:
        return found
    return replace(found, binding=places[found.binding])


def prefill_capacity(pair: Pair, *, objectives: tuple[Objective, ...], policy: Policy) -> Capacity | Missed:
    """Highest rate of a lane of the prefill pool within the objectives on TTFT."""
    return _alone(
        partial(pair.prefill_states),
        saturation_per_s=pair.prefill_saturation_per_s,
        metric=LatencyMetric.TTFT,
        objectives=objectives,
        utilization=policy.utilization,
    )


def decode_capacity(decode: PoolReplica, *, objectives: tuple[Objective, ...], policy: Policy) -> Capacity | Missed:
    """Highest rate of a lane of the decode pool within the objectives on TPOT."""
    curve = decode.found.curve
    return _alone(
        partial(lambda rates: decode_state(curve, rates_per_s=rates)),
        saturation_per_s=decode.limit.rate_per_s,
        metric=LatencyMetric.TPOT,
        objectives=objectives,
        utilization=policy.utilization,
    )


def _together(
    pair: Pair, first: Capacity, second: Capacity, *, objectives: tuple[Objective, ...]
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
    after = rows_at(pair.decode_states(decode_rates), at[:, 1])
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
        Capacity(rate_per_s=chosen[1], binding=binding, state=pair.decode_states(np.array([idle[1], chosen[1]]))),
    )


def evaluate_pair(
    candidate: Candidate,
    pair: Pair,
    first: Capacity,
    second: Capacity,
    *,
    objectives: tuple[Objective, ...],
) -> Evaluated | Rejection:
    """A pair of pools as one candidate: the decode replica, and behind it the prefill replica."""
    held = _together(pair, first, second, objectives=objectives)
    if isinstance(held, Missed):
        return missed_objective(candidate, held)
    ahead, after = held
    seen = both_pools(ahead.state, after.state)
    seen_by_prefill = both_pools(ahead.state, after.state, of_prefill=True)
    prefill = pair.prefill.found
    limit = replace(pair.prefill.limit, rate_per_s=pair.prefill_saturation_per_s)
    return Evaluated(
        candidate=candidate,
        replica=replica_of(
            pair.decode.found, limit=pair.decode.limit, capacity=after, state=seen, objectives=objectives
        ),
        curve=pair.decode.found.curve,
        steps=pair.decode.found.steps,
        transfer=pair.transfer,
        prefill=Evaluated(
            candidate=prefill.candidate,
            replica=replica_of(prefill, limit=limit, capacity=ahead, state=seen_by_prefill, objectives=objectives),
            curve=prefill.curve,
            steps=prefill.steps,
        ),
    )


def evaluate_pools(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, objectives: tuple[Objective, ...], policy: Policy
) -> Evaluated | Rejection:
    """What the two pools of ``candidate`` sustain, or why they cannot serve."""
    if candidate.prefill is None:
        raise ValueError("a candidate with two pools is needed")
    prefill = prefill_replica(candidate.prefill, model=model, mix=mix, policy=policy)
    if isinstance(prefill, Rejection):
        return replace(prefill, label=candidate.label, message=f"prefill: {prefill.message}")
    decode = decode_replica(candidate, model=model, mix=mix, policy=policy)
    if isinstance(decode, Rejection):
        return decode
    try:
        pair = Pair(prefill=prefill, decode=decode, transfer=transfer_of(prefill, decode))
    except RoofcastError as error:
        return refused_pair(candidate, code=error.code, message=error.message)
    first = prefill_capacity(pair, objectives=objectives, policy=policy)
    second = decode_capacity(decode, objectives=objectives, policy=policy)
    if isinstance(first, Missed):
        return missed_objective(candidate, first)
    if isinstance(second, Missed):
        return missed_objective(candidate, second)
    return evaluate_pair(candidate, pair, first, second, objectives=objectives)


def pool_latencies(
    evaluated: Evaluated,
    decode_rates_per_s: Sequence[float],
    prefill_rates_per_s: Sequence[float],
    *,
    objectives: tuple[Objective, ...],
    prefill_replicas: Sequence[int] = (1,),
    of_prefill: bool = False,
) -> tuple[Latencies, ...]:
    """Latencies at rates of one decode replica and, at once, of one of ``prefill_replicas`` that take turns [1/s]."""
    if evaluated.prefill is None or evaluated.transfer is None:
        raise ValueError("a candidate with two pools is needed")
    first, second = evaluated.prefill, evaluated
    counts = [lanes(item.replica.deployment) for item in (first, second)]
    prompted, streams = np.array(prefill_rates_per_s) / counts[0], turns(first.replica.deployment, prefill_replicas)
    ahead = prefill_state(first.curve, rates_per_s=prompted, transfer=evaluated.transfer, streams=streams)
    after = decode_state(second.curve, rates_per_s=np.array(decode_rates_per_s) / counts[1])
    own, count = (first, counts[0]) if of_prefill else (second, counts[1])
    return lane_latencies(
        both_pools(ahead, after, of_prefill=of_prefill),
        objectives=objectives,
        saturation_per_s=own.replica.saturation_per_s / count,
        count=count,
    )
