"""The commands about documents: ``roofcast report`` and ``roofcast demand``."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def report(
    plan: Annotated[
        str | None,
        typer.Argument(metavar="PLAN.json", help="Output of plan-capacity --json, or a workload file (YAML)."),
    ] = None,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Folder to write into.")] = "report",
    formats: Annotated[
        str | None, typer.Option("--format", help="html,pdf,xlsx,md,csv,json,handoff; all without it.")
    ] = None,
    ownership: Annotated[
        str | None, typer.Option("--ownership", metavar="NAME|FILE", help="Figures of owning: your own YAML.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files.")] = False,
    as_json: AsJson = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of report.json and write nothing.")
    ] = False,
) -> None:
    """Write the report of a plan: decision, sizing, cost, carbon, risk and sources, for people who sign.

    Example: plan-capacity --rps 1000 --json > plan.json && roofcast report plan.json --out report
    """
    from simulator.cli.report import report_schema, run_report

    if schema:
        typer.echo(report_schema(plan), nl=False)
        return
    typer.echo(run_report(plan, out=out, formats=formats, ownership=ownership, force=force, as_json=as_json), nl=False)


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
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a recorded workload into a workload file for plan-capacity --workload.

    Example: roofcast demand trace.csv --out workload.yaml && plan-capacity --workload workload.yaml
    """
    from simulator.cli.demand import run_demand

    run_demand(record, over=over, out=out, force=force, as_json=as_json)
