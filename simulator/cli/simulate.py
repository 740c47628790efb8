"""Scenarios in, results out: JSON lines, same order, same ids."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from simulator.cli.output import write_text
from simulator.engine.answers import answer
from simulator.errors import FileError, RoofcastError
from simulator.reports.contract import error_object, result_object
from simulator.specs.documents import validate
from simulator.specs.scenario import ScenarioSpec

STANDARD_STREAM = "-"


def _read_lines(source: str) -> list[str]:
    if source == STANDARD_STREAM:
        return sys.stdin.read().splitlines()
    try:
        return Path(source).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {source!r}: {error}", field="SCENARIOS") from error


def answer_line(line: str, *, number: int, profiles: str | None) -> dict[str, Any]:
    """The result object, or the error object, of one line of input."""
    identifier: str | None = None
    try:
        try:
            data = json.loads(line)
        except json.JSONDecodeError as error:
            raise RoofcastError(
                f"line {number} is not JSON: {error.msg} at column {error.colno}", code="malformed_json"
            ) from error
        if isinstance(data, dict) and data.get("id") is not None:
            identifier = str(data["id"])
        return result_object(answer(validate(ScenarioSpec, data, where=f"line {number}"), profiles=profiles))
    except RoofcastError as error:
        return error_object(identifier, error)


def answers(lines: Iterable[str], *, profiles: str | None) -> Iterator[dict[str, Any]]:
    """One object per non-empty line, in order."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield answer_line(line, number=number, profiles=profiles)


def run_simulate(source: str, *, output: str, profiles: str | None, force: bool) -> int:
    """Answer every scenario of a file; returns how many were refused."""
    objects = list(answers(_read_lines(source), profiles=profiles))
    text = "".join(json.dumps(item, allow_nan=False) + "\n" for item in objects)
    write_text(text, output, force=force)
    return sum("error" in item for item in objects)
