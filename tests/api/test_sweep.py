"""``sweep``: every point once, as it would be answered alone, whatever stops it in the middle."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest

from simulator import __version__, simulate, sweep
from simulator.api import sweeps
from simulator.api.sweep_points import answer_point
from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.errors import FileError, RoofcastError
from simulator.planner.swept_points import front_of, sensitivity
from simulator.reports.answers import sweep as sweep_parts
from simulator.reports.answers.sweep import FIGURES, part_bytes, part_rows
from simulator.specs.question.sweep import SweepPoints, SweepSpec, asked_fields

BASE = {"model": "llama-3.1-8b", "isl_tokens": 200, "osl_tokens": 20, "concurrency": 4}
GRID = {"hardware": ["h100", "l40s"], "tp_size": [1, 3], "engine.max_num_seqs": {"low": 8, "high": 32, "number": 2}}
SWEEP: dict[str, Any] = {"ask": "scenario", "base": BASE, "grid": GRID}
POINTS = 8
LOADED = {"model": "llama-3.1-8b", "duration_s": 5, "hardware": "h100", "rate_per_s": 2}


def points_of(given: dict[str, Any]) -> list[dict[str, Any]]:
    points = SweepPoints(SweepSpec.model_validate(given))
    assert len(points) == points.spec.points
    return [points[number] for number in range(len(points))]


def _held(answer: sweeps.SweepAnswer) -> dict[str, Any]:
    """The manifest of a sweep."""
    held: dict[str, Any] = json.loads((answer.table.folder / sweeps.MANIFEST).read_text())
    return held


class TestPoints:
    def test_a_grid_holds_every_combination_once(self) -> None:
        found = points_of(SWEEP)
        assert len(found) == POINTS
        assert len({tuple(point.items()) for point in found}) == POINTS
        assert found[0] == {"hardware": "h100", "tp_size": 1, "engine.max_num_seqs": 8}
        assert found[-1] == {"hardware": "l40s", "tp_size": 3, "engine.max_num_seqs": 32}

    def test_entries_grid_and_draws_multiply(self) -> None:
        sample = {"points": 5, "fields": {"seed": {"low": 0, "high": 99}}}
        entries = [{"tp_size": 2, "pp_size": 2}, {}]
        found = points_of({"ask": "scenario", "entries": entries, "grid": {"model": ["a", "b"]}, "sample": sample})
        assert len(found) == 2 * 2 * 5
        assert sum("pp_size" in point for point in found) == 10

    def test_draws_fill_every_stretch_of_every_field(self) -> None:
        fields = {
            "low": {"low": 0.0, "high": 1.0},
            "word": ["a", "b"],
            "log": {"low": 1.0, "high": 1024.0, "log": True},
        }
        found = points_of({"ask": "scenario", "sample": {"points": 50, "fields": fields, "seed": 3}})
        assert sorted(int(point["low"] * 50) for point in found) == list(range(50))
        assert sorted(int(math.log2(point["log"]) * 5) for point in found) == list(range(50))
        assert sum(point["word"] == "a" for point in found) == 25
        again = points_of({"ask": "scenario", "sample": {"points": 50, "fields": fields, "seed": 3}})
        assert found == again
        assert found != points_of({"ask": "scenario", "sample": {"points": 50, "fields": fields, "seed": 4}})

    @pytest.mark.parametrize("ends", [(1, 8), (1, 800), (1.0, 8.0), (1.0, 1.0 + 4e-16)])
    @pytest.mark.parametrize("log", [False, True])
    def test_ranges_count_as_many_values_as_they_have(self, ends: tuple[float, float], log: bool) -> None:
        """32 whole numbers from 1 to 8 are 8, and the floats between two neighbours are those two."""
        low, high = ends
        asked = {"ask": "plan", "grid": {"seed": {"low": low, "high": high, "number": 32, "log": log}}, "entries": [{}]}
        spec = SweepSpec.model_validate(asked)
        assert spec.points == len(SweepPoints(spec))
        assert SweepPoints(spec)[spec.points - 1]["seed"] == pytest.approx(high)

    def test_whole_ends_draw_whole_numbers(self) -> None:
        found = points_of({"ask": "plan", "sample": {"points": 9, "fields": {"spares": {"low": 1, "high": 4}}}})
        assert {type(point["spares"]) for point in found} == {int}
        assert {point["spares"] for point in found} == {1, 2, 3, 4}

    def test_dotted_names_go_inside_and_none_takes_away(self) -> None:
        base = {"engine": {"name": "vllm"}, "tp_size": 2}
        assert asked_fields(base, {"engine.version": "1", "tp_size": None}) == {
            "engine": {"name": "vllm", "version": "1"}
        }
        assert base == {"engine": {"name": "vllm"}, "tp_size": 2}
        with pytest.raises(RoofcastError, match="no fields inside"):
            asked_fields({"engine": "vllm"}, {"engine.version": "1"})

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"ask": "scenario"}, "nothing varies"),
            ({"ask": "walk", "grid": {"seed": [1]}}, "ask"),
            ({"ask": "plan", "grid": {"seed": {"low": 1, "high": 1, "number": 2}}}, "not below"),
            ({"ask": "plan", "grid": {"seed": {"low": 0, "high": 9, "number": 2, "log": True}}}, "no logarithm"),
            ({"ask": "plan", "grid": {"seed": {"low": 0, "high": 9}}}, "is missing"),
            ({"ask": "plan", "grid": {"seed": [1]}, "entries": [{"seed": 2}]}, "two places"),
            ({"ask": "plan", "grid": {name: list(range(1000)) for name in "abc"}}, "1,000,000,000 points"),
            ({"ask": "scenario", "base": {"modle": "a"}, "grid": {"tp_size": [1]}}, "model"),
            ({"ask": "scenario", "base": BASE, "grid": {"hardware": ["h100"], "techniques.sparse": ["2:4"]}}, "sparse"),
            (
                {"ask": "scenario", "base": BASE | {"hardware": "h100"}, "grid": {"sead": [1], "seed": [2]}},
                "did you mean",
            ),
        ],
    )
    def test_what_cannot_be_asked_is_named_before_a_folder_is_made(
        self, given: dict[str, Any], said: str, tmp_path: Path
    ) -> None:
        with pytest.raises(RoofcastError, match=said):
            sweep(given, out=str(tmp_path / "out"))
        assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> sweeps.SweepAnswer:
    return sweep(SWEEP, out=str(tmp_path_factory.mktemp("sweep") / "out"), jobs=2)


def test_each_row_is_what_the_point_answers_alone(answered: sweeps.SweepAnswer) -> None:
    rows = answered.rows()
    assert [row["point"] for row in rows] == list(range(POINTS))
    for row in rows:
        if row["tp_size"] == 3:
            assert row["error.field"] == "tp_size"
            assert row["tpot_s"] is None
            continue
        limits = {"max_num_seqs": row["engine.max_num_seqs"]}
        alone = simulate(BASE, hardware=row["hardware"], tp_size=row["tp_size"], engine=limits).to_dict()
        assert row["error.code"] is None
        assert (row["tpot_s"], row["ttft_p99_s"]) == (alone["tpot_s"], alone["ttft_p99_s"])
        assert [row["tpot_s.low"], row["tpot_s.high"]] == list(alone["interval"]["tpot_s"])
        assert row["decode.mbu"] == alone["decode"]["mbu"]
        assert row["provenance"] == alone["provenance"]


def test_what_stands_out_follows_from_the_rows(answered: sweeps.SweepAnswer) -> None:
    document = answered.to_dict()
    rows = [row for row in answered.rows() if row["error.code"] is None]
    assert document["answered"] == len(rows) == POINTS // 2
    assert [(item["points"], item["code"]) for item in document["failures"]] == [(4, rows_code(answered))]
    tpot = document["figures"][0]
    assert tpot["lowest"]["value"] == min(row["tpot_s"] for row in rows)
    assert tpot["lowest"]["hardware"] == "h100"
    assert document["sensitivity"]["fields"][0]["field"] == "hardware"
    text = answered.to_text()
    assert "4 scenarios answered of 8 points" in text
    assert "4 refused" in text
    assert "l40s" in text
    json.dumps(document, allow_nan=False)
    html = answered.to_html()
    assert "Pareto front" in html
    assert "engine.max_num_seqs" in html


def rows_code(answered: sweeps.SweepAnswer) -> str:
    return next(row["error.code"] for row in answered.rows() if row["error.code"] is not None)


def test_nothing_beats_a_point_of_the_front() -> None:
    low, high = FIGURES["scenario"][:2]
    values = [(1.0, 1.0), (2.0, 5.0), (2.0, 4.0), (3.0, 5.0), (4.0, 9.0), (5.0, 2.0), (1.0, 1.0)]
    rows = [{"point": place, low.column: x, high.column: y} for place, (x, y) in enumerate(values)]
    front = front_of(rows, (low, high))
    assert [(row[low.column], row[high.column]) for row in front] == [(1.0, 1.0), (2.0, 5.0), (4.0, 9.0)]


def test_sensitivity_recovers_what_each_field_multiplies() -> None:
    figure = FIGURES["scenario"][0]
    rows = [{"a": a, "b": b, figure.column: 0.01 * a * b**3} for a in (1, 2) for b in (1, 2, 4)]
    wide, narrow = sensitivity(rows, figure, ("a", "b"))
    assert (wide.field, narrow.field) == ("b", "a")
    assert wide.highest_ratio / wide.lowest_ratio == pytest.approx(64)
    assert narrow.highest_ratio / narrow.lowest_ratio == pytest.approx(2)


def test_parts_are_read_as_one_table(answered: sweeps.SweepAnswer) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    folder = answered.table.folder
    # The folder is one table: readers pass over the manifest.
    table = dataset.dataset(str(folder)).to_table()
    assert table.num_rows == POINTS
    assert table.column("tp_size").to_pylist() == [row["tp_size"] for row in answered.rows()]


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a folder holds is tested, not which process answered: starting one takes longer than its points."""

    def answered(requests: Iterable[str], **_: object) -> Iterator[dict[str, Any]]:
        return (json.loads(answer_point(request)) for request in requests)

    monkeypatch.setattr(sweeps, "answered_points", answered)


