"""Every module of the library has a test that names it, and tests keep pace with the library."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = sorted((ROOT / "simulator").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

LINES_OF_TESTS_AT_LEAST = 0.75
"""Per line of library. Only ever raise this."""


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules() -> list[str]:
    return [dotted(path) for path in LIBRARY if path.name != "__init__.py"]


@lru_cache(maxsize=1)
def names_in_tests() -> frozenset[str]:
    """Dotted names below ``simulator`` that tests import or write in a text."""
    found: set[str] = set()
    for path in TESTS:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        found |= set(re.findall(r"simulator(?:\.\w+)+", text))
    return frozenset(name for name in found if name.startswith("simulator"))


def unnamed() -> list[str]:
    return [name for name in modules() if name not in names_in_tests()]


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_every_module_has_a_test_that_names_it() -> None:
    assert unnamed() == []


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something that its nearest module says."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        for source in (path.with_suffix(".py"), path / "__init__.py"):
            if source.is_file():
                said = source.read_text(encoding="utf-8")
                return all(re.search(rf"\b{re.escape(part)}\b", said) for part in parts[length : length + 1])
    return False


def test_what_tests_name_is_there() -> None:
    invented = {"simulator.nothing.of_that_name", "simulator.plans"}
    assert [name for name in sorted(names_in_tests()) if name not in invented and not is_there(name)] == []


def test_tests_keep_pace_with_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    library, tests = lines_of(LIBRARY), lines_of(TESTS)
    with capsys.disabled():
        print(f"\n{tests} lines of tests for {library} lines of library: {tests / library:.3f}")
    assert tests >= LINES_OF_TESTS_AT_LEAST * library


def test_the_check_can_fail() -> None:
    assert "simulator.nothing.of_that_name" not in modules()
    assert "simulator.units" in names_in_tests()
