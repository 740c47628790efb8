"""What all commands share: options written once or made of fields, how a command starts, and how it fails: one line on
stderr, the contract's exit codes, no traceback without --debug."""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Annotated, Any, NamedTuple, NoReturn, get_args

import typer
from typer.core import TyperCommand, TyperOption

from simulator import __version__
from simulator.errors import LONGEST_VALUE, ExitCode, RoofcastError, did_you_mean, one_line, shown
from simulator.reports.words.fields import error_line, flag_of, flagged
from simulator.specs.base import LARGEST_INTEGER
from simulator.specs.question.plan_values import WrittenField

_INTEGER = re.compile(r"[-+]?[0-9]+(?:\.0*)?")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")

_NAMES = frozenset(("hardware", "prefill_hardware", "encoder_hardware", "weights", "kv_cache", "serving", "stock"))
"""Repeatable options whose texts hold no comma of their own."""


def checked_words(command: Any, words: Sequence[str]) -> list[str]:
    """``words``, with ``--tp 1,2`` as ``--tp 1 --tp 2``; raises RoofcastError where one value is given more."""
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
    taken = {name: option for option in options for name in (*option.opts, *option.secondary_opts)}
    seen: set[str] = set()
    rest, found = list(words), []
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        option = taken.get(name)
        if option is None:
            found.append(word)
            inner = getattr(command, "commands", {}).get(word)
            if inner is not None:
                return found + checked_words(inner, rest)
            if word == "--":
                break
            continue
        if str(option.name) in seen and not option.multiple and not option.is_flag:
            raise RoofcastError("is given more than once and holds one value", field=name, hint="keep one of them")
        seen.add(str(option.name))
        if option.is_flag or not (equals or rest):
            found.append(word)
            continue
        value = value if equals else rest.pop(0)
        several = option.multiple and (option.name in _NAMES or {int, float} & _kinds(option))
        if several and _THOUSANDS.fullmatch(value):
            raise RoofcastError(f"{value} may be one number or several", field=name, hint="an option for each number")
        for text in value.split(",") if several else [value]:
            _check_value(name, option, text)
            found += [f"{name}={text}"] if equals else [name, text]
    return found + rest


def _kinds(option: TyperOption) -> set[object]:
    annotation = option.type_descriptor.annotation
    return {annotation, *get_args(annotation)}


def _check_value(name: str, option: TyperOption, value: str) -> None:
    """Refuse a word that is no choice of its option, and a number outside its bounds, with what is allowed."""
    kinds = _kinds(option)
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
    if option is not None and context is not None and hasattr(error, "possibilities"):  # nobody knows the option
        from simulator.cli.plan_defaults import meant_by

        known = [name for parameter in context.command.params for name in parameter.opts]
        meant = meant_by(option.lstrip("-"), table="meant_options")
        if not meant and (elsewhere := _commands_that_take(option, context.find_root().command)):
            them = f"{' and '.join(elsewhere)} {'takes' if len(elsewhere) == 1 else 'take'} it"
            return f"unknown option {option} of {context.info_name} ({them})"
        return f"unknown option {option} ({f'you may want {meant}' if meant else did_you_mean(option, known)})"
    return message


def _commands_that_take(option: str, group: Any) -> list[str]:
    """Other commands with an option of that very name, at most three: people write it where it does not belong."""
    return [
        name
        for name, command in getattr(group, "commands", {}).items()
        if any(option in parameter.opts for parameter in command.params)
    ][:3]


