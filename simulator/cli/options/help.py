"""Help of commands with many options: the usual ones first, every one with its default on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from simulator.cli.options.objectives import spell_objectives

HELP_ALL = "--help-all"
_DEFAULT = " Default: "


def print_whole_help(context: typer.Context, asked: bool) -> None:
    """Print every option with its default and stop, where ``--help-all`` was given."""
    if asked:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


class WideCommand(TyperCommand):
    """A command whose help has no column of its own for ``--no-...``: the text of the option names it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Without the column, texts fit 80 characters."""
        for parameter in self.params:
            parameter.secondary_opts = []
        super().format_help(ctx, formatter)


class PlanCommand(TyperCommand):
    """The command of a plan: objectives as options of their own, and defaults that the library says."""

    def parse_args(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """``--ttft-p95 2s`` is ``--objective ttft-p95=2s``."""
        found: list[str] = super().parse_args(ctx, spell_objectives(args))
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Defaults are read when they are shown, so that a plan does not wait for them."""
        from simulator.cli.options.plan_defaults import plan_defaults

        defaults = plan_defaults()
        for parameter in self.params:
            text = defaults.get(parameter.name or "")
            said = getattr(parameter, "help", None)
            if text is not None and said is not None and _DEFAULT not in said:
                parameter.help = f"{said}{_DEFAULT}{text}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
