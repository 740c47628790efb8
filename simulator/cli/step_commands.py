"""About one pass, one model, one topic: ``roofcast step``, ``crossover``, ``model``, ``retrieval``, ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from simulator.cli.shared import AsJson, Force, Own, Profiles, field_option, grouped, own_options, values_of
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.plan_values import EXPLAINED_BATCH, HARDWARE, STEP_CONTEXT_TOKENS, written_fields
from simulator.specs.question.techniques import TechniquesSpec

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


_HARDWARE = Own("hardware", str, "Accelerator name, alias or YAML file.", HARDWARE)
_MODEL = Own("model", str, "Model name, Hugging Face id, config.json or its folder.", ...)
_ENGINE = Own("engine", str, "Engine profile.")
_TP = Own("tp_size", int, "Tensor-parallel size.", 1)
STEP = own_options(
    *(_MODEL, _HARDWARE),
    Own("batch_size", int, "Sequences in the step.", 1),
    Own("context_tokens", int, "Tokens attended to (decode) or prompt (prefill).", flag="--context"),
    Own("phase", str, "prefill or decode."),
    _TP,
    Own("pp_size", int, "Pipeline-parallel size.", 1),
    Own("ep_size", int, "Expert-parallel size.", 1),
    Own("dp_size", int, "Ranks of data-parallel attention.", 1),
    Own("cp_size", int, "Ranks that share a prompt's tokens.", 1),
    Own("power_cap_w", float, "Limit of each accelerator; lowers clocks.", flag="--power-cap W", least=1),
    _ENGINE,
)


@grouped(precision_options(), technique_options(), first=STEP)
def step(context: typer.Context, as_json: AsJson = False, profiles: Profiles = None) -> None:
    """Price one forward pass, operator by operator, beside the plain roofline.

    Example: roofcast step --model llama-3.1-8b --hardware h100 --batch 32
    """
    from simulator.api import steps

    given = values_of(context.params, STEP)
    given |= {"precision": precision_of(context.params), "techniques": techniques_of(context.params)}
    typer.echo(steps.step(**given, profiles=profiles).as_printed(as_json=as_json), nl=False)


CROSSOVER = own_options(
    *(_MODEL, _HARDWARE, _TP),
    Own("context_tokens", int, "Tokens each sequence attends to.", STEP_CONTEXT_TOKENS, flag="--context"),
    Own("formats", str, "Schemes to compare: bf16,w8a8,gptq-g128.", flag="--formats A,B,..."),
    Own("speculation", str, "Also up to which batch it pays: eagle:k=4.", flag="--speculation METHOD:..."),
    _ENGINE,
)


@grouped(first=CROSSOVER)
def crossover(context: typer.Context, as_json: AsJson = False, profiles: Profiles = None) -> None:
    """Compare number formats over the batch: which decodes fastest, and where one overtakes another.

    Example: roofcast crossover --model llama-3.1-8b --hardware a100
    """
    from simulator.api import steps

    found = steps.crossover(**values_of(context.params, CROSSOVER), profiles=profiles)
    typer.echo(found.as_printed(as_json=as_json), nl=False)


COUNTED = own_options(
    Own("context_tokens", int, "Tokens for FLOPs and KV totals.", flag="--context"),
    Own("kv_cache", str, "Number format of the KV cache."),
    Own("fine_tune", str, "Memory to train: full, lora:16, qlora:16.", flag="--fine-tune METHOD", several=True),
    Own(
        "optimizer", ("mixed", "no_master", "half", "eight_bit"), "Adam's state: FP32 and master, FP32, 16 bit, 8 bit."
    ),
    Own("train_batch", int, "Sequences of --context tokens in a training step."),
)


@grouped(first=COUNTED)
def model(
    context: typer.Context,
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="Model name, Hugging Face id, config.json or its folder.")
    ],
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Parameters, FLOPs and KV bytes of a model, counted on its own configuration; memory to fine-tune it.

    Example: roofcast model ./config.json --fine-tune lora:16
    """
    from simulator.api import models

    found = models.count(config, **values_of(context.params, COUNTED), profiles=profiles)
    typer.echo(found.as_printed(as_json=as_json), nl=False)


RETRIEVED = own_options(
    Own("documents", float, "Documents in the index.", 100_000, least=1),
    Own("candidates", float, "Documents that a query scores.", 1000, least=1),
    Own("document_tokens", int, "Tokens of a document.", 128),
    Own("query_tokens", int, "Tokens of a query.", 32),
    Own("vector_size", int, "Numbers of a stored vector."),
)
_ENCODER = own_options(
    Own("model", str, "An encoder: name, Hugging Face id or config.json.", ...), _HARDWARE._replace(default="a100")
)


@grouped(first=[*_ENCODER, *RETRIEVED])
def retrieval(context: typer.Context, as_json: AsJson = False, profiles: Profiles = None) -> None:
    """Compare late interaction (ColBERT, COIL) with one vector a document and with a cross encoder.

    Example: roofcast retrieval --model bert-base --hardware a100
    """
    from simulator.api import models
    from simulator.reports.answers.structures import RetrievalQuestion

    question = RetrievalQuestion(**values_of(context.params, RETRIEVED))
    found = models.retrieval(**values_of(context.params, _ENCODER), question=question, profiles=profiles)
    typer.echo(found.as_printed(as_json=as_json), nl=False)


MIXED = own_options(Own("width", int, "Channels of the layer.", 4096), Own("tokens", int, "Lengths.", several=True))


@grouped(first=MIXED)
def mixers(context: typer.Context, as_json: AsJson = False) -> None:
    """Compare how attention, recurrence, linear attention and FFT convolution grow with the length.

    Example: roofcast mixers --width 4096 --tokens 1024 --tokens 131072
    """
    from simulator.api import models

    typer.echo(models.mixers(**values_of(context.params, MIXED)).as_printed(as_json=as_json), nl=False)


EXPLAINED = own_options(
    Own("model", str, "Your model: name, id or config.json."),
    _HARDWARE,
    Own("batch_size", int, "Sequences.", EXPLAINED_BATCH),
    Own("context_tokens", int, "Tokens of each.", STEP_CONTEXT_TOKENS, flag="--context"),
    Own("tpot", str, "Your measured time per token (mbu-mfu): 14ms.", flag="--tpot TIME"),
)


@grouped(first=EXPLAINED)
def explain(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="What to explain; the list without it.")] = None,
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
    found = explanations.explain(topic, **values_of(context.params, EXPLAINED), profiles=profiles)
    if plot is not None:
        write_bytes(found.picture(Path(plot).suffix.removeprefix(".")), plot, force=force, flag=explanations.PLOT)
    typer.echo(found.as_printed(as_json=as_json), nl=False)
