"""Whole runs that others measured, each as a scenario of the contract, packed with the library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.errors import FileError
from simulator.records import dataclass
from simulator.specs.profiles import profile_root


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """One deployment and load, with everything that was measured of it.

    scenario : the contract's scenario object; measured : result field -> value in SI units
    """

    source: str
    scenario: Mapping[str, Any]
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOrigin:
    """Who measured the packed runs, when, where they were read, what was fitted to them, which of them were packed."""

    source: str
    published: str
    revision: str
    date: str
    fitted: str
    selection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRuns:
    """The runs of one source."""

    origin: RunsOrigin
    runs: tuple[WholeRun, ...]


def runs_file() -> Path:
    """Closed loops of today's models and accelerators."""
    return profile_root("hardware_profiles") / "validation" / "today.jsonl"


def load_today_runs() -> PackedRuns:
    """The packed runs, in the order of their source.

    Raises FileError: the file is missing or damaged.
    """
    path = runs_file()
    try:
        heading, *lines = path.read_text(encoding="utf-8").splitlines()
        origin = RunsOrigin(**json.loads(heading))
        found = tuple(WholeRun(source=origin.source, **json.loads(line)) for line in lines)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}", hint="reinstall roofcast") from error
    except (ValueError, TypeError) as error:
        raise FileError(f"{path}: is damaged: {error}", hint="reinstall roofcast") from error
    return PackedRuns(origin=origin, runs=found)


def packed_text(origin: RunsOrigin, runs: Iterable[WholeRun]) -> str:
    """The file of some runs: a heading, then one run a line."""
    lines = ({"scenario": dict(run.scenario), "measured": dict(run.measured)} for run in runs)
    return "".join(json.dumps(line) + "\n" for line in (asdict(origin), *lines))
