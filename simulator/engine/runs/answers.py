"""From a scenario to its result: resolve the names, run the kind's model, gather what the contract returns."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine.runs.disaggregated_run import disaggregated_run, pools_power_w
from simulator.engine.runs.served_run import ServedRun, ServeOptions, scenario_options, served_run
from simulator.engine.uniform.runs import UniformRun, closed_loop, offline, static_batch
from simulator.engine.uniform.speculative_steps import check_speculation_matters
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.power import average_power_w
from simulator.specs.engine.deployment import DisaggregationSpec, ParallelismSpec
from simulator.specs.engine.engine import DEFAULT_ENGINE, FRAMEWORK, EngineSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, LinkSpec
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.scenario import IDLE_ENGINE_FIELDS, IDLE_FIELDS, REQUIRED_FIELDS, Kind, ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.specs.spellings import link_word
from simulator.techniques.kv_compression import check_budget

# A static batch is what a framework runs; everything else needs a scheduler.
DEFAULT_ENGINES: dict[Kind, str] = {
    "batch": FRAMEWORK,
    "closed_loop": DEFAULT_ENGINE,
    "offline": DEFAULT_ENGINE,
    "serve": DEFAULT_ENGINE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """A scenario's deployment and the run that answers it; ``power_w`` is the mean of one replica."""

    scenario: ScenarioSpec
    deployment: Deployment
    run: UniformRun | ServedRun
    power_w: float
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def copies_per_replica(self) -> int:
        """How often ``run`` goes on side by side in one replica: once per attention-data-parallel rank, unless it
        counts them itself."""
        return self.scenario.dp_size if isinstance(self.run, UniformRun) else 1

    @property
    def energy_per_output_token_j(self) -> float:
        """Energy of a replica per generated token, prompts included [J]."""
        return self.power_w / (self.run.output_tokens_per_s * self.copies_per_replica)


def _engine(scenario: ScenarioSpec) -> EngineSpec:
    """The scenario's engine, with a name where it gives none."""
    if "name" in scenario.engine.model_fields_set:
        return scenario.engine
    return scenario.engine.model_copy(update={"name": DEFAULT_ENGINES[scenario.kind]})


def _check_fields(scenario: ScenarioSpec) -> None:
    for field in REQUIRED_FIELDS[scenario.kind]:
        if getattr(scenario, field) is None:
            raise RoofcastError(
                f"kind {scenario.kind} needs it",
                field=field,
                code="missing_field",
                hint="required: " + ", ".join(REQUIRED_FIELDS[scenario.kind]),
            )
    for field in IDLE_FIELDS[scenario.kind]:
        if getattr(scenario, field) is not None:
            raise RoofcastError(
                f"has no effect under kind {scenario.kind}",
                field=field,
                code="ignored_option",
                hint="leave it out, or choose the kind that uses it",
            )
    for field in IDLE_ENGINE_FIELDS if scenario.kind != "serve" else ():
        if getattr(scenario.engine, field):
            raise RoofcastError(
                f"has no effect under kind {scenario.kind}",
                field=f"engine.{field}",
                code="ignored_option",
                hint="leave it out, or choose kind serve",
            )
    if scenario.disaggregation is not None and "replicas" in scenario.model_fields_set:
        raise RoofcastError(
            "has no effect beside disaggregation", field="replicas", code="ignored_option", hint="leave it out"
        )


def _with_interconnect(hardware: AcceleratorSpec, interconnect: str | None) -> AcceleratorSpec:
    """Replace the scale-up link where the scenario asks for the host's; refuse what the device does not have."""
    asked = None if interconnect is None else link_word(interconnect)
    if asked is None or asked == link_word(hardware.scale_up.kind):
        return hardware
    if asked == link_word(hardware.host_link.kind):
        link = LinkSpec(
            kind=hardware.host_link.kind,
            bytes_per_s_per_direction=hardware.host_link.bytes_per_s_per_direction,
            domain_size=hardware.scale_up.domain_size,
        )
        return hardware.model_copy(update={"scale_up": link})
    raise RoofcastError(
        f"{interconnect!r} does not connect {hardware.name}; "
        "allowed: " + ", ".join(sorted({hardware.scale_up.kind, hardware.host_link.kind})),
        field="interconnect",
        code="unsupported_option",
    )


def _share(scenario: ScenarioSpec, *, field: str) -> int:
    """One attention-data-parallel rank's share of a number of sequences; ranks without any are refused."""
    number = getattr(scenario, field) or 0
    if number < scenario.dp_size:
        raise RoofcastError(
            f"{scenario.dp_size} ranks share {field} {number}: some would have nothing to do",
            field="dp_size",
            hint=f"at most {number}",
        )
    return -(-int(number) // scenario.dp_size)


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
                concurrency=_share(scenario, field="concurrency"),
                isl_tokens=isl,
                osl_tokens=osl,
                num_requests=_share(scenario, field="num_requests") if scenario.num_requests else None,
            )
        case "offline":
            return offline(
                deployment,
                isl_tokens=isl,
                osl_tokens=osl,
                num_requests=_share(scenario, field="num_requests") if scenario.num_requests else None,
            )
        case "serve":
            assert scenario.workload is not None, "checked with the required fields"
            return served_run(deployment, workload=scenario.workload, replicas=scenario.replicas, options=options)


def _workload_assumptions(workload: WorkloadSpec) -> list[str]:
    said = [
        f"workload.{name} = {getattr(workload, name)} (default)"
        for name in ("arrival", "timeout_s", "seed")
        if name not in workload.model_fields_set
    ]
    if workload.arrival == "constant" and "spacing" not in workload.model_fields_set:
        said.append(f"workload.spacing = {workload.spacing} (default: rate x duration requests at random moments)")
    if not workload.ignore_eos:
        said.append("workload.ignore_eos = False: answers are as long as osl_tokens and osl_cv say")
    return said


