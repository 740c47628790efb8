"""The command ``roofcast``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from simulator.cli.app import dashboard
from simulator.cli.compare_command import compare
from simulator.cli.entry import run
from simulator.cli.options.groups import command_with
from simulator.cli.options.techniques import precision_group, technique_group
from simulator.cli.report_commands import demand, report
from simulator.cli.serving_commands import capacity, serve
from simulator.cli.step_command import crossover, step
from simulator.cli.structure_commands import mixers, retrieval

app = typer.Typer(
    name="roofcast",
    help="Forecast LLM inference: latency, memory, throughput and fleets, from configuration files alone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
profiles_app = typer.Typer(help="Hardware, server, price, engine and model profiles.", no_args_is_help=True)
app.add_typer(profiles_app, name="profiles")

ProfilesOption = Annotated[
    str | None, typer.Option("--profiles", metavar="DIR", help="Your profile directory; overrides and extends.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


class OptimizerChoice(StrEnum):
    """What Adam keeps per trained parameter (simulator/techniques/fine_tuning.py)."""

    MIXED = "mixed"
    NO_MASTER = "no_master"
    HALF = "half"


class ValidationPart(StrEnum):
    """What ``roofcast validate`` scores."""

    ALL = "all"
    KERNELS = "kernels"
    END_TO_END = "end-to-end"


class ProfileSection(StrEnum):
    """What ``roofcast profiles`` lists and shows."""

    HARDWARE = "hardware"
    SERVERS = "servers"
    PRICES = "prices"
    ENGINES = "engines"
    MODELS = "models"


@app.command()
def simulate(
    scenarios: Annotated[
        str, typer.Argument(metavar="SCENARIOS.jsonl", help='One JSON scenario a line; "-" is stdin.')
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='"-" is stdout.')] = "-",
    profiles: ProfilesOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
) -> None:
    """Answer scenarios: one JSON result a line, same order, same ids.

    Example: roofcast simulate scenarios.jsonl --output results.jsonl
    """
    from simulator.cli.simulate import run_simulate

    refused = run_simulate(scenarios, output=output, profiles=profiles, force=force)
    if refused:
        from simulator.reports.content.quantities import counted_text

        typer.echo(f"{counted_text(refused, 'scenario')} refused; see the error objects in the output", err=True)


app.command(cls=command_with(precision_group, technique_group))(step)
app.command()(crossover)
app.command()(compare)
app.command()(retrieval)
app.command()(mixers)


@app.command()
def model(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="Model name, Hugging Face id, config.json or its folder.")
    ],
    context: Annotated[int, typer.Option("--context", min=1, help="Tokens for FLOPs and KV totals.")] = 4096,
    kv_cache: Annotated[str | None, typer.Option("--kv-cache", help="Number format of the KV cache.")] = None,
    fine_tune: Annotated[
        list[str] | None,
        typer.Option("--fine-tune", metavar="METHOD", help="Memory to train: full, lora:16, qlora:16; repeatable."),
    ] = None,
    optimizer: Annotated[
        OptimizerChoice | None, typer.Option("--optimizer", help="Adam's state: FP32 and master, FP32, 16 bit.")
    ] = None,
    train_batch: Annotated[
        int | None, typer.Option("--train-batch", min=1, help="Sequences of --context tokens in a training step.")
    ] = None,
    as_json: JsonOption = False,
    profiles: ProfilesOption = None,
) -> None:
    """Parameters, FLOPs and KV bytes of a model, counted on its own configuration; memory to fine-tune it.

    Example: roofcast model ./config.json --fine-tune full --fine-tune lora:16 --fine-tune qlora:16
    """
    from simulator.cli.fine_tune import fine_tune_question
    from simulator.cli.model import print_model

    question = fine_tune_question(
        fine_tune or [], optimizer=optimizer.value if optimizer else None, sequences=train_batch
    )
    print_model(
        config, context_tokens=context, kv_cache=kv_cache, fine_tune=question, as_json=as_json, profiles=profiles
    )


@app.command()
def calibrate(
    measured: Annotated[
        str | None, typer.Argument(metavar="[MEASURED.csv]", help="Kernels, from python -m validation.measure.")
    ] = None,
    hardware: Annotated[str | None, typer.Option("--hardware", help="The accelerator that was measured.")] = None,
    bench: Annotated[
        list[str] | None, typer.Option("--from", metavar="RESULT.json", help="vLLM bench, GuideLLM or AIPerf result.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="With --from: the model that was served.")] = None,
    tp: Annotated[int, typer.Option("--tp", min=1, help="With --from: tensor-parallel size.")] = 1,
    engine: Annotated[str, typer.Option("--engine", help="With --from: the engine that served.")] = "vllm",
    weights: Annotated[str | None, typer.Option("--weights", help="With --from: format of the weights.")] = None,
    kv_cache: Annotated[str | None, typer.Option("--kv-cache", help="With --from: format of the KV cache.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="FAMILY[/FORMAT]", help="Fit these families alone.")
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Profile directory to write into.")] = "profiles",
    profiles: ProfilesOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite profiles.")] = False,
) -> None:
    """Fit your own measurements: kernels of an accelerator, or the overheads of an engine.

    Example: roofcast calibrate measured.csv --hardware l4 --out my-profiles
    """
    from simulator.cli.calibrate import CalibrationTarget, bench_question, run_calibrate

    question = bench_question(
        bench or [], model=model, hardware=hardware, tp_size=tp, engine=engine, weights=weights, kv_cache=kv_cache
    )
    target = CalibrationTarget(out=out, profiles=profiles, force=force)
    run_calibrate(measured, hardware=hardware, bench=question, only=only or [], target=target)


@app.command()
def validate(
    hardware: Annotated[str | None, typer.Option("--hardware", help="Only this accelerator.")] = None,
    library: Annotated[
        list[str] | None, typer.Option("--library", help="Only this kernel library: vllm, sglang, trtllm, nccl, torch.")
    ] = None,
    part: Annotated[ValidationPart | None, typer.Option("--part", help="Only these errors.")] = None,
    as_json: JsonOption = False,
    profiles: ProfilesOption = None,
) -> None:
    """Print the scorecards: kernel fits on shapes that they never saw, and whole runs that others measured.

    Example: roofcast validate --hardware h100 --library vllm

    Without --part both are printed, with --library the kernels. The runs are predicted anew from a source checkout:
    python -m validation.end_to_end --data DIR
    """
    from simulator.cli.validate import print_scorecard

    chosen = part or (ValidationPart.KERNELS if library else ValidationPart.ALL)
    print_scorecard(
        hardware=hardware,
        libraries=library or [],
        kernels=chosen is not ValidationPart.END_TO_END,
        end_to_end=chosen is not ValidationPart.KERNELS,
        as_json=as_json,
        profiles=profiles,
    )


@profiles_app.command("list")
def profiles_list(
    section: Annotated[ProfileSection | None, typer.Argument(help="Which profiles; all without it.")] = None,
    as_json: JsonOption = False,
    profiles: ProfilesOption = None,
) -> None:
    """List profile names."""
    from simulator.cli.profiles import names_by_section

    sections = [section.value] if section else [item.value for item in ProfileSection]
    names = names_by_section(sections, profiles=profiles)
    if as_json:
        typer.echo(json.dumps({"schema_version": "1.0", "profiles": names}))
        return
    for title, listed in names.items():
        typer.echo(f"{title} ({len(listed)})")
        for name in listed:
            typer.echo(f"  {name}")


@profiles_app.command("show")
def profiles_show(
    name: Annotated[str, typer.Argument(help="Profile name or alias.")],
    as_json: JsonOption = False,
    profiles: ProfilesOption = None,
) -> None:
    """Show one profile with the source of each number."""
    from simulator.cli.profiles import show_profile

    typer.echo(show_profile(name, as_json=as_json, profiles=profiles))


app.command()(serve)
app.command("app")(dashboard)
app.command()(capacity)
app.command()(report)
app.command()(demand)


def main() -> None:
    """Entry point."""
    raise SystemExit(run(app, name="roofcast"))


if __name__ == "__main__":
    main()
