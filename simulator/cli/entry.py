"""How both commands start and fail: one line on stderr, the contract's exit codes, no traceback without --debug."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, get_args

import typer
from typer.core import TyperOption

from simulator import __version__
from simulator.errors import LONGEST_VALUE, ExitCode, RoofcastError, did_you_mean, one_line, shown
from simulator.reports.words.fields import error_line
from simulator.specs.base import LARGEST_INTEGER

_INTEGER = re.compile(r"[-+]?[0-9]+(?:\.0*)?")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def check_words(command: Any, words: Sequence[str]) -> None:
    """Refuse an option that holds one value and is given more, of which the last would win, and numbers that are none
    or that nobody means."""
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
    taken = {name: option for option in options for name in (*option.opts, *option.secondary_opts)}
    seen: set[str] = set()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        option = taken.get(name)
        if option is None:
            inner = getattr(command, "commands", {}).get(word)
            if inner is not None:
                return check_words(inner, rest)
            if word == "--":
                return None
            continue
        if str(option.name) in seen and not option.multiple and not option.is_flag:
            raise RoofcastError("is given more than once and holds one value", field=name, hint="keep one of them")
        seen.add(str(option.name))
        if option.is_flag:
            continue
        if not equals and rest:
            value, equals = rest.pop(0), "="
        if equals:
            _check_value(name, option, value)
    return None


def _check_value(name: str, option: TyperOption, value: str) -> None:
    """Refuse a word that is no choice of its option, and a number outside its bounds, with what is allowed."""
    annotation = option.type_descriptor.annotation
    kinds = {annotation, *get_args(annotation)}
    choices = [
        str(choice.value) for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for choice in kind
    ]
    if choices and value not in choices:
        raise RoofcastError(
            f"{shown(value)} is not allowed; allowed: {', '.join(choices)}",
            field=name,
            hint=did_you_mean(value, choices, otherwise="take one of them"),
        )
    _check_number(name, option, value, kinds=kinds)


def _check_number(name: str, option: TyperOption, value: str, *, kinds: Collection[object]) -> None:
    whole = int in kinds
    if not whole and float not in kinds:
        return
    written = (_INTEGER if whole else _NUMBER).fullmatch(value)
    if written is None:
        raise RoofcastError(f"a{' whole' if whole else ''} number is needed, got {shown(value)}", field=name)
    if len(value) > LONGEST_VALUE or (whole and abs(float(value)) > LARGEST_INTEGER):
        raise RoofcastError(f"at most {LARGEST_INTEGER:,} is taken, got {shown(value)}", field=name)
    if option.min is not None and float(value) < option.min:
        raise RoofcastError(f"at least {option.min:g} is needed, got {shown(value)}", field=name)
    if option.max is not None and float(value) > option.max:
        raise RoofcastError(f"at most {option.max:g} is taken, got {shown(value)}", field=name)


INTERNAL_ERROR = 70
"""sysexits' EX_SOFTWARE: a fault of the program, never of its input."""


def print_version(asked: bool) -> None:
    """Print the version and stop, where ``--version`` was given."""
    if asked:
        typer.echo(f"roofcast {__version__}")
        raise typer.Exit


def _usage_line(error: typer.TyperException) -> str:
    message = error.format_message().replace("\n", " ")
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is not None and context is not None and "no such option" in message.lower():
        known = [name for parameter in context.command.params for name in parameter.opts]
        elsewhere = _commands_that_take(option, context.find_root().command)
        if elsewhere:
            take = "takes" if len(elsewhere) == 1 else "take"
            return f"unknown option {option} of {context.info_name} ({' and '.join(elsewhere)} {take} it)"
        return f"unknown option {option} ({did_you_mean(option, known)})"
    return message


def _commands_that_take(option: str, group: Any) -> list[str]:
    """Other commands with an option of that very name, at most three: people write it where it does not belong."""
    return [
        name
        for name, command in getattr(group, "commands", {}).items()
        if any(option in parameter.opts for parameter in command.params)
    ][:3]


def run(app: typer.Typer, *, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run ``app`` and return its exit code; with --debug among the arguments, errors raise instead."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    command = typer.main.get_command(app)
    if not words:
        words = ["--help"]
    try:
        check_words(command, words)
        code = command.main(args=words, prog_name=name, standalone_mode=False)
        return int(code) if isinstance(code, int) else int(ExitCode.OK)
    except RoofcastError as error:
        if debug:
            raise
        for note in getattr(error, "__notes__", ()):
            print(f"{name}: {note}", file=sys.stderr)
        advice = f"; try {name} --help" if error.code == "usage" else ""
        print(f"{name}: {error_line(error)}{advice}", file=sys.stderr)
        return int(error.exit_code)
    except typer.Abort:
        return 130
    except typer.TyperException as error:
        if debug:
            raise
        line = one_line(_usage_line(error))
        if not line:  # a group without a subcommand has printed its help, as the bare command does
            return int(ExitCode.OK)
        context = getattr(error, "ctx", None)
        asked = name if context is None else context.command_path
        print(f"{name}: {line.rstrip('.')}; try {asked} --help", file=sys.stderr)
        return int(ExitCode.USAGE)
    except (BrokenPipeError, SystemExit):
        # The reader went away (head, a pager), upon which the parser of commands asks to leave with 1: not an error,
        # and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
    except Exception as error:
        if debug:
            raise
        print(f"{name}: internal error ({one_line(repr(error))}); --debug shows where", file=sys.stderr)
        return INTERNAL_ERROR


def run_process(app: typer.Typer, *, name: str) -> int:
    """Run ``app`` on the words of the command line, in a process that answers one question and ends."""
    # Such a process has no use for plugins of pydantic, which are looked for among all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        return run(app, name=name)
    finally:
        # What is left needs no looking through while the interpreter ends, which takes a twentieth of its time.
        gc.freeze()
