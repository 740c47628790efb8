"""The command ``roofcast``: a command is imported when it is asked for, or when the help lists them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from simulator.cli.shared import WideCommand, end_process, print_version, run_process


class Place(NamedTuple):
    """The panel of the help that lists a command, and where it stands: a module of ``simulator.cli`` and a name."""

    panel: str
    module: str
    name: str


COMMANDS: Mapping[str, Place] = {
    "plan": Place("Plan", "plan_capacity", "plan_capacity"),
    "report": Place("Plan", "record_commands", "report"),
    "verify": Place("Plan", "record_commands", "verify"),
    "demand": Place("Plan", "record_commands", "demand"),
    "serve": Place("Simulate", "scenario_commands", "serve"),
    "capacity": Place("Simulate", "scenario_commands", "capacity"),
    "simulate": Place("Simulate", "line_commands", "simulate"),
    "sweep": Place("Simulate", "line_commands", "sweep"),
    "compare": Place("Simulate", "scenario_commands", "compare"),
    "step": Place("Simulate", "step_commands", "step"),
    "crossover": Place("Simulate", "step_commands", "crossover"),
    "calibrate": Place("Calibrate and validate", "record_commands", "calibrate"),
    "validate": Place("Calibrate and validate", "validate_command", "validate"),
    "published": Place("Calibrate and validate", "validate_command", "published"),
    "explain": Place("Learn", "step_commands", "explain"),
    "model": Place("Learn", "step_commands", "model"),
    "retrieval": Place("Learn", "step_commands", "retrieval"),
    "mixers": Place("Learn", "step_commands", "mixers"),
    "app": Place("Plan", "app", "dashboard"),
    "warm-up": Place("Simulate", "scenario_commands", "warm_up"),
    "prices": Place("Plan", "price_commands", "prices_app"),
    "profiles": Place("Learn", "record_commands", "profiles_app"),
}
"""Commands in the order of the help, by what their user is about to do."""


def _command(name: str) -> Any:
    panel, module, attribute = COMMANDS[name]
    found = getattr(import_module(f"simulator.cli.{module}"), attribute)
    alone = typer.Typer()
    alone.callback()(roofcast)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name, rich_help_panel=panel)
    elif name == "plan":
        from simulator.cli.plan_capacity import EPILOG
        from simulator.cli.shared import PlanCommand

        alone.command(name, cls=PlanCommand, rich_help_panel=panel, epilog=EPILOG)(found)
    else:
        alone.command(name, cls=WideCommand, rich_help_panel=panel)(found)
    group: Any = typer.main.get_command(alone)
    return group.commands[name]


class _Commands(Mapping[str, Any]):
    """Every command by its name, imported when it is first looked up."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        # It is a command of its own as well, and people write both.
        name = "plan" if name == "plan-capacity" else name
        if name not in self._known:
            self._known[name] = _command(name) if name in COMMANDS else None
        if self._known[name] is None:
            raise KeyError(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Roofcast(TyperGroup):
    """The group of all commands."""

    @property
    def commands(self) -> Any:
        """Commands by name."""
        return self._lazily

    @commands.setter
    def commands(self, _: object) -> None:
        """The parser has registered none."""
        self._lazily = _Commands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; a word for one of another name, or a topic, says which to type."""
        word = args[0].lower().replace("_", "-")
        if word not in self.commands:
            meant = _meant(word)
            if meant:
                ctx.fail(f"there is no command {word}; you may want {meant}")
        return super().resolve_command(ctx, args)


def _meant(word: str) -> str | None:
    from simulator.cli.plan_defaults import meant_by
    from simulator.explain.catalogue import TOPICS

    return meant_by(word) or next((f"roofcast explain {word}" for topic in TOPICS if topic.key == word), None)


app = typer.Typer(
    name="roofcast", cls=Roofcast, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


@app.callback()
def roofcast(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Forecast LLM inference: latency, memory, throughput and fleets, from configuration files alone."""


def main() -> None:
    """Entry point."""
    end_process(run_process(app, name="roofcast"))


if __name__ == "__main__":
    main()
