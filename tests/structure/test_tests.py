"""Every module of the ground floors has a test that names it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.structure.sources import nodes

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("specs", "operators", "techniques", "kernels", "phases")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ROOMS
    for path in (ROOT / "simulator" / room).rglob("*.py")
    if path.name != "__init__.py"
)


def named_in_tests() -> frozenset[str]:
    """Modules, and names inside them, that a test imports."""
    named = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                named |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
    return frozenset(named)


NAMED = named_in_tests()


@pytest.mark.parametrize("module", MODULES)
def test_every_module_is_named_by_a_test(module: str) -> None:
    assert module in NAMED, f"no test imports {module}"
