"""``roofcast serve``: one workload on one deployment, step by step."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from simulator.cli.output import write_bytes, write_text
from simulator.cli.progress import progress_bar
from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.metrics import ServeResult, request_columns
from simulator.engine.runs.scenario_setup import ServeOptions
from simulator.engine.runs.served_run import ServedRun
from simulator.errors import FileError
from simulator.reports.contract import result_object, series_object
from simulator.reports.tables.request_files import (
    TRACED_STEPS,
    check_request_format,
    request_csv,
    request_parquet,
    trace_json,
)
from simulator.reports.tables.serving import serve_text
from simulator.specs.question.plan import parse_objectives
from simulator.specs.question.scenario_file import ScenarioChanges, read_scenario

REQUESTS_FLAG, TRACE_FLAG = "--requests", "--trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeQuestion:
    """What the command line asks for."""

    source: str
    changes: ScenarioChanges
    objectives: tuple[str, ...]
    requests: str | None
    trace: str | None
    output: str
    as_json: bool
    assumptions: bool
    force: bool
    profiles: str | None


def check_target(target: str | None, *, flag: str, force: bool) -> None:
    """Refuse a file that exists or a folder that does not, before work starts."""
    if target is None or target == "-":
        return
    path = Path(target)
    if path.exists() and not force:
        raise FileError(f"{target!r} exists", field=flag, hint="choose another name or add --force")
    if not path.parent.is_dir():
        raise FileError(f"cannot write {target!r}: no folder {str(path.parent)!r}", field=flag)


def _check(question: ServeQuestion) -> None:
    for target, flag in (
        (question.requests, REQUESTS_FLAG),
        (question.trace, TRACE_FLAG),
        (question.output, "--output"),
    ):
        check_target(target, flag=flag, force=question.force)
    if question.requests is not None:
        check_request_format(Path(question.requests).suffix.lower(), flag=REQUESTS_FLAG)


def _answer(question: ServeQuestion) -> ScenarioResult:
    scenario = read_scenario(question.source, changes=question.changes, command="roofcast serve")
    objectives = parse_objectives(question.objectives, flag="--slo")
    with progress_bar("simulating") as report:
        options = ServeOptions(
            objectives=objectives, trace_steps=TRACED_STEPS if question.trace else 0, progress=report
        )
        return answer(scenario, profiles=question.profiles, options=options)


def _write_requests(result: ServeResult, target: str, *, force: bool) -> None:
    columns = request_columns(result)
    if target.lower().endswith(".parquet"):
        write_bytes(request_parquet(columns), target, force=force, flag=REQUESTS_FLAG)
    else:
        write_text(request_csv(columns), target, force=force, flag=REQUESTS_FLAG)


def _write_trace(result: ServeResult, target: str, *, force: bool) -> None:
    write_text(trace_json(result), target, force=force, flag=TRACE_FLAG)
    if any(len(rows) >= TRACED_STEPS for rows in result.run.trace):
        print(f"the trace holds the first {TRACED_STEPS} steps of each replica", file=sys.stderr)


def run_serve(question: ServeQuestion) -> None:
    """Simulate, then print and write what was asked for."""
    _check(question)
    answered = _answer(question)
    assert isinstance(answered.run, ServedRun), "kind serve"
    if question.as_json:
        document = result_object(answered) | {"series": series_object(answered.run.result.run.series)}
        text = json.dumps(document, allow_nan=False) + "\n"
    else:
        text = serve_text(answered, assumptions=question.assumptions)
    if question.requests is not None:
        _write_requests(answered.run.result, question.requests, force=question.force)
    if question.trace is not None:
        _write_trace(answered.run.result, question.trace, force=question.force)
    write_text(text, question.output, force=question.force)
