"""How both commands start and fail: one line on stderr, the contract's exit codes, no traceback without --debug."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
import typer

from simulator.errors import ExitCode, RoofcastError, did_you_mean


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message().replace("\n", " ")
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [name for parameter in error.ctx.command.params for name in parameter.opts]
        return f"unknown option {error.option_name} ({did_you_mean(error.option_name, known)})"
    return message


def run(app: typer.Typer, *, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run ``app`` and return its exit code; with --debug among the arguments, errors raise instead."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    command = typer.main.get_command(app)
    try:
        code = command.main(args=words, prog_name=name, standalone_mode=False)
        return int(code) if isinstance(code, int) else int(ExitCode.OK)
    except RoofcastError as error:
        if debug:
            raise
        print(f"{name}: {error}", file=sys.stderr)
        return int(error.exit_code)
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        if debug:
            raise
        print(f"{name}: {_usage_line(error)}; try {name} --help", file=sys.stderr)
        return int(ExitCode.USAGE)
    except BrokenPipeError:
        # The reader went away (head, a pager): not an error, and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
