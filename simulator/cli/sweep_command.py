"""``roofcast sweep``: many scenarios or plans, on every core or a cluster, and what stands out of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.cli.line_commands import Jobs, Resume, Timeout
from simulator.cli.shared import AsJson, Force, Profiles
from simulator.errors import Option, RoofcastError, missing_field
from simulator.files import check_target, write_text

if TYPE_CHECKING:
    from simulator.api.sweeps import SweepAnswer


def sweep(
    question: Annotated[
        str,
        typer.Argument(metavar="SWEEP.yaml|DIR", help="What varies, YAML or JSON; or the folder of an answered one."),
    ],
    out: Annotated[str | None, typer.Option("--out", metavar="DIR", help="Folder of the parts (new).")] = None,
    jobs: Jobs = 1,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="URL", help="A cluster: dask://host:port or ray://host:port.")
    ] = None,
    timeout: Timeout = None,
    resume: Resume = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print what stands out.")] = False,
    chart: Annotated[
        str | None, typer.Option("--chart", metavar="FILE.html", help="Pareto front and sensitivity (needs plotly).")
    ] = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
    force: Force = False,
) -> None:
    """Answer a grid, a sample or a list of scenarios or plans, one row each, into a folder of Parquet parts.

    A point that is refused, late or ends its process is a row with its error. Parts are whole or not there: --resume
    answers the missing ones. Without pyarrow they are JSON lines. Exit code 5: folder, disk or cluster.

    Example: roofcast sweep sweep.yaml --out results --jobs 2 --summary
    """
    from simulator.api.sweeps import read_answer
    from simulator.api.sweeps import sweep as answered
    from simulator.cli.progress import progress_bar

    check_target(chart, flag="--chart", force=force)
    if os.path.isdir(question):
        if out is not None or backend is not None or resume:
            raise RoofcastError("is of a sweep to answer, not of a folder of answers", field=Option("out"))
        found = read_answer(question)
        summary = True
    elif out is None:
        raise missing_field("is missing: the folder to write into", field=Option("out"))
    else:
        with progress_bar("sweeping") as progress:
            found = answered(
                question,
                out=out,
                jobs=jobs,
                backend=backend,
                timeout_s=timeout,
                resume=resume,
                force=force,
                profiles=profiles,
                progress=progress,
            )
    if chart is not None:
        write_text(found.to_html(), chart, force=force, flag="--chart")
    _print(found, summary=summary, as_json=as_json)


def _print(found: SweepAnswer, *, summary: bool, as_json: bool) -> None:
    from simulator.cli.scenario_commands import one_line

    if as_json:
        write_text(one_line(found.to_dict()), "-", force=False)
    elif summary:
        write_text(found.to_text(), "-", force=False)
    else:
        table = found.table
        typer.echo(
            f"{table.spec.points:,} points in {table.parts} parts in {table.folder}; --summary shows them", err=True
        )
