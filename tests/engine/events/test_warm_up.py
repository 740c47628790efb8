"""Compiling is said before it begins, done ahead by ``roofcast warm-up``, and found again by later processes."""

from __future__ import annotations

import json
import logging
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.engine.events import compilation
from simulator.engine.events import warm_up as warming
from simulator.engine.events.compilation import WORTH_COMPILING_REQUESTS, WORTH_LOADING_REQUESTS, Loop
from simulator.engine.events.simulation import event_loop

SAID = "compiling the event simulation"


def test_the_loop_is_warmed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, name="roofcast", arguments=("warm-up", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] > 0
    assert event_loop().machine is not None
    assert run(app, name="roofcast", arguments=("warm-up",)) == 0
    assert capsys.readouterr().out.startswith("ready in ")


def test_there_is_nothing_to_warm_up_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warming, "compiler_version", lambda: None)
    assert run(app, name="roofcast", arguments=("warm-up",)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "pip install '.[fast]'" in said.err


class TestChoice:
    """Machine code where it is worth its compilation, or its loading."""

    @pytest.fixture
    def loop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
        monkeypatch.setattr(compilation, "_cache_folder", lambda: tmp_path)
        monkeypatch.setattr(compilation, "_machine_code", lambda loop: lambda *given: self.ran.append("machine"))
        self.ran: list[str] = []
        return Loop(function=lambda *given: self.ran.append("python"), name="any")

    def test_few_requests_are_left_to_python(self, loop: Loop) -> None:
        loop.for_requests(WORTH_COMPILING_REQUESTS // 2)()
        loop.for_requests(WORTH_COMPILING_REQUESTS // 2)()
        loop.for_requests(1)()
        assert self.ran == ["python", "python", "machine"]

    def test_machine_code_is_made_once(self, loop: Loop) -> None:
        loop.compile()
        made = loop.machine
        loop.compile()
        assert made is not None
        assert loop.machine is made

    def test_what_an_earlier_process_left_is_loaded_sooner(self, loop: Loop) -> None:
        assert loop.mark is not None
        loop.mark.touch()
        loop.for_requests(WORTH_LOADING_REQUESTS)()
        loop.for_requests(1)()
        assert self.ran == ["python", "machine"]

    def test_who_leaves_compiling_to_another_process_loads_what_it_made(
        self, loop: Loop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(warming, "event_loop", lambda: loop)
        assert not warming.is_warm()
        warming.leave_compiling()
        loop.for_requests(100 * WORTH_COMPILING_REQUESTS)()
        assert loop.mark is not None
        loop.mark.touch()
        assert warming.is_warm()
        loop.for_requests(1)()
        assert self.ran == ["python", "machine"]

    def test_requests_of_many_processes_add_up(self, loop: Loop) -> None:
        ran = []
        for _ in range(3):
            process = Loop(function=loop.function, name="any")
            process.for_requests(1)()
            process.for_requests(WORTH_COMPILING_REQUESTS // 2)()
            ran.append(process.machine is not None)
        assert ran == [False, False, True]
        assert self.ran == ["python"] * 5 + ["machine"]

    def test_without_a_compiler_python_runs_all_and_says_so_once(
        self, loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        compilation._say_that_python_is_slow.cache_clear()
        monkeypatch.setattr(compilation, "compiler_version", lambda: None)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                loop.for_requests(WORTH_COMPILING_REQUESTS)()
        assert self.ran == 3 * ["python"]
        assert caplog.text.count(".[fast]") == 1


@pytest.mark.slow
def test_after_a_warm_up_nothing_is_compiled(tmp_path: Path) -> None:
    load = {"stages": [{"rate_per_s": 100, "duration_s": 10}], "question_tokens": 99, "osl_tokens": 9}
    line = {"kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", "workload": load}
    lines = [
        json.dumps({**line, "id": 1}),
        json.dumps({**line, "id": 2, "engine": {"name": "sglang"}}),
        json.dumps({**line, "id": 3, "pp_size": 2}),
        json.dumps({**line, "id": 4, "techniques": {"speculation": {"method": "ngram", "k": 2, "acceptance": 0.5}}}),
        json.dumps({**line, "id": 5, "model": "qwen3-30b-a3b", "dp_size": 2, "ep_size": 2}),
    ]

    def roofcast(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "simulator.cli.roofcast", *words]
        environment = {**os.environ, "ROOFCAST_CACHE_DIR": str(tmp_path)}
        given = "\n".join(lines)
        return subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=True)

    assert roofcast("warm-up").stderr.count(SAID) == 1
    found = roofcast("simulate", "-")
    assert not any("error" in json.loads(answer) for answer in found.stdout.splitlines())
    assert SAID not in found.stderr


def test_a_copy_of_the_same_files_runs_what_was_compiled_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new installation, another checkout: the compiler alone would go by the place and the time of a file."""
    monkeypatch.setattr(compilation, "_cache_folder", lambda: tmp_path)
    hits = []
    for copy in ("one", "another"):
        (tmp_path / copy).mkdir()
        source = tmp_path / copy / "loop.py"
        source.write_text("def run(values):\n    values[0] += 1.0\n", "utf-8")
        os.utime(source, (0, len(copy)))
        made: Any = compilation._machine_code(Loop(function=runpy.run_path(str(source))["run"], name="any"))
        values = np.zeros(1)
        made(values)
        assert values[0] == 1.0
        hits.append(sum(made.stats.cache_hits.values()))
    assert hits == [0, 1]


class TestDamage:
    """The compiler believes what lies in its folder: a bit of machine code that fell over would be another answer."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(compilation, "_cache_folder", lambda: tmp_path)
        self.loop = Loop(function=lambda *given: None, name="any")
        folder = tmp_path / "any"
        assert compilation._whole_folder(self.loop) == folder
        assert self.loop.mark is not None

        def save(content: bytes) -> None:
            (folder / "events").mkdir(parents=True)
            (folder / "events" / "run.1.nbc").write_bytes(content)
            (folder / "events" / "run.nbi").write_bytes(b"index")

        compilation._kept_where_there_is_room(save, folder=folder, mark=self.loop.mark)(b"machine code")
        return folder

    def test_what_is_whole_stays(self, folder: Path) -> None:
        assert compilation._whole_folder(self.loop) == folder
        assert len(list(folder.glob("*/*"))) == 2

    @pytest.mark.parametrize("damage", ["a bit", "half", "index", "mark", "binary mark", "no mark"])
    def test_what_is_damaged_is_made_anew(self, folder: Path, damage: str) -> None:
        code, mark = folder / "events" / "run.1.nbc", folder.with_suffix(".ready")
        if damage == "no mark":
            mark.unlink()
        else:
            path, content = {
                "a bit": (code, b"lachine code"),
                "half": (code, b"machin"),
                "index": (folder / "events" / "run.nbi", b""),
                "mark": (mark, b""),
                "binary mark": (mark, b"\xff\xfe"),
            }[damage]
            path.write_bytes(content)
        assert compilation._whole_folder(self.loop) == folder
        assert not folder.exists()

    def test_what_cannot_be_removed_is_not_used(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "events" / "run.nbi").write_bytes(b"")

        def refuses(path: Path) -> None:
            raise PermissionError(path)

        monkeypatch.setattr(shutil, "rmtree", refuses)
        assert compilation._whole_folder(self.loop) is None


def test_machine_code_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a folder for temporary files, where anybody may come first."""
    monkeypatch.setenv("ROOFCAST_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = compilation._cache_folder.__wrapped__()
    assert found is not None
    assert found.parent == tmp_path / "roofcast"
    monkeypatch.setattr(os, "geteuid", lambda: found.stat().st_uid + 1)
    assert compilation._cache_folder.__wrapped__() is None
