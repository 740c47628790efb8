"""Sizes, names, literals and docstrings: one test a rule, which names every place that breaks it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

from tests.structure.sources import nodes, parsed

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = sorted((ROOT / "simulator").rglob("*.py"))
SOURCES = LIBRARY + sorted(
    path for folder in ("app", "validation", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)
MODULE_LINES = 400
FRAGMENT_LINES = 60
FRAGMENTS_AT_MOST = 4
"""Modules of fewer lines, packages apart: most belong to the idea beside them. Only ever lower this."""
FUNCTION_LINES = 60
BANNED_NAMES = ("utils", "util", "helpers", "helper", "common", "misc", "manager")
# Powers that belong to units.py: 1e3, 1e6, ..., 1e-6, 1e-9, 1000.0, 1024.0 and their spellings. A whole number of
# tokens such as 1024 and a tolerance such as 1e-3 convert nothing.
POWER = re.compile(r"^(1(\.0*)?e\+?(3|6|9|12|15)|1(\.0*)?e-(6|9)|1(000|024)\.0*|1_000_000|1_000_000_000|10{6}|10{9})$")
NUMBERS = re.compile(r"(?<![\w.])\d[\w.]*(?:(?<=e)[+-]\d+)?").findall


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in nodes(path) if isinstance(node, ast.FunctionDef)]


def equation_lines(node: ast.FunctionDef) -> int:
    """Lines of a docstring that states an equation: they are not code to be kept short."""
    first = node.body[0]
    stated = (ast.get_docstring(node) or "").find("\nEquation\n") >= 0
    return (first.end_lineno or first.lineno) - first.lineno + 1 if stated else 0


def identify(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_modules_and_functions_fit_a_screen() -> None:
    long = []
    for path in SOURCES:
        lines = len(path.read_text("utf-8").splitlines())
        if lines > MODULE_LINES:
            long.append(f"{identify(path)} has {lines} lines")
        for node in functions(path):
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - equation_lines(node)
            if length > FUNCTION_LINES:
                long.append(f"{identify(path)}:{node.lineno} {node.name} has {length} lines")
    assert long == []


def test_few_modules_are_fragments() -> None:
    sizes = {identify(path): len(path.read_text("utf-8").splitlines()) for path in LIBRARY if path.stem != "__init__"}
    short = [name for name, lines in sizes.items() if lines < FRAGMENT_LINES]
    assert len(short) <= FRAGMENTS_AT_MOST, short


def test_names_say_what_is_inside() -> None:
    assert [identify(path) for path in SOURCES if {path.stem, path.parent.name} & set(BANNED_NAMES)] == []


def test_no_two_test_files_share_a_name() -> None:
    # Test folders are no packages: pytest imports a file by its name alone and refuses the second one.
    names = Counter(path.name for path in (Path(__file__).resolve().parents[1]).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def is_power(node: ast.AST) -> bool:
    """``10 ** 9``, ``2 ** 30`` and the like."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)):
        return False
    sides = (node.left, node.right)
    constants = [side.value for side in sides if isinstance(side, ast.Constant)]
    return len(constants) == len(sides) and constants[0] in (2, 10, 1000, 1024)


def test_powers_of_ten_and_two_live_in_units() -> None:
    found = []
    for path in LIBRARY:
        if path.name == "units.py":
            continue
        text = path.read_text("utf-8").lower()
        # Only files in which such a number stands, be it in a sentence, are taken apart.
        tokens = tokenize.generate_tokens(io.StringIO(text).readline) if any(map(POWER.match, NUMBERS(text))) else ()
        for token in tokens:
            if token.type == tokenize.NUMBER and POWER.match(token.string):
                found.append(f"{identify(path)}:{token.start[0]} {token.string}")
        found += [f"{identify(path)}: {ast.unparse(node)}" for node in nodes(path) if is_power(node)]
    assert found == []


def test_no_unfinished_marks() -> None:
    marks = re.compile(r"\b(TOD[O]|FIXM[E]|X{3}|NotImplementedError)\b")
    assert [identify(path) for path in LIBRARY if marks.search(path.read_text("utf-8"))] == []


def test_no_open_ended_keywords() -> None:
    found = []
    for path in LIBRARY:
        for node in functions(path):
            given = node.args.kwarg
            # Keywords that a TypedDict names are not open-ended; a grouped command passes on what its options declare.
            closed = given is None or ast.unparse(given.annotation or given).startswith("Unpack[")
            if not closed and path.name not in ("shared.py", "records.py"):
                found.append(f"{identify(path)}:{node.lineno} {node.name} takes **{given}")
    assert found == []


def undocumented(path: Path) -> list[str]:
    """Public things of a module without a docstring."""
    tree = parsed(path)
    things: list[tuple[str, ast.Module | ast.FunctionDef | ast.ClassDef]] = [("", tree)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            things.append((node.name, node))
            things += [
                (f"{node.name}.{item.name}", item)
                for item in node.body
                if isinstance(node, ast.ClassDef) and isinstance(item, ast.FunctionDef) and item.name[0] != "_"
            ]
    return [f"{identify(path)} {name}" for name, node in things if not ast.get_docstring(node)]


def test_public_things_are_documented() -> None:
    assert [place for path in LIBRARY for place in undocumented(path)] == []


MID_SENTENCE = re.compile(r"(Of|At|Over|After|That|The same|As|By|It|On|With)\b|See above")
"""How a docstring begins that finishes the sentence of its function's name: a page of names shows it alone."""


def test_docstrings_stand_alone() -> None:
    found = [
        f"{identify(path)}:{node.lineno} {node.name}"
        for path in LIBRARY
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        if not node.name.startswith("_") and MID_SENTENCE.match(ast.get_docstring(node) or "")
    ]
    assert found == []


def test_every_citation_resolves_and_is_used() -> None:
    known = set(re.findall(r"^\[([A-Za-z]+\d{4}[a-z]?)\]", (ROOT / "REFERENCES.md").read_text("utf-8"), re.MULTILINE))
    cited = {
        key
        for path in [*LIBRARY, *sorted((ROOT / "validation").rglob("*.py"))]
        for key in re.findall(r"\[([A-Z][A-Za-z]+(?:19|20)\d{2}[a-z]?)\]", path.read_text("utf-8"))
    }
    assert cited <= known, f"not in REFERENCES.md: {sorted(cited - known)}"
    assert known <= cited, f"never cited: {sorted(known - cited)}"


def test_kernel_equations_take_keywords() -> None:
    found = []
    for path in LIBRARY:
        for node in functions(path) if "/kernels/" in path.as_posix() else ():
            given = [argument.annotation for argument in node.args.args if argument.annotation]
            if not node.name.startswith("_") and [ast.unparse(one) for one in given].count("float") > 1:
                found.append(f"{identify(path)}:{node.lineno} {node.name} takes several positional floats")
    assert found == []


def test_specs_evaluate_their_annotations_once() -> None:
    """Pydantic compiles an annotation that is text, some 70 us each: a short command defines seven hundred."""
    late = []
    for path in sorted((ROOT / "simulator" / "specs").rglob("*.py")):
        tree = parsed(path)
        bases = {
            base.id
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            for base in node.bases
            if isinstance(base, ast.Name)
        }
        postponed = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        if postponed and any(name.endswith("Spec") for name in bases) and "measured" not in path.parts:
            late.append(identify(path))
    assert not late, late
