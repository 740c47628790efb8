"""What another process evaluated is what would be evaluated here, and a file that is not whole changes nothing."""

from __future__ import annotations

import os
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path

import pytest

from simulator.cli import kept_answers
from simulator.cli.kept_answers import find_evaluations, keep_evaluations
from simulator.planner.plan import plan_capacity
from simulator.planner.search import usual_search
from simulator.reports.tables.plan_document import plan_document
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan import plan_spec

MODEL = "llama-3.1-8b"
# With limits and shape given, nothing is screened whose best would depend on the rate.
FIXED = {"model": MODEL, "hardware": ("h100", "l4"), "max_num_seqs": 256, "max_num_batched_tokens": 8192}


def document(**fields: object) -> str:
    return plan_document(plan_capacity(plan_spec({**FIXED, **fields})))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process knows: nothing."""
    for name in ("_OUTCOMES", "_OF_POOLS", "_PREPARED"):
        monkeypatch.setattr(usual_search, name, usual_search._Kept())


def keep(path: Path, *, known: int = 0) -> None:
    keep_evaluations(path, known=known, model=MODEL, profiles=None)


def kept_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **fields: object) -> Path:
    """The file of a process that planned for 20 requests/s."""
    forget(monkeypatch)
    path = tmp_path / "evaluations" / "digest"
    document(rps=20.0, **fields)
    keep(path)
    forget(monkeypatch)
    return path


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return kept_of(tmp_path, monkeypatch)


@pytest.mark.parametrize("fields", [{}, {"power_cap": 400.0}])
def test_another_process_evaluates_nothing_again_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object]
) -> None:
    fresh = document(rps=300.0, **fields)
    kept = kept_of(tmp_path, monkeypatch, **fields)
    assert find_evaluations(kept) > 0

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("evaluated again")

    for name in ("prepare_all", "evaluate_prepared"):
        monkeypatch.setattr(usual_search, name, refuse)
    monkeypatch.setattr("simulator.planner.search.usual_search.evaluate_pools", refuse)
    assert document(rps=300.0, **fields) == fresh


def test_older_python_pickles_members_by_name_and_keeps_them_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Enum, "__reduce_ex__", lambda self, _: (getattr, (type(self), self.name)))
    assert find_evaluations(kept_of(tmp_path, monkeypatch)) > 0


def _cut(content: bytes) -> bytes:
    return content[:-1]


def _flipped(content: bytes) -> bytes:
    return content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]


def _foreign(_: bytes) -> bytes:
    body = pickle.dumps(os.getcwd)
    return zlib.crc32(body).to_bytes(4, "big") + body


def _other_records(_: bytes) -> bytes:
    body = pickle.dumps(({}, {}))
    return zlib.crc32(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("damage", [_cut, _flipped, _foreign, _other_records, lambda _: b"", lambda _: b"text"])
def test_what_is_damaged_is_not_believed(kept: Path, damage: object) -> None:
    assert callable(damage)
    kept.write_bytes(damage(kept.read_bytes()))
    assert find_evaluations(kept) == 0
    assert not any(usual_search.remembered(load_model(MODEL)))


def test_a_file_of_another_user_is_not_read(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: kept.stat().st_uid + 1)
    assert find_evaluations(kept) == 0


def test_where_nothing_can_be_written_nothing_is_kept(kept: Path, tmp_path: Path) -> None:
    find_evaluations(kept)
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("")
    keep(in_the_way / "digest")
    assert in_the_way.read_text() == ""


def test_little_that_is_new_is_not_written_again(kept: Path) -> None:
    before = kept.stat().st_ino
    known = find_evaluations(kept)
    keep(kept, known=known)
    assert kept.stat().st_ino == before
    document(rps=20.0, ttft_p95=1.0)
    keep(kept, known=known)
    assert kept.stat().st_ino != before
    assert find_evaluations(kept) >= 2 * known


def test_the_oldest_files_go(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "KEPT_FILES", 2)
    find_evaluations(kept)
    os.utime(kept, ns=(0, 0))
    keep(kept.with_name("second"))
    keep(kept.with_name("third"))
    assert {path.name for path in kept.parent.iterdir()} == {"second", "third"}


def test_writers_at_the_same_time_leave_a_whole_file(kept: Path) -> None:
    known = find_evaluations(kept)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: keep(kept), range(8)))
    assert find_evaluations(kept) == known
