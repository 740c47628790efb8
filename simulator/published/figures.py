"""What a published figure is, and what it is compared with."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulator.phases.deployment import Deployment, deploy
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec

FOLDER = Path(__file__).parent
ROUNDING = 1e-12


def deployed(
    model: str,
    hardware: str,
    *,
    engine: str = "torch-eager",
    degrees: ParallelismSpec | None = None,
    precision: PrecisionSpec | None = None,
    techniques: TechniquesSpec | None = None,
    profiles: str | None = None,
) -> Deployment:
    """The deployment that a source ran, by names of profiles."""
    facts, spec = load_hardware(hardware, profiles=profiles), EngineSpec(name=engine)
    return deploy(
        model=load_model(model), hardware=facts, parallelism=degrees, precision=precision, engine=spec,
        techniques=techniques, profiles=profiles,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBy:
    """Command lines that print what a figure is made of.

    field : dotted name in their JSON documents; of two commands the ratio of the first to the second, over ``scale``
    """

    commands: tuple[str, ...]
    field: str = ""
    scale: float = 1.0

    def __str__(self) -> str:
        of = f"  # {self.field}" if self.field else ""
        return "  over  ".join(self.commands) + of


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """One figure as printed.

    statement : how it comes about, in words; predict : what the library says, in the figure's unit
    is_fitted : whether a parameter was fitted on it and its like
    tolerance : largest relative error; of a known miss, which has a ``reason``, the error that was reached
    """

    name: str
    topic: str
    published: float
    unit: str
    tolerance: float
    source: str
    predict: Callable[[], float]
    asked_by: AskedBy
    statement: str = ""
    reason: str = ""
    is_fitted: bool = False

    @property
    def is_known_miss(self) -> bool:
        """Whether it fits no tolerance."""
        return bool(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """A figure beside its prediction."""

    figure: PublishedFigure
    predicted: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.figure.published - 1

    @property
    def is_off(self) -> bool:
        """Whether the error exceeds the tolerance."""
        return abs(self.error) > self.figure.tolerance + ROUNDING


def rows_of(file: str) -> list[dict[str, str]]:
    """Rows of a table of this folder as text."""
    with (FOLDER / file).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def table_figure(row: Mapping[str, str], predict: Callable[[], float]) -> PublishedFigure:
    """A row of a table of this folder, whose ``recipe``, ``field``, ``scale`` and ``reason`` may be empty."""
    command = row["recipe"]
    asked = (
        AskedBy(commands=(command,), field=row["field"], scale=float(row["scale"] or 1.0))
        if command
        else by_library(row["name"])
    )
    return PublishedFigure(
        name=row["name"],
        topic=row["topic"],
        published=float(row["value"]),
        unit=row["unit"],
        tolerance=float(row["tolerance"]),
        source=row["source"],
        statement=row["statement"],
        predict=predict,
        asked_by=asked,
        reason=row.get("reason") or "",
    )


def by_library(name: str) -> AskedBy:
    """A figure that no command prints: the library's own function, called by the figure's name."""
    code = f"from simulator.published.catalogue import predicted; print(predicted({name!r}))"
    return AskedBy(commands=(f'python -c "{code}"',))


def by_scenario(*scenarios: Mapping[str, Any], field: str) -> AskedBy:
    """A scenario of the contract, or the ratio of two."""
    lines = (shlex.quote(json.dumps(dict(scenario))) for scenario in scenarios)
    return AskedBy(commands=tuple(f"echo {line} | roofcast simulate -" for line in lines), field=field)
