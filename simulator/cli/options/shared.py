"""Options that several commands take, written once; and commands whose options stand in several functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from simulator.errors import RoofcastError, did_you_mean
from simulator.reports.words.fields import flag_of, flagged
from simulator.specs.question.plan_values import WrittenField

if TYPE_CHECKING:
    from simulator.api.questions import ServedFields

Model = Annotated[str, typer.Option("--model", "-m", help="Model name, Hugging Face id, config.json or its folder.")]
Hardware = Annotated[str, typer.Option("--hardware", help="Accelerator name, alias or YAML file.")]
Tp = Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Tensor-parallel size.")]
Engine = Annotated[str | None, typer.Option("--engine", help="Engine profile (vllm).")]
Slo = Annotated[
    list[str] | None, typer.Option("--slo", metavar="METRIC-pNN=TIME", help="Bound to hold: ttft-p95=2s; repeatable.")
]
Assumptions = Annotated[bool, typer.Option("--assumptions", help="List what was assumed.")]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='"-" is stdout.')]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files.")]
Profiles = Annotated[
    str | None, typer.Option("--profiles", metavar="DIR", help="Your profile directory; overrides and extends.")
]


def above_zero(option: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse nothing and less, which ``min`` cannot say of a number that may be ever so small."""
    if value is not None and value <= 0:
        raise RoofcastError(f"more than 0 is needed, got {value:g}", field=option.opts[0])
    return value


def field_option(
    field: WrittenField,
    *,
    also: str | None = None,
    panel: str | None = None,
    metavar: str | None = None,
    hidden: bool = False,
) -> inspect.Parameter:
    """The option that fills a field of a specification: its flag, type and help follow from the field."""
    flag, text = flag_of(field.name), flagged(field.text)
    if field.three_ways and field.kind is bool:
        flag = f"{flag}/{flag_of(f'no_{field.name}')}"
    kind: Any = list[field.kind] if field.several else field.kind  # type: ignore[name-defined]
    is_switch = field.kind is bool and not field.three_ways
    option = typer.Option(
        *(flag, *filter(None, (also,))),
        help=f"{text.removesuffix('.')}; repeatable." if field.several else text,
        rich_help_panel=panel,
        metavar=metavar,
        hidden=hidden,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if is_switch else None,
        annotation=Annotated[kind if is_switch else kind | None, option],
    )


def grouped(
    *groups: Callable[..., None] | Sequence[inspect.Parameter], first: Sequence[inspect.Parameter] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command further options, ``first`` before its own: made of fields, or declared by functions.

    One signature cannot hold them all. The functions are never called. The command reads the values of these options,
    as of its own, in ``context.params``.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        parameters = {item.name: item for item in first} | dict(own)
        for group in groups:
            options = inspect.signature(group, eval_str=True).parameters.values() if callable(group) else group
            parameters |= {item.name: item for item in options}

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


_PANEL = "What served (with --from)"


def _option(*flags: str, text: str, metavar: str | None = None, least: int | None = None) -> object:
    return typer.Option(*flags, min=least, metavar=metavar, help=text, rich_help_panel=_PANEL)


def _whole(flag: str, text: str) -> object:
    """An option that takes a whole number from 1 on."""
    return _option(flag, text=text, metavar="N", least=1)


def served_group(
    model: Annotated[
        str | None, _option("--model", "-m", text="The model; without it the one that the file names.")
    ] = None,
    tp_size: Annotated[int | None, _whole("--tp", "Tensor-parallel size.")] = None,
    pp_size: Annotated[int | None, _whole("--pp", "Pipeline stages.")] = None,
    dp_size: Annotated[int | None, _whole("--dp", "Ranks of data-parallel attention.")] = None,
    ep_size: Annotated[int | None, _whole("--ep", "Devices that share the experts.")] = None,
    cp_size: Annotated[int | None, _whole("--cp", "Ranks that share a prompt's tokens.")] = None,
    engine: Annotated[str | None, _option("--engine", text="Engine profile (vllm).")] = None,
    weights: Annotated[str | None, _option("--weights", text="Number format of the weights.")] = None,
    kv_cache: Annotated[str | None, _option("--kv-cache", text="Number format of the KV cache.")] = None,
    scheme: Annotated[str | None, _option("--scheme", text="Quantization method, such as gptq-g128.")] = None,
    max_num_seqs: Annotated[int | None, _whole("--max-num-seqs", "Batch limit of the engine.")] = None,
    max_num_batched_tokens: Annotated[int | None, _whole("--max-num-batched-tokens", "Token budget of a step.")] = None,
    max_model_len: Annotated[int | None, _whole("--max-model-len", "Longest request in tokens.")] = None,
    gpu_memory_utilization: Annotated[
        float | None, _option("--gpu-memory-utilization", text="Share of memory the engine uses.")
    ] = None,
    system_prompt_tokens: Annotated[
        int | None, _whole("--system-prompt-tokens", "That all prompts begin with.")
    ] = None,
) -> None:
    """What answered the benchmark."""


def served_of(values: Mapping[str, Any]) -> ServedFields:
    """The options that were given."""
    names = (*served_group.__annotations__,)
    given: ServedFields = {name: values[name] for name in names if values.get(name) is not None}  # type: ignore[assignment]
    return given