@pytest.mark.usefixtures("in_this_process")
def test_json_lines_stand_in_where_parquet_cannot_be_written(
    answered: sweeps.SweepAnswer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_parts, "find_spec", lambda name: None)
    found = sweep(SWEEP, out=str(tmp_path / "out"))
    assert found.table.form == "jsonl"
    assert found.rows() == answered.rows()


@pytest.mark.usefixtures("in_this_process")
def test_plans_are_points_too(tmp_path: Path) -> None:
    base = {"model": "llama-3.1-8b", "isl_tokens": 200, "osl_tokens": 50, "hardware": "h100"}
    found = sweep({"ask": "plan", "base": base, "grid": {"rate_per_s": [10, 4000]}}, out=str(tmp_path / "out"))
    small, large = found.rows()
    assert 0 < small["plan.devices"] < large["plan.devices"]
    assert large["plan.hardware"] == "h100-sxm-80gb"
    assert "plan.cost.per_hour" in found.to_text()


@pytest.mark.usefixtures("in_this_process")
def test_a_served_point_has_the_percentiles_of_its_whole_run(tmp_path: Path) -> None:
    found = sweep({"ask": "scenario", "base": LOADED, "grid": {"rate_per_s": [2]}}, out=str(tmp_path / "out"))
    alone = simulate(LOADED).to_dict()
    (row,) = found.rows()
    assert row["ttft_p95_s"] == alone["overall"]["ttft_p95_s"]


