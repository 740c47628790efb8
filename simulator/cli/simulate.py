"""Scenarios in, results out: JSON lines, same order, same ids."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from simulator.cli.output import write_text
from simulator.engine.runs.answers import answer
from simulator.errors import FileError, RoofcastError
from simulator.reports.contract import error_object, result_object
from simulator.specs.documents import validate
from simulator.specs.question.scenario import ScenarioSpec

STANDARD_STREAM = "-"


def _read_lines(source: str) -> list[str]:
    if source == STANDARD_STREAM:
        return sys.stdin.read().splitlines()
    try:
        return Path(source).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise FileError(f"{source}: cannot be read: {reason}", field="SCENARIOS") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys occur once; JSON itself would let the last one win."""
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise RoofcastError("is written twice", field=key, code="malformed_json", hint="keep one of them")
        seen[key] = value
    return seen


def _parsed(line: str, *, number: int) -> dict[str, Any]:
    try:
        data = json.loads(line, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise RoofcastError(
            f"line {number} is not JSON: {error.msg} at column {error.colno}", code="malformed_json"
        ) from error
    except (RecursionError, ValueError) as error:
        raise RoofcastError(f"line {number} is not usable JSON: {error}", code="malformed_json") from error
    if not isinstance(data, dict):
        raise RoofcastError(f"line {number} holds no JSON object", code="malformed_json")
    return data


def answer_line(line: str, *, number: int, profiles: str | None) -> str:
    """The result object, or the error object, of one line of input, as JSON; one bad line never spoils the others."""
    identifier: str | int | None = None
    try:
        data = _parsed(line, number=number)
        given = data.get("id")
        identifier = given if isinstance(given, str | int) else None
        result = result_object(answer(validate(ScenarioSpec, data, where=f"line {number}"), profiles=profiles))
        return json.dumps(result, allow_nan=False)
    except RoofcastError as error:
        return json.dumps(error_object(identifier, error))
    except Exception as error:  # whatever one line does, the others are answered
        fault = RoofcastError(f"line {number}: {type(error).__name__}: {error}", code="internal_error")
        return json.dumps(error_object(identifier, fault))


def answers(lines: Iterable[str], *, profiles: str | None) -> Iterator[str]:
    """One line of JSON per non-empty line, in order."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield answer_line(line, number=number, profiles=profiles)


def run_simulate(source: str, *, output: str, profiles: str | None, force: bool) -> int:
    """Answer every scenario of a file; returns how many were refused."""
    answered = list(answers(_read_lines(source), profiles=profiles))
    write_text("".join(f"{line}\n" for line in answered), output, force=force)
    return sum("error" in json.loads(line) for line in answered)
