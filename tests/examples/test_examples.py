"""Every example runs as it stands: scripts as a user starts them, notebooks cell by cell."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_as_many_as_promised() -> None:
    assert len(SCRIPTS) >= 8
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 2
    assert ast.get_docstring(ast.parse(script.read_text("utf-8"))), "says what it shows"


def shown(source: str, names: dict[str, Any]) -> object:
    """Run a cell; the value of its last expression, which a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_tables_and_figures(notebook: Path) -> None:
    document = json.loads(notebook.read_text("utf-8"))
    assert document["nbformat"] == 4
    names: dict[str, Any] = {}
    values = []
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "kept without outputs"
            values.append(shown("".join(cell["source"]), names))
    pages = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert any("<table" in page for page in pages)
    assert any(type(value).__name__ == "Figure" for value in values)
