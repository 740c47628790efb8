"""What a deployment sustains within objectives, replicas and pools alike: the answer of ``roofcast capacity``."""

from __future__ import annotations

from dataclasses import field, replace
from math import gcd, hypot

import numpy as np

from simulator.engine.lanes.load_curve import lane_curve, lanes, saturation
from simulator.engine.lanes.steady_state import LatencyMetric, steady_state
from simulator.engine.pools import Pool
from simulator.engine.runs.attention_ffn import attention_ffn_of
from simulator.engine.runs.capacity_search import (
    LEAST_REQUESTS,
    CapacityInterval,
    Progress,
    RequestSource,
    SimulatedCapacity,
    SteadyGuess,
    interval_of,
    searched_capacity,
    workload_source,
)
from simulator.engine.runs.disaggregation import ServedPools, served_pools
from simulator.engine.runs.intervals import step_sigma
from simulator.engine.runs.load_sweep import pool_limits
from simulator.engine.runs.rate_simulation import RatePoint
from simulator.engine.runs.results import Intervals
from simulator.engine.runs.scenario_setup import (
    ServeOptions,
    deployment_of,
    encoders_of,
    pool_deployments,
    scenario_options,
    server_between,
)
from simulator.engine.runs.serving import ServedDeployment, kv_blocks_of
from simulator.errors import InfeasibleError, Option, RoofcastError
from simulator.kernels.timing import Provenance
from simulator.operators.work import mixed_step
from simulator.phases.deployment import assumed_of_pools
from simulator.phases.draft_cost import decode_round
from simulator.phases.step import estimate_step
from simulator.records import FLAT, INSIDE, dataclass
from simulator.specs.base import Assumption, ValueOrigin
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.lengths import RequestMix
from simulator.traffic.workload_requests import mix_of_requests

FEWER_SEEDS = 2
"""Seeds of the searches with longer and shorter steps."""
STEADY_RATES = 48


def _lanes(pool: Pool) -> int:
    return lanes(pool.deployment) * pool.replicas


def _replicas_guess(served: ServedDeployment, *, mix: RequestMix, objectives: tuple[ObjectiveSpec, ...]) -> SteadyGuess:
    """The largest of evenly spaced rates up to which the steady state meets every objective, for all replicas."""
    curve = lane_curve(served.deployment, mix=mix)
    limit = saturation(curve)
    if limit.rate_per_s <= 0:
        raise InfeasibleError("the KV cache does not hold one mean request", field="workload", code="slots")
    rates = limit.rate_per_s * np.linspace(1 / STEADY_RATES, 1 - 1 / STEADY_RATES, STEADY_RATES - 1)
    state = steady_state(curve, rates_per_s=rates)
    holds = np.ones(len(rates), dtype=np.bool_)
    for item in objectives:
        holds &= state.percentile_s(LatencyMetric(item.metric), item.percentile) <= item.bound_s
    last = len(rates) if holds.all() else int(np.argmin(holds))
    place = max(last - 1, 0)
    all_lanes = _lanes(served.decode)
    return SteadyGuess(
        rate_per_s=float(rates[place]) * all_lanes,
        saturation_per_s=limit.rate_per_s * all_lanes,
        mean_sequences=float(state.mean_sequences[place]) * all_lanes,
    )


START_LOAD = 0.5
"""Share of the saturation rate of the pool that fills up first at which a search starts."""


def _pools_guess(pools: ServedPools, *, mix: RequestMix) -> SteadyGuess:
    """Half of where the first pool saturates."""
    limits = pool_limits(pools, mix=mix)
    rates = [limit.rate_per_s * count for limit, count in limits]
    if min(rates) <= 0:
        raise InfeasibleError("the KV cache does not hold one mean request", field="workload", code="slots")
    decoding, count = limits[1]
    load = START_LOAD * min(rates) / rates[1]
    return SteadyGuess(
        rate_per_s=START_LOAD * min(rates),
        saturation_per_s=min(rates),
        mean_sequences=load * decoding.sequences * count,
    )


