"""The kernel scorecard: held-out errors stored with each fit, by accelerator, library, family and number format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.specs.calibration import FitError
from simulator.specs.calibrations import CalibrationGroup, calibrated_hardware, load_calibration
from simulator.specs.transfer import TransferRow

GROUPS: tuple[CalibrationGroup, ...] = (
    "gemm",
    "attention",
    "moe",
    "recurrent",
    "collective",
    "elementwise",
    "roofline",
)
LIBRARIES = ("vllm", "sglang", "trtllm", "nccl", "torch")
README_FAMILIES = ("gemm", "prefill_attention", "decode_attention", "moe", "recurrent", "all_reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScore:
    """Held-out error of one family and format, its variants weighted by their points (fractions).

    mape : mean absolute percentage error; bias : mean signed error, positive where predictions are slow
    coverage_80 : share of the points inside the stated 80 % interval
    points : held-out measurements; without any, the errors are None
    """

    hardware: str
    library: str
    group: str
    family: str
    format: str
    mape: float | None
    bias: float | None
    coverage_80: float | None
    points: int


def kernel_scores(
    library: str,
    *,
    groups: Sequence[CalibrationGroup] = GROUPS,
    hardware: str | None = None,
    profiles: str | None = None,
) -> list[KernelScore]:
    """One row per accelerator (or only ``hardware``), group, family and format of one library."""
    rows: list[KernelScore] = []
    for group in groups:
        for name in calibrated_hardware(library, group=group, profiles=profiles):
            if hardware not in (None, name):
                continue
            calibration = load_calibration(name, library=library, group=group, profiles=profiles)
            assert calibration is not None, "calibrated_hardware names files that exist"
            merged: dict[tuple[str, str], list[FitError]] = defaultdict(list)
            for fit in calibration.fits:
                merged[(fit.family, fit.format)].append(fit.error)
            rows += [
                _merged(errors, hardware=name, library=library, group=group, family=family, format=fmt)
                for (family, fmt), errors in merged.items()
            ]
    return rows


def _merged(
    errors: Sequence[FitError], *, hardware: str, library: str, group: str, family: str, format: str
) -> KernelScore:
    points = sum(error.score_points for error in errors)

    def mean(values: Iterable[float]) -> float | None:
        weighted = sum(value * error.score_points for value, error in zip(values, errors, strict=True))
        return weighted / points if points else None

    return KernelScore(
        hardware=hardware,
        library=library,
        group=group,
        family=family,
        format=format,
        mape=mean(error.score_mape for error in errors),
        bias=mean(error.score_bias for error in errors),
        coverage_80=mean(error.coverage_80 for error in errors),
        points=points,
    )


def _percent(value: float | None, *, pattern: str = ".1f") -> str:
    return "-" if value is None else f"{100 * value:{pattern}} %"


def score_lines(rows: Sequence[KernelScore]) -> list[str]:
    """The scores as aligned lines under a heading, percent."""
    heading = ("accelerator", "library", "family", "format", "group", "error", "bias", "in 80 %", "points")
    cells = [
        (
            row.hardware,
            row.library,
            row.family,
            row.format,
            row.group,
            _percent(row.mape),
            _percent(row.bias, pattern="+.1f"),
            _percent(row.coverage_80, pattern=".0f"),
            str(row.points),
        )
        for row in rows
    ]
    return _aligned([heading, *cells], words=5)


def transfer_lines(rows: Sequence[TransferRow]) -> list[str]:
    """Errors on accelerators that were left out of the fits, as aligned lines under a heading, percent."""
    heading = ("accelerator", "priced with", "family", "distance", "error", "bias", "points")
    cells = [
        (
            row.target,
            row.relative,
            row.family,
            f"{row.distance:.2f}",
            _percent(row.mape),
            _percent(row.bias, pattern="+.1f"),
            str(row.points),
        )
        for row in rows
    ]
    return _aligned([heading, *cells], words=3)


def _aligned(table: Sequence[Sequence[str]], *, words: int) -> list[str]:
    """Columns of equal width: the first ``words`` flush left, figures flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def kernel_table(library: str = "vllm") -> str:
    """Families by accelerators in Markdown, percent, for the README."""
    rows = [row for row in kernel_scores(library) if row.group != "roofline" and row.family in README_FAMILIES]
    names = sorted({row.hardware for row in rows})
    found = {(row.hardware, row.family, row.format): row for row in reversed(rows)}
    lines = [f"| {library} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for index, fmt in sorted({(README_FAMILIES.index(row.family), row.format) for row in rows}):
        family = README_FAMILIES[index]
        mapes = [found[name, family, fmt].mape if (name, family, fmt) in found else None for name in names]
        lines.append(f"| {family} {fmt} | {' | '.join(_percent(mape) for mape in mapes)} |")
    return "\n".join(lines) + "\n"
