"""A function with an ``Equation`` section says all that a reader needs to use it, and its examples are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

from tests.for_every import for_every
from tests.structure.sources import nodes

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ("Equation", "Parameters", "Range of validity", "References")
UNIT = re.compile(r"\[(?:-|s|W|J|K|Hz|bit|bytes?|tokens?|FLOPs?|FLOP/s|bytes/s|FLOP/byte|1/s)\]")


def section(text: str, title: str) -> str:
    """What stands under a title of a docstring."""
    found = re.search(rf"(?ms)^{title}\n-+\n(.*?)(?=^[A-Z][A-Za-z ]+\n-+\n|\Z)", text)
    return found[1].strip() if found else ""


def documented(path: Path) -> list[tuple[str, ast.FunctionDef, str]]:
    where = path.relative_to(ROOT).as_posix()
    found = [node for node in nodes(path) if isinstance(node, ast.FunctionDef)]
    return [(f"{where}:{node.name}", node, ast.get_docstring(node) or "") for node in found]


SOURCES = sorted((ROOT / "simulator").rglob("*.py"))
# Only files that say the word are parsed: this runs whenever tests are collected.
EQUATIONS = [
    item
    for path in SOURCES
    if "    Equation\n" in path.read_text("utf-8")
    for item in documented(path)
    if "\nEquation\n" in item[2]
]
WITH_EXAMPLES = [path for path in SOURCES if ">>> " in path.read_text("utf-8")]


def test_the_equations_that_define_the_product_are_marked() -> None:
    marked = {node.name for _, node, _ in EQUATIONS}
    assert marked >= {
        "roofline_timing",
        "gemm_seconds",
        "prefill_seconds",
        "decode_seconds",
        "law_seconds",
        "kv_bytes_per_token",
        "mean_tokens",
        "memory_plan",
        "mfu",
        "mbu",
        "pattern_bits",
        "distinct_experts",
    }


@for_every(EQUATIONS)
def test_an_equation_has_symbols_units_range_reference_and_a_hand_number(
    equation: tuple[str, ast.FunctionDef, str],
) -> None:
    where, node, text = equation
    for title in SECTIONS:
        assert section(text, title), f"{where}: the section {title} is missing or empty"
    assert UNIT.search(text.partition("\n\n")[0]), f"{where}: the first sentence names the unit of the result"
    parameters = section(text, "Parameters")
    assert UNIT.search(parameters), f"{where}: no parameter has a unit"
    properties = {"self"} if len(node.args.args) > 1 or node.args.kwonlyargs else set()
    for argument in (*node.args.args, *node.args.kwonlyargs):
        if argument.arg in properties:
            continue
        assert re.search(rf"(?m)^[\w, ]*\b{argument.arg}\b[\w, ]* : ", parameters), f"{where}: {argument.arg}"
    assert re.search(r"\[[A-Z][A-Za-z]+\d{4}[a-z]?\]", section(text, "References")), f"{where}: no key"
    assert "\n>>> " in text, f"{where}: no example with a number"
    assert re.search(r"[Ll](?:eaves|eft)\s+out", text), f"{where}: does not say what it leaves out"


@for_every(WITH_EXAMPLES)
def test_examples_in_docstrings_are_true(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted
    assert not outcome.failed
