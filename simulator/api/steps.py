"""``step`` and ``crossover``: one pass, operator by operator, and number formats over the batch."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from simulator.api.questions import Given
from simulator.errors import RoofcastError
from simulator.operators.formats.schemes import scheme_named
from simulator.operators.transformer import is_encoder_only
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.one_step import check_phase, one_step
from simulator.phases.power import power_capped
from simulator.reports.answers.step import CrossoverAnswer, StepAnswer
from simulator.specs.base import Note, validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan_values import HARDWARE, STEP_CONTEXT_TOKENS
from simulator.specs.question.techniques import TechniquesSpec

Kind = TypeVar("Kind", PrecisionSpec, TechniquesSpec)
DEFAULT_FORMATS = "bf16,fp8,w8a8,gptq-g128"


def _deployment(
    model: str,
    hardware: str,
    *,
    engine: str | None,
    degrees: ParallelismSpec,
    power_cap_w: float | None = None,
    precision: PrecisionSpec | Given | None,
    techniques: TechniquesSpec | Given | None,
    profiles: str | None,
) -> Deployment:
    return deploy(
        model=load_model(model, profiles=profiles),
        hardware=power_capped(load_hardware(hardware, profiles=profiles), power_cap_w),
        parallelism=degrees,
        precision=_spec(PrecisionSpec, precision),
        engine=validate(EngineSpec, {"name": engine}, where="", option="engine"),
        techniques=_spec(TechniquesSpec, techniques),
        profiles=profiles,
    )


def _spec(kind: type[Kind], given: Kind | Given | None) -> Kind:
    return given if isinstance(given, kind) else validate(kind, dict(given or {}), where="")


def step(
    *,
    model: str,
    hardware: str = HARDWARE,
    phase: str | None = None,
    batch_size: int = 1,
    context_tokens: int | None = None,
    tp_size: int = 1,
    pp_size: int = 1,
    ep_size: int = 1,
    dp_size: int = 1,
    cp_size: int = 1,
    power_cap_w: float | None = None,
    engine: str | None = None,
    precision: PrecisionSpec | Given | None = None,
    techniques: TechniquesSpec | Given | None = None,
    profiles: str | None = None,
) -> StepAnswer:
    """One forward pass, operator by operator, beside the plain roofline: ``roofcast step``.

    phase : decode, one token for each sequence after ``context_tokens``; or prefill, prompts of as many tokens, which
        is all that an encoder does
    batch_size : sequences of a replica, whose attention-data-parallel ranks share them
    context_tokens : by default 1,024, or all that the model takes where that is less
    power_cap_w : limit of each accelerator, between its idle power and its TDP [W]

    Raises RoofcastError: a name, a number format or a technique is unknown or changes nothing.
    """
    if phase is not None:
        check_phase(phase)
    sizes = {"tp_size": tp_size, "pp_size": pp_size, "ep_size": ep_size, "dp_size": dp_size, "cp_size": cp_size}
    deployment = _deployment(
        model,
        hardware,
        engine=engine,
        degrees=validate(ParallelismSpec, sizes, where=""),
        power_cap_w=power_cap_w,
        precision=precision,
        techniques=techniques,
        profiles=profiles,
    )
    spec = deployment.model
    longest = spec.max_position_embeddings or STEP_CONTEXT_TOKENS
    found = one_step(
        deployment,
        phase=phase or ("prefill" if is_encoder_only(spec) else "decode"),
        batch_size=batch_size,
        context_tokens=context_tokens or min(STEP_CONTEXT_TOKENS, longest),
    )
    return StepAnswer(found)


def crossover(
    *,
    model: str,
    hardware: str = HARDWARE,
    tp_size: int = 1,
    context_tokens: int = STEP_CONTEXT_TOKENS,
    formats: str | None = None,
    speculation: str | None = None,
    engine: str | None = None,
    profiles: str | None = None,
) -> CrossoverAnswer:
    """Which number format decodes fastest at which batch, and where one overtakes another: ``roofcast crossover``.

    formats : comma-separated; None takes those of the usual that the hardware multiplies
    speculation : to compare with plain decoding in each format, such as ``eagle:k=4``
    """
    from simulator.engine.uniform.speculation_gain import compare_formats
    from simulator.specs.question.techniques_text import techniques_spec

    names = [name.strip() for name in (formats or DEFAULT_FORMATS).split(",") if name.strip()]
    for name in names:
        try:
            scheme_named(name, plain=Dtype.BF16)
        except RoofcastError as error:
            error.field = "--formats"
            raise
    if len(set(names)) != len(names) or len(names) < 2:
        raise RoofcastError(
            f"{formats!r} does not name two or more different formats",
            field="--formats",
            hint=f"such as {DEFAULT_FORMATS}",
        )

    degrees = validate(ParallelismSpec, {"tp_size": tp_size}, where="")
    deployed = partial(_deployment, model, hardware, engine=engine, degrees=degrees, profiles=profiles)

    def replica(scheme: str, techniques: TechniquesSpec | None = None) -> Deployment:
        return deployed(precision=PrecisionSpec(scheme=scheme), techniques=techniques)

    found, notes = {}, []
    for name in names:
        try:
            found[name] = replica(name)
        except RoofcastError as error:
            if formats is not None or error.code != "unsupported_dtype":
                raise
            notes.append(Note("format_left_out", {"format": name, "reason": error.message}))
    guessing = techniques_spec({"speculation": speculation}) if speculation is not None else None
    comparison = compare_formats(
        found,
        guessing={} if guessing is None else {name: replica(name, guessing) for name in found},
        context_tokens=context_tokens,
        tp_size=tp_size,
        notes=tuple(notes),
    )
    return CrossoverAnswer(comparison, speculation)
