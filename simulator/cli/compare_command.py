"""The command ``roofcast compare``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class PriceKind(StrEnum):
    """How the accelerators are rented."""

    ON_DEMAND = "on_demand"
    RESERVED_1Y = "reserved_1y"
    RESERVED_3Y = "reserved_3y"
    SPOT = "spot"


def compare(
    scenario: Annotated[
        str, typer.Argument(metavar="BASE.yaml", help='A scenario of any kind, YAML or JSON; "-" is stdin.')
    ],
    changes: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="FIELD=VALUE",
            help='One change: weights=fp8, sparsity=2:4, "weights=int4 scheme=gptq-g128", tp_size=2; repeatable.',
        ),
    ],
    price_kind: Annotated[PriceKind, typer.Option("--price-kind", help="Which price.")] = PriceKind.ON_DEMAND,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help='"-" is stdout.')] = "-",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.")] = False,
    profiles: Annotated[
        str | None, typer.Option("--profiles", metavar="DIR", help="Your profile directory; overrides and extends.")
    ] = None,
) -> None:
    """Show what each change to a deployment is worth: in order, one on top of the other, and each alone.

    Values as in the options of roofcast step; FIELD=none takes one away; quotes join several fields to one change.

    Example: roofcast compare base.yaml --with weights=fp8 --with kv_cache=fp8 --with speculation=eagle:k=4
    """
    from simulator.cli.compare import CompareQuestion, run_compare

    question = CompareQuestion(
        source=scenario,
        changes=changes,
        price_kind=price_kind.value,
        output=output,
        as_json=as_json,
        force=force,
        profiles=profiles,
    )
    run_compare(question)
