"""The rules of the house that a parser can check: imports point downwards, packages stay where they belong."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
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
LEVELS_AT_MOST = {"engine": 8, "planner": 8}
"""Modules of a room on top of each other by their imports; never raise this."""
BOTH_WAYS_AT_MOST = {"engine": 1, "planner": 4, "reports": 4}
"""Pairs of rooms each of which imports from the other, for types too. Only ever lower these."""


def paths_of_modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT / "simulator").with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "simulator").rglob("*.py")
    }


@cache
def import_graph() -> dict[str, frozenset[str]]:
    """Each module of the library and those that it imports anywhere: at its top, inside functions, for types only."""
    paths, graph = paths_of_modules(), {}
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


NAMES_ELSEWHERE = (ROOT / "model_profiles" / "families" / "huggingface.yaml",)
"""Files outside the library that name functions of it."""


def imports_by_name(node: ast.AST) -> bool:
    called = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
    return bool(re.search("import_module|resolve_name", called)) and bool(node.args)  # type: ignore[attr-defined]


def put_together(call: ast.Call, texts: Iterable[str]) -> set[str]:
    """What a call by name may import: each of some texts behind the beginning that the call spells out."""
    start = ast.unparse(call.args[0]).strip("f'").partition("{")[0].removeprefix("simulator.")
    return {start} | {f"{start}{end}" for text in texts for end in (text, text.rpartition(".")[0], text.split(":")[0])}


@cache
def said(path: Path) -> frozenset[str]:
    """Texts of a module, and words of the YAML beside it."""
    found = {node.value for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for file in (*path.parent.glob("*.yaml"), *NAMES_ELSEWHERE):
        found |= set(re.findall(r"[\w.:]+", file.read_text("utf-8")))
    return frozenset(found)


@cache
def import_graph_with_names() -> dict[str, frozenset[str]]:
    """The graph with imports of names that a module puts together from its texts or those of a module it imports."""
    paths, graph = paths_of_modules(), {}
    for module, below in import_graph().items():
        calls = [node for node in nodes(paths[module]) if isinstance(node, ast.Call) and imports_by_name(node)]
        texts = {text for registry in (module, *below) for text in said(paths[registry])} if calls else set()
        named = {name.removeprefix("simulator.") for call in calls for name in put_together(call, texts)}
        graph[module] = below | frozenset(named & paths.keys()) - {module, "__init__"}
    return graph


def import_circles() -> frozenset[frozenset[str]]:
    """Groups of modules each of which imports, over others, itself."""
    graph = import_graph_with_names()

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


def refusal(path: Path, module: str) -> str | None:
    """Why a source may not import a module; None where it may."""
    folder = path.relative_to(ROOT).parts[0]
    here, there = layer_of(".".join(path.relative_to(ROOT).with_suffix("").parts)), layer_of(module)
    top = module.split(".")[0]
    above = {"simulator": ("app", "validation", "tests", "benchmarks"), "validation": ("app", "tests")}
    if top in above.get(folder, ()):
        return "which lies above it"
    if folder in ("app", "validation") and there == LAYERS.index("cli"):
        return "the library answers it too"
    if here is not None and there is not None and there > here:
        return "which lies above it"
    if folder == "simulator" and path.name in ("units.py", "errors.py") and here is None and there is not None:
        return "which stands on it"
    return None


def test_imports_point_downwards() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {module}: {why}"
        for path in SOURCES
        for module in imported_modules(path)
        if (why := refusal(path, module))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("place", "module", "allowed"),
    [
        ("simulator/kernels/gemm.py", "simulator.operators.work", True),
        ("simulator/operators/work.py", "simulator.kernels.gemm", False),
        ("simulator/api/planning.py", "app.pages", False),
        ("simulator/errors.py", "simulator.specs.base", False),
        ("simulator/files.py", "simulator.errors", True),
        ("app/main.py", "simulator.cli.shared", False),
        ("validation/fit.py", "simulator.cli.shared", False),
        ("validation/fit.py", "simulator.planner.plan", True),
    ],
)
def test_imports_that_point_upwards_are_seen(place: str, module: str, allowed: bool) -> None:
    assert (refusal(ROOT / place, module) is None) == allowed


def test_packages_stay_in_their_places() -> None:
    found = []
    for path in SOURCES:
        for module in imported_modules(path):
            places = PLACES.get(module.split(".")[0])
            if places is not None and not path.relative_to(ROOT).as_posix().startswith(places):
                found.append(f"{path.relative_to(ROOT)} imports {module}")
    assert found == []


def test_no_modules_import_each_other() -> None:
    assert not import_circles()


def test_imports_by_name_are_seen() -> None:
    graph = import_graph_with_names()
    assert "planner.studies.rental" in graph["planner.studies.asked_for"]
    assert "techniques.sparsity" in graph["techniques.registry"]
    assert "cli.step_commands" in graph["cli.roofcast"]
    assert "specs.huggingface.dense" in graph["specs.huggingface.registry"]
    assert "explain.cache" in graph["explain.catalogue"]


@pytest.mark.parametrize("room", LEVELS_AT_MOST)
def test_rooms_have_few_levels(room: str) -> None:
    graph = {name: below for name, below in import_graph().items() if name.split(".")[0] == room}

    @cache
    def level(module: str) -> int:
        return 1 + max((level(below) for below in graph[module] if below in graph), default=0)

    assert max(map(level, graph)) <= LEVELS_AT_MOST[room]


def room_of(module: str) -> str:
    """The folder of a module within its floor, or the module itself where it stands beside the folders."""
    parts = module.split(".")
    return ".".join(parts[:2])


@pytest.mark.parametrize("floor", BOTH_WAYS_AT_MOST)
def test_rooms_look_one_way(floor: str) -> None:
    pairs = {
        (room_of(module), room_of(other))
        for module, below in import_graph().items()
        for other in below
        if module.startswith(f"{floor}.") and other.startswith(f"{floor}.") and room_of(module) != room_of(other)
    }
    both = {frozenset(pair) for pair in pairs if pair[::-1] in pairs}
    assert len(both) <= BOTH_WAYS_AT_MOST[floor], both


def test_no_folder_is_crowded() -> None:
    modules: dict[str, int] = defaultdict(int)
    for path in SOURCES:
        modules[path.parent.relative_to(ROOT).as_posix()] += path.name != "__init__.py"
    assert {folder for folder, count in modules.items() if count > MODULES_PER_FOLDER} == set()


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in (*(ROOT / "simulator").rglob("*.py"), *(ROOT / "app").rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared == {}


def test_measuring_harness_needs_only_torch_and_numpy() -> None:
    """And its folder of engines those engines, where they are installed, with what vLLM brings along."""
    import sys

    for path in sorted((ROOT / "validation" / "measure").rglob("*.py")):
        engines = ("triton", "vllm", "sglang", "tokenizers", "pynvml") if path.parent.name == "engines" else ()
        libraries = ("torch", "numpy", *engines)
        for module in imported_modules(path):
            top = module.split(".")[0]
            allowed = top in sys.stdlib_module_names or top in libraries or module.startswith("validation.measure")
            assert allowed, f"{path.relative_to(ROOT)} imports {module}"


_UNITS = frozenset({"KILO", "MEGA", "GIGA", "TERA", "GIB", "MILLI", "MICRO", "SECONDS_PER_MINUTE", "_PERCENT"})
DRAWN = ("charts", "formats")
"""Rooms of the reports that work out places on paper and cells of a spreadsheet."""
WRITTEN = ("content/quantities.py",)
"""Modules of the others that turn a number into words: its unit, its digits."""


def works_out(node: ast.AST) -> bool:
    """Whether a node multiplies, divides, subtracts or adds up numbers, other than into percents or another unit."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "sum"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return True
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult | ast.Div):
        return False
    ends = (node.left, node.right)
    named = any(isinstance(end, ast.Name) and end.id in _UNITS for end in ends)
    return not named and not any(isinstance(end, ast.Constant | ast.List | ast.Tuple | ast.JoinedStr) for end in ends)


