"""What roofcast stands on: a bill of materials, the licences, and the exact versions of a development environment.

    python .ci/supply.py sbom > .ci/roofcast.cdx.json       CycloneDX 1.5, which the wheel carries (PEP 770)
    python .ci/supply.py licences                           a table
    python .ci/supply.py lock > requirements-dev.lock       name==version, for pip install -r
    python .ci/supply.py lowest > lowest.txt                the lowest versions that pyproject.toml declares

It reads the metadata of installed distributions and asks no index; run it in the environment that is to be described,
``lock`` and ``sbom`` in the same one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_CLASSIFIER = "License :: OSI Approved :: "
_LONGEST_LICENCE = 60


def declared(extras: tuple[str, ...]) -> list[Requirement]:
    """Requirements of pyproject.toml, with those of its extras."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return [Requirement(line) for line in lines]


def installed(extras: tuple[str, ...]) -> list[Distribution]:
    """Every distribution that the requirements bring, by name; what is not installed here is not needed here."""
    found: dict[str, Distribution] = {}
    waiting = declared(extras)
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found or (requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        waiting += _needed(found[name], frozenset(requirement.extras))
    return [found[name] for name in sorted(found)]


def _needed(item: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in item.requires or ():
        requirement = Requirement(line)
        names = extras or frozenset({""})
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in names):
            requirement.marker = None
            yield requirement


def licence(item: Distribution) -> str:
    """As its metadata says it: an SPDX expression, a classifier, or a short text."""
    said = item.metadata
    expression = said.get("License-Expression")
    if expression:
        return str(expression)
    classified = [line.removeprefix(_CLASSIFIER) for line in said.get_all("Classifier") or () if _CLASSIFIER in line]
    text = (said.get("License") or "").strip().partition("\n")[0]
    return " AND ".join(classified) or (text if 0 < len(text) <= _LONGEST_LICENCE else "not stated in its metadata")


def _public(version: str) -> str:
    """A version without the local part of a build."""
    return version.partition("+")[0]


def sbom(items: list[Distribution]) -> str:
    """A CycloneDX document; the same environment gives the same bytes."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    components = [
        {
            "type": "library",
            "name": item.name,
            "version": _public(item.version),
            "purl": f"pkg:pypi/{re.sub(r'[-_.]+', '-', item.name).lower()}@{_public(item.version)}",
            "licenses": [{"license": {"name": licence(item)}}],
        }
        for item in items
    ]
    root = {"type": "application", "name": project["name"], "version": project["version"],
            "licenses": [{"license": {"id": project["license"]}}]}  # fmt: skip
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": root},
                "components": components}  # fmt: skip
    return json.dumps(document, indent=1)


def main() -> int:
    """One form on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=("sbom", "licences", "lock", "lowest"))
    parser.add_argument("--extra", action="append", help="by default dev for lock, else app, report and fast")
    given = parser.parse_args()
    extras = tuple(given.extra or (("dev",) if given.form == "lock" else ("app", "report", "fast")))
    if given.form == "lowest":
        extras = tuple(given.extra or ())
        for requirement in declared(extras):
            (low,) = [item.version for item in requirement.specifier if item.operator in (">=", "==")]
            print(f"{requirement.name}=={low}")
        return 0
    items = installed(extras)
    if given.form == "sbom":
        print(sbom(items))
    elif given.form == "licences":
        width = max(len(item.name) for item in items)
        for item in items:
            print(f"{item.name:{width}}  {_public(item.version):12}  {licence(item)}")
    else:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        print(f"# Written by .ci/supply.py lock: Python {python}, {sys.platform}.")
        print("\n".join(f"{item.name}=={_public(item.version)}" for item in items))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
