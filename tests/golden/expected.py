"""The stored tables: reading, writing and comparing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from tests.golden.figures import Table, Value

HERE = Path(__file__).resolve().parent
RELATIVE, ABSOLUTE = 1e-9, 1e-12
SHOWN = 10
"""Differences of one case that are listed."""
ABSENT = "absent"


def _path(group: str) -> Path:
    return HERE / f"expected_{group}.json"


def read_tables(group: str) -> dict[str, Table]:
    """The stored tables of a group by case; none where nothing was written yet."""
    path = _path(group)
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def write_tables(group: str, tables: Mapping[str, Table]) -> None:
    """Store the tables of a group, one object of a document per line."""
    cases = []
    for name, table in tables.items():
        lines = [f"{json.dumps(path)}:{json.dumps(figures, separators=(',', ':'))}" for path, figures in table.items()]
        cases.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    _path(group).write_text("{\n" + ",\n".join(cases) + "\n}\n", "utf-8")


def count_values(table: Table) -> int:
    """Figures of a table; a short list counts each of its values."""
    return sum(len(value) if isinstance(value, list) else 1 for figures in table.values() for value in figures.values())


def _same(expected: Value, found: Value) -> bool:
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_same, expected, found))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(expected) is type(found) and expected == found


def _flat(table: Table) -> dict[str, Value]:
    return {f"{path}.{name}".lstrip("."): value for path, figures in table.items() for name, value in figures.items()}


def differences(expected: Table, found: Table) -> list[str]:
    """One line per path that is missing, additional or of another value, in the order of the documents."""
    before, after = _flat(expected), _flat(found)
    lines = []
    for path in [*before, *(path for path in after if path not in before)]:
        if path not in after:
            lines.append(f"{path}: expected {before[path]!r}, found {ABSENT}")
        elif path not in before:
            lines.append(f"{path}: expected {ABSENT}, found {after[path]!r}")
        elif not _same(before[path], after[path]):
            lines.append(f"{path}: expected {before[path]!r}, found {after[path]!r}")
    return lines


def said(case: str, lines: list[str]) -> str:
    """The first differences of a case, for people."""
    more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n  ".join([f"{case}: {len(lines)} differences", *lines[:SHOWN], *more])