def capacity_by_simulation(
    served: ServedDeployment | ServedPools,
    *,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    seeds: int = 5,
    first_seed: int = 0,
    requests: int | None = None,
    progress: Progress | None = None,
) -> SimulatedCapacity:
    """The highest mean rate of replicas or of both pools together: ``searched_capacity`` from what lanes sustain."""
    mix = mix_of_requests(source(LEAST_REQUESTS, first_seed))
    if isinstance(served, ServedPools):
        guess = _pools_guess(served, mix=mix)
    else:
        guess = _replicas_guess(served, mix=mix, objectives=objectives)
    return searched_capacity(
        served,
        guess=guess,
        source=source,
        objectives=objectives,
        lanes_in_all=_lanes(served.decode),
        seeds=seeds,
        first_seed=first_seed,
        requests=requests,
        progress=progress,
    )


def _steps_known(served: ServedDeployment | ServedPools, *, mix: RequestMix, at: RatePoint) -> tuple[float, Provenance]:
    """Log-sigma and provenance of a mean step at a rate (one prompt, one decode step); of pools those of the worse."""
    ahead, after = served.prefill.deployment, served.decode.deployment
    prompt = estimate_step(ahead, mixed_step(prefill_sequences=1.0, prefill_tokens=max(1.0, mix.isl.mean_tokens)))
    if mix.decode_steps == 0:
        return float(prompt.log_sigma[0]), Provenance(int(prompt.provenance[0]))
    decode = decode_round(after, sequences=max(1.0, at.mean_batch), context=mix.decode_context_tokens)
    sigmas = float(prompt.log_sigma[0]), float(decode.log_sigma[0])
    known = Provenance(int(max(prompt.provenance[0], decode.provenance[0])))
    if isinstance(served, ServedPools):
        return max(sigmas), known
    # One replica's part of the rate: its prompts are what its steps spend time on.
    share = at.rate_per_s / (served.replicas * after.parallelism.dp_size) * float(prompt.step_s[0])
    return step_sigma(prefill_sigma=sigmas[0], decode_sigma=sigmas[1], prompt_share=share), known


