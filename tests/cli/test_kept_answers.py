"""The same question again is looked up; whatever may change its answer makes it another question."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simulator.api import planning
from simulator.cli import kept_answers
from simulator.cli.kept_answers import KeptAnswer, digest_of, find_answer, keep_answer
from simulator.cli.plan_capacity import main
from simulator.specs.profiles import profile_directories
from simulator.specs.question.plan import PlanSpec, plan_spec

QUESTION = ["--rps", "10", "--model", "llama-3.1-8b", "--hardware", "h100"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where answers are kept."""
    monkeypatch.setenv("ROOFCAST_CACHE", "on")
    monkeypatch.setenv("ROOFCAST_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "roofcast" / "answers"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[PlanSpec]:
    """Questions that were planned, not looked up."""
    found: list[PlanSpec] = []
    plan = planning.plan

    def counted(spec: PlanSpec) -> planning.PlanAnswer:
        found.append(spec)
        return plan(spec)

    monkeypatch.setattr(planning, "plan", counted)
    return found


def asked(**fields: object) -> str | None:
    return digest_of(plan_spec({"rps": 10, "model": "llama-3.1-8b", "hardware": "h100", **fields}), form=("table",))


def test_the_same_question_again_prints_the_same_and_plans_nothing(
    folder: Path, planned: list[PlanSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    question = [*QUESTION, "--spares", "0"]
    assert main(question) == 0
    first = capsys.readouterr()
    assert "no spare replica" in first.err
    assert main(question) == 0
    assert capsys.readouterr() == first
    assert len(planned) == 1
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "other",
    [["--rps", "11"], ["--json"], ["--explain"], ["--isl", "1000"], ["--output", "csv"], ["--spares", "1"]],
    ids=" ".join,
)
def test_another_question_or_form_is_planned(folder: Path, planned: list[PlanSpec], other: list[str]) -> None:
    words = QUESTION if other[0] != "--rps" else QUESTION[2:]
    main(QUESTION)
    main([*words, *other])
    assert len(planned) == 2


def test_off_keeps_nothing(folder: Path, planned: list[PlanSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFCAST_CACHE", "off")
    main(QUESTION)
    main(QUESTION)
    assert len(planned) == 2
    assert not folder.exists()


def test_a_value_that_was_given_is_not_the_same_as_its_default(folder: Path) -> None:
    # Answers list what was assumed.
    assert asked() != asked(headroom=plan_spec({"rps": 10, "model": "llama-3.1-8b"}).headroom)


def _touched(path: Path) -> None:
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [_touched, lambda path: path.write_text(path.read_text() + "\n"), Path.unlink])
def test_a_change_of_a_file_that_is_named_makes_another_question(
    folder: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (source,) = (root / "l4.yaml" for root in profile_directories("hardware"))
    for name in ("mine.yaml", "other.yaml"):
        (own / name).write_text(source.read_text().replace("name: l4", f"name: {name[:-5]}"))
    by_name, by_path = asked(profiles=str(own)), asked(hardware=str(own / "mine.yaml"))
    change(own / "mine.yaml")
    assert asked(profiles=str(own)) != by_name
    if (own / "mine.yaml").exists():
        assert asked(hardware=str(own / "mine.yaml")) != by_path


def test_a_drafter_among_settings_is_a_file_that_is_named(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    question = {"speculation": [f"draft:draft_model={config}"]}
    assert list(kept_answers._named_files(question)) == [config.resolve()]


def test_another_program_or_day_is_another_question(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = asked()
    assert before == asked()
    code = tmp_path / "module.py"
    code.write_text("")
    monkeypatch.setattr(kept_answers, "_program", lambda: iter([code]))
    first = asked()
    code.write_text("changed")
    assert len({before, first, asked()}) == 3

    class Tomorrow(kept_answers.date):  # type: ignore[misc]
        @classmethod
        def today(cls) -> kept_answers.date:
            return cls(2099, 1, 1)

    second = asked()
    monkeypatch.setattr(kept_answers, "date", Tomorrow)
    assert asked() != second


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"sha256": "0", "answer": {"text": "x", "warnings": []}}'])
def test_what_is_damaged_is_not_believed(folder: Path, damage: bytes) -> None:
    keep_answer("d", KeptAnswer(text="right"))
    assert find_answer("d") == KeptAnswer(text="right")
    (folder / "d.json").write_bytes(damage)
    assert find_answer("d") is None


def test_an_answer_that_was_changed_on_disk_is_not_believed(folder: Path) -> None:
    keep_answer("d", KeptAnswer(text="192 GPUs"))
    kept = json.loads((folder / "d.json").read_bytes())
    kept["answer"]["text"] = "1 GPU"
    (folder / "d.json").write_text(json.dumps(kept))
    assert find_answer("d") is None


def test_where_nothing_can_be_written_nothing_is_kept(folder: Path, planned: list[PlanSpec]) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("a file in its place")
    assert main(QUESTION) == 0
    assert main(QUESTION) == 0
    assert len(planned) == 2


def test_who_has_no_home_is_answered(planned: list[PlanSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container under any number of user."""
    monkeypatch.setenv("ROOFCAST_CACHE", "on")
    for name in ("ROOFCAST_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: {}[user])
    assert main(QUESTION) == 0
    assert main(QUESTION) == 0
    assert len(planned) == 2


def test_the_oldest_answers_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "KEPT_ANSWERS", 3)
    for place in range(5):
        keep_answer(str(place), KeptAnswer(text=str(place)))
        os.utime(folder / f"{place}.json", ns=(place, place))
    assert {path.stem for path in folder.iterdir()} == {"2", "3", "4"}


@pytest.mark.usefixtures("few_accelerators")
def test_refusals_are_not_kept(folder: Path) -> None:
    assert main(["--rps", "1", "--model", "llama-3.1-8b", "--hardware", "h100", "--tp", "1", "--ttft-p95", "1us"]) == 3
    assert not folder.exists()


def test_writers_at_the_same_time_leave_a_whole_answer(folder: Path) -> None:
    texts = [letter * 50_000 for letter in "abcd"]

    def write(text: str) -> set[str]:
        seen = set()
        for _ in range(10):
            keep_answer("d", KeptAnswer(text=text))
            found = find_answer("d")
            seen.add(found.text if found else "")
        return seen

    with ThreadPoolExecutor(len(texts)) as pool:
        seen = set().union(*pool.map(write, texts))
    assert seen <= {*texts, ""}
    assert find_answer("d") in [KeptAnswer(text=text) for text in texts]


def test_another_rate_starts_from_what_was_evaluated(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a cache no machine code is at hand that would check the fleet.
    another = [*QUESTION[2:], "--rps", "40", "--no-verify"]
    for words in ([*QUESTION, "--no-verify"], another):
        assert main(words) == 0
        printed = capsys.readouterr().out
    assert len(list(folder.with_name("evaluations").iterdir())) == 1
    monkeypatch.setenv("ROOFCAST_CACHE", "off")
    assert main(another) == 0
    assert capsys.readouterr().out == printed
