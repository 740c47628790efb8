"""From a scenario to what is run: its replica or pools with their fields checked, its routing and objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulator.engine.pools import Pool, slower_network, unlike_vendors
from simulator.engine.settings import Routing
from simulator.engine.uniform.loop_requests import LoopLengths, longest_of
from simulator.errors import ProfileError, RoofcastError, contradiction, ignored_option, missing_field, said_of
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.power import power_capped, power_limited
from simulator.records import dataclass
from simulator.specs.engine.deployment import DisaggregationSpec, PoolName
from simulator.specs.engine.engine import with_feature
from simulator.specs.hardware.accelerator import (
    AcceleratorSpec,
    LinkSpec,
    ServerSpec,
    default_server_for,
    link_word,
    load_hardware,
)
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan_values import ObjectiveSpec, parse_objectives
from simulator.specs.question.scenario import (
    DEFAULT_RANGE_RATIO,
    DRAWN_LENGTHS,
    IDLE_ENGINE_FIELDS,
    IDLE_FIELDS,
    NOMINAL_LENGTHS,
    REQUIRED_FIELDS,
    ScenarioSpec,
)
from simulator.techniques.applied import check_budget, in_pool

if TYPE_CHECKING:
    from simulator.engine.encoders import EncoderPool
    from simulator.engine.events.simulation import Progress


def _check_fields(scenario: ScenarioSpec) -> None:
    for field in REQUIRED_FIELDS[scenario.kind]:
        if getattr(scenario, field) is None and (scenario.lengths_trace is None or field not in NOMINAL_LENGTHS):
            raise missing_field(
                f"kind {scenario.kind} needs it",
                field=field,
                hint="required: " + ", ".join(REQUIRED_FIELDS[scenario.kind]),
            )
    pools, encoders, engine = scenario.disaggregation, scenario.encoder_pool, scenario.engine
    idle = {name: "the kind that uses it" for name in IDLE_FIELDS[scenario.kind] if getattr(scenario, name) is not None}
    idle |= {f"engine.{name}": "kind serve" for name in IDLE_ENGINE_FIELDS[scenario.kind] if getattr(engine, name)}
    if scenario.kind == "batch" and engine.chunked_prefill is not None:
        idle["engine.chunked_prefill"] = "another kind"
    if scenario.kind != "serve" and pools is not None and pools.decode_ffn is not None:
        idle["disaggregation.decode_ffn"] = "kind serve"
    for field, other in idle.items():
        raise ignored_option(
            f"has no effect under kind {scenario.kind}", field=field, hint=f"leave it out, or choose {other}"
        )
    _check_lengths(scenario)
    if pools is not None and scenario.answers_per_request is not None:
        raise contradiction(
            "is not modelled beside disaggregation, whose pools would send a prompt's cache to every answer",
            field="answers_per_request",
            hint="leave one of them out",
        )
    apart = (pools.prefill_replicas + pools.decode_replicas if pools else 0, encoders.replicas if encoders else 0)
    if any(apart):
        from simulator.traffic.requests import check_replicas

        check_replicas(max(apart))
    if pools is not None and "replicas" in scenario.model_fields_set:
        raise ignored_option("has no effect beside disaggregation", field="replicas")


def _check_lengths(scenario: ScenarioSpec) -> None:
    """Refuse a closed loop whose lengths are said twice."""
    if scenario.range_ratio is not None and (scenario.isl_cv is not None or scenario.osl_cv is not None):
        raise contradiction(
            f"{scenario.range_ratio:g} beside isl_cv or osl_cv: lengths are drawn one way or the other",
            field="range_ratio",
            hint="leave one of them out",
        )
    for field in (*NOMINAL_LENGTHS, *DRAWN_LENGTHS):
        if scenario.lengths_trace is not None and getattr(scenario, field) is not None:
            raise contradiction(
                f"{getattr(scenario, field):g} beside lengths_trace: lengths are those of the file, or said",
                field=field,
                hint="leave one of them out",
            )


def _with_interconnect(hardware: AcceleratorSpec, interconnect: str | None, *, profiles: str | None) -> AcceleratorSpec:
    """The host's link in place of the scale-up link, joining as many devices; refuse what the device does not have."""
    asked = None if interconnect is None else link_word(interconnect)
    if asked is None or asked == link_word(hardware.scale_up.kind):
        return hardware
    if asked == link_word(hardware.host_link.kind):
        peers = default_server_for(hardware.name, profiles=profiles).peer_link
        link = LinkSpec(
            kind=hardware.host_link.kind,
            bytes_per_s_per_direction=hardware.host_link.bytes_per_s_per_direction,
            domain_size=hardware.scale_up.domain_size if peers is None else peers.domain_size,
        )
        return hardware.model_copy(update={"scale_up": link})
    raise RoofcastError(
        f"{interconnect!r} does not connect {hardware.name}; "
        "allowed: " + ", ".join(sorted({hardware.scale_up.kind, hardware.host_link.kind})),
        field="interconnect",
        code="unsupported_option",
    )


