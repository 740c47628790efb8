"""The rules of the house that a parser can check: imports point downwards, packages stay where they belong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
    "cli",
)
# Third-party package -> the places that may import it.
PLACES = {
    "pydantic": ("simulator/specs", "validation"),
    "yaml": ("simulator/specs", "validation"),
    "pandas": ("simulator/reports", "app", "validation"),
    "plotly": ("simulator/reports", "app"),
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


def imported_modules(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
        if relative.parts[0] == "validation":
            assert top not in ("app", "tests"), f"{relative} imports {module}"
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


def test_measuring_harness_needs_only_torch_and_numpy() -> None:
    import sys

    for path in sorted((ROOT / "validation" / "measure").rglob("*.py")):
        for module in imported_modules(path):
            top = module.split(".")[0]
            allowed = (
                top in sys.stdlib_module_names or top in ("torch", "numpy") or module.startswith("validation.measure")
            )
            assert allowed, f"{path.relative_to(ROOT)} imports {module}"
