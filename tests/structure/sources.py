"""Source files as trees, each read once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a source file; whoever walks it leaves it as it is."""
    return ast.parse(path.read_text("utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a source file, in the order of ``ast.walk``."""
    return tuple(ast.walk(parsed(path)))
