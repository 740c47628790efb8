"""Decode replicas whose experts have devices of their own: made from a scenario, and what they do under load."""

from __future__ import annotations

from simulator.engine.runs.scenario_setup import deployment_of, other_hardware
from simulator.errors import InfeasibleError, RoofcastError, said_of
from simulator.operators.work import decode_step
from simulator.phases.attention_ffn import AttentionFfn, ffn_only, ping_pong
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.records import dataclass
from simulator.specs.engine.deployment import DisaggregationSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.units import format_si


def attention_ffn_of(
    scenario: ScenarioSpec, spec: DisaggregationSpec, attention: Deployment, *, profiles: str | None
) -> AttentionFfn | None:
    """A replica of the decode pool with devices for its experts, where the scenario asks for them.

    attention : one instance, as ``pool_deployments`` makes it
    """
    ffn = spec.decode_ffn
    if ffn is None:
        return None
    decoding = scenario.model_copy(update=spec.degrees("decode"))
    techniques = scenario.techniques
    split = techniques.speculation is not None or techniques.two_batch_overlap
    if decoding.pp_size > 1 or decoding.cp_size > 1 or split:
        raise RoofcastError(
            "goes with tp_size and dp_size of attention alone, without pipelines, shared contexts, speculation or "
            "two-batch overlap, which its micro-batches are",
            field="disaggregation.decode_ffn",
            code="unsupported_option",
            hint="leave those out, or decode_ffn",
        )
    name, field = ffn.hardware or scenario.hardware, "disaggregation.decode_ffn.hardware"
    hardware = other_hardware(scenario, name, field=field, sent="tokens", profiles=profiles)
    devices = decoding.tp_size * decoding.dp_size + ffn.devices
    inside = hardware.name == attention.hardware.name and devices <= hardware.scale_up.domain_size
    if ffn.link == "scale_up" and not inside:
        unlike = f"{attention.hardware.name} and {hardware.name} share no {hardware.scale_up.kind} domain"
        raise RoofcastError(
            f"{devices} devices do not share a {hardware.scale_up.kind} domain of {hardware.scale_up.domain_size}"
            if hardware.name == attention.hardware.name
            else unlike,
            field="disaggregation.decode_ffn.link",
            code="unsupported_option",
            hint="nic, or leave it out",
        )
    if ffn.link == "nic" or not inside:
        # Tokens come from other servers, however few devices hold the experts.
        alone = hardware.scale_up.model_copy(update={"domain_size": 1})
        hardware = hardware.model_copy(update={"scale_up": alone})
    spread = decoding.model_copy(update={"tp_size": 1, "dp_size": ffn.devices, "ep_size": ffn.devices})
    with said_of({"ep_size": "disaggregation.decode_ffn.devices"}):
        holding = deployment_of(spread, profiles=profiles, only=ffn_only, hardware=hardware)
    memory = memory_plan(holding)
    if not memory.fits:
        raise InfeasibleError(
            f"the experts of {scenario.model} do not fit {ffn.devices} {hardware.name} "
            f"(short of {format_si(memory.shortfall_bytes, 'B')} each)",
            field="disaggregation.decode_ffn.devices",
            code="does_not_fit",
            hint="more devices",
        )
    return AttentionFfn(
        attention=attention,
        ffn=holding,
        ranks=decoding.dp_size,
        micro_batches=ffn.micro_batches,
        layers=attention.model.num_hidden_layers,
        ordinary=_ordinary(decoding, devices=devices, profiles=profiles),
    )


def _ordinary(decoding: ScenarioSpec, *, devices: int, profiles: str | None) -> Deployment | None:
    ranks, left = divmod(devices, decoding.tp_size)
    spread = {"dp_size": ranks, "ep_size": devices, "disaggregation": None}
    try:
        whole = deployment_of(decoding.model_copy(update=spread), profiles=profiles)
        return whole if left == 0 and memory_plan(whole).fits else None
    except RoofcastError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFfnUse:
    """A decode step of one replica at the mean batch.

    attention_s, ffn_s, transfers_s : of one micro-batch and layer, transfers both ways [s]
    needed_micro_batches : how many hide the transfers; hidden : whether there are as many
    step_s, tokens_per_s_per_device : of the step without scheduling [s], and what each device yields by it
    ordinary_step_s : of the same sequences on as many devices of the attention's kind with data-parallel attention and
        the experts spread over all of them; None where that is no legal set-up
    """

    attention_devices: int
    ffn_devices: int
    ffn_hardware: str
    micro_batches: int
    needed_micro_batches: int
    hidden: bool
    attention_s: float
    ffn_s: float
    transfers_s: float
    step_s: float
    tokens_per_s_per_device: float
    ordinary_step_s: float | None


def attention_ffn_use(parts: AttentionFfn, *, sequences: float, context: float) -> AttentionFfnUse:
    """What both sides do with so many sequences on each attention instance."""
    found = ping_pong(parts, sequences=sequences, context=context)
    needed, step_s = int(found.needed_micro_batches[0]), float(found.step_s[0])
    total, ordinary_s = sequences * parts.ranks, None
    if parts.ordinary is not None:
        each = decode_step(sequences=total / parts.ordinary.parallelism.dp_size, context=context)
        ordinary_s = float(estimate_step(parts.ordinary, each).stage_s.sum())
    return AttentionFfnUse(
        attention_devices=parts.attention_devices,
        ffn_devices=parts.ffn.parallelism.devices,
        ffn_hardware=parts.ffn.hardware.name,
        micro_batches=parts.micro_batches,
        needed_micro_batches=needed,
        hidden=parts.micro_batches >= needed,
        attention_s=float(found.attention_s[0]),
        ffn_s=float(found.ffn_s[0]),
        transfers_s=float((found.dispatch_s + found.combine_s)[0]),
        step_s=step_s,
        tokens_per_s_per_device=total / (step_s * parts.devices),
        ordinary_step_s=ordinary_s,
    )
