"""Questions put to the product: each answer as its exit code and its table of figures."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from pathlib import Path

from tests.golden.entry_points import Printed, run
from tests.golden.figures import Table, table_of
from tests.golden.questions import Question

_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATED_LINE = re.compile(r"today|roofcast \d")
_OUT = "{out}"


def table_for(question: Question) -> Table:
    """What the product answers to ``question`` now."""
    match question.group:
        case "plans":
            return _plan(question)
        case "reports":
            return _report(question)
        case _:
            return _scenario(question)


def _ended(printed: Printed) -> Table:
    return {"exit": {"code": printed.code, "warnings": printed.err.count(": warning: ")}}


def _scenario(question: Question) -> Table:
    printed = run(("roofcast", "simulate", "-"), stdin=f"{question.line}\n")
    return _ended(printed) | table_of(json.loads(printed.out))


def _plan(question: Question) -> Table:
    if "--output" in question.words:
        printed = run(("plan-capacity", *question.words))
        as_rows = question.words[question.words.index("--output") + 1] == "csv"
        document = _rows(printed.out) if as_rows else _numbers(printed.out)
    else:
        printed = run(("plan-capacity", *question.words, "--json"))
        document = json.loads(printed.out) if printed.out.startswith("{") else {}
    return _ended(printed) | table_of(document)


def _rows(text: str) -> dict[str, object]:
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        rows.append({name: float(value) if _NUMBER.fullmatch(value) else value for name, value in row.items()})
    return {"csv": rows}


def _numbers(text: str) -> dict[str, object]:
    """The numbers of a text form, in their order; its words may change, its figures may not."""
    lines = [line for line in text.splitlines() if not _DATED_LINE.search(line)]
    found = [float(item.replace(",", "")) for line in lines for item in _NUMBER.findall(_DATE.sub("", line))]
    return {"printed": {"lines": len(lines), "numbers": found}}


def _report(question: Question) -> Table:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report"
        printed = run([word.replace(_OUT, str(out)) for word in question.words])
        files = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
        table: Table = _ended(printed) | {"files": {name: True for name in files}}
        for name in files:
            if name.endswith(".json"):
                table |= table_of(json.loads((out / name).read_text("utf-8")))
        return table
