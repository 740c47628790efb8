"""``roofcast simulate`` as a stream: answers at once, in several processes, and again after it was stopped."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.cli.roofcast import app
from simulator.cli.shared import run

LOOP = {"kind": "closed_loop", "model": "llama-3.1-8b", "hardware": "h100", "isl_tokens": 200, "osl_tokens": 20}
COMMAND = (sys.executable, "-m", "simulator.cli.roofcast", "simulate")
LINES = [json.dumps({**LOOP, "id": number, "concurrency": 1 + number % 9}) for number in range(24)]
LINES[5] = "not json"
LINES[7] = '{"id": "ü'


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "in.jsonl"
    path.write_bytes("\ufeff".encode() + "\n\n".join(LINES).encode() + b'\n{"id": "\xff"}\n')
    return str(path)


@pytest.fixture
def whole(source: str, tmp_path: Path) -> bytes:
    """What one process answers, without a stop."""
    assert run(app, name="roofcast", arguments=("simulate", source, "-o", str(tmp_path / "whole"))) == 0
    return (tmp_path / "whole").read_bytes()


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(app, name="roofcast", arguments=("simulate", *words))
    return code, *capsys.readouterr()


def started(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *words], stderr=subprocess.DEVNULL, **options)


def await_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_several_processes_answer_what_one_does(source: str, whole: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    results = [json.loads(line) for line in whole.splitlines()]
    assert len(results) == len(LINES) + 1
    assert [item["id"] for item in results[:5]] == [0, 1, 2, 3, 4]
    assert [index for index, item in enumerate(results) if "error" in item] == [5, 7, 24]
    assert call(capsys, source, "--jobs", "2")[1].encode() == whole


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_pipe_that_stays_open_gets_its_answers_at_once(jobs: str) -> None:
    process = started("-", "--jobs", jobs, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in LINES[:3]:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == json.loads(line)["id"]
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait() == 0
    process.stdout.close()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_reader_that_goes_away_ends_the_run_though_its_input_stays_open(jobs: str) -> None:
    process = started("-", "--jobs", jobs, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(LINES[0].encode() + b"\n")
    process.stdin.flush()
    assert process.wait(timeout=60) == 0
    process.stdin.close()


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_what_was_answered_before_a_kill_is_gone_on_from(
    jobs: str, source: str, whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    target.write_text("old")
    words = ("-o", str(target), "--jobs", jobs)
    process = started("-", *words, "--force", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"".join(Path(source).read_bytes().splitlines(keepends=True)[:24]))
    process.stdin.flush()
    await_true(lambda: partial.exists() and partial.read_bytes().count(b"\n") == 12)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    assert target.read_text() == "old"
    partial.write_bytes(partial.read_bytes() + b'{"id": 12, "torn')
    code, _, err = call(capsys, source, *words)
    assert (code, "exists" in err) == (5, True)
    os.remove(target)
    code, _, err = call(capsys, source, *words)
    assert (code, "--resume" in err) == (5, True)
    assert call(capsys, source, *words, "--resume")[0] == 0
    assert target.read_bytes() == whole
    assert not partial.exists()
    code, _, err = call(capsys, source, *words, "--resume")
    assert (code, "complete" in err) == (0, True)


def test_a_partial_of_other_scenarios_is_refused(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    for kept, named in (('{"id": 0}\n{"id": 77}\n', "line 3"), ('{"id": 0}\n' * 40, "line 3")):
        partial.write_text(kept)
        code, _, err = call(capsys, source, "-o", str(target), "--resume")
        assert code == 5
        assert named in err
        assert partial.read_text() == kept
    assert call(capsys, source, "-o", str(target), "--force")[0] == 0
    assert not partial.exists()
    assert call(capsys, source, "--resume")[0] == 5


def test_a_full_disk_keeps_what_was_answered(source: str, whole: bytes, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    few = len(whole) // 2
    words = [*COMMAND, source, "-o", str(target)]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (few, few))

    stopped = subprocess.run(words, stderr=subprocess.PIPE, preexec_fn=limit, check=False)
    assert stopped.returncode == 5
    assert b"is kept in" in stopped.stderr
    assert b"--resume goes on with it" in stopped.stderr
    assert not target.exists()
    assert subprocess.run([*words, "--resume"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    assert target.read_bytes() == whole


def test_devices_are_written_to(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, source, "-o", "/dev/null")[0] == 0
    code, _, err = call(capsys, source, "-o", "/dev/full")
    assert (code, "No space left" in err) == (5, True)


def test_a_line_beyond_its_time_is_an_error_and_keeps_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(LINES[0] + "\n")
    code, out, err = call(capsys, str(path), "--timeout", "0.001")
    assert code == 0
    document = json.loads(out)
    assert (document["id"], document["error"]["code"]) == (0, "timeout")
    assert "1 scenario refused" in err


def test_a_disk_without_room_is_named_before_the_first_line(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000})())
    assert run(app, name="roofcast", arguments=("simulate", source, "-o", str(tmp_path / "out"))) == 5
    assert "1,000 are free" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
