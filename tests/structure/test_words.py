"""Words are not data: flags are spelled by the command line and reports alone, and no sentence is taken apart."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.structure.sources import parsed

ROOT = Path(__file__).resolve().parents[2]
FLAG = re.compile(r"(?<![\w-])--([a-z]|$)")
SPELL_FLAGS = ("cli", "reports", "api", "published", "explain")
SENTENCES = frozenset(
    {
        "message",
        "label",
        "source",
        "detail",
        "text",
        "note",
        "hint",
        "title",
        "caption",
        "reason",
        "words",
        "deployment",
    }
)
"""Attributes that hold what people read."""
SAID = SENTENCES - {"source", "detail", "reason", "deployment"}
"""Those that never hold a thing to compare."""
SAYS = re.compile(r"_(text|texts|words?|sentence|label)$")
"""Functions that make it."""
TAKEN_APART_BY = frozenset(
    {
        "startswith",
        "endswith",
        "removeprefix",
        "removesuffix",
        "partition",
        "rpartition",
        "split",
        "rsplit",
        "find",
        "replace",
    }
)
REGEX_CALLS = frozenset({"match", "fullmatch", "search", "findall", "finditer", "split", "sub"})

READ = frozenset({"read_text", "plain_word"})
"""Functions of that name that hand on what somebody else wrote."""
TAKEN_APART_LEFT = {
    "reports/charts/static_svg.py": 1,  # a name that stands at its mark is not written again beside it
    "app/complaints.py": 1,  # the widget of models, by its label
    "app/own.py": 1,  # the folder of a session, which is nobody's business
    "app/own_files.py": 2,  # the same, and whether an upload replaces one
    "reports/formats/text.py": 1,  # a table's title that says its section's again is not printed twice
    "app/controls.py": 1,  # a widget's label without its unit, in the middle of a sentence
}
"""Sentences that are still taken apart, by module. This list may only shrink."""

FLAGS_LEFT = {
    "specs/hardware/calibration.py": 2,  # the separator in names of calibration files
    "specs/measured/serving_results.py": 2,  # flags of the benchmark programs whose results it reads
}
"""Constants with a flag that are still below the command line, by module. This list may only shrink."""


def modules(*, inside: tuple[str, ...] = (), outside: tuple[str, ...] = ()) -> dict[str, ast.Module]:
    """Modules of the library below ``simulator`` by their path there."""
    found = {}
    for path in sorted((ROOT / "simulator").rglob("*.py")):
        name = path.relative_to(ROOT / "simulator").as_posix()
        within = not inside or name.startswith(tuple(f"{folder}/" for folder in inside))
        if within and not name.startswith(tuple(f"{folder}/" for folder in outside)):
            found[name] = parsed(path)
    return found


def flags(tree: ast.AST) -> list[str]:
    """String constants that spell a flag; sentences that stand alone are docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if FLAG.search(node.value)
    ]


def taken_apart(tree: ast.AST) -> list[str]:
    """Calls of a string method on a record's sentence, and of a regular expression with one as an argument."""
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    compared = [node for node in nodes if isinstance(node, ast.Compare) and compares_what_is_said(node)]
    return [ast.unparse(node) for node in (*(call for call in calls if reads_a_sentence(call, call.func)), *compared)]


def compares_what_is_said(node: ast.Compare) -> bool:
    """Whether a label or the like is looked for or held against a text."""
    said = (isinstance(item, ast.Attribute) and item.attr in SAID for item in (node.left, *node.comparators))
    return any(said) and not all(isinstance(kind, ast.Is | ast.IsNot) for kind in node.ops)


def reads_a_sentence(call: ast.Call, method: ast.expr) -> bool:
    """Whether this call cuts or matches what an attribute such as ``record.label`` says."""
    if not isinstance(method, ast.Attribute):
        return False
    matched = method.attr in REGEX_CALLS and any(is_sentence(argument) for argument in call.args)
    return matched or (method.attr in TAKEN_APART_BY and is_sentence(method.value))


def is_sentence(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        made = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return SAYS.search(made) is not None and made not in READ
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def test_flags_are_spelled_by_the_command_line_and_reports_alone() -> None:
    found = {name: flags(tree) for name, tree in modules(outside=SPELL_FLAGS).items()}
    more = {name: items for name, items in found.items() if len(items) > FLAGS_LEFT.get(name, 0)}
    assert not more, "name a field between backquotes, or as field=Option(...)"


def test_no_sentence_is_taken_apart() -> None:
    trees = {**modules(), **{f"app/{path.name}": parsed(path) for path in (ROOT / "app").rglob("*.py")}}
    found = {name: taken_apart(tree) for name, tree in trees.items()}
    more = {name: items for name, items in found.items() if len(items) > TAKEN_APART_LEFT.get(name, 0)}
    assert not more, "give the record a field of what is needed"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('raise Error("leave --max-gpus out", field="--tp")', 2),
        ('hint = f"--tp {degree}"', 1),
        ('flag = "--" + name', 1),
        ('"""A sentence about --tp."""', 0),
        ('dash = "a--b"', 0),
    ],
)
def test_flags_are_seen(code: str, count: int) -> None:
    assert len(flags(ast.parse(code))) == count


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('item.label.split(" + decode ")', 1),
        ("PATTERN.match(item.message)", 1),
        ('re.sub("a", "b", warning.text)', 1),
        ('setup_text(deployment).rsplit(", ", 1)', 1),
        ("_POOLS.search(self.deployment)", 1),
        ('item.message.replace("a", "b")', 1),
        ("[item for item in found if item.label == chosen.label]", 1),
        ('"one server" in case.text', 1),
        ("item.note is None", 0),
        ("path.read_text().split()", 0),
        ("name.split()", 0),
        ("item.label.upper()", 0),
    ],
)
def test_cuts_are_seen(code: str, count: int) -> None:
    assert len(taken_apart(ast.parse(code))) == count
