"""What holds a replica back, and how well that is known.

How sure the latencies of a planned fleet are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from simulator.engine.lanes.load_curve import SlotLimit, lanes
from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.kernels.timing import Provenance
from simulator.planner.records import Fleet, Limit, Objective, Replica
from simulator.planner.serving.feasibility import Evaluated
from simulator.planner.serving.replica_load import fleet_sweep
from simulator.techniques.speculation.pace_spread import pace_sigma
from simulator.traffic.lengths import RequestMix
from simulator.units import bound_text, percent_text

RESOURCES = {"compute": "compute", "memory": "memory bandwidth", "network": "network", "host": "host overhead"}
SLOT_NAMES = {
    SlotLimit.KV_MEMORY: ("KV memory", "the KV cache is full"),
    SlotLimit.BATCH_LIMIT: ("batch limit", "max_num_seqs is reached"),
    SlotLimit.TOKEN_BUDGET: ("token budget", "max_num_batched_tokens is reached"),
}
# More slots are what is missing where ten percent of them move the saturation rate by at least a third of that.
_SLOTS_TRIED = 0.9
_SLOTS_MATTER = 1 / 3
# Normal deviate that leaves 10 % on either side.
DEVIATE_80 = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingSteps:
    """The plain and the prompt-carrying step of a replica near its planned capacity.

    bound : what most of the time waits for (compute, memory, network, host)
    log_sigma : standard deviation of log(measured / predicted) of the mean step, errors of both taken as common, with
        that of the guesses which speculation has accepted where nobody gave it
    provenance : the word for how well the worse of the two is known
    """

    bound: str
    log_sigma: float
    provenance: str


def _known_pace(evaluated: Evaluated) -> Provenance:
    """How well the tokens of a step are known: an acceptance that nobody gave is assumed."""
    speculation = evaluated.candidate.techniques.speculation
    given = speculation is None or speculation.acceptance is not None or speculation.accepted_tokens is not None
    return Provenance.MEASURED if given else Provenance.ASSUMED


def operating_steps(evaluated: Evaluated) -> OperatingSteps:
    """Look up a replica's two kinds of step at the priced batch nearest to its planned one."""
    curve, steps, at = evaluated.curve, evaluated.steps, evaluated.replica.at_capacity
    sequences = at.mean_sequences / lanes(evaluated.replica.deployment)
    plain = int(np.argmin(np.abs(curve.nodes - max(1.0, sequences))))
    # Where prompts saturate the token budget, full steps are what counts; otherwise those with the usual company.
    kind = 2 if evaluated.replica.slot_limit is SlotLimit.TOKEN_BUDGET else 1
    prompts = plain + kind * len(curve.nodes)
    sigma = steps.log_sigma
    kernels = (1 - at.prompt_share) * sigma[plain] + at.prompt_share * sigma[prompts]
    pace = (1 - at.prompt_share) * pace_sigma(evaluated.candidate.techniques.speculation)
    return OperatingSteps(
        bound=steps.bound[prompts if at.prompt_share >= 1 / 2 else plain],
        log_sigma=float(np.hypot(kernels, pace)),
        provenance=Provenance(max(int(steps.provenance[[plain, prompts]].max()), _known_pace(evaluated))).label,
    )


def _slots_matter(evaluated: Evaluated) -> bool:
    rates = evaluated.curve.rates_per_s
    slots = len(rates)
    fewer = max(1, int(_SLOTS_TRIED * slots))
    if fewer == slots:
        return True
    elasticity = np.log(rates[-1] / rates[fewer - 1]) / np.log(slots / fewer)
    return bool(elasticity >= _SLOTS_MATTER)


def _behind(replica: Replica, objective: Objective, *, bound: str) -> str:
    """What uses up an objective: waiting for a slot, waiting for the running steps, or the steps themselves."""
    if objective.metric is not LatencyMetric.TTFT or replica.binding is None:
        return bound
    # The percentile's own request waits for a slot where at least the share above the percentile does.
    if replica.at_capacity.slot_wait_probability >= 1 - objective.percentile / 100:
        return SLOT_NAMES[replica.slot_limit][0]
    idle_s = replica.unloaded.objectives_s[replica.binding]
    return "queueing" if idle_s < objective.bound_s / 2 else bound


def limiting_resource(evaluated: Evaluated, steps: OperatingSteps, *, objectives: tuple[Objective, ...]) -> Limit:
    """Name the resource, and say how it was met.

    Where an objective holds capacity below the target utilisation it is named with what its time goes to; otherwise
    the slots where more of them would raise the rate, or else what the steps wait for.
    """
    replica = evaluated.replica
    resource = RESOURCES[steps.bound]
    if replica.binding is not None:
        objective = objectives[replica.binding]
        detail = (
            f"{objective.name} reaches {bound_text(objective.bound_s)} at {percent_text(replica.utilization)} of the "
            "rate that saturates a replica"
        )
        return Limit(resource=f"{objective.name} ({_behind(replica, objective, bound=resource)})", detail=detail)
    if replica.slot_limit is not SlotLimit.TOKEN_BUDGET and _slots_matter(evaluated):
        name, how = SLOT_NAMES[replica.slot_limit]
        return Limit(resource=name, detail=f"{how} with {replica.slots} sequences at once")
    sequences = replica.at_capacity.mean_sequences / lanes(replica.deployment)
    detail = f"steps of {sequences:.0f} sequences wait mostly for {resource}"
    return Limit(resource=resource, detail=detail)


_PERCENTILE = 95.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRange:
    """The 80 % intervals (low, high) of a fleet's p95 latencies with its spares down [s]; high may be infinite."""

    ttft_p95_s: tuple[float, float]
    tpot_p95_s: tuple[float, float]


def load_range(load: float, *, fleet: Fleet) -> tuple[float, float]:
    """80 % interval of a load of the fleet's replicas: it goes with their step time."""
    spread = exp(DEVIATE_80 * fleet.log_sigma)
    return load / spread, load * spread


def latency_range(fleet: Fleet, *, mix: RequestMix) -> LatencyRange:
    """What this very fleet would show where its steps take as long as the ends of their 80 % interval say.

    Steps that all take s times as long make a replica at rate r one at rate s r whose clock runs s times slower, so
    that waiting grows as well; an infinite end means that the fleet would be overloaded. Leaves out the error of the
    queueing formulas themselves.
    """
    spread = exp(DEVIATE_80 * fleet.log_sigma)
    scales = np.array([1 / spread, spread])
    state = fleet_sweep(fleet, mix=mix).state_of(fleet.degraded.rate_per_s * scales)

    def ends(metric: LatencyMetric) -> tuple[float, float]:
        low_s, high_s = state.percentile_s(metric, _PERCENTILE) * scales
        return float(low_s), float(high_s)

    return LatencyRange(ttft_p95_s=ends(LatencyMetric.TTFT), tpot_p95_s=ends(LatencyMetric.TPOT))
