"""The tests that CONTRIBUTING.md names as the first to fail: a new thing is not whole until they pass."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from simulator.cli import plan_capacity
from simulator.operators.work import Family
from simulator.planner.capacity_plan import KINDS
from simulator.reports.charts.latency_breakdown import FAMILIES
from simulator.specs.question.plan import STUDIES, PlanSpec
from simulator.specs.question.techniques import TechniquesSpec
from tests.for_every import for_every

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
# Fields that one repeatable flag asks for under another name.
OTHER_FLAGS = {"objectives": "objective"}


def test_every_technique_has_a_row_that_says_what_it_moves() -> None:
    rows = (ROOT / "tests" / "techniques" / "technique_rows.py").read_text("utf-8")
    assert [field for field in TechniquesSpec.model_fields if not re.search(rf"\b{field}\b", rows)] == []


@for_every(list(Family))
def test_every_kernel_family_has_a_name_and_a_colour(family: Family) -> None:
    assert family.value in FAMILIES


def test_every_field_of_a_plan_has_a_flag() -> None:
    known = {parameter.name for parameter in typer.main.get_command(plan_capacity.app).params}
    assert {OTHER_FLAGS.get(field, field) for field in PlanSpec.model_fields} <= known


def test_what_asks_for_a_study_alone_is_known_as_such() -> None:
    """Else a gap would compute the study again for each of its fleets."""
    switches = [name for name, field in PlanSpec.model_fields.items() if field.default is False]
    asking = {name for name in switches if any(kind.asked(PlanSpec.model_construct(**{name: True})) for kind in KINDS)}
    assert asking <= STUDIES.keys()
    assert all(options <= PlanSpec.model_fields.keys() for options in map(set, STUDIES.values()))


def test_files_and_tests_that_the_guide_names_exist() -> None:
    for path in re.findall(r"`((?:simulator|tests|hardware_profiles|model_profiles|docs)/[\w./-]*)`", GUIDE):
        assert (ROOT / path).exists() or "my-" in path, path
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", GUIDE):
        assert f"def {name}(" in tests, name
