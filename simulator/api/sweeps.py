"""``sweep``: many scenarios or plans, answered on every core or a cluster, in parts that a stop leaves whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator import __version__
from simulator.api.sweep_points import (
    ANSWER_COLUMNS,
    ERROR_COLUMNS,
    PARTS_ARE_KEPT,
    PartTask,
    answered_points,
    check_point,
    cluster,
    point_request,
)
from simulator.errors import FileError, Option, RoofcastError, shown
from simulator.files import check_room, check_target, made_folders, write_bytes
from simulator.records import dataclass
from simulator.reports.answer import Answer, picked
from simulator.reports.answers.sweep import Row, SweepColumn, column_of, part_bytes, part_rows, usual_format
from simulator.specs.base import validate
from simulator.specs.measured.validation_rows import library_digest
from simulator.specs.parsing import MalformedError, parse_json, read_text
from simulator.specs.question.sweep import PartFormat, SweepManifest, SweepPoints, SweepSpec, read_sweep

if TYPE_CHECKING:
    from simulator.reports.answer import Json
    from simulator.reports.charts.chart import Chart

MANIFEST = "_manifest.json"
"""Readers of Parquet pass over files that begin so: the folder is one table to them."""
OLDER_MANIFEST = "manifest.json"
"""What it was called until 2026-11-27."""
SCHEMA_VERSION = "1.0"
PARTS = 64
"""Parts of a sweep of middling size: enough for every worker to have some, few enough to read together."""
LEAST_IN_PART, MOST_IN_PART = 16, 1000
"""Points of one part: what a stop loses and a worker that dies leaves to another, and what is worth a file."""
_BYTES_PER_CELL = {"parquet": 8, "jsonl": 32}
"""Of numbers, which most cells are, with their names where each row has them; compression only lowers it."""
_BYTES_PER_COLUMN = 512
"""What a file of Parquet says of a column beside its cells, at most: a part of one row takes 300 each (2026-11-27)."""

Progress = Callable[[int, int], None]
"""Called with (done, of how many)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTable:
    """A folder of parts and what its manifest says of them."""

    folder: Path
    spec: SweepSpec
    columns: tuple[SweepColumn, ...]
    form: PartFormat
    points_per_part: int

    @property
    def parts(self) -> int:
        """How many files there are when all is answered."""
        return -(-self.spec.points // self.points_per_part)

    def path(self, part: int) -> Path:
        """The file of one part."""
        return self.folder / f"part-{part:05d}.{self.form}"

    def numbers(self, part: int) -> range:
        """The points of one part."""
        first = part * self.points_per_part
        return range(first, min(first + self.points_per_part, self.spec.points))

    @property
    def most_bytes(self) -> int:
        """What all parts take on the disk, about and at most."""
        cells = self.spec.points * _BYTES_PER_CELL[self.form] + self.parts * _BYTES_PER_COLUMN
        return len(self.columns) * cells

    def missing(self) -> list[int]:
        """Parts that are still to be answered: files are whole or not there."""
        return [part for part in range(self.parts) if not self.path(part).exists()]

    def rows(self) -> Iterator[Row]:
        """All rows that are there, in the order of the points."""
        for part in range(self.parts):
            if self.path(part).exists():
                yield from part_rows(self.path(part), columns=self.columns, form=self.form)

    def manifest(self) -> Json:
        """What another run, or a reader, needs to know."""
        return {
            "schema_version": SCHEMA_VERSION,
            "roofcast": __version__,
            "library": library_digest(),
            **picked(self, "sweep=spec.digest", "points=spec.points", "points_per_part", "parts", "format=form"),
            "columns": {column.name: column.kind for column in self.columns},
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
        }


def _table(spec: SweepSpec, *, folder: Path, form: PartFormat) -> SweepTable:
    varied = tuple(column_of(name, spec.values(name)) for name in spec.fields)
    return SweepTable(
        folder=folder,
        spec=spec,
        columns=(SweepColumn("point", "whole"), *varied, *ERROR_COLUMNS, *ANSWER_COLUMNS[spec.ask]),
        form=form,
        points_per_part=min(max(-(-spec.points // PARTS), LEAST_IN_PART), MOST_IN_PART),
    )


def read_table(folder: str) -> SweepTable:
    """The table of a folder that a sweep has written."""
    path = Path(folder) / MANIFEST
    if not path.exists() and (older := path.with_name(OLDER_MANIFEST)).exists():
        raise FileError(f"{path}: is missing", field="SWEEP", hint=f"an older version? rename {older} to it")
    try:
        held = parse_json(read_text(path, field="SWEEP"))
        version = held.get("schema_version") if isinstance(held, dict) else None
        if version != SCHEMA_VERSION:
            raise FileError(
                f"{path}: schema {shown(version)}; this version reads {SCHEMA_VERSION!r}",
                field="SWEEP",
                hint="sweep anew",
            )
        found = validate(SweepManifest, held, where="")
    except MalformedError:
        raise FileError(f"{path}: is no manifest of a sweep", field="SWEEP", hint="sweep anew") from None
    except RoofcastError as error:
        if isinstance(error, FileError):
            raise
        refused = f"{error.field}: {error.message}" if error.field else error.message
        raise FileError(f"{path}: is no manifest of a sweep: {refused}", field="SWEEP", hint="sweep anew") from None
    return SweepTable(
        folder=Path(folder),
        spec=found.spec,
        columns=tuple(SweepColumn(name, kind) for name, kind in found.columns.items()),
        form=found.format,
        points_per_part=found.points_per_part,
    )


@dataclass(frozen=True, slots=True)
class SweepAnswer(Answer):
    """A sweep's table, and what stands out of it."""

    table: SweepTable

    def to_dict(self) -> Json:
        """The document of ``roofcast sweep --json``: counts, failures, figures, sensitivity and the Pareto front."""
        from simulator.reports.answers.sweep import summary_document

        return summary_document(self.rows(), ask=self.table.spec.ask, fields=self.table.spec.fields) | {
            "folder": str(self.table.folder),
            **picked(self.table, "format=form", "points=spec.points"),
        }

    def to_text(self) -> str:
        """What ``roofcast sweep --summary`` prints."""
        from simulator.reports.answers.sweep import summary_text

        return summary_text(self.to_dict())

    def rows(self) -> list[Json]:
        """One row a point."""
        return list(self.table.rows())

    def chart(self) -> Chart:
        """The points between the two figures that pull against each other, those that nothing beats among them."""
        from simulator.reports.answers.sweep import pareto_chart

        return pareto_chart(self.rows(), ask=self.table.spec.ask, fields=self.table.spec.fields)

    def sensitivity_chart(self) -> Chart:
        """How far each field moves the first figure."""
        from simulator.reports.answers.sweep import sensitivity_chart

        return sensitivity_chart(self.to_dict())

    def to_html(self) -> str:
        """Both charts as one page that needs no network."""
        from simulator.reports.charts.plotly_figure import figures_page

        return figures_page(
            [self.chart(), self.sensitivity_chart()], title=f"Sweep of {self.table.spec.points:,} points"
        )


def read_answer(folder: str) -> SweepAnswer:
    """What a sweep has written, as far as it got."""
    return SweepAnswer(read_table(folder))


def _check_questions(points: SweepPoints, *, profiles: str | None) -> None:
    """Refuse a field none of whose values makes a question with the first values of the others."""
    refused: dict[str, RoofcastError] = {}
    possible: set[str] = set()
    for field, point in points.trials():
        if field not in possible:
            try:
                check_point(points.spec, point, profiles=profiles)
                possible.add(field)
            except RoofcastError as error:
                refused.setdefault(field, error)
    for field, refusal in refused.items():
        if not possible:
            raise refusal
        if field not in possible:
            message = f"no value of it makes a {points.spec.ask}: {refusal.message}"
            raise RoofcastError(message, field=field, hint=refusal.hint) from refusal


def _opened(table: SweepTable, *, resume: bool, force: bool) -> SweepTable:
    """The folder made or gone on with; parts of another sweep, or of another library, are never mixed in."""
    folder, there = table.folder, (table.folder / MANIFEST).exists()
    if there and resume:
        held = read_table(str(folder))
        written = json.loads((folder / MANIFEST).read_text("utf-8"))
        if held.spec == table.spec and written == held.manifest():
            return held
        by = "" if held.spec != table.spec else f" by other code of roofcast {written['roofcast']}"
        hint = "another folder, or `force` answers anew"
        raise FileError(f"{folder} holds {'this' if by else 'another'} sweep{by}", field=Option("resume"), hint=hint)
    if there and not force:
        raise FileError(f"{folder} holds a sweep", field=Option("out"), hint="`resume` goes on, `force` answers anew")
    if not there and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"{folder} exists and is no folder of a sweep", field=Option("out"), hint="name a new one")
    with made_folders([folder], flag=Option("out")):
        _make_room(table)
        text = json.dumps(table.manifest(), indent=1) + "\n"
        write_bytes(text.encode(), str(folder / MANIFEST), force=True, flag=Option("out"))
    return table


def _make_room(table: SweepTable) -> None:
    """Parts of an older sweep go, once nothing would keep the new ones from being written."""
    folder = table.folder
    try:
        old = list(folder.glob("part-*"))
        for path in (folder / MANIFEST, *old):
            check_target(str(path), flag=Option("out"), force=True)
        freed = sum(path.stat().st_size for path in old if path.is_file())
        of = f"{table.spec.points:,} points"
        check_room(folder, table.most_bytes, of=of, flag=Option("out"), freed_bytes=freed)
        for path in old:
            path.unlink()
    except OSError as error:
        raise FileError(f"{folder}: cannot be written: {error.strerror or error}", field=Option("out")) from None


def _local_parts(
    table: SweepTable,
    points: SweepPoints,
    parts: Sequence[int],
    *,
    jobs: int,
    timeout_s: float | None,
    profiles: str | None,
) -> Iterator[tuple[int, list[Row]]]:
    """Parts and their rows, in order, by processes of this machine."""
    numbers = chain.from_iterable(table.numbers(part) for part in parts)
    requests = (point_request(table.spec, points[number], profiles=profiles) for number in numbers)
    answers = answered_points(requests, jobs=jobs, timeout_s=timeout_s)
    for part in parts:
        yield part, list(islice(answers, len(table.numbers(part))))


def _task(table: SweepTable, part: int, *, timeout_s: float | None, profiles: str | None) -> PartTask:
    numbers = table.numbers(part)
    return PartTask(part, table.spec.model_dump_json(), numbers.start, numbers.stop, profiles, timeout_s)


def sweep(
    question: SweepSpec | dict[str, Any] | str,
    /,
    *,
    out: str,
    jobs: int = 1,
    backend: str | None = None,
    timeout_s: float | None = None,
    resume: bool = False,
    force: bool = False,
    profiles: str | None = None,
    progress: Progress | None = None,
) -> SweepAnswer:
    """Answer many scenarios or plans into a folder of parts: ``roofcast sweep``.

    question : a specification, a mapping, or a YAML file by name
    jobs : processes of this machine; backend : a cluster instead, ``dask://host:port`` or ``ray://host:port``
    timeout_s : seconds for one point; resume : answer only the parts that are missing in ``out``

    Raises RoofcastError: a field is unknown, no value of one makes a question, there are too many points.
    Raises FileError: the folder holds something else, its disk has no room, or nobody answers at ``backend``.
    """
    if isinstance(question, str):
        spec = read_sweep(question)
    else:
        spec = question if isinstance(question, SweepSpec) else validate(SweepSpec, question, where="")
    points = SweepPoints(spec)
    _check_questions(points, profiles=profiles)
    with cluster(backend) if backend is not None else nullcontext() as workers:
        table = _opened(_table(spec, folder=Path(out), form=usual_format()), resume=resume, force=force)
        missing = table.missing()
        if workers is None:
            answered = _local_parts(table, points, missing, jobs=jobs, timeout_s=timeout_s, profiles=profiles)
        else:
            answered = workers(_task(table, part, timeout_s=timeout_s, profiles=profiles) for part in missing)
        for done, (part, rows) in enumerate(answered, start=1 + table.parts - len(missing)):
            named = [
                {"point": number, **points[number], **row}
                for number, row in zip(table.numbers(part), rows, strict=True)
            ]
            content = part_bytes(named, columns=table.columns, form=table.form)
            try:
                write_bytes(content, str(table.path(part)), force=True, flag=Option("out"))
            except FileError as error:
                raise FileError(error.message, field=error.field, hint=PARTS_ARE_KEPT) from error
            if progress is not None:
                progress(done, table.parts)
    return SweepAnswer(table)
