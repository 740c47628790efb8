"""The commands about one pass: ``roofcast step`` and ``roofcast crossover``."""

from __future__ import annotations

from typing import Annotated

import typer

from simulator.cli.options.techniques import precision_values, techniques_of

Model = Annotated[str, typer.Option("--model", "-m", help="Model name, Hugging Face id, config.json or its folder.")]
Hardware = Annotated[str, typer.Option("--hardware", help="Accelerator name, alias or YAML file.")]
Tp = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")]
Engine = Annotated[str, typer.Option("--engine", help="Engine profile.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Profiles = Annotated[
    str | None, typer.Option("--profiles", metavar="DIR", help="Your profile directory; overrides and extends.")
]


def step(
    context: typer.Context,
    model: Model,
    hardware: Hardware = "h100",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Sequences in the step.")] = 1,
    tokens: Annotated[
        int, typer.Option("--context", min=1, help="Tokens attended to (decode) or prompt (prefill).")
    ] = 1024,
    phase: Annotated[str, typer.Option("--phase", help="prefill or decode.")] = "decode",
    tp: Tp = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline-parallel size.")] = 1,
    engine: Engine = "vllm",
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Price one forward pass, operator by operator, beside the plain roofline.

    Example: roofcast step --model llama-3.1-8b --hardware h100 --batch 32 --scheme gptq-g128 --sparsity 2:4
    """
    from simulator.cli.step import StepQuestion, print_step

    question = StepQuestion(
        model=model,
        hardware=hardware,
        phase=phase,
        batch=batch,
        context=tokens,
        tp_size=tp,
        pp_size=pp,
        engine=engine,
        **precision_values(context.obj),
        techniques=techniques_of(context.obj),
    )
    print_step(question, as_json=as_json, profiles=profiles)


def crossover(
    model: Model,
    hardware: Hardware = "h100",
    tp: Tp = 1,
    context: Annotated[int, typer.Option("--context", min=1, help="Tokens each sequence attends to.")] = 1024,
    formats: Annotated[
        str | None, typer.Option("--formats", metavar="A,B,...", help="Schemes to compare: bf16,w8a8,gptq-g128.")
    ] = None,
    speculation: Annotated[
        str | None,
        typer.Option("--speculation", metavar="METHOD:...", help="Also up to which batch it pays: eagle:k=4."),
    ] = None,
    engine: Engine = "vllm",
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Compare number formats over the batch: which decodes fastest, and where one overtakes another.

    Example: roofcast crossover --model llama-3.1-8b --hardware a100 --formats bf16,w8a8,gptq-g128
    """
    from simulator.cli.crossover import CrossoverQuestion, print_crossover

    question = CrossoverQuestion(
        model=model,
        hardware=hardware,
        tp_size=tp,
        context=context,
        engine=engine,
        formats=formats,
        speculation=speculation,
    )
    print_crossover(question, as_json=as_json, profiles=profiles)
