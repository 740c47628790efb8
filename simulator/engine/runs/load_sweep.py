"""How latency grows with load: the event simulation at rates up to saturation, and how sure the occupancy is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp, hypot, inf, sqrt

import numpy as np

from simulator.engine.lanes.load_curve import Saturation, lane_curve, lanes, saturation
from simulator.engine.lanes.steady_state import steady_state
from simulator.engine.pools import Pool
from simulator.engine.runs.capacity_search import SteadyGuess
from simulator.engine.runs.disaggregation import ServedPools
from simulator.engine.runs.metrics import LatencySummary, StageResult
from simulator.engine.runs.serving import ServedDeployment, requests_of
from simulator.engine.uniform.record import require_fit
from simulator.errors import InfeasibleError, RoofcastError, missing_field
from simulator.kernels.intervals import DEVIATE, Range
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.records import dataclass
from simulator.specs.base import validate
from simulator.specs.question.plan_values import SERVED_DURATION_S, LatencyMetric, ObjectiveSpec
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.units import MILLI

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97, 1.1)
"""Arrival rates as shares of the saturation rate; the last one lies beyond it."""
DEFAULT_REQUESTS = 1000
LARGEST_REQUESTS = 5000
HALF = 0.5
"""Share of the saturation rate at which it is seen what caches hold of prompts that come again."""
_LOWEST, _HIGHEST, _HALVINGS = 1 / 4, 4.0, 6
"""Between what shares of a crowd's rate saturation is looked for, and how often that range is halved: to 4 %."""
KNEE_FACTOR = 2.0
"""The knee is where the p95 of TTFT has grown by this factor over that of the lightest load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One rate of the sweep: the workload that was simulated, and what its clients saw."""

    rate_per_s: float
    workload: WorkloadSpec
    stage: StageResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSweep:
    """A deployment from light load to overload.

    points : in order of rate; saturation_per_s : highest rate that it keeps up with
    knee_per_s : where the p95 of TTFT has doubled, interpolated; None when it never does
    """

    points: tuple[LoadPoint, ...]
    saturation_per_s: float

    @property
    def knee_per_s(self) -> float | None:
        """Rate at which p95 TTFT has grown by KNEE_FACTOR over the lightest load [1/s]."""
        rates = np.array([point.rate_per_s for point in self.points])
        p95_s = np.array([point.stage.ttft.p95_s for point in self.points])
        above = np.flatnonzero(p95_s > KNEE_FACTOR * p95_s[0])
        if not len(above):
            return None
        first = int(above[0])
        part = (KNEE_FACTOR * p95_s[0] - p95_s[first - 1]) / (p95_s[first] - p95_s[first - 1])
        return float(rates[first - 1] + part * (rates[first] - rates[first - 1]))

    def nearest(self, rate_per_s: float) -> int:
        """The place of the point whose rate is nearest to another one [1/s]."""
        return min(range(len(self.points)), key=lambda place: abs(self.points[place].rate_per_s - rate_per_s))


def summary_of(stage: StageResult, metric: str) -> LatencySummary:
    """``ttft``, ``tpot`` or ``e2e`` of a stage."""
    match metric:
        case "ttft":
            return stage.ttft
        case "tpot":
            return stage.tpot
        case "e2e":
            return stage.e2e
    raise RoofcastError(f"{metric!r} is not a latency; allowed: ttft, tpot, e2e", field="metric")


def request_mix(workload: WorkloadSpec, deployment: Deployment) -> RequestMix:
    """The lengths of a workload as the steady state takes them; its system prompt counts as cached."""
    if workload.osl_tokens is None or (workload.isl_tokens is None and workload.question_tokens is None):
        raise missing_field(
            "a load sweep needs prompt and answer lengths", field="workload", hint="isl_tokens and osl_tokens"
        )
    question = workload.question_tokens
    isl = workload.isl_tokens if question is None else workload.system_prompt_tokens + question
    assert isl is not None, "one of the two is given"
    return (
        RequestMix(
            isl=LengthDistribution(mean_tokens=float(isl), cv=workload.isl_cv),
            osl=LengthDistribution(mean_tokens=float(workload.osl_tokens), cv=workload.osl_cv),
            prefix_hit_fraction=workload.system_prompt_tokens / isl,
            arrival_cv=workload.burstiness if workload.arrival == "gamma" else 1.0,
        )
        .answered(workload.answers_per_request)
        .within(deployment.engine.max_model_len)
    )


