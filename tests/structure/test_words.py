"""Words are not data: flags are spelled by the command line and reports alone, no sentence is taken apart, and what is
said of a result is said by the reports alone."""

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
    "app/address/complaints.py": 1,  # the widget of models, by its label
    "app/views/own.py": 1,  # the folder of a session, which is nobody's business
    "app/fields/own_files.py": 2,  # the same, and whether an upload replaces one
    "reports/formats/text.py": 1,  # a table's title that says its section's again is not printed twice
    "app/fields/controls.py": 1,  # a widget's label without its unit, in the middle of a sentence
}
"""Sentences that are still taken apart, by module. This list may only shrink."""

FLAGS_LEFT = {
    "specs/hardware/calibration.py": 2,  # the separator in names of calibration files
    "specs/measured/serving_results.py": 2,  # flags of the benchmark programs whose results it reads
}
"""Constants with a flag that are still below the command line, by module. This list may only shrink."""


WORD = re.compile(r"[A-Za-z][a-z'-]+")
REFUSES = re.compile(
    r"(error|refus\w*|_bad|_invalid|malformed|no_effect|ignored_option|contradiction|missing_field|did_you_mean)$", re.I
)
"""Functions that make an exception or a part of its message."""
SAYS_ITSELF = frozenset({"info", "warning", "debug", "open_field", "Field"})
"""Calls whose text is not of a result: lines of a log, descriptions of a question's fields."""
TOLD = frozenset({"hint", "why", "description"})
SAY_RESULTS = ("cli", "reports", "api", "published", "explain")
SENTENCES_LEFT = {
    "__init__.py": (2, "names of the library, in lists of words"),
    "errors.py": (3, "the messages of exceptions themselves"),
    "specs/refusals.py": (5, "messages of exceptions"),
    "specs/parsing.py": (1, "a message of an exception"),
    "records.py": (1, "code that is compiled"),
    "specs/measured/validation_rows.py": (2, "the first line of a file, and how it is read"),
    "specs/writing.py": (1, "the first line of a file"),
    "fitting/engine_overheads.py": (3, "the source of a fit, written into its file"),
    "specs/model/precision.py": (8, "other words for formats, in lists of words"),
    "specs/question/plan.py": (34, "descriptions of a question's fields, and what a hint names"),
    "engine/runs/scenario_setup.py": (1, "parts of an exception's message"),
    "engine/pools.py": (1, "a message of an exception"),
    "planner/what_if.py": (1, "a message of an exception"),
    "planner/search/candidates.py": (1, "a message of an exception"),
    "planner/studies/encoder_pool.py": (1, "the hint of an exception"),
    "techniques/speculation/scenario.py": (3, "what a message of an exception asks for"),
    "engine/events/simulation.py": (1, "what a message of an exception names"),
    "engine/uniform/record.py": (2, "names of parts of a time"),
    "planner/gap/changes.py": (3, "names of changes"),
    "planner/gap/relaxed_objectives.py": (2, "names of changes"),
    "planner/money/facilities.py": (1, "what bounds a rack"),
    "planner/money/market.py": (3, "names of a rule and of a provider"),
    "planner/records.py": (3, "kinds of search, the name of a candidate"),
    "planner/search/screened_space.py": (1, "an axis of the search"),
    "planner/studies/pareto.py": (2, "names of axes"),
    "planner/studies/sensitivity.py": (12, "names of inputs"),
    "planner/verification/promise.py": (2, "kinds of replay"),
    "planner/verification/records.py": (1, "a verdict"),
    "traffic/recorded/benchmarks.py": (1, "the name of a tool"),
    "traffic/recorded/prometheus.py": (2, "names of tools"),
}
"""Texts of three and more words that are still below the reports, by module, with what they are: names and parts of
exceptions that this test does not see as such. This list may only shrink."""


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


def text_of(node: ast.AST) -> str:
    """What a string constant or a formatted one says, values as braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def names_in(tree: ast.AST) -> set[str]:
    return {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree)} - {""}


def is_refusal(node: ast.AST) -> bool:
    """Whether a node raises or makes an exception, or says what one hints at; lines of logs and field descriptions."""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in SAYS_ITSELF or REFUSES.search(called) is not None
    return isinstance(node, ast.Raise | ast.Assert) or (isinstance(node, ast.keyword) and node.arg in TOLD)


def said_of_results(tree: ast.AST) -> list[str]:
    """Texts of three and more words outside docstrings that no exception, and no name or function that one takes its
    message from, is made of."""
    nodes = list(ast.walk(tree))
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    refusals = [node for node in nodes if is_refusal(node)]
    inside = {child for node in refusals for child in ast.walk(node)}
    taken = {name for node in refusals for name in names_in(node)}
    assigned = [node for node in nodes if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value]
    for _ in range(3):  # a message is made of parts that are made of parts
        for node in assigned:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(names_in(target) & taken for target in targets):
                inside |= set(ast.walk(node))
                taken |= names_in(node) if any(text_of(part) for part in ast.walk(node)) else set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in taken:
            inside |= set(ast.walk(node))
    return [
        text_of(node)
        for node in nodes
        if isinstance(node, ast.Constant | ast.JoinedStr) and node not in inside
        if not isinstance(parents.get(node), ast.JoinedStr | ast.Expr)
        if len(WORD.findall(text_of(node))) >= 3 and text_of(node).strip().count(" ") >= 2
    ]


def test_what_is_said_of_a_result_is_said_by_reports_alone() -> None:
    found = {name: said_of_results(tree) for name, tree in modules(outside=SAY_RESULTS).items()}
    more = {name: items for name, items in found.items() if len(items) > SENTENCES_LEFT.get(name, (0, ""))[0]}
    assert not more, "give the result a Note, and its sentence a line of reports/words/notes.yaml"
    fewer = {name for name, (count, _) in SENTENCES_LEFT.items() if len(found[name]) < count}
    assert not fewer, "lower SENTENCES_LEFT"


def test_flags_are_spelled_by_the_command_line_and_reports_alone() -> None:
    found = {name: flags(tree) for name, tree in modules(outside=SPELL_FLAGS).items()}
    more = {name: items for name, items in found.items() if len(items) > FLAGS_LEFT.get(name, 0)}
    assert not more, "name a field between backquotes, or as field=Option(...)"


def test_no_sentence_is_taken_apart() -> None:
    app = {path.relative_to(ROOT).as_posix(): parsed(path) for path in (ROOT / "app").rglob("*.py")}
    trees = {**modules(), **app}
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


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('notes.append("the queue grows for ever")', 1),
        ('notes.append(f"{count} requests wait for room")', 1),
        ('said = f"{count} requests wait for room"', 1),
        ('Note("queue_grows", {"count": count})', 0),
        ('raise Error(f"{count} requests wait for room")', 0),
        ('message = f"{count} requests wait for room"\nraise Error(message)', 0),
        ('def why():\n    return "it has no cache"\nraise Error(f"no: {why()}")', 0),
        ('part = "of all its layers"\nmessage = f"none {part}"\nraise Error(message)', 0),
        ('refuse(field, hint="leave it out now")', 0),
        ('def f():\n    """A sentence of a docstring."""', 0),
        ('name = "prompt length"', 0),
    ],
)
def test_sentences_are_seen(code: str, count: int) -> None:
    assert len(said_of_results(ast.parse(code))) == count