def test_reports_work_out_nothing() -> None:
    room = ROOT / "simulator" / "reports"
    paths = {path.relative_to(room): path for path in room.rglob("*.py")}
    plain = [path for place, path in paths.items() if place.parts[0] not in DRAWN and place.as_posix() not in WRITTEN]
    found = [f"{path.name}:{node.lineno}" for path in plain for node in nodes(path) if works_out(node)]  # type: ignore[attr-defined]
    assert len(plain) > 40
    assert not found, "results leave the engine and the planner complete"


_STATISTICS = frozenset({"mean", "median", "quantile", "percentile", "average", "std", "var", "interp", "polyfit"})


def test_charts_draw_what_results_say() -> None:
    """Drawing rooms too: they scale and place what a result holds, and draw nothing that no other reader can have."""
    found = [
        f"{path.name}:{node.lineno}"  # type: ignore[attr-defined]
        for room in ("reports", "cli")
        for path in (ROOT / "simulator" / room).rglob("*.py")
        for node in nodes(path)
        if (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _STATISTICS)
    ]
    assert not found, "weighted sums and statistics belong to results"


@pytest.mark.parametrize(
    ("text", "works"),
    [("a * b", True), ("a / b", True), ("sum(a)", True), ("a - 1", True), ("100 * a", False), ("a / KILO", False)],
)
def test_what_reports_may_do_to_a_number(text: str, works: bool) -> None:
    assert works_out(ast.parse(text, mode="eval").body) == works