def at_share(
    workload: WorkloadSpec, *, share: float, saturation_per_s: float, requests: int = DEFAULT_REQUESTS
) -> WorkloadSpec:
    """``workload`` as one stage of ``requests`` requests at a share of the saturation rate, rounded to three digits."""
    rate_per_s = float(f"{share * saturation_per_s / workload.answers_per_request:.3g}")
    stage = StageSpec(rate_per_s=rate_per_s, duration_s=requests / rate_per_s)
    return workload.model_copy(update={"stages": (stage,)})


_FEW_REQUESTS = 10
MOST_REQUESTS = 20_000
"""Of a load that somebody waits for: enough for every percentile, and soon simulated."""


def at_rate(workload: WorkloadSpec, *, rate_per_s: float) -> WorkloadSpec:
    """``workload`` as one stage at a rate, as long as a served load is by default or until MOST_REQUESTS have come, and
    long enough for some to come."""
    duration_s = max(min(SERVED_DURATION_S, MOST_REQUESTS / rate_per_s), _FEW_REQUESTS / rate_per_s)
    return workload.model_copy(update={"stages": (StageSpec(rate_per_s=rate_per_s, duration_s=duration_s),)})


def saturation_rate_per_s(deployment: Deployment, *, mix: RequestMix) -> float:
    """Highest arrival rate that one replica keeps up with, in steady state [1/s]."""
    return saturation(lane_curve(deployment, mix=mix)).rate_per_s * lanes(deployment)


def pool_limits(pools: ServedPools, *, mix: RequestMix) -> tuple[tuple[Saturation, int], tuple[Saturation, int]]:
    """Where a lane of each pool saturates, and how many lanes it has: prompts alone in the one, answers to computed
    prompts in the other."""
    prompts = replace(mix, osl=LengthDistribution(mean_tokens=1.0))
    answers = replace(mix, prefix_hit_fraction=1 - 1 / max(mix.isl.mean_tokens, 1.0))
    first, second = (
        (saturation(lane_curve(pool.deployment, mix=own)), lanes(pool.deployment) * pool.replicas)
        for pool, own in ((pools.prefill, prompts), (pools.decode, answers))
    )
    return first, second


def _saturation_per_s(served: ServedDeployment | ServedPools, *, workload: WorkloadSpec, requests: int) -> float:
    """Highest rate that everything together keeps up with [requests/s]: in steady state, where that knows it all."""
    if served.decode.attention_ffn is not None or _loads_blocks(served.prefill.deployment):
        return _simulated_limit_per_s(served, workload=workload, requests=requests)
    mix = request_mix(workload, served.prefill.deployment)
    limit_per_s = _steady_limit_per_s(served, mix=mix)
    if workload.prompts_per_group and limit_per_s > 0:
        cold = at_share(workload, share=HALF, saturation_per_s=limit_per_s, requests=requests)
        limit_per_s = _steady_limit_per_s(served, mix=with_hits(mix, _stage(served, cold)))
    encoders_per_s = inf if served.encoders is None else served.encoders.saturation_per_s * workload.answers_per_request
    return min(limit_per_s, encoders_per_s)


def _loads_blocks(deployment: Deployment) -> bool:
    """Whether blocks come from below the cache, in a time that the steady state does not know."""
    return bool(deployment.engine.kv_tiers) or deployment.engine.cpu_kv_offload


def with_hits(mix: RequestMix, seen: StageResult) -> RequestMix:
    """A mix whose prompts come again, with the share of their tokens that a run has found in the caches."""
    return replace(mix, prefix_hit_fraction=max(mix.prefix_hit_fraction, seen.prefix_hit_fraction))


def _steady_limit_per_s(served: ServedDeployment | ServedPools, *, mix: RequestMix) -> float:
    if isinstance(served, ServedPools):
        return min(limit.rate_per_s * count for limit, count in pool_limits(served, mix=mix))
    return saturation_rate_per_s(served.deployment, mix=mix) * served.replicas


