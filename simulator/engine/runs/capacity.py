"""What a deployment sustains within objectives, replicas and pools alike: the answer of ``roofcast capacity``."""

from __future__ import annotations

from dataclasses import field, replace
from math import hypot

from simulator.engine.pools import small_group, transfer_link
from simulator.engine.runs.capacity_search import (
    COMPANY_TIMES,
    FEWEST_TIMES,
    LEAST_REQUESTS,
    MOST_REQUESTS,
    CapacityInterval,
    Progress,
    RequestSource,
    SimulatedCapacity,
    affordable_requests,
    interval_of,
    searched_capacity,
    workload_source,
)
from simulator.engine.runs.disaggregation import Served, ServedPools
from simulator.engine.runs.intervals import step_sigma
from simulator.engine.runs.load_sweep import lanes_of, steady_guess
from simulator.engine.runs.rate_simulation import RatePoint
from simulator.engine.runs.results import Intervals
from simulator.engine.runs.scenario_setup import ServeOptions, scenario_options
from simulator.engine.runs.served_run import served_of
from simulator.engine.runs.serving import ServedDeployment
from simulator.errors import InfeasibleError, Option, RoofcastError
from simulator.kernels.timing import Provenance
from simulator.operators.work import mixed_step
from simulator.phases.deployment import assumed_of_pools
from simulator.phases.draft_cost import decode_round
from simulator.phases.step import estimate_step
from simulator.records import INSIDE, dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.lengths import RequestMix
from simulator.traffic.requests import LARGEST_REQUESTS, Requests
from simulator.traffic.workload_requests import mix_of_requests


def capacity_by_simulation(
    served: Served,
    *,
    source: RequestSource,
    objectives: tuple[ObjectiveSpec, ...],
    seeds: int = 5,
    first_seed: int = 0,
    requests: int | None = None,
    progress: Progress | None = None,
) -> SimulatedCapacity:
    """The highest mean rate of replicas or of both pools together: ``searched_capacity`` from what lanes sustain."""
    if requests is not None and seeds * requests > LARGEST_REQUESTS:
        raise RoofcastError(
            f"{seeds} runs of {requests:,} requests; at most {LARGEST_REQUESTS:,} are simulated at a rate",
            field=Option("requests"),
            code="out_of_range",
            hint="fewer of either: percentiles settle long before",
        )
    mix = _mix(served, source(LEAST_REQUESTS, first_seed))
    return searched_capacity(
        served,
        guess=steady_guess(served, mix=mix, objectives=objectives),
        source=source,
        objectives=objectives,
        lanes_in_all=lanes_of(served.decode),
        affordable=affordable_requests(seeds=seeds, osl_tokens=mix.osl.mean_tokens),
        seeds=seeds,
        first_seed=first_seed,
        requests=requests,
        progress=progress,
    )


def _mix(served: Served, requests: Requests) -> RequestMix:
    engine = served.prefill.deployment.engine
    return mix_of_requests(requests, block_size_tokens=engine.block_size_tokens if engine.prefix_caching else None)


def _steps_known(served: Served, *, mix: RequestMix, at: RatePoint) -> tuple[float, Provenance]:
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