def _write_no_more() -> None:
    """Let what waits to be written go nowhere, so that the end of the process does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(app: typer.Typer, *, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run ``app`` and return its exit code; with --debug among the arguments, errors raise instead."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"] or ["--help"]
    command = typer.main.get_command(app)
    try:
        code = command.main(args=checked_words(command, words), prog_name=name, standalone_mode=False)
        if sys.stdout is not None:  # one that was closed before is none
            sys.stdout.flush()
        return int(code) if isinstance(code, int) else int(ExitCode.OK)
    except typer.Abort:
        return 130
    except (BrokenPipeError, SystemExit):
        # The reader went away (head, a pager), upon which the parser of commands asks to leave with 1: not an error,
        # and nothing may be written any more.
        _write_no_more()
        return int(ExitCode.OK)
    except Exception as error:
        if debug:
            raise
        return _failed(error, name=name)


def _failed(error: Exception, *, name: str) -> int:
    """Say in one line on stderr what went wrong; the exit code."""
    said, code = f"internal error ({one_line(repr(error))}); --debug shows where", INTERNAL_ERROR
    match error:
        case RoofcastError():
            for note in getattr(error, "__notes__", ()):
                print(f"{name}: {note}", file=sys.stderr)
            advice = f"; try {name} --help" if error.code == "usage" else ""
            said, code = f"{error_line(error)}{advice}", int(error.exit_code)
        case typer.TyperException():
            line = one_line(_usage_line(error))
            if not line:  # a group without a subcommand has printed its help, as the bare command does
                return int(ExitCode.OK)
            context = getattr(error, "ctx", None)
            asked = name if context is None else context.command_path
            said, code = f"{line.rstrip('.')}; try {asked} --help", int(ExitCode.USAGE)
        case OSError():
            if error.filename is None:
                _write_no_more()
            where = "standard output" if error.filename is None else one_line(str(error.filename))
            said, code = f"{where}: {error.strerror or one_line(repr(error))}", int(ExitCode.IO)
    print(f"{name}: {said}", file=sys.stderr)
    return code


def run_process(app: typer.Typer, *, name: str) -> int:
    """Run ``app`` on the words of the command line, in a process that answers one question and ends."""
    # It has no use for plugins of pydantic, which are looked for among all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        return run(app, name=name)
    finally:
        gc.freeze()  # looking through what is left takes a twentieth of the interpreter's end


def end_process(code: int) -> NoReturn:
    """End the process with what it holds, which Python would free piece by piece, another twentieth.

    The ordinary way where anything else is in the process (a thread, a debugger, a profiler, a measure of coverage)
    and where a stream cannot be written.
    """
    monitors = getattr(sys, "monitoring", None)
    watched = sys.gettrace() or sys.getprofile() or (monitors and any(map(monitors.get_tool, range(6))))
    if watched or threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # one that was closed before is none
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code)


Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='"-" is stdout.')]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files.")]
Profiles = Annotated[
    str | None, typer.Option("--profiles", metavar="DIR", help="Your profile directory; overrides and extends.")
]


class Own(NamedTuple):
    """An option of a command's own.

    name : under which it is passed on; kind : bool, int, float, str, or the words that are allowed
    default : what stands for it where it is not given; ``...`` where it has to be given
    flag : with what is written behind it, ``--from RESULT.json``, where they do not follow from name and kind
    least : of a number, 1 of a whole one and else 0 unless it is given
    """

    name: str
    kind: type | tuple[str, ...]
    text: str
    default: Any = None
    flag: str = ""
    several: bool = False
    least: float | None = None


def own_options(*rows: Own, panel: str | None = None) -> list[inspect.Parameter]:
    """The options of these rows."""
    found = []
    for row in rows:
        kind: Any = StrEnum(row.name, list(row.kind)) if isinstance(row.kind, tuple) else row.kind
        field = WrittenField(name=row.name, text=row.text, kind=kind, several=row.several)
        flag, _, behind = row.flag.partition(" ")
        least = {int: 1, float: 0}.get(kind) if row.least is None else row.least
        flags = (flag or flag_of(row.name), *(["-m"] if row.name == "model" else []))
        default = inspect.Parameter.empty if row.default is ... else row.default
        shown = behind or {int: "N", float: "X"}.get(kind)
        found.append(field_option(field, flags=flags, panel=panel, metavar=shown, least=least, default=default))
    return found


def field_option(
    field: WrittenField,
    *,
    flags: Sequence[str] = (),
    panel: str | None = None,
    metavar: str | None = None,
    hidden: bool = False,
    least: float | None = None,
    default: object = None,
) -> inspect.Parameter:
    """The option that fills a field of a specification: its type, help and flag, unless ``flags`` are given, follow."""
    flag, text = flag_of(field.name), flagged(field.text)
    if field.three_ways and field.kind is bool:
        flag = f"{flag}/{flag_of(f'no_{field.name}')}"
    kind: Any = list[field.kind] if field.several else field.kind  # type: ignore[name-defined]
    is_switch = field.kind is bool and not field.three_ways
    option = typer.Option(
        *(flags or (flag,)),
        help=f"{text.removesuffix('.')}; repeatable." if field.several else text,
        rich_help_panel=panel,
        metavar=metavar,
        hidden=hidden,
        min=least,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if is_switch else default,
        annotation=Annotated[kind if is_switch else kind | None, option],
    )


def values_of(values: Mapping[str, Any], options: Iterable[inspect.Parameter]) -> dict[str, Any]:
    """What was given of these options, by name; words as texts."""
    given = {item.name: values.get(item.name) for item in options}
    return {name: getattr(value, "value", value) for name, value in given.items() if value not in (None, [], ())}


def grouped(
    *groups: Sequence[inspect.Parameter], first: Sequence[inspect.Parameter] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command further options, ``first`` before its own. It reads their values in ``context.params``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        every = [*first, *own.values(), *(item for group in groups for item in group)]
        parameters = {item.name: item for item in every}

        def call(**values: Any) -> None:
            command(**{name: values[name] for name in own})

        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__annotations__ = {name: item.annotation for name, item in parameters.items()}
        named = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in parameters.values()]
        call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
        return call

    return decorate


METRICS = ("ttft", "tpot", "e2e", "latency")
_PERCENTILE_FLAG = re.compile(r"--([a-z0-9]+)-p([0-9]+(?:\.[0-9]+)?)(?:=(.*))?")


def spell_objectives(words: Sequence[str]) -> list[str]:
    """Rewrite ``--ttft-p95 2s`` as ``--objective ttft-p95=2s``, so that every percentile is allowed.

    Raises RoofcastError: the metric is unknown, or the time is missing.
    """
    spelled: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        bare = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and bare in METRICS:
            raise RoofcastError(f"unknown option --{bare}", code="usage", hint=f"did you mean --{bare}-p95?")
        match = _PERCENTILE_FLAG.fullmatch(word)
        if match is None:
            spelled.append(word)
            continue
        if match[1] not in METRICS:
            known = [f"--{metric}-p{match[2]}" for metric in METRICS]
            raise RoofcastError(f"unknown option {word}", code="usage", hint=did_you_mean(word, known))
        if match[3] is None and not rest:
            raise RoofcastError("a time such as 2s or 500ms is needed", field=word, code="usage")
        value = rest.pop(0) if match[3] is None else match[3]
        spelled += ["--objective", f"{match[1]}-p{match[2]}={value}"]
    return spelled


HELP_ALL = "--help-all"
_DEFAULT = " Default: "


def print_whole_help(context: typer.Context, asked: bool) -> None:
    """Print every option with its default and stop, where ``--help-all`` was given."""
    if asked:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


def _say_defaults(command: TyperCommand, defaults: Mapping[str, str]) -> None:
    """What stands for an option that is not given, behind its text."""
    for parameter in command.params:
        text, said = defaults.get(parameter.name or ""), getattr(parameter, "help", None)
        open_one = parameter.default is None and not parameter.required
        if text is not None and said is not None and open_one and _DEFAULT not in said:
            parameter.help = f"{said}{_DEFAULT}{text}."  # type: ignore[attr-defined]


class WideCommand(TyperCommand):
    """A command whose help has no column of its own for ``--no-...``: the text of the option names it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Without the column, texts fit 80 characters. Defaults are read when they are shown."""
        from simulator.cli.plan_defaults import command_defaults

        for parameter in self.params:
            parameter.secondary_opts = []
        _say_defaults(self, command_defaults(" ".join(ctx.command_path.split()[1:])))
        super().format_help(ctx, formatter)


class PlanCommand(TyperCommand):
    """The command of a plan: objectives as options of their own, and defaults that the library says."""

    def parse_args(self, ctx: Any, args: Sequence[str]) -> list[str]:
        """``--ttft-p95 2s`` is ``--objective ttft-p95=2s``."""
        return super().parse_args(ctx, spell_objectives(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Defaults are read when they are shown, so that a plan does not wait for them."""
        from simulator.cli.plan_defaults import plan_defaults

        _say_defaults(self, plan_defaults())
        super().format_help(ctx, formatter)
