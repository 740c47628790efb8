"""From a scenario to its result: resolve the names, run the kind's model, gather what the contract returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from simulator.engine.runs.assumptions import scenario_assumptions, scenario_warnings
from simulator.engine.runs.results import (
    Intervals,
    MemoryResult,
    PhaseResult,
    SpeculationResult,
    loop_intervals,
    mean_intervals,
    memory_result,
    phase_result,
    speculation_result,
    steady_output_tokens_per_s,
    uniform_kv_utilization,
    untuned_notes,
    worst_provenance,
)
from simulator.engine.runs.scenario_setup import (
    ServeOptions,
    deployment_of,
    encoders_of,
    loop_lengths,
    pool_deployments,
    scenario_options,
    server_between,
)
from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop, offline, static_batch
from simulator.engine.uniform.record import Percentiles, UniformRun
from simulator.engine.uniform.steps import check_speculation_matters
from simulator.errors import RoofcastError
from simulator.kernels.intervals import Range
from simulator.kernels.timing import Provenance
from simulator.phases.deployment import Deployment
from simulator.phases.power import average_power_w
from simulator.records import FLAT, INSIDE, dataclass
from simulator.specs.base import Assumption, Note
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.question.scenario import Kind, ScenarioSpec
from simulator.techniques.speculation.acceptance import pace_sigma

if TYPE_CHECKING:
    from simulator.engine.encoders import EncoderUse
    from simulator.engine.runs.attention_ffn import AttentionFfnUse
    from simulator.engine.runs.intervals import IntervalSource, ServeInterval
    from simulator.engine.runs.kv_tiers import TierUse
    from simulator.engine.runs.load_sweep import LoadResult
    from simulator.engine.runs.metrics import StageResult
    from simulator.engine.runs.served_run import ServedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """The contract's result of one scenario; throughput and power are those of all replicas together.

    ttft_s, tpot_s, e2e_s : means over the requests [s], E2E of a static batch that of its last answer; tpot_s is None
        where nothing is decoded
    ttft, tpot, e2e : percentiles over the requests of a closed loop; its rates are those from the first request to the
        last answer, as benchmark tools divide, steady_output_tokens_per_s without the first and the last round
    prefill, decode : a mean step of each phase; decode is None where answers have one token
    stages, overall, interval_method, load : of a served workload only, intervals where they were asked for
    interval : 80 % interval of each metric; provenance : of the least known step and of the guesses accepted
    step_provenance, pace_log_sigma : of the steps alone, and spread of accepted guesses that nobody gave
    kv_tiers : of a served workload with ``engine.kv_tiers``, what requests found on the device and in each tier
    encoders, attention_ffn : what a pool of encoders, and a decode replica with devices for experts, does
    decode_energy_per_output_token_j : of the decode pool alone, where prompts have a pool of their own
    scenario, deployment, run : what was asked, the replica (of pools that which decodes), and the run that answers it
    """

    kind: Kind
    ttft_s: float
    tpot_s: float | None
    e2e_s: float
    ttft: Percentiles | None = field(default=None, metadata=FLAT)
    tpot: Percentiles | None = field(default=None, metadata=FLAT)
    e2e: Percentiles | None = field(default=None, metadata=FLAT)
    output_tokens_per_s: float
    total_tokens_per_s: float
    requests_per_s: float
    steady_output_tokens_per_s: float | None = None
    prefill: PhaseResult
    decode: PhaseResult | None
    stages: tuple[StageResult, ...] = ()
    overall: StageResult | None = None
    interval_method: IntervalSource | None = None
    load: LoadResult | None = None
    memory: MemoryResult
    power_w: float
    energy_per_output_token_j: float
    decode_energy_per_output_token_j: float | None = None
    interval: Intervals
    provenance: Provenance
    assumptions: tuple[Assumption, ...]
    notes: tuple[str | Note, ...]
    speculation: SpeculationResult | None = None
    kv_tiers: tuple[TierUse, ...] = ()
    encoders: EncoderUse | None = None
    attention_ffn: AttentionFfnUse | None = None
    step_provenance: Provenance = field(metadata=INSIDE)
    pace_log_sigma: float = field(metadata=INSIDE)
    scenario: ScenarioSpec = field(metadata=INSIDE)
    deployment: Deployment = field(metadata=INSIDE)
    run: UniformRun | ServedRun = field(metadata=INSIDE)


def _shared(scenario: ScenarioSpec, *, field: str, copies: int = 1) -> int:
    """Sequences of each of ``copies`` replicas, which attention-data-parallel ranks share; none may be without."""
    number, ranks = getattr(scenario, field) or 0, copies * scenario.dp_size
    if number < ranks:
        whose, option, each = ("ranks", "dp_size", 1) if copies == 1 else ("ranks in all", "replicas", scenario.dp_size)
        raise RoofcastError(
            f"{ranks} {whose} share {field} {number}: some would have nothing to do",
            field=option,
            hint=f"at most {number // each}",
        )
    return int(-(-number // copies))


def _share(scenario: ScenarioSpec, *, field: str) -> int:
    return -(-_shared(scenario, field=field) // scenario.dp_size)


def run_of(scenario: ScenarioSpec, deployment: Deployment, *, options: ServeOptions) -> UniformRun | ServedRun:
    """The run of a scenario's load on a replica that was made for it."""
    check_speculation_matters(deployment, kind=scenario.kind, osl_tokens=scenario.osl_tokens)
    isl, osl = scenario.isl_tokens or 0, scenario.osl_tokens or 0
    if isl + osl > deployment.engine.max_model_len and scenario.engine.max_model_len is not None:
        raise RoofcastError(
            f"isl_tokens + osl_tokens = {isl + osl} exceeds max_model_len {deployment.engine.max_model_len}",
            field="engine.max_model_len",
            hint="raise it or shorten the request",
        )
    copies = scenario.replicas
    requests = _shared(scenario, field="num_requests", copies=copies) if scenario.num_requests else None
    match scenario.kind:
        case "batch":
            return static_batch(
                deployment,
                batch_size=_share(scenario, field="batch_size"),
                isl_tokens=isl,
                osl_tokens=osl,
                limit_tokens=scenario.engine.max_num_batched_tokens,
            )
        case "closed_loop":
            return closed_loop(
                deployment,
                concurrency=_shared(scenario, field="concurrency", copies=copies),
                lengths=loop_lengths(scenario, deployment),
                num_requests=requests,
                ramp_s=scenario.ramp_s or 0.0,
            )
        case "offline":
            lengths = LoopLengths(isl_tokens=isl, osl_tokens=osl, answers=scenario.answers_per_request or 1)
            return offline(deployment, lengths=lengths, num_requests=requests)
        case "serve":
            from simulator.engine.runs.served_run import served_run

            assert scenario.workload is not None, "checked with the required fields"
            return served_run(deployment, workload=scenario.workload, replicas=scenario.replicas, options=options)


