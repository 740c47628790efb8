"""How far off a simulated capacity may be: the search repeated with slower and faster steps, and the seeds' scatter.

The highest rate that a prefill pool and a decode pool serve together within objectives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, hypot, log, sqrt

from simulator.engine.lanes.load_curve import lane_curve, lanes, saturation
from simulator.engine.runs.capacity_search import (
    LEAST_REQUESTS,
    Progress,
    RequestSource,
    SimulatedCapacity,
    SteadyGuess,
    capacity_by_simulation,
    searched_capacity,
)
from simulator.engine.runs.disaggregation import Pool, serve_disaggregated
from simulator.engine.runs.intervals import step_sigma
from simulator.engine.runs.metrics import ServeResult
from simulator.engine.runs.scheduling import kv_blocks_of, step_tables
from simulator.engine.settings import Routing
from simulator.errors import InfeasibleError, RoofcastError
from simulator.kernels.timing import DEVIATE, Provenance
from simulator.operators.step_shape import mixed_step
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import decode_round
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.question.plan import ObjectiveSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.mixes import mix_of_requests
from simulator.traffic.requests import Requests

FEWER_SEEDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityInterval:
    """80 % interval of a capacity [1/s]; ``low`` is 0 where slower steps miss an objective even when idle.

    log_sigma : of log(measured / predicted) of step times, the engine's own spread included
    provenance : how well the worse of the two kinds of step is known
    """

    low_per_s: float
    high_per_s: float
    log_sigma: float
    provenance: str


def _steps_known(
    deployment: Deployment, *, source: RequestSource, capacity: SimulatedCapacity, replicas: int
) -> tuple[float, str]:
    """Log-sigma and provenance of a mean step at capacity: one prompt, and a decode step of the mean batch."""
    mix, point = mix_of_requests(source(capacity.requests, 0)), capacity.at_capacity
    prompt = estimate_step(deployment, mixed_step(prefill_sequences=1.0, prefill_tokens=max(1.0, mix.isl.mean_tokens)))
    decode = decode_round(deployment, sequences=max(1.0, point.mean_batch), context=mix.decode_context_tokens)
    # One replica's part of the rate: its prompts are what its steps spend time on.
    share = point.rate_per_s / (replicas * deployment.parallelism.dp_size) * float(prompt.step_s[0])
    sigma = step_sigma(
        prefill_sigma=float(prompt.log_sigma[0]), decode_sigma=float(decode.log_sigma[0]), prompt_share=share
    )
    return sigma, Provenance(int(max(prompt.provenance[0], decode.provenance[0]))).label


def _at_scale(
    deployment: Deployment,
    *,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    replicas: int,
    routing: Routing,
    capacity: SimulatedCapacity,
    scale: float,
) -> float:
    try:
        return capacity_by_simulation(
            deployment,
            source=source,
            objectives=objectives,
            replicas=replicas,
            routing=routing,
            seeds=FEWER_SEEDS,
            requests=capacity.requests,
            step_scale=scale,
        ).rate_per_s
    except InfeasibleError:
        return 0.0


def capacity_interval(
    deployment: Deployment,
    *,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    capacity: SimulatedCapacity,
    replicas: int = 1,
    routing: Routing = Routing.ROUND_ROBIN,
) -> CapacityInterval:
    """Search again with all steps at the ends of their 80 % interval, and join the scatter of the seeds (quadrature).

    The engine's own spread is taken as one of all its times, because a capacity has no spread of its own.
    """
    kernels, provenance = _steps_known(deployment, source=source, capacity=capacity, replicas=replicas)
    spread = deployment.engine.spread
    engine = spread.e2e if capacity.binding is None else getattr(spread, capacity.binding.metric)
    sigma = hypot(kernels, engine)

    def at_scale(scale: float) -> float:
        return _at_scale(
            deployment,
            source=source,
            objectives=objectives,
            replicas=replicas,
            routing=routing,
            capacity=capacity,
            scale=scale,
        )

    return interval_of(capacity, log_sigma=sigma, provenance=provenance, at_scale=at_scale)


def interval_of(
    capacity: SimulatedCapacity, *, log_sigma: float, provenance: str, at_scale: Callable[[float], float]
) -> CapacityInterval:
    """The interval of a capacity; ``at_scale`` searches again with all steps that many times as long [1/s]."""
    rate = capacity.rate_per_s
    slow, fast = (at_scale(exp(sign * DEVIATE * log_sigma)) for sign in (1, -1))
    chance_low, chance_high = log(rate / capacity.low_per_s), log(capacity.high_per_s / rate)
    low = 0.0 if slow <= 0 else rate * exp(-sqrt(max(log(rate / slow), 0.0) ** 2 + chance_low**2))
    high = rate * exp(sqrt(max(log(fast / rate), 0.0) ** 2 + chance_high**2)) if fast > 0 else capacity.high_per_s
    return CapacityInterval(low_per_s=low, high_per_s=high, log_sigma=log_sigma, provenance=provenance)


START_LOAD = 0.5
"""Share of the saturation rate of the pool that fills up first at which a search starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsServer:
    """Two pools whose step tables are there already, for many runs (see ``Served``)."""

    prefill: Pool
    decode: Pool
    spec: DisaggregationSpec
    server: ServerSpec | None
    timeout_s: float | None = None
    routing: Routing = Routing.ROUND_ROBIN

    def run(self, requests: Requests) -> ServeResult:
        """Serve requests in both pools, one after the other."""
        return serve_disaggregated(
            requests,
            prefill=self.prefill,
            decode=self.decode,
            spec=self.spec,
            server=self.server,
            timeout_s=self.timeout_s,
            routing=self.routing,
        ).result

    def at_scale(self, scale: float) -> PoolsServer:
        """The same pools with all steps that many times as long."""

        def scaled(pool: Pool) -> Pool:
            return replace(pool, tables=step_tables(pool.deployment, scale=scale))

        return replace(self, prefill=scaled(self.prefill), decode=scaled(self.decode))


