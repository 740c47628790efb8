"""What the stored measurements say about the predictions, in words: errors and coverage by source, held-out errors of
kernel fits, and errors of whole runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter

from simulator.kernels.fits import fit_set
from simulator.kernels.timing import Provenance
from simulator.reports.content.document import EMPTY, Cell, count, fraction, ordered
from simulator.reports.formats.text import text_table
from simulator.reports.words.runs import deployment_text, load_text, metric_word, value_text
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.hardware.calibration import TransferRow
from simulator.specs.measured.scores import EndToEndScore, KernelScore, error_score, kernel_scores
from simulator.specs.measured.validation_rows import ValidationRow

SOURCE_COLUMNS = ("source", "metric", "runs", "mean error", "median", "bias", "in 80 % interval")
DEPLOYMENT_COLUMNS = (
    *("accelerator", "engine", "models", "mode"),
    *("values", "mean error", "median", "bias", "in 80 % interval"),
)
RUN_COLUMNS = (
    *("source", "accelerator", "engine", "mode", "deployment", "load"),
    *("metric", "measured", "predicted", "error"),
)
KERNEL_COLUMNS = ("family", "format", "mean error", "bias", "in 80 % interval", "points")
PROVENANCE_COLUMNS = ("how it is known", "runs", "mean error", "median", "bias", "in 80 % interval")
KNOWN_COLUMNS = ("accelerator", "how its kernels are known")


def source_rows(rows: Sequence[ValidationRow]) -> list[tuple[Cell | str, ...]]:
    """One line per source and metric, in the order of SOURCE_COLUMNS."""
    found = _grouped(rows, key=lambda row: (row.source, row.metric))
    return [(source, metric_word(metric), *_score(items)) for (source, metric), items in found]


def deployment_rows(rows: Sequence[ValidationRow]) -> list[tuple[Cell | str, ...]]:
    """One line per accelerator, engine, class of model and mode, in the order of DEPLOYMENT_COLUMNS."""
    found = _grouped(rows, key=lambda row: (row.hardware, row.engine, row.model_class, row.mode))
    return [(*names, *_score(items)) for names, items in found]


def _grouped(
    rows: Sequence[ValidationRow], *, key: Callable[[ValidationRow], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], list[ValidationRow]]]:
    groups: dict[tuple[str, ...], list[ValidationRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return sorted(groups.items())


def _score(rows: Sequence[ValidationRow]) -> tuple[Cell, ...]:
    """Runs, mean and median of the absolute error, bias and coverage of some rows."""
    score = error_score(rows)
    return (
        count(score.runs),
        fraction(score.mean),
        fraction(score.median),
        _bias(score.bias),
        fraction(score.coverage),
    )


def _bias(value: float) -> Cell:
    return ordered(f"{round(100 * value, 1) + 0.0:+.1f} %", value)


def provenance_rows(rows: Sequence[ValidationRow]) -> list[tuple[Cell | str, ...]]:
    """One line per provenance that predictions had, the best known first, in the order of PROVENANCE_COLUMNS."""
    found = _grouped(rows, key=lambda row: (row.provenance,))
    ordered = sorted(found, key=lambda item: Provenance[item[0][0].upper()])
    return [(*names, *_score(items)) for names, items in ordered]


_WHAT_RAN = attrgetter("source", "hardware", "engine", "mode")
_KERNEL = attrgetter("hardware", "library", "family", "format", "group")


def worst_first(rows: Sequence[ValidationRow]) -> list[ValidationRow]:
    """The rows by the size of their error."""
    return sorted(rows, key=lambda row: -abs(row.error))


def run_rows(rows: Sequence[ValidationRow]) -> list[tuple[Cell | str, ...]]:
    """Every run, the worst first, in the order of RUN_COLUMNS."""
    return [
        (
            *_WHAT_RAN(row),
            deployment_text(row),
            load_text(row),
            metric_word(row.metric),
            ordered(value_text(row.measured, row.metric), row.measured),
            ordered(value_text(row.predicted, row.metric), row.predicted),
            _bias(row.error),
        )
        for row in worst_first(rows)
    ]


def kernel_rows(hardware: str, *, library: str, profiles: str | None = None) -> list[tuple[Cell | str, ...]]:
    """Held-out errors of one accelerator's kernel fits, in the order of KERNEL_COLUMNS."""
    scores: list[KernelScore] = kernel_scores(library, hardware=hardware, profiles=profiles)
    return [
        (
            score.family.replace("_", " "),
            score.format,
            fraction(score.mape),
            EMPTY if score.bias is None else _bias(score.bias),
            fraction(score.coverage_80),
            count(score.points),
        )
        for score in scores
        if score.group != "roofline"
    ]


def known_rows(*, library: str, profiles: str | None = None) -> list[tuple[str, str]]:
    """Every accelerator, and on whose products its kernels were measured, in the order of KNOWN_COLUMNS."""
    rows = []
    for name in list_hardware(profiles=profiles):
        fits = fit_set(load_hardware(name, profiles=profiles), library=library, group="gemm", profiles=profiles)
        assert fits is not None, "products are measured on some accelerator"
        relative = fits.relative
        whose = "its own" if relative.name == name else f"{relative.name}'s"
        how = "on" if relative.known is Provenance.CALIBRATED else "from"
        rows.append((name, f"{relative.known.label} {how} {whose} measured kernels"))
    return rows


def _percent(value: float | None, *, pattern: str = ".1f") -> str:
    return "-" if value is None else f"{100 * value:{pattern}} %"


def score_lines(rows: Sequence[KernelScore]) -> list[str]:
    """The scores as aligned lines under a heading, percent."""
    heading = ("accelerator", "library", "family", "format", "group", "error", "bias", "in 80 %", "points")
    cells = [
        (
            *_KERNEL(row),
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