def _model_of(scenario: ScenarioSpec, *, profiles: str | None) -> ModelSpec:
    model = load_model(scenario.model, profiles=profiles)
    if scenario.images_per_request is None:
        if scenario.image_pixels is not None:
            raise ignored_option(
                "has no effect without images_per_request",
                field="image_pixels",
                hint="say how many pictures a prompt holds",
            )
        if scenario.encoder_pool is not None:
            raise RoofcastError(
                "has nothing to encode without images_per_request",
                field="encoder_pool",
                code="ignored_option",
                hint="say how many pictures a prompt holds",
            )
        return model
    from simulator.operators.vision import with_pictures

    return with_pictures(
        model,
        images_per_request=scenario.images_per_request,
        image_pixels=scenario.image_pixels,
        prompt_tokens=_prompt_tokens(scenario),
        encoded_apart=scenario.encoder_pool is not None,
    )


def _prompt_tokens(scenario: ScenarioSpec) -> float:
    workload = scenario.workload
    if scenario.isl_tokens is not None:
        # Uniform lengths reach from range_ratio times the nominal one to that.
        return scenario.isl_tokens * (1.0 + (scenario.range_ratio or 1.0)) / 2.0
    if workload is not None and not (workload.trace or workload.lengths_trace or workload.conversation):
        if workload.isl_tokens is not None:
            return float(workload.isl_tokens)
        if workload.question_tokens is not None:
            return float(workload.question_tokens + workload.system_prompt_tokens)
    raise missing_field(
        "needs prompts of a known mean length",
        field="images_per_request",
        hint="give isl_tokens in place of a trace or conversation",
    )


def _limited(hardware: AcceleratorSpec, scenario: ScenarioSpec, profiles: str | None) -> AcceleratorSpec:
    """``hardware`` under the scenario's power cap, which has to limit one of the kinds of accelerators in it."""
    pools, encoders, cap_w = scenario.disaggregation, scenario.encoder_pool, scenario.power_cap_w
    ffn = None if pools is None else pools.decode_ffn
    others = (scenario.hardware, pools and pools.prefill_hardware, ffn and ffn.hardware, encoders and encoders.hardware)
    tdp_w = [load_hardware(name, profiles=profiles).tdp_w for name in others if name] if cap_w else []
    return power_limited(hardware, cap_w) if cap_w and max(tdp_w) > cap_w else power_capped(hardware, cap_w)


def other_hardware(
    scenario: ScenarioSpec, name: str, *, field: str, sent: str, profiles: str | None
) -> AcceleratorSpec:
    """Accelerators of a scenario that are not those it begins with: of the same vendor, under the same power cap."""
    hardware = load_hardware(name, profiles=profiles, field=field)
    reason = unlike_vendors(hardware, load_hardware(scenario.hardware, profiles=profiles), sent=sent)
    if reason:
        raise RoofcastError(
            reason, field=field, code="unsupported_option", hint="a server accelerator of the same vendor"
        )
    return _limited(hardware, scenario, profiles)