def _simulated_limit_per_s(served: ServedDeployment | ServedPools, *, workload: WorkloadSpec, requests: int) -> float:
    """Highest rate whose queue is not seen to grow [requests/s], for steps and loads of blocks that no formula of the
    steady state knows: halved between rates around what a crowd that comes at once is finished at."""
    crowd_per_s = _crowd_rate_per_s(served, workload=workload)
    low, high = crowd_per_s * _LOWEST, crowd_per_s * _HIGHEST
    for _ in range(_HALVINGS):
        middle = sqrt(low * high)
        loaded = at_share(workload, share=1.0, saturation_per_s=middle, requests=requests)
        low, high = (low, middle) if _stage(served, loaded).saturated else (middle, high)
    return sqrt(low * high)


def _crowd_rate_per_s(served: ServedDeployment | ServedPools, *, workload: WorkloadSpec) -> float:
    """What is finished a second until three quarters of many requests that come at once are [requests/s]."""
    at_once = at_share(workload, share=1.0, saturation_per_s=LARGEST_REQUESTS / MILLI, requests=LARGEST_REQUESTS)
    patient = replace(served, timeout_s=None)
    ended_s = np.sort(patient.run(requests_of(at_once, served.prefill.deployment)).run.records.finish_s)
    finished = ended_s[np.isfinite(ended_s)]
    most = 3 * len(finished) // 4
    return float(most / finished[most]) if most else 0.0


def _stage(served: ServedDeployment | ServedPools, load: WorkloadSpec) -> StageResult:
    return served.run(requests_of(load, served.prefill.deployment)).overall


def load_sweep(
    served: ServedDeployment | ServedPools,
    *,
    workload: WorkloadSpec,
    shares: tuple[float, ...] = SHARES,
    requests: int | None = None,
) -> LoadSweep:
    """``workload``'s requests at shares of the saturation rate, as ``answer`` returns them.

    requests : at each rate; by default as many for every replica of the larger of two pools as for one deployment;
        where prompts come again the run is as long as a load at that rate

    Raises RoofcastError: no lengths, or more requests than a sweep may take.
    Raises InfeasibleError: no fit, or no room.
    """
    if requests is None:
        larger = max(served.prefill.replicas, served.decode.replicas) if isinstance(served, ServedPools) else 1
        requests = LARGEST_REQUESTS if workload.prompts_per_group else min(DEFAULT_REQUESTS * larger, LARGEST_REQUESTS)
    if not 1 <= requests <= LARGEST_REQUESTS:
        raise RoofcastError(f"{requests}; allowed: 1 to {LARGEST_REQUESTS}", field="requests")
    mix = request_mix(workload, served.prefill.deployment)
    tokens = round(mix.isl.mean_tokens + mix.osl.mean_tokens)
    for pool in (served.prefill, served.decode):
        require_fit(pool.deployment, memory_plan(pool.deployment), tokens=tokens)
    saturation_per_s = _saturation_per_s(served, workload=workload, requests=requests)
    if saturation_per_s <= 0:
        raise InfeasibleError("the KV cache does not hold one request", field="workload", hint="shorter requests")
    points = []
    for share in shares:
        loaded = at_share(workload, share=share, saturation_per_s=saturation_per_s, requests=requests)
        if workload.prompts_per_group:
            # The first time that each prompt comes is as large a part of the run as of a load at that rate alone.
            loaded = at_rate(workload, rate_per_s=loaded.stages[0].rate_per_s)
        points.append(LoadPoint(rate_per_s=loaded.stages[0].rate_per_s, workload=loaded, stage=_stage(served, loaded)))
    return LoadSweep(points=tuple(points), saturation_per_s=saturation_per_s)