def _runs_together(scenario: ScenarioSpec, run: UniformRun | ServedRun) -> bool:
    at_once = run.sequences if scenario.kind == "batch" and isinstance(run, UniformRun) else 0
    return at_once > 0 and at_once >= _share(scenario, field="batch_size")


def _served_intervals(interval: ServeInterval) -> Intervals:
    """Those of the whole run; means under the names that uniform runs use."""
    from simulator.engine.runs.intervals import named

    bounds = named(interval.overall)
    means: Mapping[str, Range | None] = {f"{name}_s": bounds.pop(f"{name}_mean_s") for name in ("ttft", "tpot", "e2e")}
    return {**means, "output_tokens_per_s": bounds.pop("output_tokens_per_s"), **bounds}


def run_intervals(scenario: ScenarioSpec, deployment: Deployment, run: UniformRun | ServedRun) -> Intervals:
    """80 % interval of each metric of a run, throughput of all replicas together."""
    if not isinstance(run, UniformRun) and run.interval is not None:
        return _served_intervals(run.interval)
    spread = deployment.engine.spread
    if scenario.kind == "closed_loop":
        assert isinstance(run, UniformRun), "a closed loop is no served load"
        architecture, pools = deployment.hardware.architecture, run.pools is not None
        spread = spread.of_loop(deployment.model.model_class, architecture=architecture, pools=pools).of_prompts(
            run.isl_tokens, prompt_token_s=deployment.engine.overheads.prompt_token_s, ttft_s=run.ttft_s
        )
    means = mean_intervals(
        run, spread=spread, pace=pace_sigma(scenario.techniques.speculation), copies=_copies(scenario, run)
    )
    return loop_intervals(run, means) if isinstance(run, UniformRun) and scenario.kind == "closed_loop" else means


