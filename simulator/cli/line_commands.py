"""``roofcast simulate``: one JSON scenario a line in, one JSON result a line out; ``roofcast sweep``: many at once."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from simulator.allocation import keep_freed_memory
from simulator.cli.shared import AsJson, Force, Output, Profiles
from simulator.errors import FileError, Option, RoofcastError, missing_field
from simulator.files import STANDARD_STREAM, check_target, write_text

if TYPE_CHECKING:
    from simulator.api.sweeps import SweepAnswer

Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes that answer side by side.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Most that one may take; then it is an error."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where a run of the same that was stopped had got to.")]


@contextmanager
def _lines_of(source: str) -> Iterator[Iterable[bytes]]:
    if source == STANDARD_STREAM:
        yield _standard_lines()
        return
    try:
        lines = open(source, "rb")  # noqa: SIM115
    except OSError as error:
        raise FileError(f"{source}: cannot be read: {error.strerror or error}", field="SCENARIOS") from None
    try:
        yield lines
    finally:
        # A pipe in which a thread waits cannot be closed.
        if os.path.isfile(source):
            lines.close()


def _standard_lines() -> Iterable[bytes]:
    try:
        # Not the interpreter's own stream: a thread that waits in it would hold up the end of the process.
        return open(os.dup(sys.stdin.fileno()), "rb")
    except io.UnsupportedOperation:
        return (line.encode("utf-8") for line in sys.stdin)


def _count(source: str) -> int:
    """Lines of a file, blank ones too; 0 where it cannot be read twice."""
    if not os.path.isfile(source):
        return 0
    with _lines_of(source) as lines:
        return sum(1 for _ in lines)


def _show_schema(scenarios: str | None, *, asked: bool) -> None:
    if asked and scenarios is not None:
        raise RoofcastError(f"`schema` needs no scenarios, got {scenarios!r}", field="SCENARIOS", hint="leave out one")
    if not asked:
        hint = 'a file of JSON lines, "-" for stdin; `roofcast simulate --schema` says what a scenario may hold'
        raise missing_field("is missing", field="SCENARIOS", hint=hint)
    from simulator.reports.formats.scenario_schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=1))


def simulate(
    scenarios: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIOS.jsonl", help='One JSON scenario a line; "-" is stdin, answered line by line.'
        ),
    ] = None,
    output: Output = "-",
    jobs: Jobs = 1,
    timeout: Timeout = None,
    resume: Resume = False,
    profiles: Profiles = None,
    force: Force = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a scenario and answer nothing.")
    ] = False,
) -> None:
    """Answer scenarios: one JSON result a line, same order, same ids, each written as soon as it is known.

    Until all are answered, results stand in FILE.partial: a stopped run loses at most 8 lines for each of its --jobs,
    and --resume goes on with it. A line that takes longer than --timeout, or whose process dies, gets an error object.

    Example: roofcast simulate scenarios.jsonl --output results.jsonl --jobs 2
    """
    if schema or scenarios is None:
        _show_schema(scenarios, asked=schema)
        return
    from simulator.api.scenarios import answered_lines, numbered_lines, unanswered_lines
    from simulator.cli.progress import progress_bar
    from simulator.files import LineSink, is_complete

    if resume and is_complete(output):
        typer.echo(f"{output} is complete; --force answers anew", err=True)
        return
    keep_freed_memory()
    total = 0 if output == STANDARD_STREAM else _count(scenarios)
    refused = 0
    with (
        _lines_of(scenarios) as source,
        LineSink(output, force=force, resume=resume, results=total) as sink,
        progress_bar("answering") as progress,
    ):
        lines = numbered_lines(source)
        if resume:
            lines = unanswered_lines(lines, answers=sink.kept(), where=str(sink.partial))
        for done, answer in enumerate(answered_lines(lines, jobs=jobs, timeout_s=timeout, profiles=profiles), start=1):
            sink.write(answer.text)
            refused += answer.refused
            if progress is not None and total:
                progress(done, total)
    if refused:
        from simulator.reports.content.quantities import counted_text

        typer.echo(f"{counted_text(refused, 'scenario')} refused; see the error objects in the output", err=True)


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
    if as_json or summary:
        write_text(found.as_printed(as_json=as_json), "-", force=False)
    else:
        table = found.table
        typer.echo(
            f"{table.spec.points:,} points in {table.parts} parts in {table.folder}; --summary shows them", err=True
        )
