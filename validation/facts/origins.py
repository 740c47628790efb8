"""Where each fact of the profiles comes from: read out of the YAML itself, so that no field escapes by its type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

from simulator.specs.base import is_recalled, read_yaml
from simulator.specs.profiles import profile_root

FOLDERS = ("hardware", "servers", "engines", "prices", "ownership", "models")
_ADDRESS = re.compile(
    r"/|\.(com|org|net|io|ai|dev|cz|pt|top|blog|city|de)\b|arXiv|\d+\.\d+|DescribeInstanceTypes|nvidia-smi|XLA|computed"
)
_INDEX = "aliases"

STALE_AFTER_DAYS: Mapping[str, int] = {"prices": 120, "engines": 365, "ownership": 365, "announced": 180}
"""Age at which a kind of fact is called stale [days]: offers change by the quarter, engines release every few weeks but
keep their defaults, the figures of an announced part change until it is sold. Datasheets and configurations do not
age."""
_MONTH = re.compile(r"\d{4}-\d{2}")


def day_of(text: str) -> date:
    """A day, or the first of a month where only that is known (2023-02).

    Raises
    ------
    ValueError
        Neither.
    """
    return date.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text[:10])


class Origin(StrEnum):
    """What stands behind a fact, from best to worst; ``NAMED`` is a document without an address, not opened again."""

    SOURCED = "sourced"
    NAMED = "document named"
    MEMORY = "from memory"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One figure, or one group that shares a source.

    folder : of FOLDERS; profile : the file's stem; field : its place there; dated : ISO, "" where none is stated
    announced : of a part that is not on sale yet
    """

    folder: str
    profile: str
    field: str
    source: str
    dated: str
    note: str
    assumed: bool
    announced: bool

    @property
    def origin(self) -> Origin:
        """A recollection counts as one even where the source calls itself an assumption."""
        if is_recalled(f"{self.source} {self.note}"):
            return Origin.MEMORY
        if self.assumed or self.source.lower().startswith("assumed"):
            return Origin.ASSUMED
        return Origin.SOURCED if _ADDRESS.search(f"{self.source} {self.note}") else Origin.NAMED

    def is_stale(self, today: date) -> bool:
        """Whether facts of this kind age, and this one has."""
        days = STALE_AFTER_DAYS.get("announced" if self.announced else self.folder)
        return days is not None and bool(self.dated) and (today - day_of(self.dated)).days > days


def all_facts() -> tuple[Fact, ...]:
    """Facts of every built-in profile, in the order of FOLDERS and files."""
    return tuple(fact for folder in FOLDERS for path in _files(folder) for fact in facts_of(path, folder=folder))


def _files(folder: str) -> list[Path]:
    if folder == "models":
        root = profile_root("model_profiles")
    else:
        root = profile_root("hardware_profiles") / ("" if folder == "hardware" else folder)
    return [path for path in sorted(root.glob("*.yaml")) if path.stem != _INDEX]


def facts_of(path: Path, *, folder: str) -> Iterator[Fact]:
    """Every mapping of one file that states a source, wherever it stands."""
    document = read_yaml(path)
    announced = document.get("status") == "announced"
    for field, entry, day in _sourced(document, place="", inherited=""):
        yield Fact(
            folder=folder,
            profile=path.stem,
            field=field.removeprefix("sources.") or "configuration",
            source=str(entry["source"]),
            dated=day,
            note=str(entry.get("note") or ""),
            assumed=entry.get("assumed") is True,
            announced=announced,
        )


def _sourced(value: object, *, place: str, inherited: str) -> Iterator[tuple[str, Mapping[str, object], str]]:
    """Place, entry and date of each; a part without a date has that of the whole."""
    if isinstance(value, Mapping):
        day = str(value.get("date") or inherited)
        if isinstance(value.get("source"), str):
            yield place, value, day
        for key, inner in value.items():
            yield from _sourced(inner, place=f"{place}.{key}" if place else str(key), inherited=day)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _sourced(inner, place=f"{place}[{index}]", inherited=inherited)