def demand_of(
    *,
    isl_tokens: int,
    osl_tokens: int,
    isl_cv: float,
    osl_cv: float,
    prefix_hit_fraction: float = 0.0,
    different_prompts: int | None = None,
) -> WorkloadSpec:
    """Poisson arrivals of requests with these lengths; the cached share of the prompt is a common system prompt.

    different_prompts : as many come again and again, in turn; None where every question is new

    Raises RoofcastError: a length or its variation is out of its range (names it).
    """
    system = min(round(isl_tokens * prefix_hit_fraction), isl_tokens - 1)
    asked = {
        "arrival": "poisson",
        "system_prompt_tokens": system,
        "question_tokens": isl_tokens - system,
        "osl_tokens": osl_tokens,
        "isl_cv": isl_cv,
        "osl_cv": osl_cv,
        "prompts_per_group": different_prompts,
    }
    return validate(WorkloadSpec, WorkloadSpec.given(asked), where="")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """How loaded a deployment is: the rate that saturates all replicas [requests/s], None with tiers below the cache.

    interval : 80 % intervals of that rate, of the sequences in a batch and of the share of the KV blocks in use
    """

    saturation_per_s: float | None = None
    interval: Mapping[str, Range]


def load_result(
    deployment: Deployment, *, workload: WorkloadSpec, replicas: int, step_log_sigma: float, served: StageResult
) -> LoadResult | None:
    """What a run would show where its steps take as long as the ends of their 80 % interval say.

    None where the load is not one: several stages, or lengths that a trace says. Steps that all take s times as long
    make a deployment at rate r one at rate s r whose clock runs s times slower: it saturates at 1/s of the rate, and
    holds as much as at s r. ``served`` is the run of all ``replicas``, whose batch and cache are scaled by what the
    steady state says of those rates; a queue that grows fills every slot. The engine's own spread counts for
    saturation, as one of all its times. Left out: errors of the workload, and of the steady state's formulas, which
    only give ratios here.
    """
    known = workload.isl_tokens is not None or workload.question_tokens is not None
    if workload.arrival == "trace" or len(workload.stages) != 1 or not known or workload.osl_tokens is None:
        return None
    count = replicas * lanes(deployment)
    rate_per_s = workload.stages[0].rate_per_s * workload.answers_per_request / count
    mix = request_mix(workload, deployment)
    curve = lane_curve(deployment, mix=with_hits(mix, served) if workload.prompts_per_group else mix)
    limit_per_s = saturation(curve).rate_per_s * count
    scales = np.exp(DEVIATE * step_log_sigma * np.array([-1.0, 0.0, 1.0]))
    state = steady_state(curve, rates_per_s=rate_per_s * scales)
    spread = exp(DEVIATE * hypot(step_log_sigma, deployment.engine.spread.e2e))
    kv_low, kv_high = _around(served.kv_utilization, state.kv_utilization)
    ends: dict[str, Range] = {
        "mean_batch": _around(served.mean_batch, state.mean_sequences),
        "kv_utilization": (kv_low, min(kv_high, 1.0)),
    }
    if _loads_blocks(deployment):
        return LoadResult(interval=ends)
    return LoadResult(
        saturation_per_s=limit_per_s,
        interval={"saturation_per_s": (limit_per_s / spread, limit_per_s * spread), **ends},
    )


def _around(value: float, steady: np.ndarray) -> tuple[float, float]:
    """A simulated value with the spread that the steady state shows between faster, equal and slower steps."""
    low, middle, high = (float(item) for item in steady)
    if middle <= 0:
        return value, value
    return value * low / middle, value * high / middle


STEADY_RATES = 48


def lanes_of(pool: Pool) -> int:
    """Schedulers of a pool."""
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
    all_lanes = lanes_of(served.decode)
    sequences = float(state.mean_sequences[place]) * all_lanes
    return SteadyGuess(
        rate_per_s=float(rates[place]) * all_lanes,
        saturation_per_s=limit.rate_per_s * all_lanes,
        mean_sequences=sequences,
        full_sequences=sequences,
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
    full_sequences = min(rates) / rates[1] * decoding.sequences * count
    return SteadyGuess(
        rate_per_s=START_LOAD * min(rates),
        saturation_per_s=min(rates),
        mean_sequences=START_LOAD * full_sequences,
        full_sequences=full_sequences,
    )


def steady_guess(
    served: ServedDeployment | ServedPools, *, mix: RequestMix, objectives: tuple[ObjectiveSpec, ...]
) -> SteadyGuess:
    """Where a search for a capacity starts: the steady state of replicas within the objectives, half of where the first
    of two pools saturates. Raises InfeasibleError: the cache does not hold a request."""
    if isinstance(served, ServedPools):
        return _pools_guess(served, mix=mix)
    return _replicas_guess(served, mix=mix, objectives=objectives)
