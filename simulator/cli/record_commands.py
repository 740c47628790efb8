"""The commands about documents and records: ``report``, ``demand``, ``calibrate``, ``profiles``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from simulator.cli.progress import progress_bar
from simulator.cli.shared import AsJson, Force, Own, Profiles, grouped, own_options, values_of
from simulator.cli.validate_command import SERVED
from simulator.errors import ExitCode, RoofcastError
from simulator.files import write_text
from simulator.specs.question.plan_values import PROMISE_SEEDS


class ProfileSection(StrEnum):
    """What ``roofcast profiles`` lists and shows."""

    HARDWARE = "hardware"
    SERVERS = "servers"
    PRICES = "prices"
    ENGINES = "engines"
    MODELS = "models"


def report(
    plan: Annotated[
        str | None,
        typer.Argument(metavar="PLAN.json", help="Output of plan-capacity --json, or a workload file (YAML)."),
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder to write into.")] = "report",
    formats: Annotated[str | None, typer.Option("--format", help="html,pdf,xlsx,md,csv,json,handoff.")] = None,
    ownership: Annotated[
        str | None, typer.Option("--ownership", metavar="NAME|FILE", help="Figures of owning: your own YAML.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of report.json and write nothing.")
    ] = False,
) -> None:
    """Write the report of a plan: decision, sizing, cost, carbon, risk and sources, for people who sign.

    Example: roofcast plan --rps 9 --json > plan.json; roofcast report plan.json
    """
    from simulator.api import reporting

    if schema:
        if plan is not None:
            raise RoofcastError(f"--schema needs no plan, got {plan!r}", field="PLAN", hint="leave out one of the two")
        typer.echo(reporting.report_schema(), nl=False)
        return
    if plan is None:
        raise RoofcastError(
            "a plan is needed: the output of plan-capacity --json, or a workload file (YAML)",
            field="PLAN",
            hint="plan-capacity ... --json > plan.json, then roofcast report plan.json",
        )
    with progress_bar("reporting", pulses=True):
        files = reporting.report(plan, out=out, formats=formats, ownership=ownership, force=force).files
    if as_json:
        typer.echo(json.dumps({"schema_version": "1.0", "files": [str(file) for file in files]}, indent=2))
    else:
        typer.echo("".join(f"{file}\n" for file in files), nl=False)


def verify(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN.json", help="Output of roofcast plan --json, or a workload file.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", help="Replays of each case, 2 to 100.")] = PROMISE_SEEDS,
    as_json: AsJson = False,
) -> None:
    """Replay a planned fleet request by request: does it keep its objectives, with the spares down too?

    Example: roofcast plan --rps 9 --json > plan.json; roofcast verify plan.json

    The fleet that the plan states is replayed, whatever would be planned today. Exit code 3 where it misses.
    """
    from simulator.api import reporting

    with progress_bar("replaying", pulses=True):
        found = reporting.verify(plan, seeds=seeds)
    typer.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False) if as_json else found.to_text(), nl=as_json)
    if not found.promise.kept:
        raise typer.Exit(ExitCode.INFEASIBLE)


def demand(
    record: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Azure, BurstGPT or Mooncake trace, vLLM /metrics text, JSON of Prometheus range queries, or a vllm "
            "bench, GuideLLM or AIPerf result.",
        ),
    ],
    over: Annotated[
        str | None, typer.Option("--over", metavar="TIME", help="For /metrics text: the time it covers, such as 6h.")
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help='"-" is stdout.')] = "-",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Turn a recorded workload into a workload file for plan-capacity --workload.

    Example: roofcast demand trace.csv --out workload.yaml
    """
    from simulator.api import measurements
    from simulator.reports.words.fields import note_texts

    found = measurements.demand(record, over=over)
    for warning in note_texts(found.demand.warnings):
        typer.echo(f"roofcast: warning: {warning}", err=True)
    text = json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n" if as_json else found.to_text()
    write_text(text, out, force=force, flag="--out")


MEASURED = own_options(
    Own("hardware", str, "The accelerator that was measured."),
    Own("results", str, "vLLM bench, GuideLLM or AIPerf result.", flag="--from RESULT.json", several=True),
    Own("only", str, "Fit these families alone.", flag="--only FAMILY[/FORMAT]", several=True),
    Own("out", str, "Profile directory to write into.", "profiles", flag="--out DIR"),
)


@grouped(SERVED, first=MEASURED)
def calibrate(
    context: typer.Context,
    measured: Annotated[
        str | None, typer.Argument(metavar="[MEASURED.csv]", help="Kernels, from python -m validation.measure.")
    ] = None,
    profiles: Profiles = None,
    force: Force = False,
) -> None:
    """Fit your own measurements: kernels of an accelerator, or the overheads of an engine.

    Example: roofcast calibrate measured.csv --hardware l4 --out my-profiles

    With --from, options that say how the engine was started take its defaults where they are left out.
    """
    from simulator.api import measurements

    with progress_bar("fitting", pulses=True):
        given = values_of(context.params, [*MEASURED, *SERVED])
        found = measurements.calibrate(measured, **given, profiles=profiles, force=force)
    typer.echo(found.to_text(), nl=False)


profiles_app = typer.Typer(help="Hardware, server, price, engine and model profiles.", no_args_is_help=True)


@profiles_app.command("list")
def profiles_list(
    section: Annotated[ProfileSection | None, typer.Argument(help="Which profiles; all without it.")] = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """List profile names."""
    from simulator.reports.answers.profiles import names_by_section, names_text

    names = names_by_section([section.value] if section else [item.value for item in ProfileSection], profiles=profiles)
    document = json.dumps({"schema_version": "1.0", "profiles": names})
    typer.echo(document if as_json else names_text(names, profiles=profiles))


@profiles_app.command("show")
def profiles_show(
    name: Annotated[str, typer.Argument(help="Profile name or alias.")],
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Show one profile with the source of each number."""
    from simulator.reports.answers.profiles import show_profile

    typer.echo(show_profile(name, as_json=as_json, profiles=profiles))
