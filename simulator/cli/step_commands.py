"""About one pass, one model, one topic: ``roofcast step``, ``crossover``, ``model``, ``retrieval``, ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.cli.shared import AsJson, Engine, Force, Hardware, Model, Profiles, Tp, field_option, grouped
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.plan_values import EXPLAINED_BATCH, HARDWARE, STEP_CONTEXT_TOKENS, written_fields
from simulator.specs.question.techniques import TechniquesSpec

if TYPE_CHECKING:
    from simulator.reports.answer import Answer


_SPLIT = ("sequence_parallel", "two_batch_overlap")


def precision_options() -> list[Parameter]:
    """Number formats."""
    metavars = {"mixed": "ROLE=SCHEME"}
    return [field_option(field, metavar=metavars.get(name)) for name, field in written_fields(PrecisionSpec).items()]


def technique_options() -> list[Parameter]:
    """What-if techniques."""
    fields = dict(written_fields(TechniquesSpec))
    # Without the option nothing is split: there is no third way.
    fields |= {name: replace(fields[name], three_ways=False) for name in _SPLIT}
    return list(map(field_option, fields.values()))


def precision_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario's ``precision`` object from the options of ``precision_options``."""
    from simulator.specs.question.techniques_text import mixed_schemes

    given = {name: options[name] for name in PrecisionSpec.model_fields}
    return {**given, "mixed": mixed_schemes(given["mixed"] or [])}


def techniques_of(options: Mapping[str, Any]) -> TechniquesSpec:
    """The techniques that the options of ``technique_options`` ask for."""
    from simulator.specs.question.techniques_text import techniques_spec

    given = {name: options[name] for name in TechniquesSpec.model_fields}
    return techniques_spec({**given, **{name: options[name] or None for name in _SPLIT}})


class OptimizerChoice(StrEnum):
    """What Adam keeps per trained parameter (simulator/techniques/fine_tuning.py)."""

    MIXED = "mixed"
    NO_MASTER = "no_master"
    HALF = "half"
    EIGHT_BIT = "eight_bit"


def _show(answer: Answer, *, as_json: bool) -> None:
    from simulator.cli.scenario_commands import one_line

    typer.echo(one_line(answer.to_dict()) if as_json else answer.to_text(), nl=False)


