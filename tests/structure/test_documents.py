"""Documents that must keep up with the code: README, NOMENCLATURE, help."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import typer
from typer.core import TyperGroup

from simulator.cli import plan_capacity, roofcast
from tests.for_every import for_every
from tests.structure.sources import nodes

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def commands(app: typer.Typer, prefix: str) -> list[tuple[str, str]]:
    command = typer.main.get_command(app)
    if not isinstance(command, TyperGroup):
        return [(prefix, command.help or "")]
    found = []
    for name, sub in command.commands.items():
        if isinstance(sub, TyperGroup):
            found += [(f"{prefix} {name} {inner}", item.help or "") for inner, item in sub.commands.items()]
        else:
            found.append((f"{prefix} {name}", sub.help or ""))
    return found


ALL_COMMANDS = commands(roofcast.app, "roofcast") + commands(plan_capacity.app, "plan-capacity")


@for_every(ALL_COMMANDS)
def test_every_command_has_help_and_stands_in_the_readme(command: tuple[str, str]) -> None:
    name, text = command
    assert text.strip()
    assert name in README


def test_options_that_the_readme_lists_exist() -> None:
    command = typer.main.get_command(plan_capacity.app)
    known = {
        name
        for parameter in command.get_params(typer.Context(command))
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    listed = re.findall(r"--[a-z-]+", " ".join(re.findall(r"^\| [a-z, ]+ \| (`--.*)$", README, re.MULTILINE)))
    assert len(listed) > 20
    assert set(listed) - {"--schema"} <= known


def test_module_map_of_the_readme_names_every_package() -> None:
    for package in sorted(path.name for path in (ROOT / "simulator").iterdir() if (path / "__init__.py").exists()):
        if any((ROOT / "simulator" / package).glob("[a-z]*.py")):
            assert f"simulator/{package}/" in README, package


def test_nomenclature_terms_are_used() -> None:
    text = (ROOT / "NOMENCLATURE.md").read_text("utf-8")
    names = re.findall(r"\| `([A-Za-z_0-9]+)` \|", text)
    assert len(names) >= 20
    code = {word for path in (ROOT / "simulator").rglob("*.py") for word in re.findall(r"\w+", path.read_text("utf-8"))}
    assert not set(names) - code, "these stand in NOMENCLATURE.md and nowhere in the code"


def test_core_words_stand_in_the_nomenclature() -> None:
    """Classes that every twentieth module imports, errors and the fields of profiles and questions aside."""
    text = (ROOT / "NOMENCLATURE.md").read_text("utf-8")
    paths = sorted((ROOT / "simulator").rglob("*.py"))
    imported = Counter(
        alias.name
        for path in paths
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simulator")
        for alias in node.names
        if not alias.name.endswith(("Spec", "Error"))
    )
    classes = {node.name for path in paths for node in nodes(path) if isinstance(node, ast.ClassDef)}
    core = {name for name in classes if imported[name] >= len(paths) / 20}
    assert len(core) > 10
    assert {name for name in core if f"`{name}`" not in text and f"| {name.lower()} |" not in text} == set()


def test_nothing_of_the_workplace_is_committed() -> None:
    banned = re.compile(r"/work/|farm-|pypi\.org/simple|/tmp/")
    pages = (path for folder in (".", "docs", "validation") for path in (ROOT / folder).glob("*.md"))
    written = [*pages, *(ROOT / "examples").rglob("*.*")]
    for path in [*written, *(ROOT / "simulator").rglob("*.py"), *(ROOT / "validation").rglob("*.py")]:
        assert not banned.search(path.read_text("utf-8")), path


def test_the_page_on_errors_is_one_that_users_read() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text("utf-8")
    assert len(text.splitlines()) <= 130
    assert len(text.split()) < 1600
