"""What a sweep asks: many scenarios or plans that differ in some of their fields, as a grid, drawn, or listed."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from simulator.errors import ProfileError, RoofcastError
from simulator.specs.base import Seed, Spec, validate, yaml_mapping
from simulator.specs.parsing import argument_text

Point = dict[str, Any]
"""Values of the fields that vary, by dotted name."""
MOST_POINTS = 10_000_000
"""Of one sweep: what a day on a hundred cores answers, at some ten milliseconds a point."""
MOST_IN_RANGE = 100_000
"""Values of one range in a grid, which are counted before work starts."""


class RangeSpec(Spec):
    """Numbers between two ends, evenly or evenly in their logarithm; whole where both ends are.

    number : how many of them stand in a grid; what is drawn needs none
    """

    low: int | float
    high: int | float
    number: PositiveInt | None = Field(default=None, le=MOST_IN_RANGE)
    log: bool = False

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.low >= self.high:
            raise RoofcastError(f"{self.low:g} is not below high {self.high:g}", field="low")
        if self.log and self.low <= 0:
            raise RoofcastError(f"{self.low:g} has no logarithm", field="low", hint="leave log out")
        return self

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, share: float) -> float | int:
        """The number at a share of the way, from 0 to 1."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else value

    def spread(self) -> list[Any]:
        """The ``number`` of them, each once."""
        assert self.number is not None, "checked with the sweep"
        return list(dict.fromkeys(self.at(place / max(self.number - 1, 1)) for place in range(self.number)))


ColumnKind = Literal["number", "whole", "truth", "text"]
PartFormat = Literal["parquet", "jsonl"]
Values = Annotated[list[Any], Field(min_length=1)]


class SampleSpec(Spec):
    """``points`` draws of all ``fields`` together, each field evenly over its values (Latin hypercube)."""

    points: PositiveInt
    fields: dict[str, Values | RangeSpec] = Field(min_length=1)
    seed: Seed = 0


