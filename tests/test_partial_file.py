"""``simulator.files``: a target is the old file or the whole new one, and a stopped run can be gone on with."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from simulator.errors import FileError
from simulator.files import ENDING, LineSink, is_complete


class StoppedError(Exception):
    """What a user or a signal does to a run."""


def partial_of(target: Path) -> Path:
    return target.with_name(target.name + ENDING)


def stopped_run(target: Path, *lines: str, force: bool = False) -> None:
    with suppress(StoppedError), LineSink(str(target), force=force) as sink:
        for line in lines:
            sink.write(line)
        raise StoppedError


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def test_a_finished_run_leaves_its_lines_and_no_partial(target: Path) -> None:
    with LineSink(str(target), force=False) as sink:
        sink.write("one")
        assert partial_of(target).read_text() == "one\n", "every line at once"
        assert not target.exists()
        assert not is_complete(str(target))
        sink.write("zwei \u00fc")
    assert target.read_text("utf-8") == "one\nzwei \u00fc\n"
    assert not partial_of(target).exists()
    assert is_complete(str(target))


def test_a_stopped_run_leaves_the_old_file_and_its_answers(target: Path) -> None:
    target.write_text("old\n")
    stopped_run(target, "new", force=True)
    assert target.read_text() == "old\n"
    assert partial_of(target).read_text() == "new\n"
    assert not is_complete(str(target)), "the partial says that something is left to do"


def test_going_on_drops_half_a_line_and_writes_behind_the_whole_ones(target: Path) -> None:
    stopped_run(target, "one", "two")
    with partial_of(target).open("a") as cut:
        cut.write('{"half of an answer, longer than what follows')
    with LineSink(str(target), force=False, resume=True) as sink:
        assert list(sink.kept()) == [b"one\n", b"two\n"]
        sink.write("three")
    assert target.read_text() == "one\ntwo\nthree\n"


def test_what_a_stopped_run_answered_is_not_lost_by_accident(target: Path) -> None:
    stopped_run(target, "one")
    with pytest.raises(FileError, match="what a stopped run has answered"):
        LineSink(str(target), force=False)
    assert partial_of(target).read_text() == "one\n"
    with LineSink(str(target), force=True) as sink:
        assert list(sink.kept()) == []
        sink.write("anew")
    assert target.read_text() == "anew\n"


def test_with_nothing_to_go_on_with_a_run_begins(target: Path) -> None:
    with LineSink(str(target), force=False, resume=True) as sink:
        assert list(sink.kept()) == []
        sink.write("one")
    assert target.read_text() == "one\n"


def test_a_file_that_is_there_is_refused_unless_forced_or_resumed(target: Path) -> None:
    target.write_text("old\n")
    with pytest.raises(FileError) as caught:
        LineSink(str(target), force=False)
    assert "exists" in caught.value.message
    with pytest.raises(FileError):
        LineSink(str(target), force=False, resume=True)
    assert target.read_text() == "old\n"


def test_a_replaced_file_keeps_its_permissions(target: Path) -> None:
    target.write_text("old\n")
    target.chmod(0o640)
    with LineSink(str(target), force=True) as sink:
        sink.write("new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path, target: Path) -> None:
    target.write_text("old\n")
    link = tmp_path / "link"
    link.symlink_to(target)
    with LineSink(str(link), force=True) as sink:
        sink.write("new")
    assert link.is_symlink()
    assert target.read_text() == "new\n"


def test_stdout_gets_lines_as_they_come_and_has_nothing_to_go_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    with LineSink("-", force=False) as sink:
        sink.write("one")
        assert capsys.readouterr().out == "one\n"
        assert list(sink.kept()) == []
    for stream in ("-", os.devnull):
        with pytest.raises(FileError, match="needs a file to go on with"):
            LineSink(stream, force=False, resume=True)


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with LineSink(str(pipe), force=False) as sink:
            sink.write("one")
            assert os.read(reader, 100) == b"one\n"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert not partial_of(pipe).exists()


def test_a_device_without_room_is_one_line(target: Path) -> None:
    with pytest.raises(FileError, match="No space left"), LineSink("/dev/full", force=False) as sink:
        sink.write("one")


def test_what_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        LineSink(str(tmp_path / "no folder" / "file"), force=False)
    address = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        with pytest.raises(FileError, match="cannot write"):
            LineSink(str(address), force=True)