@pytest.mark.usefixtures("in_this_process")
class TestFolder:
    def test_another_sweep_or_library_is_never_mixed_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        out = str(tmp_path / "out")
        one = {**SWEEP, "grid": {"hardware": ["h100"]}}
        sweep(one, out=out)
        with pytest.raises(FileError, match="holds a sweep"):
            sweep(one, out=out)
        with pytest.raises(FileError, match="another sweep"):
            sweep({**SWEEP, "grid": {"hardware": ["l40s"]}}, out=out, resume=True)
        before = os.stat(tmp_path / "out" / "part-00000.parquet").st_mtime_ns
        sweep(one, out=out, resume=True)
        assert os.stat(tmp_path / "out" / "part-00000.parquet").st_mtime_ns == before
        with monkeypatch.context() as patch:
            patch.setattr(sweeps, "library_digest", lambda: "other")
            with pytest.raises(FileError, match=f"this sweep by other code of roofcast {__version__}"):
                sweep(one, out=out, resume=True)
        sweep({**SWEEP, "grid": {"hardware": ["l40s"]}}, out=out, force=True)
        assert [row["hardware"] for row in sweeps.read_answer(out).rows()] == ["l40s"]

    def test_a_manifest_of_another_schema_is_named(self, tmp_path: Path) -> None:
        (tmp_path / sweeps.MANIFEST).write_text('{"schema_version": "9"}')
        with pytest.raises(FileError, match="schema '9'"):
            sweeps.read_answer(str(tmp_path))
        with pytest.raises(FileError, match="schema '9'"):
            sweep(SWEEP, out=str(tmp_path), resume=True)
        (tmp_path / sweeps.MANIFEST).write_text("[")
        with pytest.raises(FileError, match="no manifest"):
            sweeps.read_answer(str(tmp_path))
        (tmp_path / sweeps.MANIFEST).rename(tmp_path / sweeps.OLDER_MANIFEST)
        with pytest.raises(FileError, match="is missing") as refused:
            sweeps.read_answer(str(tmp_path))
        assert f"rename {tmp_path / sweeps.OLDER_MANIFEST}" in refused.value.hint

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("ask", 5),
            ("columns", {"point": "whole"}),
            ("spec", None),
            ("columns", {"point": "odd"}),
            ("columns", []),
            ("points_per_part", 0),
            ("points_per_part", "16"),
            ("points", POINTS + 2),
            ("format", "csv"),
        ],
    )
    def test_a_manifest_that_no_sweep_has_written_is_refused(
        self, answered: sweeps.SweepAnswer, tmp_path: Path, field: str, value: object
    ) -> None:
        (tmp_path / sweeps.MANIFEST).write_text(json.dumps({**_held(answered), field: value}))
        with pytest.raises(FileError, match=f"no manifest of a sweep.*{field}"):
            sweeps.read_answer(str(tmp_path))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[" * 3000, "no part of a sweep"),
            ("5\n", "other columns"),
            ('{"point": 0}\n', "other columns"),
            ("NUMBER", "ttft_s is no number"),
        ],
    )
    def test_a_part_that_no_sweep_has_written_is_refused(
        self, answered: sweeps.SweepAnswer, tmp_path: Path, text: str, said: str
    ) -> None:
        held = {**_held(answered), "format": "jsonl"}
        (tmp_path / sweeps.MANIFEST).write_text(json.dumps(held))
        row = dict.fromkeys(held["columns"])
        lines = {"NUMBER": json.dumps({**row, "ttft_s": "soon"}) + "\n"}
        (tmp_path / "part-00000.jsonl").write_text(lines.get(text, text))
        with pytest.raises(FileError, match=said):
            sweeps.read_answer(str(tmp_path)).rows()

    def test_a_folder_of_something_else_stays(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("precious")
        for force in (False, True):
            with pytest.raises(FileError, match="no folder of a sweep"):
                sweep(SWEEP, out=str(tmp_path), force=force)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    def test_a_disk_without_room_is_named_before_work(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000})())
        with pytest.raises(FileError, match="1,000 are free"):
            sweep(SWEEP, out=str(tmp_path / "out"))
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("form", ["parquet", "jsonl"])
    def test_what_is_asked_of_the_disk_holds_what_is_written(
        self, answered: sweeps.SweepAnswer, form: Literal["parquet", "jsonl"]
    ) -> None:
        table = replace(answered.table, form=form)
        rows = answered.rows()
        parts = [[rows[number] for number in table.numbers(part)] for part in range(table.parts)]
        written = sum(len(part_bytes(part, columns=table.columns, form=form)) for part in parts)
        assert written <= table.most_bytes <= 4 * written


