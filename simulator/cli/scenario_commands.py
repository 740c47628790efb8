"""The commands about deployments under requests: ``serve``, ``capacity``, ``compare``, and ``warm-up`` before them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulator.allocation import keep_freed_memory
from simulator.cli.shared import AsJson, Force, Output, Own, Profiles, grouped, own_options, values_of
from simulator.errors import FileError, Option, RoofcastError, missing_field, no_effect
from simulator.files import STANDARD_STREAM, Target, check_target, is_stream, write_targets, write_text

if TYPE_CHECKING:
    from simulator.engine.runs.metrics import ServeResult
    from simulator.specs.question.scenario import ScenarioSpec

GivenScenario = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO.yaml", help='Kind serve, YAML or JSON; "-" is stdin. Without it, options name the load.'
    ),
]
REQUESTS_FLAG, TRACE_FLAG = "--requests", "--trace"
TERMS = ("on_demand", "reserved_1y", "reserved_3y", "spot")
"""How accelerators are rented."""

CHANGES = own_options(
    Own("seed", int, "Seed of arrivals and lengths.", least=0),
    Own("model", str, "Another model."),
    Own("hardware", str, "Another accelerator."),
    Own("tp_size", int, "Another tensor-parallel size."),
    Own("cp_size", int, "Other ranks that share a prompt's tokens."),
    Own("replicas", int, "Another number of replicas."),
    Own("routing", str, "How requests find a replica: round_robin, least_outstanding or prefix_aware."),
    Own("power_cap_w", float, "Limit of each accelerator, W.", least=1),
    Own(
        "what_if",
        str,
        "What if: weights=fp8, sparsity=2:4, speculation=eagle:k=4, max_num_seqs=64.",
        flag="--with FIELD=VALUE",
        several=True,
    ),
)
"""What replaces fields of the scenario."""

LOAD = own_options(
    Own(
        "workload", str, "chat, code, rag, long-context, batch, agents, reasoning or chat=0.7,rag=0.3; without a file."
    ),
    Own("isl_tokens", int, "Mean prompt tokens."),
    Own("osl_tokens", int, "Mean answer tokens."),
    Own("isl_cv", float, "Spread of prompts."),
    Own("osl_cv", float, "Spread of answers."),
    Own("answers_per_request", int, "Answers to each prompt (best of n)."),
)
"""Requests of a load that no file describes."""


def _without_file(options: Mapping[str, Any], *, command: str) -> ScenarioSpec:
    """A served load of a model on an accelerator, from options alone; what stands for lengths is said on stderr."""
    from simulator.api.questions import requests_of_kind, scenario_spec
    from simulator.specs.question.scenario_file import OF_ITS_STAGE, REPLACED, given_of, with_what_ifs

    needed = {"model": "--model", "hardware": "--hardware", "rate_per_s": "--rate"}
    missing = [flag for name, flag in needed.items() if name in options and options[name] is None]
    if missing:
        raise missing_field(
            f"a scenario file is needed, or {' and '.join(missing)}",
            field="SCENARIO",
            hint=f"{command} --model llama-3.1-8b --hardware h100" + (" --rate 8" if "rate_per_s" in options else ""),
        )
    load = values_of(options, LOAD)
    workload = requests_of_kind(load.get("workload"), load, model=options["model"], profiles=options["profiles"])
    answers = options["answers_per_request"]
    workload |= given_of(options, ("answers_per_request", "seed"))
    own = given_of(options, (*REPLACED, *OF_ITS_STAGE))
    spec = with_what_ifs(scenario_spec(None, {**own, "workload": workload}, kind="serve"), options)
    prompt = workload["system_prompt_tokens"] + workload["question_tokens"]
    typer.echo(
        f"{command}: prompts of {prompt:,} tokens (cv {workload['isl_cv']:.3g}), answers of {workload['osl_tokens']:,} "
        f"(cv {workload['osl_cv']:.3g}); --workload, --isl and --osl say otherwise"
        + ("" if answers is None else f"; all figures are of answers, {answers} to a prompt"),
        err=True,
    )
    return spec


def _read(source: str | None, options: Mapping[str, Any], *, command: str) -> ScenarioSpec:
    """The scenario of a file with the options that replace fields over it, or that of options alone."""
    from simulator.specs.question.scenario_file import read_scenario

    if source is None:
        return _without_file(options, command=command)
    for name in values_of(options, LOAD):
        hint = "leave it out, or write it into the file's workload"
        raise no_effect("changes nothing beside a scenario file", field=Option(name), hint=hint)
    return read_scenario(source, changes=options, command=command)


def one_line(document: dict[str, Any]) -> str:
    """A JSON document as it is printed: one line."""
    return json.dumps(document, allow_nan=False) + "\n"


def _above_zero(option: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse nothing and less, which ``min`` cannot say of a number that may be ever so small."""
    if value is not None and value <= 0:
        raise RoofcastError(f"more than 0 is needed, got {value:g}", field=option.opts[0])
    return value


