"""The commands about deployments under requests: ``serve``, ``capacity``, ``compare``, and ``warm-up`` before them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.allocation import keep_freed_memory
from simulator.cli.shared import AsJson, Assumptions, Force, Output, Profiles, Slo, above_zero, grouped, own_options
from simulator.errors import FileError, missing_field, no_effect
from simulator.files import STANDARD_STREAM, Target, check_target, is_stream, write_targets, write_text

if TYPE_CHECKING:
    from simulator.engine.runs.metrics import ServeResult
    from simulator.specs.question.scenario import ScenarioSpec
    from simulator.specs.question.scenario_file import ScenarioChanges

GivenScenario = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO.yaml", help='Kind serve, YAML or JSON; "-" is stdin. Without it, options name the load.'
    ),
]
REQUESTS_FLAG, TRACE_FLAG = "--requests", "--trace"


class PriceKind(StrEnum):
    """How the accelerators are rented."""

    ON_DEMAND = "on_demand"
    RESERVED_1Y = "reserved_1y"
    RESERVED_3Y = "reserved_3y"
    SPOT = "spot"


CHANGES = own_options(
    ("seed", int, "Seed of arrivals and lengths."),
    ("model", str, "Another model."),
    ("hardware", str, "Another accelerator."),
    ("tp_size", int, "Another tensor-parallel size."),
    ("cp_size", int, "Other ranks that share a prompt's tokens."),
    ("replicas", int, "Another number of replicas."),
    ("routing", str, "How requests find a replica: round_robin, least_outstanding or prefix_aware."),
)
"""What replaces fields of the scenario, with ``changes_group``."""


def changes_group(
    power_cap_w: Annotated[
        float | None, typer.Option("--power-cap", min=1, help="Limit of each accelerator, W.")
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FIELD=VALUE",
            help="What if: weights=fp8, sparsity=2:4, speculation=eagle:k=4, max_num_seqs=64; repeatable.",
        ),
    ] = None,
) -> None:
    """The same, where an option says it in words of its own."""


LOAD = own_options(
    ("workload", str, "chat, code, rag, long-context, batch, agents, reasoning or chat=0.7,rag=0.3; without a file."),
    ("isl_tokens", int, "Mean prompt tokens."),
    ("osl_tokens", int, "Mean answer tokens."),
    ("isl_cv", float, "Spread of prompts."),
    ("osl_cv", float, "Spread of answers."),
    ("answers_per_request", int, "Answers to each prompt (best of n)."),
)
"""Requests of a load that no file describes."""
_LENGTHS = ("isl_tokens", "osl_tokens", "isl_cv", "osl_cv")


def _without_file(options: Mapping[str, Any], *, command: str) -> ScenarioSpec:
    """A served load of a model on an accelerator, from options alone; what stands for lengths is said on stderr."""
    from simulator.api.questions import requests_of_kind, scenario_spec
    from simulator.specs.question.scenario_file import with_what_ifs

    needed = {"model": "--model", "hardware": "--hardware", "rate_per_s": "--rate"}
    missing = [flag for name, flag in needed.items() if name in options and options[name] is None]
    if missing:
        raise missing_field(
            f"a scenario file is needed, or {' and '.join(missing)}",
            field="SCENARIO",
            hint=f"{command} --model llama-3.1-8b --hardware h100" + (" --rate 8" if "rate_per_s" in options else ""),
        )
    lengths = {name: options[name] for name in _LENGTHS}
    answers, seed = options["answers_per_request"], options["seed"]
    own = {name: value for name, value in (("answers_per_request", answers), ("seed", seed)) if value is not None}
    workload = (
        requests_of_kind(options["workload"], lengths, model=options["model"], profiles=options["profiles"]) | own
    )
    changes = _changes(options)
    given = {item.name: getattr(changes, item.name) for item in fields(changes) if item.name not in ("seed", "what_if")}
    own = {name: value for name, value in given.items() if value is not None}
    spec = with_what_ifs(scenario_spec(None, {**own, "workload": workload}, kind="serve"), changes)
    prompt = workload["system_prompt_tokens"] + workload["question_tokens"]
    typer.echo(
        f"{command}: prompts of {prompt:,} tokens (cv {workload['isl_cv']:.3g}), answers of {workload['osl_tokens']:,} "
        f"(cv {workload['osl_cv']:.3g}); --workload, --isl and --osl say otherwise"
        + ("" if answers is None else f"; all figures are of answers, {answers} to a prompt"),
        err=True,
    )
    return spec


def _changes(options: Mapping[str, Any]) -> ScenarioChanges:
    """The options that replace fields."""
    from simulator.specs.question.scenario_file import ScenarioChanges

    given: dict[str, Any] = {item.name: options.get(item.name) for item in fields(ScenarioChanges)}
    return ScenarioChanges(**{**given, "what_if": tuple(options["what_if"] or ())})


def _read(source: str | None, options: Mapping[str, Any], *, command: str) -> ScenarioSpec:
    """The scenario of a file with the options that replace fields over it, or that of options alone."""
    from simulator.specs.question.scenario_file import read_scenario

    if source is None:
        return _without_file(options, command=command)
    for name in ("workload", "answers_per_request", *_LENGTHS):
        if options.get(name) is not None:
            raise no_effect(
                "changes nothing beside a scenario file",
                field=f"--{name.removesuffix('_tokens').replace('_', '-')}",
                hint="leave it out, or write it into the file's workload",
            )
    return read_scenario(source, changes=_changes(options), command=command)


def one_line(document: dict[str, Any]) -> str:
    """A JSON document as it is printed: one line."""
    return json.dumps(document, allow_nan=False) + "\n"


@grouped(LOAD, CHANGES, changes_group)
def serve(
    context: typer.Context,
    scenario: GivenScenario = None,
    rate_per_s: Annotated[
        float | None, typer.Option("--rate", callback=above_zero, help="Requests/s, instead of the scenario's.")
    ] = None,
    duration_s: Annotated[
        float | None, typer.Option("--duration", callback=above_zero, help="Seconds of load.")
    ] = None,
    slo: Slo = None,
    requests: Annotated[
        str | None, typer.Option(REQUESTS_FLAG, metavar="FILE", help="Per-request table, .csv or .parquet.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(TRACE_FLAG, metavar="FILE.json", help="Steps for chrome://tracing or Perfetto.")
    ] = None,
    assumptions: Assumptions = False,
    output: Output = "-",
    as_json: AsJson = False,
    force: Force = False,
    profiles: Profiles = None,
) -> None:
    """Serve a workload step by step: percentiles under load, queue and KV pressure, goodput, intervals.

    A scenario may have tiers below the KV cache (kv_tiers), encoders (encoder_pool) and two pools (disaggregation),
    with experts on devices of their own (decode_ffn): docs/serve-under-load.md.

    Example: roofcast serve --model llama-3.1-8b --hardware h100 --rate 8
    """
    from simulator.api import scenarios
    from simulator.cli.progress import progress_bar
    from simulator.reports.tables.request_files import TRACED_STEPS, check_request_format

    _check_files({REQUESTS_FLAG: requests, TRACE_FLAG: trace, "--output": output}, force=force)
    if requests is not None:
        check_request_format(Path(requests).suffix.lower(), flag=REQUESTS_FLAG)
    keep_freed_memory()
    spec = _read(scenario, context.params, command="roofcast serve")
    with progress_bar("simulating", pulses=True) as progress:
        found = scenarios.serve(
            spec,
            objectives=tuple(slo or ()),
            trace_steps=TRACED_STEPS if trace else 0,
            profiles=profiles,
            progress=progress,
        )
    text = one_line(found.to_dict()) if as_json else found.to_text(assumptions=assumptions)
    files = [
        *_requests_file(found.run.result, requests),
        *_trace_file(found.run.result, trace),
        Target(path=Path(output), pieces=(text.encode("utf-8"),), flag="--output"),
    ]
    write_targets(files, force=force)


def _check_files(targets: Mapping[str, str | None], *, force: bool) -> None:
    """Refuse what cannot be written, and one file for two answers."""
    named: dict[Path, str] = {}
    for flag, target in targets.items():
        check_target(target, flag=flag, force=force)
        if target is None or target == STANDARD_STREAM or is_stream(Path(target)):
            continue
        path = Path(target).resolve()
        if path in named:
            raise FileError(f"{target!r} is the file of {named[path]} too", field=flag, hint="name another")
        named[path] = flag


def _requests_file(result: ServeResult, target: str | None) -> list[Target]:
    from simulator.reports.tables.request_files import request_csv, request_parquet

    if target is None:
        return []
    written = request_parquet if target.lower().endswith(".parquet") else request_csv
    return [Target(path=Path(target), pieces=written(result), flag=REQUESTS_FLAG)]


def _trace_file(result: ServeResult, target: str | None) -> list[Target]:
    from simulator.reports.tables.request_files import TRACED_STEPS, trace_json

    if target is None:
        return []
    if any(len(rows) >= TRACED_STEPS for rows in result.run.trace):
        typer.echo(f"the trace holds the first {TRACED_STEPS} steps of each replica", err=True)
    return [Target(path=Path(target), pieces=(trace_json(result).encode("utf-8"),), flag=TRACE_FLAG)]


@grouped(LOAD, CHANGES, changes_group)
def capacity(
    context: typer.Context,
    scenario: GivenScenario = None,
    slo: Slo = None,
    seeds: Annotated[int, typer.Option("--seeds", min=2, max=50, help="Independent runs at every rate.")] = 5,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests", min=200, help="Requests of one run; by default enough for the batch at capacity and a queue."
        ),
    ] = None,
    assumptions: Assumptions = False,
    output: Output = "-",
    as_json: AsJson = False,
    force: Force = False,
    profiles: Profiles = None,
) -> None:
    """Find the highest request rate that a deployment serves within objectives, by simulation.

    Stages of the scenario keep their proportions; their rates are what is searched.

    Example: roofcast capacity -m llama-3.1-8b --hardware h100 --slo tpot-p95=20ms
    """
    from simulator.api import scenarios
    from simulator.cli.progress import progress_bar

    check_target(output, flag="--output", force=force)
    keep_freed_memory()
    spec = _read(scenario, context.params, command="roofcast capacity")
    with progress_bar("searching", pulses=True) as progress:
        found = scenarios.capacity(
            spec, objectives=tuple(slo or ()), seeds=seeds, requests=requests, profiles=profiles, progress=progress
        )
    text = one_line(found.to_dict()) if as_json else found.to_text(assumptions=assumptions)
    write_text(text, output, force=force)


BATCH = own_options(
    ("model", str, "The model, without a file."),
    ("hardware", str, "The accelerator, without a file."),
    ("tp_size", int, "Tensor-parallel size."),
    ("batch_size", int, "Sequences."),
    ("isl_tokens", int, "Prompt tokens."),
    ("osl_tokens", int, "Answer tokens."),
)
"""A batch that no file describes, by default that of a chat."""


def _base(source: str | None, options: Mapping[str, Any]) -> ScenarioSpec:
    """What changes are compared with: the scenario of a file, or a batch from options alone."""
    from typing import get_args

    from simulator.api.questions import scenario_spec
    from simulator.specs.question.plan_values import HARDWARE
    from simulator.specs.question.scenario import Kind
    from simulator.specs.question.scenario_file import read_scenario
    from simulator.traffic.lengths import CHAT

    given = {item.name: options[item.name] for item in BATCH if options.get(item.name) is not None}
    if source is None:
        if "model" not in given:
            raise missing_field(
                "a scenario file is needed, or --model",
                field="BASE",
                hint="roofcast compare --model llama-3.1-8b --with weights=fp8",
            )
        given.setdefault("hardware", HARDWARE)
        chat = {name: getattr(CHAT, name) for name in ("batch_size", "isl_tokens", "osl_tokens")}
        return scenario_spec(None, chat | given, kind="batch")
    if given:
        raise no_effect(
            "changes nothing beside a scenario file",
            field="--" + next(iter(given)).split("_")[0],
            hint="leave it out, or write it into the file",
        )
    return read_scenario(source, command="roofcast compare", kinds=get_args(Kind))


@grouped(BATCH)
def compare(
    context: typer.Context,
    changes: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="FIELD=VALUE",
            help='One change: weights=fp8, sparsity=2:4, "weights=int4 scheme=gptq-g128", tp_size=2; repeatable.',
        ),
    ],
    scenario: Annotated[
        str | None, typer.Argument(metavar="BASE.yaml", help='A scenario of any kind, YAML or JSON; "-" is stdin.')
    ] = None,
    price_kind: Annotated[
        PriceKind | None, typer.Option("--price-kind", help="Term of the prices.", show_default=False)
    ] = None,
    output: Output = "-",
    as_json: AsJson = False,
    force: Force = False,
    profiles: Profiles = None,
) -> None:
    """Show what each change to a deployment is worth: in order, one on top of the other, and each alone.

    Values as in the options of roofcast step; FIELD=none takes one away; quotes join several fields to one change.

    Without a file the options name a batch.

    Example: roofcast compare -m llama-3.1-8b --hardware h100 --with weights=fp8
    """
    from simulator.api import scenarios
    from simulator.cli.progress import progress_bar
    from simulator.specs.question.scenario_file import parse_change

    for text in changes:  # before the scenario, which may be read from standard input
        parse_change(text)
    spec = _base(scenario, context.params)
    with progress_bar("comparing", pulses=True) as progress:
        found = scenarios.compare(
            spec,
            changes=changes,
            price_kind=None if price_kind is None else price_kind.value,
            profiles=profiles,
            progress=progress,
        )
    write_text(one_line(found.to_dict()) if as_json else found.to_text(), output, force=force)


def warm_up(as_json: AsJson = False) -> None:
    """Compile the event simulation for this machine, once for each installed version, so that nobody waits for it.

    The machine code is kept under ROOFCAST_CACHE_DIR, XDG_CACHE_HOME or ~/.cache, in an image of a container too.

    Example: roofcast warm-up
    """
    from simulator.engine.events.warm_up import warm_up as run
    from simulator.reports.content.quantities import seconds_text

    took = run()
    if as_json:
        typer.echo(one_line({"schema_version": "1.0", "seconds": took}), nl=False)
        return
    for name, seconds in took.items():
        typer.echo(f"ready: {name}, in {seconds_text(seconds)}")
