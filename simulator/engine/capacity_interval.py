"""How far off a simulated capacity may be: the search repeated with slower and faster steps, and the seeds' scatter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, hypot, log, sqrt

from simulator.engine.capacity_search import RequestSource, SimulatedCapacity, capacity_by_simulation
from simulator.engine.mix_requests import mix_of_requests
from simulator.engine.serve_interval import DEVIATE, step_sigma
from simulator.engine.settings import Routing
from simulator.errors import InfeasibleError
from simulator.kernels.timing import Provenance
from simulator.operators.step_shape import mixed_step
from simulator.phases.deployment import Deployment
from simulator.phases.draft_cost import decode_round
from simulator.phases.step import estimate_step
from simulator.specs.plan import ObjectiveSpec

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
