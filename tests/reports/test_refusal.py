"""A question without a plan leaves a report of its own: what is missed, what would close the gap, how to ask again."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest

from simulator import report
from simulator.cli.plan_capacity import main
from simulator.errors import InfeasibleError
from simulator.planner.plan import answered_in_full
from simulator.reports.content.document import Table
from simulator.reports.formats.files import REFUSAL_NAMES, refusal_files, refusal_report
from simulator.reports.studies import input_hash
from simulator.reports.words.fields import flag_texts, plan_command
from simulator.specs.question.plan import PlanSpec, plan_spec

CREATED = "2026-11-21"
pytestmark = pytest.mark.usefixtures("few_accelerators")


def question() -> PlanSpec:
    return plan_spec({"rps": 40.0, "model": "llama-3.1-8b", "hardware": ("t4",), "max_gpus": 8, "ttft_p95": "2s"})


@lru_cache(maxsize=1)
def refusal() -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        answered_in_full(question())
    return caught.value


def test_it_names_what_is_missed_the_command_and_the_hash() -> None:
    spec = question()
    report = refusal_report(refusal(), spec=spec, command=plan_command(spec), created=CREATED)
    files = {file.name: file.data for file in refusal_files(refusal(), report=report)}
    assert tuple(files) == REFUSAL_NAMES
    assert files["refusal.pdf"].startswith(b"%PDF")
    for name in ("refusal.html", "refusal.md"):
        text = files[name].decode()
        assert refusal().message[1:40] in text
        assert plan_command(spec) in text
        assert input_hash(spec) in text
    assert json.loads(files["refusal.json"])["error"]["code"] == refusal().code


def test_every_change_that_closes_the_gap_stands_in_a_table() -> None:
    report = refusal_report(refusal(), spec=question(), command="", created=CREATED)
    tables = [block for section in report.sections for block in section.blocks if isinstance(block, Table)]
    gap = refusal().gap  # type: ignore[attr-defined]
    shown = {str(row.cells[0].value) for table in tables for row in table.rows}
    assert gap.steps
    assert {f"{step.name} ({flag_texts(step.given)})" for step in gap.steps} <= shown
    assert [section.number for section in report.sections] == list(range(1, len(report.sections) + 1))


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning refuses at once, with the refusal that was computed for the other tests."""

    def refuse(spec: PlanSpec) -> None:
        raise refusal()

    monkeypatch.setattr("simulator.planner.plan.answered_in_full", refuse)


@pytest.mark.usefixtures("refused")
def test_the_command_keeps_its_exit_code_and_writes_the_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rps", "40", "--model", "llama-3.1-8b", "--hardware", "t4", "--max-gpus", "8"]
    assert main([*words, "--report", str(tmp_path / "r")]) == 3
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == sorted(REFUSAL_NAMES)
    assert "files of the refusal" in capsys.readouterr().err
    assert main([*words, "--report", str(tmp_path / "r")]) == 5
    for old in ("report.html", "launch-sglang.sh", "mine.txt"):
        (tmp_path / "r" / old).write_text("of another question")
    assert main([*words, "--report", str(tmp_path / "r"), "--force"]) == 3
    left = {path.name for path in (tmp_path / "r").iterdir()}
    assert left == {*REFUSAL_NAMES, "mine.txt"}, "no file of an answer that holds no more"


@pytest.mark.usefixtures("refused")
def test_roofcast_report_leaves_the_same_files_of_the_same_question(tmp_path: Path) -> None:
    question_file = tmp_path / "question.yaml"
    question_file.write_text("rps: 40\nmodel: llama-3.1-8b\nhardware: [t4]\nmax_gpus: 8\n", encoding="utf-8")
    with pytest.raises(InfeasibleError):
        report(str(question_file), out=str(tmp_path / "r"))
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == sorted(REFUSAL_NAMES)
