"""The questions of the golden tables, read from the data files beside this module."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[2] / "shared" / "data"
GROUPS = ("plans", "scenarios", "reports")
_DATA_FOLDER = "{data}"
_QUICK_SCENARIOS = 3
"""Every third scenario is quick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One case: ``words`` of a command line, or one ``line`` for ``roofcast simulate``."""

    group: str
    name: str
    quick: bool
    words: tuple[str, ...] = ()
    line: str = ""
    available: bool = True


def _command_lines(group: str) -> list[Question]:
    questions = []
    for line in (HERE / f"{group}.txt").read_text("utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, command = line.partition(":")
        words = tuple(word.replace(_DATA_FOLDER, str(DATA)) for word in shlex.split(command))
        questions.append(
            Question(
                group=group,
                name=name.removeprefix("*"),
                quick=name.startswith("*"),
                words=words,
                available=_DATA_FOLDER not in command or DATA.is_dir(),
            )
        )
    return questions


def _identifier(line: str, *, number: int) -> str:
    """The scenario's own id; of a line without one, its number."""
    try:
        found = json.loads(line).get("id")
    except (ValueError, AttributeError):
        found = None
    return str(found) if isinstance(found, str) else f"line-{number}"


def _scenarios() -> list[Question]:
    lines = (HERE / "scenarios.jsonl").read_text("utf-8").splitlines()
    return [
        Question(
            group="scenarios", name=_identifier(line, number=number), quick=number % _QUICK_SCENARIOS == 0, line=line
        )
        for number, line in enumerate(lines, start=1)
    ]


def questions_of(group: str) -> list[Question]:
    """The questions of one group, in the order of its file."""
    questions = _scenarios() if group == "scenarios" else _command_lines(group)
    names = [question.name for question in questions]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{group}: two questions are called {', '.join(twice)}")
    return questions
