"""``python -m validation.published``: every published figure beside the simulator's, worst first; 1 if one is off.

A row is off where its error exceeds its own tolerance, a known miss where its error has grown. It needs no data folder:
the figures are transcribed here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from simulator.reports.formats.text import text_table
from validation.commands import exit_code_of
from validation.published import identities, structure
from validation.published.reasons import reason_of, worst_names
from validation.published.rows import PublishedRun, error_of, known_misses, measured_runs
from validation.published.techniques import technique_rows

COLUMNS = ("figure", "group", "published", "predicted", "error", "tolerance")
ROUNDING = 1e-12
MISSES = "known misses"
DRIFT = 0.05
"""By how much a known miss may grow before it has to be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure; errors and tolerances as fractions."""

    name: str
    group: str
    published: float
    predicted: float
    tolerance: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.published - 1

    @property
    def is_off(self) -> bool:
        """Whether the error exceeds the tolerance."""
        return abs(self.error) > self.tolerance + ROUNDING


def _run(row: PublishedRun, *, group: str, drift: float = 0.0) -> Figure:
    (measured,) = row.run.measured.values()
    return Figure(
        name=row.label,
        group=group,
        published=measured,
        predicted=measured * (1 + error_of(row)),
        tolerance=row.limit + drift,
    )


def all_figures() -> Iterator[Figure]:
    """Whole runs, worked examples, structure and attention, number formats and sparsity."""
    for row in measured_runs():
        yield _run(row, group="runs")
    for row in known_misses():
        yield _run(row, group=MISSES, drift=DRIFT)
    for group, rows, computed in (
        ("worked examples", identities.identities(), identities.COMPUTED),
        ("structure", structure.figures(), structure.COMPUTED),
    ):
        for item in rows:
            yield Figure(
                name=item.name,
                group=group,
                published=item.value,
                predicted=computed[item.name](),
                tolerance=item.tolerance,
            )
    for found in technique_rows():
        yield Figure(
            name=found.name,
            group=f"techniques, {found.part}",
            published=found.measured,
            predicted=found.predicted,
            tolerance=found.tolerance,
        )


def explained(figures: Sequence[Figure]) -> tuple[str, ...]:
    """The worst figures of each group but the known misses, whose table says why."""
    names: list[str] = []
    for group in dict.fromkeys(figure.group for figure in figures):
        if group != MISSES:
            names += worst_names([(figure.name, figure.error) for figure in figures if figure.group == group])
    return tuple(names)


def main() -> int:
    """Print all figures and a line per group."""
    figures = sorted(all_figures(), key=lambda figure: -abs(figure.error))
    rows = [
        (
            figure.name,
            figure.group,
            f"{figure.published:.4g}",
            f"{figure.predicted:.4g}",
            f"{100 * figure.error:+.1f} %",
            f"{100 * figure.tolerance:.1f} %" + (" OFF" if figure.is_off else ""),
        )
        for figure in figures
    ]
    print(text_table(COLUMNS, rows))
    print()
    by_reason: dict[str, list[str]] = {}
    for name in explained(figures):
        by_reason.setdefault(reason_of(name) or "no reason is written down", []).append(name)
    for reason, names in by_reason.items():
        print(f"{', '.join(names)}: {reason}")
    print()
    for group in dict.fromkeys(figure.group for figure in figures):
        errors = [abs(figure.error) for figure in figures if figure.group == group]
        print(f"{group}: {len(errors)} figures, mean {100 * fmean(errors):.1f} %, median {100 * median(errors):.1f} %")
    off = sum(figure.is_off for figure in figures)
    if off:
        print(f"{off} figures are off by more than their tolerance", file=sys.stderr)
    return int(off > 0)


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
