"""``roofcast simulate``: the contract for programs, one JSON scenario a line in, one JSON result a line out."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from simulator.allocation import keep_freed_memory
from simulator.cli.shared import Force, Output, Profiles
from simulator.errors import FileError, RoofcastError, missing_field
from simulator.files import STANDARD_STREAM

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
    from simulator.api.line_stream import answered_lines, numbered_lines, unanswered_lines
    from simulator.cli.progress import progress_bar
    from simulator.files import LineSink, is_complete

    if resume and is_complete(output):
        typer.echo(f"{output} is complete; --force answers anew", err=True)
        return
    keep_freed_memory()
    silent = output == STANDARD_STREAM or not sys.stderr.isatty()
    refused = 0
    with (
        _lines_of(scenarios) as source,
        LineSink(output, force=force, resume=resume) as sink,
        progress_bar("answering") as progress,
    ):
        total = 0 if silent else _count(scenarios)
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
