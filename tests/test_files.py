"""``simulator.files``: a file is the old one or the new one, whole, and nothing else is left beside it."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator import files
from simulator.errors import FileError
from simulator.files import LineSink, Target, check_target, write_bytes, write_new_files, write_targets, write_text

OLD, NEW = b"old\n" * 1000, b"new\n" * 5_000_000
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(params=["unnamed", "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to a complete file: without a name, and where the file system knows no such thing."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return str(request.param)


@pytest.mark.usefixtures("way")
class TestWriting:
    def test_a_new_file_and_one_in_its_place(self, tmp_path: Path) -> None:
        target = tmp_path / "a.txt"
        write_text("one", str(target), force=False)
        with pytest.raises(FileError, match="exists") as refused:
            write_text("two", str(target), force=False, flag="--out")
        assert (refused.value.field, target.read_text()) == ("--out", "one")
        write_text("two", str(target), force=True)
        assert target.read_text() == "two"
        assert os.listdir(tmp_path) == ["a.txt"]

    def test_rights_are_those_of_the_umask_or_of_the_file_before(self, tmp_path: Path) -> None:
        target = tmp_path / "a.txt"
        write_bytes(NEW, str(target), force=False)
        assert stat.S_IMODE(target.stat().st_mode) == 0o644
        target.chmod(0o600)
        write_bytes(OLD, str(target), force=True)
        assert stat.S_IMODE(target.stat().st_mode) == 0o600

    def test_what_a_link_points_to_is_written_and_the_link_stays(self, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        real, link = tmp_path / "there" / "real.txt", tmp_path / "link.txt"
        link.symlink_to(real)
        write_bytes(NEW, str(link), force=False)
        write_bytes(OLD, str(link), force=True)
        assert link.is_symlink()
        assert real.read_bytes() == OLD
        assert sorted(os.listdir(tmp_path)) == ["link.txt", "there"]

    def test_a_full_disk_leaves_the_old_file_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        target = tmp_path / "a.txt"
        target.write_bytes(OLD)

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match="No space left on device"):
            write_bytes(NEW, str(target), force=True)
        assert target.read_bytes() == OLD
        assert os.listdir(tmp_path) == ["a.txt"]

    def test_of_several_files_none_appears_where_one_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "b").mkdir()
        with pytest.raises(FileError, match="folder"):
            write_new_files([(tmp_path / "a", NEW), (tmp_path / "b", NEW)], force=True, flag="--out")
        assert os.listdir(tmp_path) == ["b"]
        long = tmp_path / ("x" * 300)
        with pytest.raises(FileError):
            write_new_files([(tmp_path / "a", NEW), (long, NEW)], force=True, flag="--out")
        assert os.listdir(tmp_path) == ["b"]

    def test_files_of_several_options_appear_together_or_not_and_the_refusal_names_the_option(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def full() -> Iterator[bytes]:
            yield NEW
            raise OSError(28, "No space left on device")

        first, second = tmp_path / "a", tmp_path / "b"
        first.write_bytes(OLD)
        whole = Target(path=first, pieces=(OLD, b"more"), flag="--requests")
        said = Target(path=Path("-"), pieces=(b"said",), flag="--output")
        with pytest.raises(FileError, match="No space left") as refused:
            write_targets([said, whole, Target(path=second, pieces=full(), flag="--trace")], force=True)
        assert refused.value.field == "--trace"
        assert (os.listdir(tmp_path), first.read_bytes(), capsys.readouterr().out) == (["a"], OLD, "")
        write_targets([said, whole, Target(path=second, pieces=(NEW,), flag="--trace")], force=True)
        assert (first.read_bytes(), second.read_bytes(), capsys.readouterr().out) == (OLD + b"more", NEW, "said")

    def test_the_longest_name_has_room(self, tmp_path: Path) -> None:
        target = tmp_path / ("x" * 255)
        write_bytes(OLD, str(target), force=False)
        write_bytes(NEW, str(target), force=True)
        assert target.read_bytes() == NEW


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for write in (
        lambda path: write_text("x", str(path), force=True),
        lambda path: write_new_files([(path, NEW)], force=True, flag="--out"),
        lambda path: LineSink(str(path), force=True),
        lambda path: LineSink(str(path), force=False, resume=True),
    ):
        with pytest.raises(FileError, match="a link to itself"):
            write(tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_an_impossible_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write"):
        write_text("x", str(tmp_path / name), force=False)
    assert os.listdir(tmp_path) == []


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    write_bytes(NEW, "/dev/null", force=True)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(FileError, match="No space left on device"):
        write_bytes(NEW, str(full), force=True)
    assert full.is_symlink()


def test_a_read_only_file_is_kept_even_by_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(OLD)
    # The owner of all files may write all of them, whatever their rights say.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(FileError, match="read-only"):
        check_target(str(target), flag="--out", force=True)
    with pytest.raises(FileError, match="read-only"):
        write_bytes(NEW, str(target), force=True)
    assert target.read_bytes() == OLD


@pytest.mark.parametrize("beyond", [1, 1_000_000])
def test_a_limit_of_the_kernel_ends_in_one_line_and_leaves_nothing(beyond: int, tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes the write itself fail, as a quota does; a little more would fit a buffer."""
    target = tmp_path / "a.txt"
    target.write_bytes(OLD)
    program = (
        "import resource, sys; from simulator.files import write_bytes; from simulator.errors import FileError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_bytes(b'x' * (4096 + int(sys.argv[2])), sys.argv[1], force=True)\n"
        "except FileError as error: print(error.message)\n"
    )
    command = [sys.executable, "-c", program, str(target), str(beyond)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"cannot write {str(target)!r}: File too large\n"
    assert target.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["a.txt"]


KILLED = """
import sys
from simulator.files import write_bytes
old, new = b"old\\n" * 1000, b"new\\n" * 500_000
print("ready", flush=True)
while True:
    for content in (new, old):
        write_bytes(content, sys.argv[1], force=True)
"""


def test_a_killed_process_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    whole = {OLD, b"new\n" * 500_000}
    for attempt in range(12):
        running = subprocess.Popen([sys.executable, "-c", KILLED, str(target)], cwd=ROOT, stdout=subprocess.PIPE)
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        time.sleep(0.003 + 0.007 * attempt)
        running.send_signal(signal.SIGKILL)
        running.wait()
        running.stdout.close()
        assert not target.exists() or target.read_bytes() in whole
        assert len(os.listdir(tmp_path)) <= 2
    write_bytes(OLD, str(target), force=True)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_a_killed_process_left_goes_with_the_next_write_and_what_a_running_one_has_stays(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    prefix = files._prefix(tmp_path / "a.txt")
    left, own = tmp_path / f"{prefix}{gone.pid}", tmp_path / f"{prefix}{os.getppid()}"
    left.touch()
    own.touch()
    write_text("x", str(tmp_path / "a.txt"), force=False)
    assert not left.exists()
    assert own.exists()


def test_folders_made_for_what_could_not_be_written_go_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    new = [(tmp_path / place / "a.txt", b"x") for place in ("mine/new/deep", "mine", "other")]
    with pytest.raises(FileError, match="No space left on device"):
        files.write_new_files(new, force=False, flag="--out")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]
