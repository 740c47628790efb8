"""Every technique of the field's course has a command that answers for it, and the answer names it."""

from __future__ import annotations

import csv
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli.roofcast import app

FILE = Path(__file__).resolve().parents[1] / "data" / "technique_questions.csv"
with FILE.open(encoding="utf-8", newline="") as stream:
    QUESTIONS = list(csv.DictReader(stream))


def marked(row: dict[str, str]) -> object:
    return pytest.param(row, id=row["item"], marks=[pytest.mark.slow] if row["dear"] else [])


@cache
def printed(command: str) -> str:
    """Rows of one command share its run."""
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, (command, result.exception, result.output[-500:])
    return result.output.lower()


@pytest.mark.parametrize("row", [marked(row) for row in QUESTIONS])
def test_a_command_answers(row: dict[str, str]) -> None:
    assert row["shows"].lower() in printed(row["command"])


def test_all_items_of_the_course_are_asked() -> None:
    items = [row["item"] for row in QUESTIONS]
    assert len(items) == len(set(items)) >= 118
