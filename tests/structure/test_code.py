"""Sizes, names, literals and docstrings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.structure.sources import nodes, parsed

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = sorted((ROOT / "simulator").rglob("*.py"))
SOURCES = LIBRARY + sorted(
    path for folder in ("app", "validation", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)
MODULE_LINES = 400
MEDIAN_LINES = 200
FUNCTION_LINES = 60
BANNED_NAMES = ("utils", "util", "helpers", "helper", "common", "misc", "manager")
# Powers that belong to units.py: 1e3, 1e6, ..., 1e-6, 1e-9, 1000.0, 1024.0 and their spellings. A whole number of
# tokens such as 1024 and a tolerance such as 1e-3 convert nothing.
POWER = re.compile(r"^(1(\.0*)?e\+?(3|6|9|12|15)|1(\.0*)?e-(6|9)|1(000|024)\.0*|1_000_000|1_000_000_000|10{6}|10{9})$")


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in nodes(path) if isinstance(node, ast.FunctionDef)]


def equation_lines(node: ast.FunctionDef) -> int:
    """Lines of a docstring that states an equation: they are not code to be kept short."""
    first = node.body[0]
    stated = (ast.get_docstring(node) or "").find("\nEquation\n") >= 0
    return (first.end_lineno or first.lineno) - first.lineno + 1 if stated else 0


def identify(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_modules_and_functions_fit_a_screen(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MODULE_LINES
    for node in functions(path):
        length = (node.end_lineno or node.lineno) - node.lineno + 1 - equation_lines(node)
        assert length <= FUNCTION_LINES, f"{identify(path)}:{node.lineno} {node.name} has {length} lines"


def test_median_module_is_small() -> None:
    sizes = sorted(len(path.read_text("utf-8").splitlines()) for path in LIBRARY)
    assert sizes[len(sizes) // 2] <= MEDIAN_LINES


@pytest.mark.parametrize("path", SOURCES, ids=identify)
def test_names_say_what_is_inside(path: Path) -> None:
    assert path.stem not in BANNED_NAMES
    assert path.parent.name not in BANNED_NAMES


@pytest.mark.parametrize("path", [path for path in LIBRARY if path.name != "units.py"], ids=identify)
def test_powers_of_ten_and_two_live_in_units(path: Path) -> None:
    source = path.read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NUMBER:
            assert not POWER.match(token.string.lower()), f"{identify(path)}:{token.start[0]} {token.string}"
    for node in nodes(path):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            constants = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant)]
            both = len(constants) == 2
            assert not (both and constants[0] in (2, 10, 1000, 1024, 2.0, 10.0)), f"{identify(path)}:{node.lineno}"


@pytest.mark.parametrize("path", LIBRARY, ids=identify)
def test_no_open_ended_keywords_and_no_unfinished_marks(path: Path) -> None:
    source = path.read_text("utf-8")
    assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", source)
    for node in functions(path):
        given = node.args.kwarg
        # Keywords that a TypedDict names are not open-ended; a grouped command passes on what its options declare.
        closed = given is None or ast.unparse(given.annotation or given).startswith("Unpack[")
        assert closed or path.name == "shared.py", f"{identify(path)}:{node.lineno} {node.name} takes **{given}"


@pytest.mark.parametrize("path", LIBRARY, ids=identify)
def test_public_things_are_documented(path: Path) -> None:
    tree = parsed(path)
    assert ast.get_docstring(tree), f"{identify(path)} has no docstring"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{identify(path)}:{node.lineno} {node.name}"
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                        assert ast.get_docstring(item), f"{identify(path)}:{item.lineno} {node.name}.{item.name}"


def test_every_citation_resolves_and_is_used() -> None:
    known = set(re.findall(r"^\[([A-Za-z]+\d{4}[a-z]?)\]", (ROOT / "REFERENCES.md").read_text("utf-8"), re.MULTILINE))
    cited = {
        key
        for path in [*LIBRARY, *sorted((ROOT / "validation").rglob("*.py"))]
        for key in re.findall(r"\[([A-Z][A-Za-z]+(?:19|20)\d{2}[a-z]?)\]", path.read_text("utf-8"))
    }
    assert cited <= known, f"not in REFERENCES.md: {sorted(cited - known)}"
    assert known <= cited, f"never cited: {sorted(known - cited)}"


@pytest.mark.parametrize("path", [path for path in LIBRARY if "/kernels/" in path.as_posix()], ids=identify)
def test_kernel_equations_take_keywords(path: Path) -> None:
    for node in functions(path):
        if node.name.startswith("_"):
            continue
        floats = [
            argument
            for argument in node.args.args
            if argument.annotation and ast.unparse(argument.annotation) == "float"
        ]
        assert len(floats) <= 1, f"{identify(path)}:{node.lineno} {node.name} takes several positional floats"
