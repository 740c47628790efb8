"""A command whose options stand in several functions, because one signature cannot hold them all.

The functions of a group are never called: their parameters become options, whose values the command finds in
``context.obj`` (a dict) instead of among its own parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand


def group_parameters(group: Callable[..., None]) -> list[Any]:
    """The options that a function's signature declares."""
    app = typer.Typer(add_completion=False)
    app.command()(group)
    command = typer.main.get_command(app)
    return list(command.params)


def _convert_when_given(item: Any) -> None:
    """Leave an option that was not given at None. Typer builds a pydantic validator per option before it looks at the
    value; with fifty options that is a tenth of the time of an answer."""
    if "process_value" in vars(item) or item.required or item.callback is not None:
        return
    convert = item.process_value

    def process_value(ctx: Any, value: Any) -> Any:
        missing = () if item.multiple or item.nargs == -1 else None
        return missing if value is None else convert(ctx, value)

    item.process_value = process_value


def command_with(*groups: Callable[..., None]) -> type[TyperCommand]:
    """A command class that takes the options of ``groups`` besides those of its own function."""

    class GroupedCommand(TyperCommand):
        """A command with further groups of options."""

        def get_params(self, ctx: Any) -> list[Any]:
            """Its own options and those of the groups, which join them at the first call."""
            self.params += [item for item in self._extra() if item not in self.params]
            return super().get_params(ctx)

        def make_parser(self, ctx: Any) -> Any:
            """The parser of its options; those that are not given keep None without being converted."""
            for item in self.get_params(ctx):
                _convert_when_given(item)
            return super().make_parser(ctx)

        def invoke(self, ctx: Any) -> Any:
            """Hand the groups' values over in ``obj`` and run the command's own function."""
            ctx.obj = {str(item.name): ctx.params.pop(str(item.name)) for item in self._extra()}
            return super().invoke(ctx)

        def _extra(self) -> list[Any]:
            if not hasattr(self, "_groups"):
                self._groups = [parameter for group in groups for parameter in group_parameters(group)]
            return self._groups

    return GroupedCommand