@grouped(precision_options(), technique_options())
def step(
    context: typer.Context,
    model: Model,
    hardware: Hardware = HARDWARE,
    batch: Annotated[int, typer.Option("--batch", min=1, metavar="N", help="Sequences in the step.")] = 1,
    tokens: Annotated[
        int | None,
        typer.Option("--context", min=1, metavar="N", help="Tokens attended to (decode) or prompt (prefill)."),
    ] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="prefill or decode.")] = None,
    tp: Tp = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, metavar="N", help="Pipeline-parallel size.")] = 1,
    ep: Annotated[int, typer.Option("--ep", min=1, metavar="N", help="Expert-parallel size.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, metavar="N", help="Ranks of data-parallel attention.")] = 1,
    cp: Annotated[int, typer.Option("--cp", min=1, metavar="N", help="Ranks that share a prompt's tokens.")] = 1,
    power_cap: Annotated[
        float | None, typer.Option("--power-cap", min=1, metavar="W", help="Limit of each accelerator; lowers clocks.")
    ] = None,
    engine: Engine = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Price one forward pass, operator by operator, beside the plain roofline.

    Example: roofcast step --model llama-3.1-8b --hardware h100 --batch 32
    """
    from simulator.api import steps

    found = steps.step(
        model=model,
        hardware=hardware,
        phase=phase,
        batch_size=batch,
        context_tokens=tokens,
        tp_size=tp,
        pp_size=pp,
        ep_size=ep,
        dp_size=dp,
        cp_size=cp,
        power_cap_w=power_cap,
        engine=engine,
        precision=precision_of(context.params),
        techniques=techniques_of(context.params),
        profiles=profiles,
    )
    _show(found, as_json=as_json)


def crossover(
    model: Model,
    hardware: Hardware = HARDWARE,
    tp: Tp = 1,
    context: Annotated[
        int, typer.Option("--context", min=1, help="Tokens each sequence attends to.")
    ] = STEP_CONTEXT_TOKENS,
    formats: Annotated[
        str | None, typer.Option("--formats", metavar="A,B,...", help="Schemes to compare: bf16,w8a8,gptq-g128.")
    ] = None,
    speculation: Annotated[
        str | None,
        typer.Option("--speculation", metavar="METHOD:...", help="Also up to which batch it pays: eagle:k=4."),
    ] = None,
    engine: Engine = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Compare number formats over the batch: which decodes fastest, and where one overtakes another.

    Example: roofcast crossover --model llama-3.1-8b --hardware a100
    """
    from simulator.api import steps

    found = steps.crossover(
        model=model,
        hardware=hardware,
        tp_size=tp,
        context_tokens=context,
        formats=formats,
        speculation=speculation,
        engine=engine,
        profiles=profiles,
    )
    _show(found, as_json=as_json)


def model(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="Model name, Hugging Face id, config.json or its folder.")
    ],
    context: Annotated[int | None, typer.Option("--context", min=1, help="Tokens for FLOPs and KV totals.")] = None,
    kv_cache: Annotated[str | None, typer.Option("--kv-cache", help="Number format of the KV cache.")] = None,
    fine_tune: Annotated[
        list[str] | None,
        typer.Option("--fine-tune", metavar="METHOD", help="Memory to train: full, lora:16, qlora:16; repeatable."),
    ] = None,
    optimizer: Annotated[
        OptimizerChoice | None, typer.Option("--optimizer", help="Adam's state: FP32 and master, FP32, 16 bit, 8 bit.")
    ] = None,
    train_batch: Annotated[
        int | None, typer.Option("--train-batch", min=1, help="Sequences of --context tokens in a training step.")
    ] = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Parameters, FLOPs and KV bytes of a model, counted on its own configuration; memory to fine-tune it.

    Example: roofcast model ./config.json --fine-tune lora:16
    """
    from simulator.api import models

    found = models.count(
        config,
        context_tokens=context,
        kv_cache=kv_cache,
        fine_tune=fine_tune or (),
        optimizer=optimizer.value if optimizer else None,
        train_batch=train_batch,
        profiles=profiles,
    )
    _show(found, as_json=as_json)


def retrieval(
    model: Annotated[str, typer.Option("--model", "-m", help="An encoder: name, Hugging Face id or config.json.")],
    hardware: Hardware = "a100",
    documents: Annotated[float, typer.Option("--documents", min=1, help="Documents in the index.")] = 100_000,
    candidates: Annotated[float, typer.Option("--candidates", min=1, help="Documents that a query scores.")] = 1000,
    document_tokens: Annotated[int, typer.Option("--document-tokens", min=1, help="Tokens of a document.")] = 128,
    query_tokens: Annotated[int, typer.Option("--query-tokens", min=1, help="Tokens of a query.")] = 32,
    vector_size: Annotated[int | None, typer.Option("--vector-size", min=1, help="Numbers of a stored vector.")] = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Compare late interaction (ColBERT, COIL) with one vector a document and with a cross encoder.

    Example: roofcast retrieval --model bert-base --hardware a100
    """
    from simulator.api import models
    from simulator.reports.answers.structures import RetrievalQuestion

    question = RetrievalQuestion(
        documents=documents,
        candidates=candidates,
        document_tokens=document_tokens,
        query_tokens=query_tokens,
        vector_size=vector_size,
    )
    _show(models.retrieval(model=model, hardware=hardware, question=question, profiles=profiles), as_json=as_json)


def mixers(
    width: Annotated[int, typer.Option("--width", min=1, help="Channels of the layer.")] = 4096,
    tokens: Annotated[list[int] | None, typer.Option("--tokens", min=1, help="Lengths; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare how attention, recurrence, linear attention and FFT convolution grow with the length.

    Example: roofcast mixers --width 4096 --tokens 1024 --tokens 131072
    """
    from simulator.api import models

    _show(models.mixers(width=width, tokens=tokens or models.DEFAULT_LENGTHS), as_json=as_json)


def explain(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="What to explain; the list without it.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Your model: name, id or config.json.")] = None,
    hardware: Hardware = HARDWARE,
    batch: Annotated[int, typer.Option("--batch", min=1, metavar="N", help="Sequences.")] = EXPLAINED_BATCH,
    context: Annotated[
        int, typer.Option("--context", min=1, metavar="N", help="Tokens of each.")
    ] = STEP_CONTEXT_TOKENS,
    tpot: Annotated[
        str | None, typer.Option("--tpot", metavar="TIME", help="Your measured time per token (mbu-mfu): 14ms.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="The topic's chart: .html, .svg or .png.")
    ] = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
    force: Force = False,
) -> None:
    """Explain a topic of the field: formula, your model on your GPU, what papers print, what is left out.

    Example: roofcast explain flash-attention --model llama-3.1-8b --hardware a100
    """
    from simulator.api import explanations
    from simulator.files import check_target, write_bytes

    check_target(plot, flag=explanations.PLOT, force=force)
    found = explanations.explain(
        topic, model=model, hardware=hardware, batch_size=batch, context_tokens=context, tpot=tpot, profiles=profiles
    )
    if plot is not None:
        write_bytes(found.picture(Path(plot).suffix.removeprefix(".")), plot, force=force, flag=explanations.PLOT)
    _show(found, as_json=as_json)
