"""The rules of the house that a parser can check: imports point downwards, packages stay where they belong."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.structure.sources import nodes

ROOT = Path(__file__).resolve().parents[2]
LAYERS = (
    "specs",
    "operators",
    "techniques",
    "kernels",
    "phases",
    "traffic",
    "engine",
    "fitting",
    "planner",
    "reports",
    "published",
    "explain",
    "api",
    "cli",
)
# Third-party package -> the places that may import it.
PLACES = {
    "pydantic": ("simulator/specs", "validation"),
    "yaml": ("simulator/specs", "validation"),
    "pandas": ("simulator/reports", "app", "validation"),
    "plotly": ("simulator/reports", "app"),
    "pyarrow": ("simulator/reports", "validation"),
    "distributed": ("simulator/api",),
    "ray": ("simulator/api",),
    "jinja2": ("simulator/reports",),
    "typst": ("simulator/reports",),
    "xlsxwriter": ("simulator/reports",),
    "streamlit": ("app",),
    "torch": ("validation",),
    "transformers": (),
    "scipy": ("validation",),
    "typer": ("simulator/cli",),
    "click": ("simulator/cli",),
    "rich": ("simulator/cli", "simulator/reports", "validation"),
    "aiconfigurator_core": ("validation",),
}
SOURCES = sorted(
    path for folder in ("simulator", "app", "validation", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)


MODULES_PER_FOLDER = 15
# What was there before this test; the list may only shrink.
KNOWN_SHARED_CLASS_NAMES = frozenset({"Demand", "LoadPoint", "Outcome", "Policy", "Pool", "Spread", "Verification"})


@cache
def import_graph() -> dict[str, frozenset[str]]:
    """Each module of the library and those that it imports anywhere: at its top, inside functions, for types only."""
    paths = {
        ".".join(path.relative_to(ROOT / "simulator").with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "simulator").rglob("*.py")
    }
    graph = {}
    for module, path in paths.items():
        found = set()
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                origin = node.module or ""
                members = {f"{origin}.{alias.name}" for alias in node.names}
                found |= {name.removeprefix("simulator.") for name in (origin, *members)}
            elif isinstance(node, ast.Import):
                found |= {alias.name.removeprefix("simulator.") for alias in node.names}
        graph[module] = frozenset(found & paths.keys()) - {module}
    return graph


def import_circles() -> frozenset[frozenset[str]]:
    """Groups of modules each of which imports, over others, itself."""
    graph = import_graph()

    @cache
    def reached(start: str) -> frozenset[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for module in graph[waiting.pop()] - seen:
                seen.add(module)
                waiting.append(module)
        return frozenset(seen)

    in_circles = [module for module in graph if module in reached(module)]
    return frozenset(
        frozenset(other for other in in_circles if other in reached(module) and module in reached(other))
        for module in in_circles
    )


def imported_modules(path: Path) -> list[str]:
    names = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
    return names


def layer_of(module: str) -> int | None:
    parts = module.split(".")
    return LAYERS.index(parts[1]) if parts[0] == "simulator" and len(parts) > 1 and parts[1] in LAYERS else None


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 40


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards(path: Path) -> None:
    relative = path.relative_to(ROOT)
    here = LAYERS.index(relative.parts[1]) if relative.parts[0] == "simulator" and relative.parts[1] in LAYERS else None
    for module in imported_modules(path):
        top = module.split(".")[0]
        if relative.parts[0] == "simulator":
            assert top not in ("app", "validation", "tests", "benchmarks"), f"{relative} imports {module}"
        if relative.parts[0] in ("app", "validation"):
            assert layer_of(module) != LAYERS.index("cli"), f"{relative} imports {module}: the library answers it too"
        if relative.parts[0] == "validation":
            assert top not in ("app", "tests"), f"{relative} imports {module}"
            assert not module.startswith("simulator.cli"), f"{relative} imports {module}: run the command"
        there = layer_of(module)
        if here is not None and there is not None:
            assert there <= here, f"{relative} imports {module}, which lies above it"
        if here is None and relative.parts[:1] == ("simulator",) and relative.name in ("units.py", "errors.py"):
            assert there is None, f"{relative} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_stay_in_their_places(path: Path) -> None:
    relative = path.relative_to(ROOT).as_posix()
    for module in imported_modules(path):
        places = PLACES.get(module.split(".")[0])
        if places is not None:
            assert any(relative.startswith(place) for place in places), f"{relative} imports {module}"


def test_no_modules_import_each_other() -> None:
    assert not import_circles()


def test_no_folder_is_crowded() -> None:
    modules: dict[str, int] = defaultdict(int)
    for path in (ROOT / "simulator").rglob("*.py"):
        modules[path.parent.relative_to(ROOT).as_posix()] += path.name != "__init__.py"
    assert {folder for folder, count in modules.items() if count > MODULES_PER_FOLDER} == set()


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in (ROOT / "simulator").rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared.keys() <= KNOWN_SHARED_CLASS_NAMES, shared


def test_measuring_harness_needs_only_torch_and_numpy() -> None:
    import sys

    for path in sorted((ROOT / "validation" / "measure").rglob("*.py")):
        for module in imported_modules(path):
            top = module.split(".")[0]
            allowed = (
                top in sys.stdlib_module_names or top in ("torch", "numpy") or module.startswith("validation.measure")
            )
            assert allowed, f"{path.relative_to(ROOT)} imports {module}"
