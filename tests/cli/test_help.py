"""Help of every command: whole at 80 columns, examples that can be copied, common options first, defaults said."""

from __future__ import annotations

import re

import pytest
import typer

from simulator.cli import plan_capacity, roofcast
from simulator.cli.plan_defaults import command_defaults, plan_defaults
from simulator.cli.shared import HELP_ALL, run
from simulator.specs.question.plan import PlanSpec
from tests.for_every import for_every

ROOF = typer.main.get_command(roofcast.app)
COMMANDS = [
    *([name] for name, command in ROOF.commands.items() if not hasattr(command, "commands")),
    *([name, inner] for name, group in ROOF.commands.items() for inner in getattr(group, "commands", ())),
]
USUAL = range(20, 31)
"""Options of a plan in its short help."""


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(roofcast.app, name="roofcast", arguments=words) == 0
    return capsys.readouterr().out


def flags_of(text: str) -> list[str]:
    return re.findall(r"^│ (--[a-z0-9-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_eighty_columns_with_its_example_whole(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = helped(capsys, *words, "--help")
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    command = ROOF
    for word in words:
        command = command.commands[word]
    for example in re.findall(r"Example: (.+)", command.help or ""):
        assert any(example in line for line in text.splitlines()), example


def test_commands_stand_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    text = helped(capsys, "--help")
    for group in ("Plan", "Simulate", "Calibrate and validate", "Learn"):
        assert f"╭─ {group} ─" in text
    assert "╭─ Commands ─" not in text


def test_a_plan_s_help_is_short_and_help_all_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    short, whole = (helped(capsys, "plan", word) for word in ("--help", HELP_ALL))
    assert len(flags_of(short)) in USUAL
    assert "…" not in whole
    known = {option for parameter in ROOF.commands["plan"].params for option in parameter.opts}
    shown = set(flags_of(whole))
    assert {option for option in known if option.startswith("--")} - shown <= {"--budget", "--rate"}
    assert set(flags_of(helped(capsys, "plan", "--help"))) == set(flags_of(short)), "showing all leaves no trace"


@for_every([name for name, field in PlanSpec.model_fields.items() if field.default is not False])
def test_every_option_of_a_plan_says_its_default(field: str) -> None:
    assert plan_defaults().get({"objectives": "objective"}.get(field, field))


def test_plan_and_plan_capacity_are_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rps", "20", "--model", "llama-3.1-8b", "--hardware", "h100", "--ttft-p95", "1s", "--json"]
    assert run(roofcast.app, name="roofcast", arguments=["plan", *words]) == 0
    first = capsys.readouterr().out
    assert plan_capacity.main(words) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_says_what_stands_for_it(words: list[str]) -> None:
    command = ROOF
    for word in words:
        command = command.commands[word]
    said = plan_defaults() if words == ["plan"] else command_defaults(" ".join(words))
    options = [item for item in command.params if getattr(item, "help", None) is not None and item.opts[0][0] == "-"]
    silent = [
        item.opts[0]
        for item in options
        if item.default is None and not item.required and item.name not in said and "efault" not in item.help
    ]
    assert not silent
