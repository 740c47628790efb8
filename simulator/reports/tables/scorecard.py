"""The scorecards as lines and tables: held-out errors of kernel fits, and errors of whole runs."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.reports.formats.text import text_table
from simulator.specs.hardware.calibration import TransferRow
from simulator.specs.measured.scores import EndToEndScore, KernelScore, kernel_scores

README_FAMILIES = ("gemm", "prefill_attention", "decode_attention", "moe", "recurrent", "all_reduce")


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
    return text_table(heading, cells, right=[False] * 5 + [True] * 4).splitlines()


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
    return text_table(heading, cells, right=[False] * 3 + [True] * 4).splitlines()


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


COLUMNS = ("source", "hardware", "metric", "runs", "mean error", "median", "p95", "bias", "in 80 % interval")


def score_cells(row: EndToEndScore) -> tuple[str, ...]:
    """One score in the order of COLUMNS, percent."""
    return (
        row.source,
        row.hardware,
        row.metric,
        str(row.score.runs),
        _percent(row.score.mean),
        _percent(row.score.median),
        _percent(row.score.p95),
        _percent(row.score.bias, pattern="+.1f"),
        _percent(row.score.coverage, pattern=".0f"),
    )


def end_to_end_lines(rows: Sequence[EndToEndScore]) -> list[str]:
    """The scores as aligned lines under a heading."""
    return text_table(COLUMNS, [score_cells(row) for row in rows]).splitlines()
