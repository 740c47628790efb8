"""Options that several commands take, written once; and commands whose options stand in several functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

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


def grouped(*groups: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that the functions ``groups`` declare, because one signature cannot hold them all.

    The functions of a group are never called. The command reads the values of their options, as of its own, in
    ``context.params``.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        parameters = dict(own)
        for group in groups:
            parameters |= inspect.signature(group, eval_str=True).parameters

        def call(**values: Any) -> None:
            command(**{name: values[name] for name in own})

        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__annotations__ = {name: item.annotation for name, item in parameters.items()}
        call.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        return call

    return decorate
