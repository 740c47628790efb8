"""``roofcast validate``: the errors stored with every kernel fit, and those on accelerators left out of the fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import typer

from simulator.errors import RoofcastError, did_you_mean
from simulator.kernels.transfer import calibrated_relative
from simulator.reports.scorecard import LIBRARIES, KernelScore, kernel_scores, score_lines, transfer_lines
from simulator.specs.calibrations import calibrated_hardware
from simulator.specs.loading import load_hardware
from simulator.specs.transfer import TransferRow, load_transfer_table

SCHEMA_VERSION = "1.0"


def print_scorecard(*, hardware: str | None, libraries: Sequence[str], as_json: bool, profiles: str | None) -> None:
    """Print the scorecard of one or every accelerator under the named or all libraries.

    Raises
    ------
    RoofcastError
        A library that nothing is fitted for, or an accelerator without fits of its own (named with its stand-in).
    """
    for library in libraries:
        if library not in LIBRARIES:
            raise RoofcastError(
                f"unknown kernel library {library!r}; known: {', '.join(LIBRARIES)}",
                field="--library",
                hint=did_you_mean(library, LIBRARIES),
            )
    name = load_hardware(hardware, profiles=profiles).name if hardware is not None else None
    scores = [
        score
        for library in libraries or LIBRARIES
        for score in kernel_scores(library, hardware=name, profiles=profiles)
    ]
    if not scores:
        _refuse(name, libraries=libraries, profiles=profiles)
    left_out = [row for row in load_transfer_table().nearest if name in (None, row.target)]
    typer.echo(_document(scores, left_out=left_out) if as_json else _text(scores, left_out=left_out))


def _refuse(name: str | None, *, libraries: Sequence[str], profiles: str | None) -> None:
    """Say that nothing was fitted, and for one accelerator whose fits stand in."""
    where = f" under {', '.join(libraries)}" if libraries else ""
    if name is None:
        raise RoofcastError(f"no kernel fits{where}", field="--library", code="not_calibrated")
    known = calibrated_hardware("vllm", group="roofline", profiles=profiles)
    if name in known:
        raise RoofcastError(
            f"no kernel of {name} was measured{where}",
            field="--library",
            code="not_calibrated",
            hint=f"leave --library out to see what was; all libraries: {', '.join(LIBRARIES)}",
        )
    specs = [load_hardware(other, profiles=profiles) for other in known]
    relative = calibrated_relative(load_hardware(name, profiles=profiles), available=specs)
    raise RoofcastError(
        f"no kernel of {name} was measured{where}; measured: {', '.join(known)}",
        field="--hardware",
        code="not_calibrated",
        hint=f"kernels without fits are priced with {relative.reason}; measure your own with roofcast calibrate",
    )


def _text(scores: Sequence[KernelScore], *, left_out: Sequence[TransferRow]) -> str:
    lines = ["Kernels: error on measured shapes that the fit never saw", "", *score_lines(scores)]
    if left_out:
        table = load_transfer_table()
        lines += [
            "",
            f"Priced as if never measured ({table.library}, 16 bit): fits of the nearest other accelerator",
            "",
        ]
        lines += transfer_lines(left_out)
    return "\n".join(lines)


def _document(scores: Sequence[KernelScore], *, left_out: Sequence[TransferRow]) -> str:
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "kernels": [asdict(score) for score in scores],
            "left_out": [row.model_dump(mode="json") for row in left_out],
        }
    )
