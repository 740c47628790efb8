"""The pages of docs/ as a reader follows them: files are written, commands and Python run, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.plan_capacity import main as plan_capacity
from simulator.cli.roofcast import app
from simulator.cli.shared import run

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
LONG = ("plan-a-fleet", "report", "serve-under-load", "simulate-a-deployment", "sweep", "what-if")
"""Pages that plan, serve and sweep from end to end."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: (\S+)\n")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    for found in BLOCK.finditer(page.read_text("utf-8")):
        yield found[1], found[2]


def command(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line of a shell block; ``> FILE`` keeps what it prints."""
    line, _, target = (part.strip() for part in line.partition(" > "))
    words = shlex.split(line)
    assert words[0] in ("roofcast", "plan-capacity"), line
    code = plan_capacity(words[1:]) if words[0] == "plan-capacity" else run(app, name="roofcast", arguments=words[1:])
    printed = capsys.readouterr()
    assert code == 0, (line, printed.err)
    if target:
        Path(target).write_text(printed.out, encoding="utf-8")


def _page(path: Path) -> Any:
    return pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])


@pytest.mark.parametrize("page", [_page(path) for path in PAGES])
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {}
    for kind, text in blocks(page):
        file = FILE.match(text)
        if file is not None:
            Path(file[1]).write_text(text[file.end() :], encoding="utf-8")
        elif kind == "sh":
            for line in text.splitlines():
                command(line, capsys)
        elif kind == "python":
            exec(compile(text, page.name, "exec"), names)
            capsys.readouterr()


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = [text for kind, text in blocks(ROOT / "README.md") if kind == "python"]
    assert found
    for text in found:
        exec(compile(text, "README.md", "exec"), {})


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "README.md", "validation/notebook.md"))],
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index, page.name
