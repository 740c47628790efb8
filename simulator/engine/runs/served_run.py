"""A workload served under load by replicas or by pools, with the typical steps that explain it and its intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from simulator.engine.encoders import EncoderPool, EncoderUse
from simulator.engine.events.state import TRACE_START_S, TRACE_USED
from simulator.engine.pools import HAND_OVER_S, PoolUse
from simulator.engine.runs import scenario_setup, serving
from simulator.engine.runs.attention_ffn import AttentionFfnUse, attention_ffn_of, attention_ffn_use
from simulator.engine.runs.disaggregation import Served, ServedPools, serve_disaggregated, served_pools
from simulator.engine.runs.intervals import ServeInterval, phase_sigmas, repeated_interval, step_sigma, with_intervals
from simulator.engine.runs.kv_tiers import TierUse
from simulator.engine.runs.metrics import ServeResult
from simulator.engine.uniform.record import MOMENTS, CacheUse, waits_of
from simulator.engine.uniform.steps import PhaseEstimate, speculation_notes
from simulator.errors import RoofcastError, missing_field
from simulator.phases.attention_ffn import AttentionFfn, decode_estimate
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.records import dataclass
from simulator.specs.base import SEEDS, Note
from simulator.specs.engine.fits import EngineSpread
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.requests import Floats, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """What clients see under load: percentiles by stage, and throughput per replica.

    result : the event simulation; prefill, decode : a typical step of each phase (one case)
    interval : 80 % intervals by stage, None where they were not asked for
    busy_fraction : share of the time in which a device works, of pools one that decodes
    pools : where prefill and decode have replicas of their own, what each does; then there is one "replica" of both
    kv_tiers : with tiers below the device, what requests found there and on it; encoders : what a pool of them does
    attention_ffn : of a decode pool whose experts have devices of their own
    """

    result: ServeResult
    replicas: int
    prefill: PhaseEstimate
    decode: PhaseEstimate | None
    memory: MemoryPlan
    notes: tuple[Note, ...]
    busy_fraction: float
    interval: ServeInterval | None = None
    pools: PoolUse | None = None
    kv_tiers: tuple[TierUse, ...] = ()
    encoders: EncoderUse | None = None
    attention_ffn: AttentionFfnUse | None = None

    @property
    def decoding_trace(self) -> Floats:
        """Steps of the first replica that decodes, where they were kept."""
        ahead = self.pools.prefill if self.pools else None
        return self.result.run.trace[ahead.replicas * ahead.deployment.parallelism.dp_size if ahead else 0]

    @property
    def cache_use(self) -> CacheUse:
        """Use of the cache of the first replica that decodes."""
        trace = self.decoding_trace
        if not len(trace):
            raise RoofcastError("no step was recorded", field="trace_steps", hint="ask for more than none")
        starts_s = trace[:, TRACE_START_S]
        moments_s = np.linspace(starts_s[0], starts_s[-1], MOMENTS + 1)[:-1]
        used = np.maximum.reduceat(trace[:, TRACE_USED], np.searchsorted(starts_s, moments_s)) / self.memory.kv_blocks
        return CacheUse(moments_s=tuple(moments_s.tolist()), used=tuple(used.tolist()))

    @property
    def ttft_s(self) -> float:
        """Mean time to first token over the whole run [s]."""
        return self.result.overall.ttft.mean_s

    @property
    def tpot_s(self) -> float:
        """Mean time per output token after the first [s]."""
        return self.result.overall.tpot.mean_s

    @property
    def e2e_s(self) -> float:
        """Mean time to the last token [s]."""
        return self.result.overall.e2e.mean_s

    @property
    def waits_s(self) -> Mapping[str, float]:
        """Mean seconds of a finished request by what it waits for."""
        arrival_s, records = self.result.requests.arrival_s, self.result.run.records
        done = records.outcome == int(Outcome.FINISHED)
        queue_s, first_s, whole_s = (
            float(np.mean((moment - arrival_s)[done]))
            for moment in (records.admitted_s, records.first_token_s, records.finish_s)
        )
        transfer_s = 0.0 if self.pools is None else self.pools.transfer_s
        return waits_of(
            self.prefill, self.decode, first_s=first_s, whole_s=whole_s, queue_s=queue_s, transfer_s=transfer_s
        )

    @property
    def requests_per_s(self) -> float:
        """Finished requests per second and replica."""
        return self.result.overall.requests_per_s / self.replicas

    @property
    def output_tokens_per_s(self) -> float:
        """Generated tokens per second and replica."""
        return self.result.overall.output_tokens_per_s / self.replicas

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and generated tokens per second and replica."""
        prompts = float(np.mean(self.result.requests.prompt_tokens)) * self.requests_per_s
        return self.output_tokens_per_s + prompts


