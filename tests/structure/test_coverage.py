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

GROUND = ("specs", "operators", "techniques", "kernels", "phases", "traffic", "fitting")
"""Rooms in which no module may be without a test of its own name."""
UNNAMED_AT_MOST = 55
"""Modules of the other rooms that are tested through what calls them. Only ever lower this."""
LINES_OF_TESTS_AT_LEAST = 0.59
"""Per line of library; the aim is 0.7. Only ever raise this."""


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


def room(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 2 else ""


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


@pytest.mark.parametrize("name", GROUND)
def test_every_module_of_the_ground_floor_has_a_test_that_names_it(name: str) -> None:
    assert [item for item in unnamed() if room(item) == name] == []


def test_few_modules_above_are_tested_through_others_alone(record_property: pytest.RecordProperty) -> None:
    above = [item for item in unnamed() if room(item) not in GROUND]
    record_property("modules without a test that names them", len(above))
    assert len(above) <= UNNAMED_AT_MOST, f"{len(above)} modules that no test names: {', '.join(above)}"


def test_tests_keep_pace_with_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    library, tests = lines_of(LIBRARY), lines_of(TESTS)
    with capsys.disabled():
        print(f"\n{tests} lines of tests for {library} lines of library: {tests / library:.3f}")
    assert tests >= LINES_OF_TESTS_AT_LEAST * library


def test_the_check_can_fail() -> None:
    assert "simulator.nothing.of_that_name" not in modules()
    assert "simulator.units" in names_in_tests()
    assert room("simulator.units") == ""
    assert room("simulator.specs.loading") == "specs"