MANY = {
    "ask": "scenario",
    "base": BASE,
    "grid": {"hardware": ["h100", "l40s"], "concurrency": {"low": 1, "high": 60, "number": 60}},
}


def command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    (folder / "sweep.yaml").write_text(json.dumps(MANY))
    words = ("sweep", str(folder / "sweep.yaml"), "--out", str(folder / "out"), *words)
    return subprocess.Popen([sys.executable, "-m", "simulator.cli.roofcast", *words], stderr=subprocess.DEVNULL)


def await_parts(folder: Path, many: int) -> None:
    deadline = time.monotonic() + 120
    while len(list((folder / "out").glob("part-*"))) < many:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_complete(folder: Path) -> None:
    found = sweeps.read_answer(str(folder / "out"))
    rows = found.rows()
    assert [row["point"] for row in rows] == list(range(120))
    assert not any(row["error.code"] for row in rows)
    assert not found.table.missing()


@pytest.mark.slow
def test_a_killed_sweep_is_gone_on_with_and_no_part_is_answered_twice(tmp_path: Path) -> None:
    process = command(tmp_path)
    await_parts(tmp_path, 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert (
        run(
            app,
            name="roofcast",
            arguments=("sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out"), "--resume"),
        )
        == 0
    )
    check_complete(tmp_path)
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == changed for name, changed in kept.items())