def ping_pong_phase(parts: AttentionFfn, result: ServeResult) -> tuple[PhaseEstimate, AttentionFfnUse]:
    """A decode step of attention instances and their experts at the mean batch and context."""
    context = float(np.mean(result.requests.prompt_tokens) + np.mean(result.requests.output_tokens) / 2)
    sequences = max(1.0, result.overall.mean_batch)
    step = decode_estimate(parts, sequences=sequences, context=context)
    use = attention_ffn_use(parts, sequences=sequences, context=context)
    return PhaseEstimate(estimate=step, weights=np.ones(1)), use


def serve_notes(result: ServeResult) -> tuple[Note, ...]:
    """What a reader should know about the run before using its numbers."""
    overall = result.overall
    notes = []
    for index, stage in enumerate(result.stages):
        if stage.saturated:
            alone = len(result.stages) == 1
            notes.append(Note("load_saturated") if alone else Note("stage_saturated", {"stage": index}))
    if overall.timed_out:
        notes.append(Note("given_up", {"overall": overall}))
    if overall.rejected:
        notes.append(Note("rejected", {"overall": overall}))
    return tuple(notes)


def check_workload(workload: WorkloadSpec) -> None:
    """Refuse a workload that sends nothing."""
    if workload.arrival != "trace" and workload.trace is None and not workload.stages:
        raise missing_field(
            "a workload without a trace needs at least one stage",
            field="workload.stages",
            hint='such as [{"rate_per_s": 8, "duration_s": 600}]',
        )


def check_finished(result: ServeResult, *, longest_tokens: int) -> None:
    """Refuse a run of which no request finishes; longest_tokens : of a request that the engine takes."""
    overall = result.overall
    if overall.finished:
        return
    if overall.rejected == overall.requests:
        raise RoofcastError(
            f"every request is longer than the engine takes: {longest_tokens:,} tokens, prompt and answer together",
            field="workload.isl_tokens",
            code="nothing_finished",
            hint="shorter prompts, or a model that takes longer ones",
        )
    left = overall.timed_out == overall.requests
    raise RoofcastError(
        f"no request finishes: of {overall.requests:,}, clients give up {overall.timed_out:,}, "
        f"{overall.rejected:,} are longer than the engine takes, and the others are still under way at the end",
        field="workload.timeout_s" if left else "workload",
        code="nothing_finished",
        hint=f"{'wait longer (or null), ' if left else ''}lower the rate, shorten the requests or lengthen the stages",
    )


def _run(
    result: ServeResult,
    *,
    replicas: int,
    phases: tuple[PhaseEstimate, PhaseEstimate | None],
    memory: MemoryPlan,
    interval: ServeInterval | None,
    notes: tuple[Note, ...],
    busy_fraction: float,
    pools: PoolUse | None = None,
    tiers: tuple[TierUse, ...] = (),
    encoders: EncoderPool | None = None,
    attention_ffn: AttentionFfnUse | None = None,
) -> ServedRun:
    use = None if encoders is None else encoders.use(result.requests)
    return ServedRun(
        result=result if interval is None else with_intervals(result, interval),
        replicas=replicas,
        prefill=phases[0],
        decode=phases[1],
        memory=memory,
        notes=(*serve_notes(result), *notes, *(() if use is None else (Note("encoders", {"use": use}),))),
        busy_fraction=busy_fraction,
        interval=interval,
        pools=pools,
        kv_tiers=tiers,
        encoders=use,
        attention_ffn=attention_ffn,
    )


def served_of(scenario: ScenarioSpec, options: scenario_setup.ServeOptions, *, profiles: str | None = None) -> Served:
    """The replicas or pools of a scenario, their steps compiled, for many runs."""
    timeout_s = None if scenario.workload is None else scenario.workload.timeout_s
    spec = scenario.disaggregation
    if spec is None:
        deployment = scenario_setup.deployment_of(scenario, profiles=profiles)
        return serving.ServedDeployment(
            deployment=deployment,
            replicas=scenario.replicas,
            routing=options.routing,
            timeout_s=timeout_s,
            encoders=scenario_setup.encoders_of(scenario, deployment, profiles=profiles),
        )
    prefill, decode = scenario_setup.pool_deployments(scenario, spec, profiles=profiles)
    return served_pools(
        prefill,
        decode,
        spec=spec,
        server=scenario_setup.server_between(prefill, decode, profiles=profiles),
        timeout_s=timeout_s,
        routing=options.routing,
        encoders=scenario_setup.encoders_of(scenario, prefill, profiles=profiles),
        attention_ffn=attention_ffn_of(scenario, spec, decode, profiles=profiles),
    )