BOUNDS = own_options(Own("slo", str, "Bound to hold: ttft-p95=2s.", flag="--slo METRIC-pNN=TIME", several=True))
LISTED = own_options(Own("assumptions", bool, "List what was assumed."))
FILES = own_options(
    Own("requests", str, "Per-request table, .csv or .parquet.", flag="--requests FILE"),
    Own("trace", str, "Steps for chrome://tracing or Perfetto.", flag="--trace FILE.json"),
)


@grouped(LOAD, CHANGES, first=[*BOUNDS, *FILES, *LISTED])
def serve(
    context: typer.Context,
    scenario: GivenScenario = None,
    rate_per_s: Annotated[
        float | None,
        typer.Option("--rate", "--rps", callback=_above_zero, help="Requests/s, instead of the scenario's."),
    ] = None,
    duration_s: Annotated[
        float | None, typer.Option("--duration", callback=_above_zero, help="Seconds of load.")
    ] = None,
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

    slo, requests, trace, listed = (context.params[name] for name in ("slo", "requests", "trace", "assumptions"))
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
    text = one_line(found.to_dict()) if as_json else found.to_text(assumptions=listed)
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


RUNS = own_options(
    Own("requests", int, "Requests of one run; by default enough for the batch at capacity and a queue.", least=200)
)


@grouped(LOAD, CHANGES, first=[*BOUNDS, *RUNS, *LISTED])
def capacity(
    context: typer.Context,
    scenario: GivenScenario = None,
    seeds: Annotated[int, typer.Option("--seeds", min=2, max=50, help="Independent runs at every rate.")] = 5,
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
        bounds, runs = tuple(context.params["slo"] or ()), values_of(context.params, RUNS)
        found = scenarios.capacity(spec, objectives=bounds, seeds=seeds, **runs, profiles=profiles, progress=progress)
    text = one_line(found.to_dict()) if as_json else found.to_text(assumptions=context.params["assumptions"])
    write_text(text, output, force=force)


BATCH = own_options(
    Own("model", str, "The model, without a file."),
    Own("hardware", str, "The accelerator, without a file."),
    Own("tp_size", int, "Tensor-parallel size."),
    Own("batch_size", int, "Sequences."),
    Own("isl_tokens", int, "Prompt tokens."),
    Own("osl_tokens", int, "Answer tokens."),
)
"""A batch that no file describes, by default that of a chat."""


def _base(source: str | None, options: Mapping[str, Any]) -> ScenarioSpec:
    """What changes are compared with: the scenario of a file, or a batch from options alone."""
    from typing import get_args

    from simulator.api.questions import scenario_spec
    from simulator.specs.question.plan_values import HARDWARE
    from simulator.specs.question.scenario import Kind
    from simulator.specs.question.scenario_file import read_scenario
    from simulator.traffic.workload_presets import CHAT

    given = values_of(options, BATCH)
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
        hint = "leave it out, or write it into the file"
        raise no_effect("changes nothing beside a scenario file", field=Option(next(iter(given))), hint=hint)
    return read_scenario(source, command="roofcast compare", kinds=get_args(Kind))


COMPARED = own_options(
    Own(
        "changes",
        str,
        'One change: weights=fp8, sparsity=2:4, "weights=int4 scheme=gptq-g128", tp_size=2.',
        ...,
        flag="--with FIELD=VALUE",
        several=True,
    )
)
PRICED = own_options(Own("price_kind", TERMS, "Term of the prices."))


@grouped(PRICED, BATCH, first=COMPARED)
def compare(
    context: typer.Context,
    scenario: Annotated[
        str | None, typer.Argument(metavar="BASE.yaml", help='A scenario of any kind, YAML or JSON; "-" is stdin.')
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

    changes = context.params["changes"]
    for text in changes:  # before the scenario, which may be read from standard input
        parse_change(text)
    spec = _base(scenario, context.params)
    with progress_bar("comparing", pulses=True) as progress:
        found = scenarios.compare(
            spec, changes=changes, **values_of(context.params, PRICED), profiles=profiles, progress=progress
        )
    write_text(found.as_printed(as_json=as_json), output, force=force)


def warm_up(as_json: AsJson = False) -> None:
    """Compile the event simulation for this machine, once for each installed version, so that nobody waits for it.

    The machine code is kept under ROOFCAST_CACHE_DIR, XDG_CACHE_HOME or ~/.cache, in an image of a container too.

    Example: roofcast warm-up
    """
    from simulator.engine.events.warm_up import warm_up as run
    from simulator.reports.content.quantities import seconds_text

    seconds = run()
    if as_json:
        typer.echo(one_line({"schema_version": "1.0", "seconds": seconds}), nl=False)
    else:
        typer.echo(f"ready in {seconds_text(seconds)}")