def capacity_interval(
    served: ServedDeployment | ServedPools,
    *,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    capacity: SimulatedCapacity,
) -> CapacityInterval:
    """Search again with all steps at the ends of their 80 % interval, and join the scatter of the seeds (quadrature).
    The engine's own spread is taken as one of all its times, because a capacity has no spread of its own."""
    mix = mix_of_requests(source(capacity.requests, 0))
    kernels, known = _steps_known(served, mix=mix, at=capacity.at_capacity)
    spread = served.decode.deployment.engine.spread
    engine = spread.e2e if capacity.binding is None else getattr(spread, capacity.binding.metric)

    def at_scale(scale: float) -> float:
        try:
            return capacity_by_simulation(
                served.at_scale(scale),
                source=source,
                objectives=objectives,
                seeds=FEWER_SEEDS,
                requests=capacity.requests,
            ).rate_per_s
        except InfeasibleError:
            return 0.0

    return interval_of(capacity, log_sigma=hypot(kernels, engine), provenance=known, at_scale=at_scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveBound:
    """An objective and its bound [s]."""

    objective: ObjectiveSpec
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveValue:
    """An objective, the percentile that was simulated [s], and whether it stays at or under the bound."""

    objective: ObjectiveSpec
    value_s: float
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanAndTail:
    """A latency over all seeds together [s]."""

    mean_s: float
    p95_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPoint:
    """A rate that was visited, as in ``RatePoint``."""

    rate_per_s: float
    holds: bool
    saturated: bool
    ttft: MeanAndTail = field(metadata=FLAT)
    tpot: MeanAndTail = field(metadata=FLAT)
    e2e: MeanAndTail = field(metadata=FLAT)
    mean_batch: float
    kv_utilization: float
    unanswered_fraction: float
    objectives: tuple[ObjectiveValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityResult:
    """What a scenario sustains, as ``roofcast capacity`` tells it; rates are mean requests/s of all replicas.

    rate_per_s : highest rate seen to meet every objective; interval : with the errors of step times;
    seed_interval : from the scatter of seeds alone; failing_rate_per_s : lowest rate seen to fail
    binding : the objective that fails there, None for a growing queue
    steady_state_rate_per_s : where the search started; provenance : of the worse known of the two kinds of step
    scenario, served : what was asked, and what was searched
    """

    rate_per_s: float
    interval: Intervals
    seed_interval: Intervals
    binding: ObjectiveSpec | None
    failing_rate_per_s: float
    objectives: tuple[ObjectiveBound, ...]
    points: tuple[CapacityPoint, ...]
    steady_state_rate_per_s: float
    saturation_rate_per_s: float
    seeds: int
    requests_per_seed: int
    provenance: Provenance
    assumptions: tuple[Assumption, ...]
    scenario: ScenarioSpec = field(metadata=INSIDE)
    served: ServedDeployment | ServedPools = field(metadata=INSIDE)


def _point(point: RatePoint) -> CapacityPoint:
    ttft, tpot, e2e = (
        MeanAndTail(mean_s=mean_s, p95_s=p95_s) for mean_s, p95_s in zip(point.means_s, point.p95_s, strict=True)
    )
    return CapacityPoint(
        rate_per_s=point.rate_per_s,
        holds=point.holds,
        saturated=point.saturated,
        ttft=ttft,
        tpot=tpot,
        e2e=e2e,
        mean_batch=point.mean_batch,
        kv_utilization=point.kv_utilization,
        unanswered_fraction=point.unanswered_fraction,
        objectives=tuple(
            ObjectiveValue(objective=check.objective, value_s=check.value_s, holds=check.holds)
            for check in point.checks
        ),
    )


def served_of(
    scenario: ScenarioSpec, options: ServeOptions, *, profiles: str | None = None
) -> ServedDeployment | ServedPools:
    """The replicas or pools of a scenario, their steps compiled, for many runs."""
    timeout_s = None if scenario.workload is None else scenario.workload.timeout_s
    spec = scenario.disaggregation
    if spec is None:
        deployment = deployment_of(scenario, profiles=profiles)
        kv_blocks_of(deployment)  # refuses a deployment without room for a cache before any work
        return ServedDeployment(
            deployment=deployment,
            replicas=scenario.replicas,
            routing=options.routing,
            timeout_s=timeout_s,
            encoders=encoders_of(scenario, deployment, profiles=profiles),
        )
    prefill, decode = pool_deployments(scenario, spec, profiles=profiles)
    server = server_between(prefill, decode, profiles=profiles)
    return served_pools(
        prefill,
        decode,
        spec=spec,
        server=server,
        timeout_s=timeout_s,
        routing=options.routing,
        encoders=encoders_of(scenario, prefill, profiles=profiles),
        attention_ffn=attention_ffn_of(scenario, spec, decode, profiles=profiles),
    )


SIDE_BY_SIDE = 16
"""Replicas whose batches the requests of one run fill many times over; more of them serve in proportion."""
_MOST_POOLED = 512
"""Most replicas that are simulated together: pools whose ratio takes so many, replicas that depend on each other."""


def _group(scenario: ScenarioSpec) -> tuple[ScenarioSpec, float]:
    """A deployment of few replicas that sees the same load as all of a scenario's, and how many such there are.

    Raises RoofcastError: pools of many replicas in no ratio of few are more than is simulated.
    """
    pools = scenario.disaggregation
    joined = scenario.encoder_pool is not None or (pools is not None and pools.decode_ffn is not None)
    shares_cache = any(tier.medium == "remote" for tier in scenario.engine.kv_tiers or ())
    if joined or shares_cache or scenario.routing == "prefix_aware":
        # What encoders or experts work for, or what is cached, depends on all of them.
        divisor, count = 1, pools.prefill_replicas + pools.decode_replicas if pools else scenario.replicas
    elif pools is None:
        if scenario.replicas <= SIDE_BY_SIDE:
            return scenario, 1.0
        return scenario.model_copy(update={"replicas": SIDE_BY_SIDE}), scenario.replicas / SIDE_BY_SIDE
    else:
        common = gcd(pools.prefill_replicas, pools.decode_replicas)
        count = pools.prefill_replicas + pools.decode_replicas
        sizes = (size for size in range(1, _MOST_POOLED + 1) if common % size == 0)
        divisor = common // next((size for size in sizes if count // common * size >= SIDE_BY_SIDE), common)
    if count // divisor > _MOST_POOLED:
        raise RoofcastError(
            f"{count:,} replicas; at most {_MOST_POOLED:,} are searched together",
            field="disaggregation" if pools else "replicas",
            code="out_of_range",
            hint="search a share of them: the rate is in proportion",
        )
    if pools is None or divisor == 1:
        return scenario, 1.0
    fewer = {name: getattr(pools, name) // divisor for name in ("prefill_replicas", "decode_replicas")}
    return scenario.model_copy(update={"disaggregation": pools.model_copy(update=fewer)}), float(divisor)


def _whole(served: ServedDeployment | ServedPools, *, groups: float) -> ServedDeployment | ServedPools:
    """All groups of what was served."""
    if isinstance(served, ServedDeployment):
        return replace(served, replicas=round(groups * served.replicas))
    ahead, after = (replace(pool, replicas=round(groups * pool.replicas)) for pool in (served.prefill, served.decode))
    return replace(served, prefill=ahead, decode=after)


def sustained_rate(
    scenario: ScenarioSpec,
    *,
    objectives: tuple[ObjectiveSpec, ...] = (),
    seeds: int = 5,
    requests: int | None = None,
    progress: Progress | None = None,
    profiles: str | None = None,
) -> CapacityResult:
    """The highest rate of a scenario's replicas or pools; its stages keep their proportions.

    Of many replicas a group is simulated that sees its share of the rate: the answer is in proportion.

    objectives : before those of the scenario's ``slo``; seeds : independent runs at every rate
    requests : of one run, None for enough to fill the batches at capacity many times over
    """
    options = scenario_options(scenario, ServeOptions(objectives=objectives))
    if not options.objectives:
        raise RoofcastError(
            "at least one objective is needed",
            field=Option("slo"),
            hint="such as `slo` ttft-p95=2s, or slo in the scenario",
        )
    workload = scenario.workload or WorkloadSpec()
    group, groups = _group(scenario)
    served = served_of(group, options, profiles=profiles)
    engine = served.prefill.deployment.engine
    source = workload_source(workload, block_size_tokens=engine.block_size_tokens, context_tokens=engine.max_model_len)
    found = capacity_by_simulation(
        served,
        source=source,
        objectives=options.objectives,
        seeds=seeds,
        first_seed=workload.seed,
        requests=requests,
        progress=progress,
    )
    interval = capacity_interval(served, source=source, objectives=options.objectives, capacity=found)
    found = found.times(groups)
    detail = f"a group of them was simulated, of {groups:g} such: rates are in proportion"
    told = (Assumption(key="replicas", origin=ValueOrigin.RULE, detail=detail),) if groups > 1 else ()
    return CapacityResult(
        rate_per_s=found.rate_per_s,
        interval={"rate_per_s": (groups * interval.low_per_s, groups * interval.high_per_s)},
        seed_interval={"rate_per_s": (found.low_per_s, found.high_per_s)},
        binding=found.binding,
        failing_rate_per_s=found.failing_per_s,
        objectives=tuple(ObjectiveBound(objective=item, bound_s=item.bound_s) for item in options.objectives),
        points=tuple(_point(point) for point in found.points),
        steady_state_rate_per_s=found.steady_per_s,
        saturation_rate_per_s=found.saturation_per_s,
        seeds=found.seeds,
        requests_per_seed=found.requests,
        provenance=interval.provenance,
        assumptions=(*assumed_of_pools(served.prefill.deployment, served.decode.deployment), *told),
        scenario=scenario,
        served=_whole(served, groups=groups),
    )