def deployment_of(
    scenario: ScenarioSpec,
    *,
    profiles: str | None = None,
    only: Callable[[ModelSpec], ModelSpec] | None = None,
    hardware: AcceleratorSpec | None = None,
    prefill_pool: bool = False,
) -> Deployment:
    """The replica that a scenario describes, its fields checked.

    only : the part of the model that it holds; hardware : in place of the scenario's, limited already
    prefill_pool : it computes prompts for others
    """
    _check_fields(scenario)
    _, longest_tokens = longest_of(scenario)
    if longest_tokens:
        check_budget(scenario.techniques.kv_policy, longest_tokens=longest_tokens)
    if hardware is None:
        own = load_hardware(scenario.hardware, profiles=profiles)
        hardware = _limited(_with_interconnect(own, scenario.interconnect, profiles=profiles), scenario, profiles)
    engine = scenario.engine
    if scenario.disaggregation is not None:
        engine = with_feature(engine, "disaggregation", vendor=hardware.vendor, profiles=profiles)
    model = _model_of(scenario, profiles=profiles)
    if scenario.encoder_pool is not None:
        model = model.model_copy(update={"vision": None})
    return deploy(
        model=model if only is None else only(model),
        hardware=hardware,
        parallelism=scenario.parallelism,
        precision=scenario.precision,
        engine=engine,
        techniques=scenario.techniques,
        profiles=profiles,
        prefill_pool=prefill_pool,
    )


def pool_deployments(
    scenario: ScenarioSpec, spec: DisaggregationSpec, *, profiles: str | None = None
) -> tuple[Deployment, Deployment]:
    """What one replica of the prefill pool and one of the decode pool runs."""
    _check_fields(scenario)
    for degree in spec.degrees("prefill").keys() & spec.degrees("decode").keys() & scenario.model_fields_set:
        raise ignored_option("has no effect beside pools that both have their own", field=degree)
    layouts = {name: scenario.model_copy(update=spec.degrees(name)).parallelism for name in ("prefill", "decode")}

    def deployed(pool: PoolName) -> Deployment:
        own: dict[str, Any] = spec.degrees(pool)
        other = layouts["decode" if pool == "prefill" else "prefill"]
        own["techniques"] = in_pool(scenario.techniques, layouts[pool], other=other)
        limit = spec.prefill_max_num_batched_tokens if pool == "prefill" else None
        if limit is not None:
            own["engine"] = scenario.engine.model_copy(update={"max_num_batched_tokens": limit})
        if pool == "prefill" or spec.decode_ffn is None:
            hardware = first_kind if pool == "prefill" else None
            asked = scenario.model_copy(update=own)
            return deployment_of(asked, profiles=profiles, hardware=hardware, prefill_pool=pool == "prefill")
        if own.get("ep_size", scenario.ep_size) > 1:
            raise contradiction(
                "experts have devices of their own: decode_ffn.devices",
                field="disaggregation.decode_ep_size",
                hint="1, or leave decode_ffn out",
            )
        from simulator.phases.attention_ffn import attention_only

        own |= {"dp_size": 1, "ep_size": 1}
        return deployment_of(scenario.model_copy(update=own), profiles=profiles, only=attention_only)

    first_kind = None
    if spec.prefill_hardware is not None:
        name, field = spec.prefill_hardware, "disaggregation.prefill_hardware"
        first_kind = other_hardware(scenario, name, field=field, sent="KV caches", profiles=profiles)
        first_kind = _with_interconnect(first_kind, scenario.interconnect, profiles=profiles)
    with said_of({degree: f"disaggregation.prefill_{degree}" for degree in spec.degrees("prefill")}):
        prefill = deployed("prefill")
    with said_of({degree: f"disaggregation.decode_{degree}" for degree in spec.degrees("decode")}):
        decode = deployed("decode")
    first = spec.prefill_replicas * prefill.parallelism.devices
    second = spec.decode_replicas * decode.parallelism.devices
    if spec.decode_ffn is not None:
        ranks = spec.degrees("decode").get("dp_size", scenario.dp_size)
        second = spec.decode_replicas * (ranks * decode.parallelism.devices + spec.decode_ffn.devices)
    if spec.devices is not None and first + second > spec.devices:
        raise contradiction(
            f"a prefill pool on {first} and a decode pool on {second} devices would share some of {spec.devices}",
            field="disaggregation.devices",
            hint=f"at least {first + second}, or fewer or smaller replicas",
        )
    return prefill, decode


def server_between(prefill: Deployment, decode: Deployment, *, profiles: str | None) -> ServerSpec | None:
    """The server whose network sets the pace between two pools, where those of both accelerators are known."""
    names = (prefill.hardware.name, decode.hardware.name)
    try:
        return slower_network(*(default_server_for(name, profiles=profiles) for name in dict.fromkeys(names)))
    except ProfileError:
        return None


