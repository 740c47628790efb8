"""What links name is found by every server of an address, whole, and only for as long as there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from app.hosting.kept import FOLDER, Kept
from tests.app.served import ROOT


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Shared, as a front gives it to its servers."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


def test_another_process_finds_what_one_has_kept() -> None:
    script = "from app.hosting.kept import Kept; Kept('words', most=9).write('ab', 'said')"
    subprocess.run((sys.executable, "-c", script), cwd=ROOT, check=True)
    assert Kept("words", most=9).read("ab") == "said"
    assert Kept("others", most=9).read("ab") is None


@pytest.mark.parametrize("name", ["", "..", "../words/ab", "/etc/passwd", "ab/cd", "zz", "0" * 5000])
def test_no_address_reaches_another_file(name: str, folder: Path) -> None:
    kept = Kept("words", most=9)
    kept.write("ab", "said")
    assert kept.read(name) is None


def test_the_oldest_goes_where_there_is_no_room(folder: Path) -> None:
    few = Kept("few", most=2)
    for age, name in enumerate(("aa", "bb", "cc")):
        few.write(name, name)
        path = few.find(name)
        assert path is not None
        os.utime(path, (age, age))
        few.write("aa", "asked for again")
    assert [few.read(name) for name in ("aa", "bb", "cc")] == ["aa", None, "cc"]
    small = Kept("small", most=9, most_bytes=10)
    folder.joinpath("four").mkdir()
    folder.joinpath("four", "file").write_bytes(bytes(4))
    for name in ("aa", "bb", "cc"):
        small.put(name, partial(shutil.copytree, folder / "four"))
    assert sum(small.find(name) is not None for name in ("aa", "bb", "cc")) == 2


def test_what_could_not_be_written_whole_is_not_there(folder: Path) -> None:
    def write(path: Path) -> None:
        path.write_text("half")
        raise OSError

    kept = Kept("words", most=9)
    with pytest.raises(OSError):
        kept.put("ab", write)
    assert kept.find("ab") is None
    assert [path.name for path in folder.iterdir()] == ["words"]


def test_whoever_is_faster_or_lets_go_at_the_same_moment_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, rename = folder / "given", Path.rename
    given.mkdir()
    given.joinpath("file").write_text("said")

    def second(path: Path, target: Path) -> Path:
        shutil.copytree(path, target)
        return rename(path, target)

    def let_go(path: Path, *_: object, **__: object) -> None:
        if path == folder / "folders" / "ab":
            shutil.rmtree(path)
            raise FileNotFoundError

    kept = Kept("folders", most=9)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", second)
        kept.put("ab", partial(shutil.copytree, given))
    with monkeypatch.context() as patched:
        patched.setattr(os, "utime", let_go)
        kept.put("ab", partial(shutil.copytree, given))
    found = kept.find("ab")
    assert found is not None
    assert found.joinpath("file").read_text() == "said"