def served_run(
    deployment: Deployment, *, workload: WorkloadSpec, replicas: int, options: scenario_setup.ServeOptions | None = None
) -> ServedRun:
    """Simulate ``workload`` on ``replicas`` copies of ``deployment``."""
    options = options or scenario_setup.ServeOptions()
    check_workload(workload)
    served = serving.ServedDeployment(
        deployment=deployment,
        replicas=replicas,
        routing=options.routing,
        timeout_s=workload.timeout_s,
        seed=workload.seed,
        encoders=options.encoders,
    )
    result = served.run(
        serving.requests_of(workload, deployment),
        objectives=options.objectives,
        trace_steps=options.trace_steps,
        progress=options.progress,
    )
    check_finished(result, longest_tokens=deployment.engine.max_model_len)
    phases, memory = serving.weighed_steps(served, result), memory_plan(deployment)
    return _run(
        result,
        replicas=replicas,
        phases=phases,
        memory=memory,
        interval=_replicas_interval(served, result, workload=workload, phases=phases) if options.intervals else None,
        notes=speculation_notes(deployment, phases[1], memory),
        busy_fraction=result.device_busy_fraction(stages=deployment.parallelism.pp_size),
        tiers=serving.tiers_of_run(deployment, result, tables=served.tables, replicas=replicas),
        encoders=options.encoders,
    )


def disaggregated_run(pools: ServedPools, *, workload: WorkloadSpec, options: scenario_setup.ServeOptions) -> ServedRun:
    """Simulate ``workload`` on two pools."""
    check_workload(workload)
    prefill, decode, after = pools.prefill.deployment, pools.decode.deployment, pools.decode.attention_ffn
    requests = serving.requests_of(workload, prefill)
    found = serve_disaggregated(requests, pools, objectives=options.objectives, trace_steps=options.trace_steps)
    check_finished(found.result, longest_tokens=min(prefill.engine.max_model_len, decode.engine.max_model_len))
    decoding, use = serving.typical_steps(decode, found.result)[1], None
    if after is not None:
        decoding, use = ping_pong_phase(after, found.result)
    phases = serving.typical_steps(prefill, found.result)[0], decoding
    served = {"use": found.use, "link_busy_fraction": found.link_busy_fraction}
    served |= {"apart": use is not None, "hand_over_s": HAND_OVER_S}
    return _run(
        found.result,
        replicas=1,
        phases=phases,
        memory=memory_plan(decode),
        interval=_pools_interval(pools, found.result, workload=workload, phases=phases) if options.intervals else None,
        notes=(
            Note("pools_served", served),
            Note("decode_pool_shown"),
            *(() if use is None else (Note("attention_ffn", {"use": use}),)),
        ),
        busy_fraction=found.use.decode_busy_fraction,
        attention_ffn=use,
        pools=found.use,
        tiers=found.kv_tiers,
        encoders=pools.encoders,
    )


def _reseeded(workload: WorkloadSpec, number: int) -> WorkloadSpec:
    return workload.model_copy(update={"seed": (workload.seed + number) % SEEDS})


def _spread_of(deployment: Deployment, result: ServeResult) -> EngineSpread:
    """The engine's own, for prompts as long as these."""
    engine, ttft_s = deployment.engine, result.overall.ttft.mean_s
    isl_tokens = float(result.requests.prompt_tokens.mean()) if len(result.requests) else 0.0
    return engine.spread.of_prompts(isl_tokens, prompt_token_s=engine.overheads.prompt_token_s, ttft_s=ttft_s)


def _replicas_interval(
    served: serving.ServedDeployment,
    result: ServeResult,
    *,
    workload: WorkloadSpec,
    phases: tuple[PhaseEstimate, PhaseEstimate | None],
) -> ServeInterval:
    """80 % interval of a workload's ``result`` on copies of one deployment; errors of all its steps as common."""
    deployment, (prefill, decode) = served.deployment, phases
    spread = _spread_of(deployment, result)
    prefill_sigma, decode_sigma = phase_sigmas(prefill=prefill, decode=decode, spread=spread)
    share = serving.prompt_share(served, result, prefill=prefill) if decode is not None else 1.0

    def reseed(number: int) -> ServeResult:
        other = _reseeded(workload, number)
        return replace(served, seed=other.seed).run(serving.requests_of(other, deployment))

    return repeated_interval(
        result,
        log_sigma=step_sigma(prefill_sigma=prefill_sigma, decode_sigma=decode_sigma, prompt_share=share),
        spread=spread,
        rerun=lambda factor: served.at_scale(factor).run(result.requests),
        reseed=reseed,
        workload=workload,
    )


def _pools_interval(
    pools: ServedPools,
    result: ServeResult,
    *,
    workload: WorkloadSpec,
    phases: tuple[PhaseEstimate, PhaseEstimate | None],
) -> ServeInterval:
    """80 % interval of a workload on two pools whose steps err together; leaves out errors of the link between them."""
    deployment = pools.prefill.deployment
    spread = _spread_of(deployment, result)
    sigmas = phase_sigmas(prefill=phases[0], decode=phases[1], spread=spread)
    larger = max(sigmas)

    def rerun(factor: float) -> ServeResult:
        ahead, after = (factor ** (sigma / larger) if larger > 0 else factor for sigma in sigmas)
        return pools.at_scale(ahead, decode_scale=after).run(result.requests)

    return repeated_interval(
        result,
        log_sigma=larger,
        spread=spread,
        rerun=rerun,
        reseed=lambda number: pools.run(serving.requests_of(_reseeded(workload, number), deployment)),
        workload=workload,
    )