def check_whole(folder: Path) -> None:
    """Whatever stands in a folder belongs to what its manifest says, and every part holds all its points."""
    table = sweeps.read_table(str(folder))
    hardware = set(table.spec.grid["hardware"])
    for part in set(range(table.parts)) - set(table.missing()):
        rows = list(part_rows(table.path(part), columns=table.columns, form=table.form))
        assert [row["point"] for row in rows] == list(table.numbers(part))
        assert {row["hardware"] for row in rows} <= hardware
    assert {path.name for path in folder.iterdir()} - {sweeps.MANIFEST} <= {
        table.path(part).name for part in range(table.parts)
    }


@pytest.mark.slow
def test_a_sweep_killed_at_any_moment_leaves_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    old, out = {**MANY, "grid": {**MANY["grid"], "hardware": ["a100"]}}, tmp_path / "out"
    start = time.monotonic()
    assert command(tmp_path, "--force").wait() == 0
    seconds, draw = time.monotonic() - start, random.Random(20261126)
    for _ in range(5):
        sweep(old, out=str(out), force=True, jobs=2)
        process = command(tmp_path, "--force")
        time.sleep(seconds * draw.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        check_whole(out)
        was = sweeps.read_table(str(out)).spec.grid["hardware"]
        sweep(old if was == ["a100"] else MANY, out=str(out), resume=True)
        check_whole(out)
        assert not sweeps.read_table(str(out)).missing()


@pytest.fixture
def two(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    """A sweep of two points, and a folder behind a link."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    return {**SWEEP, "grid": {"hardware": ["h100", "l40s"]}}, tmp_path / "link"


@pytest.mark.usefixtures("in_this_process")
class TestTargets:
    def test_a_folder_behind_a_link_is_written_and_the_link_stays(self, two: tuple[dict[str, Any], Path]) -> None:
        given, link = two
        sweep(given, out=str(link))
        assert link.is_symlink()
        check_whole(link.resolve())
        sweep(given, out=str(link), resume=True)
        sweep(given, out=str(link), force=True)
        assert link.is_symlink()
        assert [row["point"] for row in sweeps.read_answer(str(link)).rows()] == [0, 1]

    def test_a_part_behind_a_link_is_written_where_it_points(self, two: tuple[dict[str, Any], Path]) -> None:
        given, link = two
        table = sweep(given, out=str(link)).table
        part, elsewhere = table.path(0), link.parent / "elsewhere"
        part.replace(elsewhere)
        part.symlink_to(elsewhere)
        assert [row["point"] for row in table.rows()] == [0, 1]
        elsewhere.unlink()
        sweep(given, out=str(link), resume=True)
        assert part.is_symlink()
        assert [row["point"] for row in part_rows(elsewhere, columns=table.columns, form=table.form)] == [0, 1]

    def test_a_link_that_leads_nowhere_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        with pytest.raises(FileError, match="link: cannot be written"):
            sweep(SWEEP, out=str(tmp_path / "link"))

    def test_a_folder_that_nobody_may_write_is_one_line(self) -> None:
        with pytest.raises(FileError, match="/proc/sweep: cannot be written"):
            sweep(SWEEP, out="/proc/sweep")

    def test_a_part_that_may_not_be_written_stays_and_says_so(
        self, two: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given, link = two
        table = sweep(given, out=str(link)).table
        before = {path.name: path.read_bytes() for path in link.iterdir()}
        with monkeypatch.context() as patch:
            # The files of a test are its own: that they are another's is pretended.
            patch.setattr(Path, "unlink", refused)
            with pytest.raises(FileError, match="cannot be written: Permission denied"):
                sweep(given, out=str(link), force=True)
        assert {path.name: path.read_bytes() for path in link.iterdir()} == before
        table.path(0).unlink()
        with monkeypatch.context() as patch:
            patch.setattr("simulator.files.os.link", refused)
            patch.setattr("simulator.files.tempfile.mkstemp", refused)
            with pytest.raises(FileError, match=r"part-00000.*Permission denied"):
                sweep(given, out=str(link), resume=True)
        assert [path.name for path in link.iterdir()] == [sweeps.MANIFEST]

    @pytest.mark.parametrize("kept", ["manifest", "part"])
    def test_what_may_not_be_replaced_keeps_all_of_an_older_sweep(
        self, kept: str, two: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given, link = two
        table = sweep(given, out=str(link)).table
        before = {path.name: path.read_bytes() for path in link.iterdir()}
        name = sweeps.MANIFEST if kept == "manifest" else table.path(0).name
        # The owner of all files may write all of them, whatever their rights say.
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != name)
        with pytest.raises(FileError, match=f"{name}.*read-only"):
            sweep(given, out=str(link), force=True)
        assert {path.name: path.read_bytes() for path in link.iterdir()} == before


def refused(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


class TestCommand:
    def call(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
        code = run(app, name="roofcast", arguments=("sweep", *words))
        return code, *capsys.readouterr()

    def test_a_folder_is_summarised_again(
        self, answered: sweeps.SweepAnswer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out, _ = self.call(capsys, str(answered.table.folder))
        assert (code, out) == (0, answered.to_text())
        code, out, _ = self.call(capsys, str(answered.table.folder), "--json")
        assert json.loads(out) == answered.to_dict()

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            ((), 2, "--out"),
            (("--out", "out", "--backend", "slurm://here"), 2, "dask://host:port"),
            (("--out", "out", "--jobs", "0"), 2, "--jobs"),
            (("--out", "/proc/no"), 5, "cannot be written"),
        ],
    )
    def test_refusals(
        self, words: tuple[str, ...], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "sweep.yaml"
        path.write_text(json.dumps(SWEEP))
        found, _, err = self.call(capsys, str(path), *words)
        assert found == code
        assert said in err

    def test_a_range_of_too_many_values_says_how_many_there_may_be(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "sweep.yaml"
        path.write_text(json.dumps({**SWEEP, "grid": {"concurrency": {"low": 1, "high": 1e6, "number": 1_000_000}}}))
        found, _, err = self.call(capsys, str(path), "--out", str(tmp_path / "out"))
        assert found == 2
        assert "grid.concurrency.number: input should be less than or equal to 100000, got 1000000" in err
        assert "list" not in err

    def test_files_that_cannot_be_read(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.call(capsys, str(tmp_path / "no.yaml"), "--out", "out")[0] == 5
        (tmp_path / "bad.yaml").write_bytes(b"\xff")
        assert self.call(capsys, str(tmp_path / "bad.yaml"), "--out", "out")[0] == 2
        assert self.call(capsys, str(tmp_path))[0] == 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def dask_cluster(workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and its workers as processes of their own; workers have no nanny that would bring them back."""
    address = f"127.0.0.1:{free_port()}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = (sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard", "--host", "127.0.0.1")
    worker = (sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://{address}", "--no-nanny", "--no-dashboard")
    started = [subprocess.Popen([*dask, "--port", address.rpartition(":")[2]], **quiet)]  # type: ignore[call-overload]
    started += [subprocess.Popen([*worker, "--nthreads", "1"], **quiet) for _ in range(workers)]  # type: ignore[call-overload]
    try:
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("simulator.api.sweep_points._CONNECT_S", 1)
    with pytest.raises(FileError, match="no cluster answers"):
        sweep(SWEEP, out=str(tmp_path / "out"), backend=f"dask://127.0.0.1:{free_port()}")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_worker_of_a_cluster_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with dask_cluster(2) as (address, workers):
        process = command(tmp_path, "--backend", f"dask://{address}")
        await_parts(tmp_path, 1)
        workers[0].kill()
        assert process.wait(timeout=300) == 0
    check_complete(tmp_path)


@contextmanager
def ray_cluster(folder: str) -> Iterator[tuple[str, int]]:
    """A head with two workers that listens for clients; its address and the process above its workers."""
    psutil = pytest.importorskip("psutil")
    port = free_port()
    ray = (sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2")
    ports = (f"--port={free_port()}", f"--ray-client-server-port={port}", "--include-dashboard=false")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    head = subprocess.Popen([*ray, *ports, f"--temp-dir={folder}", "--node-ip-address=127.0.0.1"], **quiet)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + 120
        while not listens(port):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"127.0.0.1:{port}", head.pid
    finally:
        for process in psutil.Process(head.pid).children(recursive=True):
            process.kill()
        head.kill()
        head.wait()


@pytest.mark.slow
def test_a_worker_of_a_ray_cluster_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    psutil = pytest.importorskip("psutil")
    # The sockets of Ray lie in its folder, and their names may have a hundred letters.
    with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder, ray_cluster(folder) as (address, head):
        process = command(tmp_path, "--backend", f"ray://{address}")
        await_parts(tmp_path, 1)
        below = psutil.Process(head).children(recursive=True)
        workers = [one for one in below if "PoolActor" in " ".join(one.cmdline())]
        workers[0].kill()
        assert process.wait(timeout=300) == 0
    check_complete(tmp_path)