def _copies(scenario: ScenarioSpec, run: UniformRun | ServedRun) -> float:
    """How often a run goes on side by side: in every replica, and there once per attention-data-parallel rank, unless
    the run counts them itself. The run is that of the replica with most clients or requests; others have one less."""
    if not isinstance(run, UniformRun) or run.pools is not None:
        return scenario.replicas
    asked = scenario.concurrency or scenario.num_requests or scenario.replicas
    return asked / -(-asked // scenario.replicas) * scenario.dp_size / run.ranks


def _share_notes(scenario: ScenarioSpec) -> tuple[Note, ...]:
    """What one of several replicas has of the clients or requests."""
    asked = scenario.concurrency or scenario.num_requests
    if asked is None or scenario.replicas == 1:
        return ()
    share = {"replicas": scenario.replicas, "each": -(-asked // scenario.replicas), "asked": asked}
    return (Note("replica_share", {**share, "clients": scenario.concurrency is not None}),)


def _load(scenario: ScenarioSpec, deployment: Deployment, run: UniformRun | ServedRun) -> LoadResult | None:
    """Of a served workload on replicas, where its intervals were asked for."""
    if isinstance(run, UniformRun) or run.interval is None or scenario.workload is None:
        return None
    if run.pools is not None or run.encoders is not None:
        return None
    from simulator.engine.runs.load_sweep import load_result

    return load_result(
        deployment,
        workload=scenario.workload,
        replicas=run.replicas,
        step_log_sigma=run.interval.source.step_log_sigma,
        served=run.result.overall,
    )


def _powers_w(scenario: ScenarioSpec, deployment: Deployment, run: UniformRun | ServedRun) -> tuple[float, ...]:
    """Mean power of all devices, or of those of the prefill and of the decode pool [W]."""
    if run.pools is not None:
        return run.pools.powers_w(run.prefill, run.decode or run.prefill)
    phases = tuple((phase.weights, phase.estimate) for phase in (run.prefill, run.decode) if phase is not None)
    return (scenario.replicas * average_power_w(deployment, phases=phases, busy_fraction=run.busy_fraction),)


def _running(run: UniformRun | ServedRun) -> float:
    """Sequences that decode at once, on average."""
    return float(run.sequences) if isinstance(run, UniformRun) else max(1.0, run.result.overall.mean_batch)


def _result(
    scenario: ScenarioSpec, deployment: Deployment, run: UniformRun | ServedRun, *, prefill: Deployment | None = None
) -> ScenarioResult:
    uniform = run if isinstance(run, UniformRun) else None
    served = None if isinstance(run, UniformRun) else run
    copies, powers_w = _copies(scenario, run), _powers_w(scenario, deployment, run)
    power_w = sum(powers_w) + (served.encoders.power_w if served and served.encoders else 0.0)
    spread = uniform.spread if uniform and scenario.kind == "closed_loop" else None
    known, pace = worst_provenance(run), pace_sigma(scenario.techniques.speculation)
    output_tokens_per_s = run.output_tokens_per_s * copies
    return ScenarioResult(
        kind=scenario.kind,
        ttft_s=run.ttft_s,
        tpot_s=run.tpot_s if run.decode else None,
        e2e_s=run.e2e_s,
        ttft=spread.ttft if spread else None,
        tpot=spread.tpot if spread else None,
        e2e=spread.e2e if spread else None,
        output_tokens_per_s=output_tokens_per_s,
        total_tokens_per_s=run.total_tokens_per_s * copies,
        requests_per_s=run.requests_per_s * copies,
        steady_output_tokens_per_s=steady_output_tokens_per_s(uniform, copies=copies) if spread else None,
        prefill=phase_result(run.prefill),
        decode=phase_result(run.decode) if run.decode else None,
        stages=served.result.stages if served else (),
        overall=served.result.overall if served else None,
        interval_method=served.interval.source if served and served.interval else None,
        load=_load(scenario, deployment, run),
        memory=memory_result(
            deployment, run.memory, kv_utilization=uniform_kv_utilization(deployment, uniform) if uniform else None
        ),
        power_w=power_w,
        energy_per_output_token_j=power_w / output_tokens_per_s,
        decode_energy_per_output_token_j=powers_w[1] / output_tokens_per_s if len(powers_w) > 1 else None,
        interval=run_intervals(scenario, deployment, run),
        # An acceptance of guesses that nobody gave is assumed.
        provenance=max(known, Provenance.ASSUMED) if pace else known,
        assumptions=scenario_assumptions(scenario, deployment, prefill=prefill, together=_runs_together(scenario, run)),
        notes=(
            *deployment.model.notes,
            *deployment.techniques.notes_at(_running(run)),
            *_share_notes(scenario),
            *run.notes,
            *scenario_warnings(scenario, deployment, run.decode),
            *dict.fromkeys(note for one in (prefill, deployment) if one for note in untuned_notes(one)),
        ),
        speculation=speculation_result(deployment, run.decode, memory=run.memory, whole_answer=uniform is not None),
        kv_tiers=served.kv_tiers if served else (),
        encoders=served.encoders if served else None,
        attention_ffn=served.attention_ffn if served else None,
        step_provenance=known,
        pace_log_sigma=pace,
        scenario=scenario,
        deployment=deployment,
        run=run,
    )


def pools_run(
    scenario: ScenarioSpec, prefill: Deployment, decode: Deployment, *, spec: DisaggregationSpec, profiles: str | None
) -> UniformRun:
    """The closed loop of a scenario on two pools."""
    from simulator.engine.uniform.pools_loop import disaggregated_loop

    return disaggregated_loop(
        prefill,
        decode,
        spec=spec,
        server=server_between(prefill, decode, profiles=profiles),
        concurrency=scenario.concurrency or 1,
        lengths=loop_lengths(scenario, decode),
        num_requests=scenario.num_requests,
        ramp_s=scenario.ramp_s or 0.0,
    )


def answer(
    scenario: ScenarioSpec, *, profiles: str | None = None, options: ServeOptions | None = None
) -> ScenarioResult:
    """Answer a scenario, or refuse it with field, value and what is allowed; options : what else to find out."""
    chosen = scenario_options(scenario, options or ServeOptions())
    spec, workload = scenario.disaggregation, scenario.workload
    if spec is None:
        deployment = deployment_of(scenario, profiles=profiles)
        chosen = replace(chosen, encoders=encoders_of(scenario, deployment, profiles=profiles))
        return _result(scenario, deployment, run_of(scenario, deployment, options=chosen))
    if workload is None:
        prefill, decode = pool_deployments(scenario, spec, profiles=profiles)
        loop = pools_run(scenario, prefill, decode, spec=spec, profiles=profiles)
        return _result(scenario, decode, loop, prefill=prefill)
    from simulator.engine.runs.disaggregation import ServedPools
    from simulator.engine.runs.served_run import disaggregated_run, served_of

    pools = served_of(scenario, chosen, profiles=profiles)
    assert isinstance(pools, ServedPools), "the scenario has pools"
    run = disaggregated_run(pools, workload=workload, options=chosen)
    return _result(scenario, pools.decode.deployment, run, prefill=pools.prefill.deployment)
