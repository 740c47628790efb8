"""``simulator.reports.words.fields``: every note that the library makes has a sentence, and says all that it names."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

from simulator.reports.words import fields
from simulator.specs.base import Note, read_yaml
from tests.for_every import for_every
from tests.structure.sources import nodes

ROOT = Path(__file__).resolve().parents[2] / "simulator"
TEMPLATES = {**read_yaml(ROOT / "reports/words/notes.yaml"), **fields._DETAILS}
QUOTED = re.compile(r'"([\w.]+)"')
NAMED = re.compile(r"\{(\w+)[.:}]")


@lru_cache(maxsize=1)
def made() -> dict[str, list[frozenset[str] | None]]:
    """Keys of every ``Note(...)`` of the library, with the names of its values where they are written there."""
    found: dict[str, list[frozenset[str] | None]] = {}
    for path in ROOT.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Note" and node.args:
                values = node.args[1] if len(node.args) > 1 else ast.Dict(keys=[], values=[])
                for key in ast.walk(node.args[0]):
                    if isinstance(key, ast.Constant):
                        found.setdefault(key.value, []).append(written(values))
    return found


def written(values: ast.expr) -> frozenset[str] | None:
    keys = values.keys if isinstance(values, ast.Dict) else [None]
    named = [key.value for key in keys if isinstance(key, ast.Constant)]
    return frozenset(named) if len(named) == len(keys) else None


def test_every_note_has_a_sentence_and_every_sentence_is_said() -> None:
    source = {word for path in ROOT.rglob("*.py") for word in QUOTED.findall(path.read_text("utf-8"))}
    keys = set(TEMPLATES) | set(fields._MADE)
    assert set(made()) <= keys
    assert keys <= source


@for_every(lambda: sorted(set(made()) & set(TEMPLATES)))
def test_a_sentence_names_what_its_note_holds(key: str) -> None:
    named = set(NAMED.findall(TEMPLATES[key]))
    assert all(named <= values for values in made()[key] if values is not None)


@pytest.mark.parametrize(
    ("template", "values", "said"),
    [
        ("{share:percent 3} of it", {"share": 0.1234}, "12.3 % of it"),
        ("{rate:giga} GB/s", {"rate": 6.4e10}, "64 GB/s"),
        ("no {dtypes:names or} units", {"dtypes": ["fp4", "fp8"]}, "no fp4 or fp8 units"),
        ("dense: {roles:names}", {"roles": []}, "dense: none"),
        ("{fields:each changed}", {"fields": ["a", "b"]}, "a changed, b changed"),
        ("{count:counted decode replica}", {"count": 2}, "2 decode replicas"),
        ("by {method:or any method}", {"method": None}, "by any method"),
        ("x{task:after , }", {"task": "code"}, "x, code"),
        ("x{task:after , }", {"task": None}, "x"),
        ("{apart:either {count:counted pool} more|none}", {"apart": True, "count": 3}, "3 pools more"),
        ("{apart:either {count:counted pool} more|none}", {"apart": False, "count": 3}, "none"),
    ],
)
def test_values_are_written_by_their_formats(template: str, values: dict[str, object], said: str) -> None:
    assert fields._Template().vformat(template, (), values) == said


def test_a_text_of_a_profile_is_its_own_sentence() -> None:
    assert fields.note_texts(["as written", Note("idle_clients", {"requests": 4, "clients": 16})]) == [
        "as written",
        "4 requests for 16 clients: some clients send none",
    ]
