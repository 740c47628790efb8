"""What the project stands on is declared with a lowest version, locked for developers, and listed with its licences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.version import Version

from tests.for_every import for_every

ROOT = Path(__file__).resolve().parents[2]
BILL = ROOT / ".ci" / "roofcast.cdx.json"


def supply(*words: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "supply.py"), *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements-dev.lock").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {plain(name): version for name, version in pairs}


def declared(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def test_what_the_default_run_leaves_out_is_run_by_the_build_in_every_folder() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    left_out = set(re.findall(r"not (\w+)", options["addopts"]))
    runs = re.findall(r'^pytest -q -m "([\w ]+)"$', (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)
    assert left_out == {word for run in runs for word in run.split(" or ")}
    assert left_out == {line.partition(":")[0] for line in options["markers"]}


@for_every(declared("app", "report", "dev"))
def test_every_requirement_has_a_lowest_version_and_the_lock_keeps_it(requirement: Requirement) -> None:
    assert any(item.operator in (">=", "==") for item in requirement.specifier), requirement
    if plain(requirement.name) in locked():
        assert Version(locked()[plain(requirement.name)]) in requirement.specifier


def test_the_lock_holds_what_users_and_developers_install() -> None:
    # python .ci/supply.py lock > requirements-dev.lock
    missing = [item.name for item in declared("dev") if plain(item.name) not in locked()]
    assert set(missing) <= {"axe-playwright-python", "playwright"}, missing
    assert "://" not in (ROOT / "requirements-dev.lock").read_text("utf-8")


def test_the_bill_of_materials_names_every_requirement_in_its_locked_version_with_a_licence() -> None:
    # python .ci/supply.py sbom > .ci/roofcast.cdx.json
    text = BILL.read_text("utf-8")
    versions = {plain(item["name"]): item["version"] for item in json.loads(text)["components"]}
    assert {plain(item.name) for item in declared("app", "report", "fast")} <= versions.keys()
    assert versions.items() <= locked().items()
    assert "not stated" not in text
    for document in (json.loads(text), json.loads(supply("sbom"))):
        assert document["bomFormat"] == "CycloneDX"
        assert len(document["components"]) >= len(declared("app", "report", "fast"))
        assert all(item["licenses"][0]["license"]["name"] for item in document["components"])


@pytest.mark.slow
def test_a_wheel_carries_the_bill_of_materials_also_from_the_source_distribution(tmp_path: Path) -> None:
    (packed,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for source in (ROOT, root):
        (wheel,) = WheelBuilder(str(source)).build(directory=str(tmp_path), versions=["standard"])
        with zipfile.ZipFile(wheel) as held:
            (place,) = (name for name in held.namelist() if "/sboms/" in name)
            assert place.endswith(".dist-info/sboms/roofcast.cdx.json")
            assert held.read(place) == BILL.read_bytes()


def test_the_lowest_versions_are_those_that_are_declared() -> None:
    lines = supply("lowest").splitlines()
    assert len(lines) == len(declared())
    assert all(Version(line.partition("==")[2]) in item.specifier for line, item in zip(lines, declared(), strict=True))