def encoders_of(scenario: ScenarioSpec, deployment: Deployment, *, profiles: str | None) -> EncoderPool | None:
    """The pool that encodes the pictures for replicas of ``deployment``, where the scenario has one."""
    if scenario.encoder_pool is None:
        return None
    from simulator.engine.encoders import encoder_pool

    pools, name = scenario.disaggregation, scenario.encoder_pool.hardware
    replicas = scenario.replicas if pools is None else pools.prefill_replicas
    hardware = deployment.hardware
    if name is not None:
        hardware = other_hardware(scenario, name, field="encoder_pool.hardware", sent="embeddings", profiles=profiles)
    return encoder_pool(
        scenario.encoder_pool,
        hardware=hardware,
        model=_model_of(scenario, profiles=profiles),
        prompt_tokens=_prompt_tokens(scenario),
        behind=Pool(deployment=deployment, replicas=replicas),
        server=server_between(deployment, deployment, profiles=profiles),
        profiles=profiles,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What else to find out about a served workload.

    objectives : bounds whose percentiles and goodput are reported; intervals : whether to work them out
    trace_steps : steps of each replica to keep; progress : called with (requests brought in, of how many)
    routing : how requests are spread over replicas; encoders : what pictures pass first
    """

    objectives: tuple[ObjectiveSpec, ...] = ()
    intervals: bool = True
    trace_steps: int = 0
    progress: Progress | None = None
    routing: Routing = Routing.ROUND_ROBIN
    encoders: EncoderPool | None = None


def routing_of(scenario: ScenarioSpec) -> Routing:
    """The scenario's routing; refused where there is nothing to choose between."""
    if scenario.routing is None:
        return Routing.ROUND_ROBIN
    pools = scenario.disaggregation
    most = scenario.replicas if pools is None else max(pools.prefill_replicas, pools.decode_replicas)
    if most * scenario.dp_size == 1:
        raise ignored_option(
            f"{scenario.routing!r} has nothing to choose from: there is one replica",
            field="routing",
            hint="leave it out or add replicas",
        )
    return Routing[scenario.routing.upper()]


def scenario_options(scenario: ScenarioSpec, options: ServeOptions) -> ServeOptions:
    """``options`` with what the scenario itself asks for; objectives of the caller go before the scenario's."""
    if scenario.kind != "serve":
        return options
    return replace(
        options,
        routing=routing_of(scenario),
        objectives=options.objectives or parse_objectives(scenario.slo or (), flag="slo"),
    )


def loop_lengths(scenario: ScenarioSpec, deployment: Deployment) -> LoopLengths:
    """How long the requests of a closed loop are.

    Raises FileError: the file of their lengths cannot be read.
    Raises RoofcastError: the engine takes none as long as one of that file.
    """
    isl_given: tuple[int, ...] = ()
    osl_given: tuple[int, ...] = ()
    if scenario.lengths_trace is not None:
        from simulator.traffic.recorded.traces import read_trace

        trace = read_trace(scenario.lengths_trace, field="lengths_trace")
        (_, longest), most = longest_of(scenario), deployment.engine.max_model_len
        if longest > most:
            raise RoofcastError(
                f"{scenario.lengths_trace} has a request of {longest} tokens, which exceed max_model_len {most}",
                field="lengths_trace",
                hint="raise engine.max_model_len, or leave such requests out",
            )
        isl_given, osl_given = (tuple(map(int, lengths.tolist())) for lengths in (trace.isl_tokens, trace.osl_tokens))
    varied = scenario.isl_cv is not None or scenario.osl_cv is not None
    return LoopLengths(
        isl_tokens=scenario.isl_tokens or 1,
        osl_tokens=scenario.osl_tokens or 1,
        range_ratio=1.0 if varied else scenario.range_ratio or DEFAULT_RANGE_RATIO,
        isl_cv=scenario.isl_cv or 0.0,
        osl_cv=scenario.osl_cv or 0.0,
        seed=scenario.seed or 0,
        context_tokens=deployment.engine.max_model_len,
        answers=scenario.answers_per_request or 1,
        isl_given=isl_given,
        osl_given=osl_given,
    )