def pools_server(
    prefill: Deployment,
    decode: Deployment,
    *,
    spec: DisaggregationSpec,
    server: ServerSpec | None,
    timeout_s: float | None = None,
    routing: Routing = Routing.ROUND_ROBIN,
) -> PoolsServer:
    """Compile both pools once. Raises RoofcastError for what is not modelled or leaves no room for a cache."""
    if prefill.speculation is not None:
        raise RoofcastError(
            "speculation is not modelled in a disaggregated deployment",
            field="disaggregation",
            code="unsupported_option",
        )
    for deployment in (prefill, decode):
        kv_blocks_of(deployment)
    return PoolsServer(
        prefill=Pool(deployment=prefill, replicas=spec.prefill_replicas, tables=step_tables(prefill)),
        decode=Pool(deployment=decode, replicas=spec.decode_replicas, tables=step_tables(decode)),
        spec=spec,
        server=server,
        timeout_s=timeout_s,
        routing=routing,
    )


def _guess(pools: PoolsServer, *, mix: RequestMix) -> SteadyGuess:
    """Half of where the first pool saturates: prompts alone in the one, answers to computed prompts in the other."""
    prompts = replace(mix, osl=LengthDistribution(mean_tokens=1.0))
    answers = replace(mix, prefix_hit_fraction=1 - 1 / max(mix.isl.mean_tokens, 1.0))
    limits = [
        (saturation(lane_curve(pool.deployment, mix=own)), lanes(pool.deployment) * pool.replicas)
        for pool, own in ((pools.prefill, prompts), (pools.decode, answers))
    ]
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


def pools_capacity(
    pools: PoolsServer,
    *,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    seeds: int = 5,
    first_seed: int = 0,
    requests: int | None = None,
    progress: Progress | None = None,
) -> SimulatedCapacity:
    """As ``capacity_by_simulation``, of both pools together [1/s]. Raises InfeasibleError where even idling misses."""
    return searched_capacity(
        pools,
        guess=_guess(pools, mix=mix_of_requests(source(LEAST_REQUESTS, first_seed))),
        source=source,
        objectives=objectives,
        lanes_in_all=lanes(pools.decode.deployment) * pools.decode.replicas,
        seeds=seeds,
        first_seed=first_seed,
        requests=requests,
        progress=progress,
    )


def pools_capacity_interval(
    pools: PoolsServer,
    *,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    capacity: SimulatedCapacity,
) -> CapacityInterval:
    """80 % interval: searched again with the steps of both pools longer and shorter, as unsure as the worse of them."""
    mix, batch = mix_of_requests(source(capacity.requests, 0)), max(1.0, capacity.at_capacity.mean_batch)
    prompt = estimate_step(
        pools.prefill.deployment, mixed_step(prefill_sequences=1.0, prefill_tokens=max(1.0, mix.isl.mean_tokens))
    )
    decode = decode_round(pools.decode.deployment, sequences=batch, context=mix.decode_context_tokens)
    spread = pools.decode.deployment.engine.spread
    engine = spread.e2e if capacity.binding is None else getattr(spread, capacity.binding.metric)
    kernels = max(float(prompt.log_sigma[0]), float(decode.log_sigma[0]))

    def at_scale(scale: float) -> float:
        try:
            return pools_capacity(
                pools.at_scale(scale),
                source=source,
                objectives=objectives,
                seeds=FEWER_SEEDS,
                requests=capacity.requests,
            ).rate_per_s
        except InfeasibleError:
            return 0.0

    known = Provenance(int(max(prompt.provenance[0], decode.provenance[0]))).label
    return interval_of(capacity, log_sigma=hypot(kernels, engine), provenance=known, at_scale=at_scale)