def capacity_interval(served: Served, *, source: RequestSource, capacity: SimulatedCapacity) -> CapacityInterval:
    """Search again with all times at the ends of their 80 % interval, and join the scatter of the seeds (quadrature).
    The engine's own spread is taken as one of all its times, because a capacity has no spread of its own."""
    mix = _mix(served, source(capacity.requests, 0))
    kernels, known = _steps_known(served, mix=mix, at=capacity.at_capacity)
    spread = served.decode.deployment.engine.spread
    engine = spread.e2e if capacity.binding is None else getattr(spread, capacity.binding.metric)

    def at_scale(scale: float) -> float:
        try:
            return capacity.at_scale(scale)
        except InfeasibleError:
            return 0.0

    return interval_of(capacity, log_sigma=hypot(kernels, engine), provenance=known, at_scale=at_scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveBound:
    """An objective and its bound [s]."""

    objective: ObjectiveSpec
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityResult:
    """What a scenario sustains, as ``roofcast capacity`` tells it; rates are mean requests/s of all replicas.

    rate_per_s : highest rate seen to meet every objective; interval : with the errors of step times;
    seed_interval : from the scatter of seeds alone; failing_rate_per_s : lowest rate seen to fail
    binding : the objective that fails there, None for a growing queue
    steady_state_rate_per_s : where the search started; provenance : of the worse known of the two kinds of step
    fewest_requests : of a run that tell a queue that grows from batches that fill, at this rate
    scenario, served : what was asked, and what was searched
    """

    rate_per_s: float
    interval: Intervals
    seed_interval: Intervals
    binding: ObjectiveSpec | None
    failing_rate_per_s: float
    objectives: tuple[ObjectiveBound, ...]
    points: tuple[RatePoint, ...]
    steady_state_rate_per_s: float
    saturation_rate_per_s: float
    seeds: int
    requests_per_seed: int
    fewest_requests: int
    provenance: Provenance
    assumptions: tuple[Assumption, ...]
    scenario: ScenarioSpec = field(metadata=INSIDE)
    served: Served = field(metadata=INSIDE)

    @property
    def answers_per_request(self) -> int:
        """Answers to a prompt, each a request of these rates."""
        return self.scenario.workload.answers_per_request if self.scenario.workload else 1

    @property
    def prompts_per_s(self) -> float:
        """Prompts of ``rate_per_s``, as a workload's stages count them [1/s]."""
        return self.rate_per_s / self.answers_per_request


SIDE_BY_SIDE = 16
"""Replicas that take turns at most: arrivals at each are hardly smoother with more."""
_MOST_POOLED = 512
"""Most replicas that are simulated together: pools whose ratio takes so many, replicas that depend on each other."""
_MOST_AT_ONCE = 3 * MOST_REQUESTS / FEWEST_TIMES
"""Sequences that such replicas hold at most: the requests of a run that fill more take minutes."""


def _depend_on_each_other(scenario: ScenarioSpec) -> bool:
    """Whether all have to be simulated: encoders or experts work for all, or what is cached is there for all."""
    pools = scenario.disaggregation
    return (
        scenario.encoder_pool is not None
        or (pools is not None and pools.decode_ffn is not None)
        or any(tier.medium == "remote" for tier in scenario.engine.kv_tiers or ())
        or scenario.routing == "prefix_aware"
    )


def _counts(scenario: ScenarioSpec) -> tuple[int, ...]:
    """Replicas of a scenario, or of its two pools."""
    pools = scenario.disaggregation
    return (scenario.replicas,) if pools is None else (pools.prefill_replicas, pools.decode_replicas)


def _too_many(counts: tuple[int, ...], *, hint: str, most: int = _MOST_POOLED) -> RoofcastError:
    return RoofcastError(
        f"{sum(counts):,} replicas; at most {most:,} with their batches are searched together",
        field="replicas" if len(counts) == 1 else "disaggregation",
        code="out_of_range",
        hint=hint,
    )


_FEWER = "search fewer; each of more carries another rate, as they share encoders, experts or what is cached"


def _side_by_side(served: Served, counts: tuple[int, ...]) -> Served:
    """So many of the replicas, or of both pools' replicas."""
    if isinstance(served, ServedDeployment):
        return replace(served, replicas=counts[0])
    prefill, decode = (
        replace(pool, replicas=count) for pool, count in zip((served.prefill, served.decode), counts, strict=True)
    )
    return replace(served, prefill=prefill, decode=decode)


def _group(served: Served, *, sequences: float, requests: int) -> tuple[Served, float]:
    """Few replicas, or of both pools, that see the same load as all, and the share of the rate that they see: so few
    that the ``requests`` of a run fill them many times over. ``sequences`` : at once in a replica that decodes.

    Raises RoofcastError: pools in no ratio of few are more than is simulated.
    """
    filled = max(1, min(SIDE_BY_SIDE, int(requests / (COMPANY_TIMES * max(sequences, 1.0)))))
    if isinstance(served, ServedDeployment):
        few = min(filled, served.replicas)
        return _side_by_side(served, (few,)), few / served.replicas
    counts = served.prefill.replicas, served.decode.replicas
    group = small_group(counts, least=max(1, filled * counts[1] // sum(counts)), most=_MOST_POOLED)
    if not group.is_alike:
        raise _too_many(counts, hint="search a share of both pools: the rate is in proportion")
    # A group within a domain is joined as all are, who may reach beyond it.
    link, _ = transfer_link(served.prefill, served.decode, link=served.link, server=served.server)
    prefill, decode = replace(served.prefill, replicas=group.prefill), replace(served.decode, replicas=group.decode)
    return replace(served, prefill=prefill, decode=decode, link=link), group.share


def _whole_of(scenario: ScenarioSpec, options: ServeOptions, *, profiles: str | None) -> Served:
    """All replicas or pools of a scenario, however many: one of each is compiled."""
    pools, counts = scenario.disaggregation, _counts(scenario)
    if _depend_on_each_other(scenario):
        if sum(counts) > _MOST_POOLED:
            raise _too_many(counts, hint=_FEWER)
        return served_of(scenario, options, profiles=profiles)
    one = (
        {"replicas": 1}
        if pools is None
        else {"disaggregation": pools.model_copy(update={"prefill_replicas": 1, "decode_replicas": 1})}
    )
    return _side_by_side(served_of(scenario.model_copy(update=one), options, profiles=profiles), counts)


def _searched(
    scenario: ScenarioSpec,
    whole: Served,
    *,
    mix: RequestMix,
    objectives: tuple[ObjectiveSpec, ...],
    seeds: int,
    requests: int | None,
) -> tuple[Served, float]:
    """What is simulated of the ``whole``, and the share of the rate that it sees."""
    sequences = steady_guess(whole, mix=mix, objectives=objectives).full_sequences / whole.decode.replicas
    if not _depend_on_each_other(scenario):
        affordable = affordable_requests(seeds=seeds, osl_tokens=mix.osl.mean_tokens)
        return _group(whole, sequences=sequences, requests=requests or int(min(MOST_REQUESTS, affordable)))
    if requests is None and sequences * whole.decode.replicas > _MOST_AT_ONCE:
        raise _too_many(_counts(scenario), hint=_FEWER, most=max(1, int(_MOST_AT_ONCE / sequences)))
    return whole, 1.0


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
    whole = _whole_of(scenario, options, profiles=profiles)
    engine = whole.prefill.deployment.engine
    source = workload_source(workload, block_size_tokens=engine.block_size_tokens, context_tokens=engine.max_model_len)
    mix = _mix(whole, source(LEAST_REQUESTS, workload.seed))
    served, share = _searched(scenario, whole, mix=mix, objectives=options.objectives, seeds=seeds, requests=requests)
    searched = capacity_by_simulation(
        served,
        source=source,
        objectives=options.objectives,
        seeds=seeds,
        first_seed=workload.seed,
        requests=requests,
        progress=progress,
    )
    interval = capacity_interval(served, source=source, capacity=searched)
    found = searched.times(1 / share)
    detail = Note("group_simulated", {"share": share})
    told = (Assumption(key="replicas", origin=ValueOrigin.RULE, detail=detail),) if share < 1 else ()
    return CapacityResult(
        rate_per_s=found.rate_per_s,
        interval={"rate_per_s": (interval.low_per_s / share, interval.high_per_s / share)},
        seed_interval={"rate_per_s": (found.low_per_s, found.high_per_s)},
        binding=found.binding,
        failing_rate_per_s=found.failing_per_s,
        objectives=tuple(ObjectiveBound(objective=item, bound_s=item.bound_s) for item in options.objectives),
        points=found.points,
        steady_state_rate_per_s=found.steady_per_s,
        saturation_rate_per_s=found.saturation_per_s,
        seeds=found.seeds,
        requests_per_seed=found.requests,
        fewest_requests=searched.fewest_requests,
        provenance=interval.provenance,
        assumptions=(*assumed_of_pools(served.prefill.deployment, served.decode.deployment), *told),
        scenario=scenario,
        served=whole,
    )
