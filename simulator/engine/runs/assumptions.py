"""What was filled in of a scenario, and what makes one doubt its answer."""

from __future__ import annotations

from simulator.engine.pools import HAND_OVER_S
from simulator.engine.uniform.loop_requests import longest_of
from simulator.engine.uniform.loops import REQUESTS_PER_CLIENT
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.phases.deployment import Deployment, assumed_of_pools
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.question.scenario import DEFAULT_RANGE_RATIO, ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix


def _workload_assumptions(workload: WorkloadSpec) -> list[Assumption]:
    said = [
        Assumption(key=f"workload.{name}", value=getattr(workload, name))
        for name in ("arrival", "timeout_s", "seed")
        if name not in workload.model_fields_set
    ]
    if workload.arrival == "constant" and "spacing" not in workload.model_fields_set:
        said.append(Assumption(key="workload.spacing", value=workload.spacing))
    if workload.answers_per_request > 1:
        answers = workload.answers_per_request
        said.append(Assumption(key="workload.answers_per_request", value=answers, origin=ValueOrigin.GIVEN))
    if not workload.ignore_eos:
        said.append(Assumption(key="workload.ignore_eos", value=False, origin=ValueOrigin.GIVEN))
    return said


def _loop_assumptions(scenario: ScenarioSpec) -> list[Assumption]:
    """How many requests a closed loop has and how long they are, where that was not said."""
    is_drawn = scenario.lengths_trace is None
    said = [Assumption(key="seed", value=0)] if scenario.seed is None and is_drawn else []
    if scenario.num_requests is None:
        said.append(Assumption(key="num_requests", value=REQUESTS_PER_CLIENT * (scenario.concurrency or 0)))
    if is_drawn and scenario.range_ratio is None and scenario.isl_cv is None and scenario.osl_cv is None:
        said.append(Assumption(key="range_ratio", value=DEFAULT_RANGE_RATIO))
    return said


def scenario_assumptions(
    scenario: ScenarioSpec, deployment: Deployment, *, prefill: Deployment | None = None, together: bool = False
) -> tuple[Assumption, ...]:
    """What was filled in.

    prefill : the replica that computes prompts for ``deployment``, where another does
    together : all sequences of a static batch run at once
    """
    said = [*(deployment.assumptions if prefill is None else assumed_of_pools(prefill, deployment))]
    given = scenario.model_fields_set
    for name in ("tp_size", "pp_size", "ep_size", "dp_size", "replicas"):
        if name not in given:
            said.append(Assumption(key=name, value=getattr(scenario, name)))
    if scenario.kind == "closed_loop":
        said += _loop_assumptions(scenario)
    if scenario.answers_per_request is not None:
        said.append(Assumption(key="answers_per_request", value=scenario.answers_per_request, origin=ValueOrigin.GIVEN))
    said += [*cut_assumptions(scenario, context_tokens=deployment.engine.max_model_len), *pool_assumptions(scenario)]
    if scenario.workload is not None:
        said += _workload_assumptions(scenario.workload)
        if scenario.routing is None and scenario.replicas * scenario.dp_size > 1:
            said.append(Assumption(key="routing", value="round_robin"))
    if together and deployment.engine.one_pass_batches and scenario.engine.max_num_batched_tokens is None:
        said.append(Assumption(key="engine.max_num_batched_tokens", origin=ValueOrigin.RULE, detail=Note("one_pass")))
    return tuple(said)


def scenario_warnings(scenario: ScenarioSpec, deployment: Deployment, decode: PhaseEstimate | None) -> tuple[Note, ...]:
    """What makes one doubt the answer; ``decode`` : the steps after the first token, None without any."""
    notes, positions = list[Note](), deployment.model.max_position_embeddings
    prompt, length = longest_of(scenario)
    if positions is not None and length > positions:
        notes.append(Note("beyond_positions", {"tokens": length, "positions": positions}))
    engine = deployment.engine
    if engine.scheduler != "static" and not engine.chunked_prefill and prompt > engine.max_num_batched_tokens:
        notes.append(Note("prompts_refused", {"engine": engine, "tokens": prompt}))
    if engine.eager and decode is not None and "host" in decode.estimate.bound:
        notes.append(Note("host_bound", {"engine": engine.name}))
    return tuple(notes)


def cut_assumptions(scenario: ScenarioSpec, *, context_tokens: int) -> list[Assumption]:
    """How much lengths vary where some were drawn so long that they had to end at the context."""
    workload = scenario.workload
    if workload is None:
        isl, osl, place = scenario.isl_tokens, scenario.osl_tokens, ""
        cvs = (scenario.isl_cv or 0.0, scenario.osl_cv or 0.0)
    else:
        isl, osl, place = workload.question_tokens or workload.isl_tokens, workload.osl_tokens, "workload."
        cvs = (workload.isl_cv, workload.osl_cv)
        context_tokens -= workload.system_prompt_tokens if workload.question_tokens else 0
    if isl is None or osl is None:
        return []
    mix = RequestMix(
        isl=LengthDistribution(mean_tokens=isl, cv=cvs[0]), osl=LengthDistribution(mean_tokens=osl, cv=cvs[1])
    ).within(context_tokens)
    return [
        Assumption(key=f"{place}{name}", value=lengths, origin=ValueOrigin.RULE)
        for name, lengths in (("isl_cv", mix.isl), ("osl_cv", mix.osl))
        if lengths.uncut_cv is not None
    ]


def pool_assumptions(scenario: ScenarioSpec) -> list[Assumption]:
    """What nobody said of pools: the hand-over between two, and how those of encoders and experts are made up."""
    pools, encoders, said = scenario.disaggregation, scenario.encoder_pool, list[Assumption]()
    parts = {"disaggregation": pools, "disaggregation.decode_ffn": pools and pools.decode_ffn, "encoder_pool": encoders}
    for place, part in parts.items():
        for name, field in type(part).model_fields.items() if part else ():
            if part and not field.is_required() and field.default is not None and name not in part.model_fields_set:
                said.append(Assumption(key=f"{place}.{name}", value=field.default))
    if encoders is not None and encoders.hardware is None:
        name = (pools and pools.prefill_hardware) or scenario.hardware
        said.append(Assumption(key="encoder_pool.hardware", value=name, origin=ValueOrigin.RULE))
    if pools is not None:
        said.append(Assumption(key="disaggregation.hand_over_s", value=HAND_OVER_S, origin=ValueOrigin.FITTED))
    return said