class SweepSpec(Spec):
    """Every entry with every point of the grid with every draw of the sample, over the fields of ``base``.

    ask : whether the points are scenarios or plans; base : fields that all of them have
    grid : values by field, or a range with a number; sample : draws; entries : changes of several fields at once
    Fields are named as ``simulate`` and ``plan`` take them, those inside others with dots (``engine.max_num_seqs``).
    """

    ask: Literal["scenario", "plan"]
    base: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, Values | RangeSpec] = Field(default_factory=dict)
    sample: SampleSpec | None = None
    entries: list[dict[str, Any]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _varies(self) -> Self:
        if not self.grid and self.sample is None and not self.entries:
            raise RoofcastError("nothing varies", field="grid", hint="give a grid, a sample or entries")
        for name, values in self.grid.items():
            if isinstance(values, RangeSpec) and values.number is None:
                raise RoofcastError("is missing: a grid takes so many values of the range", field=f"grid.{name}.number")
        seen = [*self.grid, *({} if self.sample is None else self.sample.fields)]
        for name in seen + [key for key in self.entry_fields if key in seen]:
            if (seen + list(self.entry_fields)).count(name) > 1:
                raise RoofcastError("varies in two places", field=name, hint="keep one of them")
        if self.points > MOST_POINTS:
            raise RoofcastError(
                f"{self.points:,} points, more than {MOST_POINTS:,}", field="grid", hint="fewer values, or a sample"
            )
        return self

    @property
    def entry_fields(self) -> tuple[str, ...]:
        """Fields that any entry changes."""
        return tuple(dict.fromkeys(name for entry in self.entries for name in entry))

    @property
    def points(self) -> int:
        """How many there are."""
        lengths = [len(self.values(name)) for name in self.grid]
        return math.prod(lengths) * max(len(self.entries), 1) * (1 if self.sample is None else self.sample.points)

    @property
    def fields(self) -> tuple[str, ...]:
        """What varies, in the order of the columns."""
        return (*self.entry_fields, *self.grid, *(() if self.sample is None else self.sample.fields))

    @property
    def digest(self) -> str:
        """Digest of what is asked: equal sweeps have equal points."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    def values(self, field: str) -> list[Any]:
        """What a field takes, the ends of what is drawn from a range; None where an entry leaves it alone."""
        if field in self.entry_fields:
            return [entry.get(field) for entry in self.entries]
        given = self.grid[field] if field in self.grid else self.sample.fields[field] if self.sample else []
        if isinstance(given, RangeSpec):
            return given.spread() if field in self.grid else [given.at(0.0), given.at(1.0)]
        return list(given)


class SweepManifest(Spec):
    """What the folder of a sweep says of its parts: what was asked, by which version, and the columns and points of a
    part."""

    schema_version: str
    roofcast: str
    library: str
    sweep: str
    points: PositiveInt
    points_per_part: PositiveInt
    parts: PositiveInt
    format: PartFormat
    columns: dict[str, ColumnKind] = Field(min_length=1)
    spec: SweepSpec

    @model_validator(mode="after")
    def _counts_its_points(self) -> Self:
        if self.points != self.spec.points or self.parts != -(-self.points // self.points_per_part):
            raise ValueError(f"points and parts are not those of the {self.spec.points:,} points that were asked")
        lacking = sorted({"point", *self.spec.fields}.difference(self.columns))
        if lacking:
            raise ValueError(f"columns lack {', '.join(lacking)}")
        return self


class SweepPoints:
    """The points of a sweep by number, each made when it is asked for."""

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self._grid = {
            name: values.spread() if isinstance(values, RangeSpec) else list(values)
            for name, values in spec.grid.items()
        }
        self._draws = self._drawn()

    def _drawn(self) -> np.ndarray:
        """[draw, field]: shares, in each field one from every stretch of equal length."""
        sample = self.spec.sample
        if sample is None:
            return np.zeros((1, 0))
        source = np.random.default_rng(sample.seed)
        strata = np.argsort(source.random((len(sample.fields), sample.points)), axis=1)
        return ((strata + source.random(strata.shape)) / sample.points).T

    def __len__(self) -> int:
        return (
            len(self._draws) * math.prod(len(values) for values in self._grid.values()) * max(len(self.spec.entries), 1)
        )

    def __getitem__(self, number: int) -> Point:
        """Draws change first, then the grid's last field, entries last."""
        rest, draw = divmod(number, len(self._draws))
        point: Point = {}
        for name in reversed(self._grid):
            rest, place = divmod(rest, len(self._grid[name]))
            point[name] = self._grid[name][place]
        entry = self.spec.entries[rest] if self.spec.entries else {}
        point = {**entry, **{name: point[name] for name in self._grid}}
        if self.spec.sample is not None:
            for (name, values), share in zip(self.spec.sample.fields.items(), self._draws[draw], strict=True):
                if isinstance(values, RangeSpec):
                    point[name] = values.at(float(share))
                else:
                    point[name] = values[int(share * len(values))]
        return point

    def trials(self) -> Iterator[tuple[str, Point]]:
        """Each value of each field with the first values of the others, for a look before work starts."""
        first = self[0]
        for field in self.spec.fields:
            for value in self.spec.values(field):
                yield field, {**first, field: value}


def asked_fields(base: Mapping[str, Any], point: Point) -> dict[str, Any]:
    """A point's values over those of ``base``, dotted names inside their mappings; None takes a field away."""
    fields = json.loads(json.dumps(base))
    for name, value in point.items():
        *outer, last = name.split(".")
        inner = fields
        for step in outer:
            held = inner.setdefault(step, {})
            if not isinstance(held, dict):
                raise RoofcastError(f"{step} is {held!r} and has no fields inside", field=name)
            inner = held
        inner[last] = value
        if value is None:
            del inner[last]
    return dict(fields)


def read_sweep(source: str) -> SweepSpec:
    """A sweep from a YAML or JSON file."""
    text = argument_text(source, field="SWEEP")
    try:
        return validate(SweepSpec, yaml_mapping(text, where=source), where=source)
    except ProfileError as error:
        raise RoofcastError(error.message, field=error.field or "SWEEP", hint=error.hint) from None