def _assumptions(scenario: ScenarioSpec, deployment: Deployment, *, together: bool = False) -> tuple[str, ...]:
    """What was filled in; ``together`` says that all sequences of a static batch run at once."""
    said = [*deployment.assumptions]
    given = scenario.model_fields_set
    for field in ("tp_size", "pp_size", "ep_size", "dp_size", "replicas"):
        if field not in given:
            said.append(f"{field} = {getattr(scenario, field)} (default)")
    if "name" not in scenario.engine.model_fields_set:
        said.append(f"engine.name = {deployment.engine.name} (default of kind {scenario.kind})")
    if scenario.workload is not None:
        said += _workload_assumptions(scenario.workload)
        if scenario.routing is None and scenario.replicas * scenario.dp_size > 1:
            said.append("routing = round_robin (default)")
    if together and scenario.engine.max_num_batched_tokens is None:
        said.append("all prompts of the batch in one pass (max_num_batched_tokens not given)")
    return tuple(said)


def _runs_together(scenario: ScenarioSpec, run: UniformRun | ServedRun) -> bool:
    if scenario.kind != "batch" or not isinstance(run, UniformRun):
        return False
    return run.sequences >= _share(scenario, field="batch_size")


def _warnings(scenario: ScenarioSpec, deployment: Deployment, run: UniformRun | ServedRun) -> tuple[str, ...]:
    """What a reader should know before using the numbers."""
    notes = []
    positions = deployment.model.max_position_embeddings
    length = (scenario.isl_tokens or 0) + (scenario.osl_tokens or 0)
    if positions is not None and length > positions:
        notes.append(f"{length} tokens exceed the {positions} positions that the model was made for")
    host_bound = run.decode is not None and "host" in run.decode.estimate.bound
    if host_bound and deployment.engine.eager:
        notes.append(f"host bound: {deployment.engine.name} launches kernels one by one; name a compiled engine")
    return tuple(notes)


def deployment_of(scenario: ScenarioSpec, *, profiles: str | None = None) -> Deployment:
    """The replica that a scenario describes, its fields checked."""
    _check_fields(scenario)
    if scenario.isl_tokens is not None:
        check_budget(scenario.techniques.kv_policy, longest_tokens=scenario.isl_tokens + (scenario.osl_tokens or 0))
    hardware = _with_interconnect(load_hardware(scenario.hardware, profiles=profiles), scenario.interconnect)
    return deploy(
        model=load_model(scenario.model, profiles=profiles),
        hardware=hardware,
        parallelism=ParallelismSpec(
            tp_size=scenario.tp_size, pp_size=scenario.pp_size, ep_size=scenario.ep_size, dp_size=scenario.dp_size
        ),
        precision=scenario.precision,
        engine=_engine(scenario),
        techniques=scenario.techniques,
        profiles=profiles,
    )


def pool_deployments(
    scenario: ScenarioSpec, spec: DisaggregationSpec, *, profiles: str | None = None
) -> tuple[Deployment, Deployment]:
    """What one replica of the prefill pool and one of the decode pool runs."""
    _check_fields(scenario)
    prefill, decode = (
        deployment_of(scenario.model_copy(update={"tp_size": size or scenario.tp_size}), profiles=profiles)
        for size in (spec.prefill_tp_size, spec.decode_tp_size)
    )
    return prefill, decode


def _disaggregated(scenario: ScenarioSpec, *, profiles: str | None, options: ServeOptions) -> ScenarioResult:
    """Two pools, each with a tensor-parallel degree of its own."""
    spec, workload = scenario.disaggregation, scenario.workload
    assert spec is not None, "the caller has one"
    prefill, decode = pool_deployments(scenario, spec, profiles=profiles)
    assert workload is not None, "checked with the required fields"
    run = disaggregated_run(prefill, decode, workload=workload, spec=spec, options=options, profiles=profiles)
    assert run.pools is not None, "made by a disaggregated run"
    return ScenarioResult(
        scenario=scenario,
        deployment=decode,
        run=run,
        power_w=pools_power_w(run, run.pools),
        assumptions=_assumptions(scenario, decode),
        notes=(*decode.model.notes, *decode.techniques.notes, *run.notes, *_warnings(scenario, decode, run)),
    )


def answer(
    scenario: ScenarioSpec, *, profiles: str | None = None, options: ServeOptions | None = None
) -> ScenarioResult:
    """Answer one scenario, or refuse it with the field, the value and what is allowed.

    options : what else to find out about a served workload (objectives, intervals, steps to trace)
    """
    chosen = scenario_options(scenario, options or ServeOptions())
    if scenario.disaggregation is not None:
        return _disaggregated(scenario, profiles=profiles, options=chosen)
    deployment = deployment_of(scenario, profiles=profiles)
    run = run_of(scenario, deployment, options=chosen)
    phases = tuple(phase for phase in (run.prefill, run.decode) if phase is not None)
    return ScenarioResult(
        scenario=scenario,
        deployment=deployment,
        run=run,
        power_w=average_power_w(
            deployment,
            phases=tuple((p.weights, p.estimate) for p in phases),
            busy_fraction=run.busy_fraction if isinstance(run, ServedRun) else 1.0,
        ),
        assumptions=_assumptions(scenario, deployment, together=_runs_together(scenario, run)),
        notes=(
            *deployment.model.notes,
            *deployment.techniques.notes,
            *run.notes,
            *_warnings(scenario, deployment, run),
        ),
    )
