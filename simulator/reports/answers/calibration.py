"""``roofcast calibrate``: what was fitted, with each error before and after; measured runs beside predictions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from simulator.fitting.engine_overheads import EngineCalibration, OverheadFit
from simulator.fitting.kernel_calibration import KernelCalibration
from simulator.fitting.kernel_fits import UserFit
from simulator.fitting.replay import UNKNOWN_CV, ReplayedRun, ReplayedValue
from simulator.fitting.three_parameter import PARAMETERS
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Cells, Json, dump, picked
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.content.document import EMPTY, Cell, ordered
from simulator.reports.content.quantities import percent_text, range_text, rate_text, seconds_text, signed_percent_text
from simulator.reports.words.runs import metric_word
from simulator.units import MICRO, MILLI


def _fit_line(item: UserFit) -> str:
    fit = item.fit
    shown = []
    for name in PARAMETERS:
        if name in fit.parameters:
            value = fit.parameters[name]
            text = (
                f"launch {value / MICRO:.3g} us" if name == "launch_s" else f"{name.split('_')[0]} {100 * value:.3g} %"
            )
            shown.append(text + (" (kept: not identified)" if name in item.kept else ""))
    points = fit.error.fit_points + fit.error.score_points
    return (
        f"{fit.family + ' ' + fit.format:26s} {points:4d} points: held-out error "
        f"{100 * item.before_mape:.1f} % before, {100 * item.after_mape:.1f} % after; {', '.join(shown)}"
        + ("" if item.is_kept else "; not used: the fits in force are closer")
    )


def _step_lines(found: KernelCalibration) -> list[str]:
    """Steps that no fit saw: a layer or a model against the sum of its kernels."""
    return [
        f"{then.family.replace('_', ' ')} {then.phase} of {then.model} {then.format}: {then.steps} steps, "
        f"not fitted: error "
        f"{100 * then.mean:.1f} % before, {100 * now.mean:.1f} % after (bias {100 * now.bias:+.1f} %)"
        for then, now in zip(found.whole_before, found.whole_after, strict=True)
    ]


def _use_line(found: KernelCalibration, folder: Path) -> str:
    """Whom the profiles serve: an engine whose own kernels were measured keeps those."""
    return (
        f"use it with --profiles {folder}: it prices engine torch, and what other engines have no measured kernels for "
        f"on {found.hardware.name}"
    )


def _errors_chart(of: str, names: list[str], errors: Sequence[tuple[float, float]]) -> Chart:
    bars = {name: [100 * abs(pair[place]) for pair in errors] for place, name in enumerate(("before", "after"))}
    return bars_chart("calibration", "Error before and after the fit", y=f"{of} [%]", names=names, of=bars)


@dataclass(frozen=True, slots=True)
class KernelCalibrationAnswer(Answer):
    """What was fitted of kernels, each error before and after, and the profiles that were written (maybe none)."""

    LISTED = "fits"
    found: KernelCalibration
    files: tuple[Path, ...]

    def to_text(self) -> str:
        """One line a fit, one a whole step, and what was written."""
        found, table, written = self.found, self.found.table, self.files
        lines = [
            f"{table.device}, torch {table.torch_version}, {table.date}, as {found.hardware.name}",
            *map(_fit_line, found.fits),
            *_step_lines(found),
            *(f"not fitted: {reason}" for reason in found.skipped),
            *([f"measured but not fitted: {', '.join(found.unused)}"] if found.unused else []),
            *(f"wrote {path}" for path in written),
            *([_use_line(found, written[0].parents[1])] if written else []),
        ]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> Json:
        """The figures, as fractions and in SI units, and the files."""
        found = self.found
        return {
            "schema_version": SCHEMA_VERSION,
            "hardware": found.hardware.name,
            "fits": [
                {
                    **picked(item.fit, "family", "format"),
                    "points": item.fit.error.fit_points + item.fit.error.score_points,
                    **picked(item, "before_mape", "after_mape"),
                    "parameters": dict(item.fit.parameters),
                    "kept": list(item.kept),
                    "used": item.is_kept,
                }
                for item in found.fits
            ],
            "steps": [
                {**picked(then, "family", "model", "format", "phase", "steps"), "before": then.mean, "after": now.mean}
                for then, now in zip(found.whole_before, found.whole_after, strict=True)
            ],
            "skipped": list(found.skipped),
            "unused": list(found.unused),
            "files": [str(path) for path in self.files],
        }

    def cells(self) -> Cells:
        """A row a fit, with its held-out errors."""
        rows = [
            (item.fit.family, item.fit.format, percent_text(item.before_mape), percent_text(item.after_mape))
            for item in self.found.fits
        ]
        return ("family", "format", "before", "after"), rows

    def chart(self) -> Chart:
        """Errors before and after."""
        fits = self.found.fits
        errors = [(item.before_mape, item.after_mape) for item in fits]
        return _errors_chart("Held-out error", [f"{item.fit.family} {item.fit.format}" for item in fits], errors)


_VARIED = f"taken to vary by {100 * UNKNOWN_CV:g} %"
_LENGTHS = {"equal": "taken as equal, which come in waves", "varied": f"{_VARIED}, as equal ones contradict it"}


def _percents(*errors: float) -> tuple[str, ...]:
    return tuple(f"{100 * error:+.1f} %" for error in errors)


def _change(before: float, after: float) -> str:
    return "{} before, {} after".format(*_percents(before, after))


def _overheads(fit: OverheadFit) -> str:
    """``step_s 2 ms, request_s 13 ms``; a time per prompt in place of the latter where the runs say so."""
    waited = ("step_per_prompt_s", fit.prompt_s) if fit.prompt_s else ("request_s", fit.request_s)
    return f"step_s {fit.step_s / MILLI:.4g} ms, {waited[0]} {waited[1] / MILLI:.4g} ms"


@dataclass(frozen=True, slots=True)
class EngineCalibrationAnswer(Answer):
    """What was fitted of an engine, each error before and after, and the profile that was written (maybe none)."""

    LISTED = "runs"
    found: EngineCalibration
    files: tuple[Path, ...]

    def to_text(self) -> str:
        """One line a run, then the two overheads."""
        found, lines = self.found, []
        for item in found.fit.errors:
            run = item.run
            load = f"{run.request_rate_per_s:g}/s" if run.request_rate_per_s else f"{run.concurrency:.0f} at once"
            lines.append(
                f"{run.tool}, {load}, {run.isl_tokens:.0f} in, {run.osl_tokens:.0f} out: "
                f"TTFT {run.ttft_s / MILLI:.4g} ms, off by {_change(item.ttft_before, item.ttft_after)}; "
                f"TPOT {run.tpot_s / MILLI:.4g} ms, off by {_change(item.tpot_before, item.tpot_after)}"
            )
        if found.lengths is not None:
            lines.append(f"(a file has means alone of lengths: {_LENGTHS[found.lengths]})")
        fit = found.fit
        if not fit.changed:
            kept = f"{_overheads(fit)} stay"
            return "\n".join([*lines, f"{found.engine}: no change needed: {kept}, nothing written"]) + "\n"
        lines += [
            "(errors on the runs that were fitted; two numbers for all of them)",
            f"{found.engine}: {_overheads(fit)}",
            *(f"wrote {path}; use it with --profiles {path.parents[1]}" for path in self.files),
        ]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> Json:
        """The figures, as fractions and in SI units, and the files."""
        found = self.found
        return {
            "schema_version": SCHEMA_VERSION,
            "engine": found.engine,
            **picked(found.fit, "step_s", "request_s", "step_per_prompt_s=prompt_s", "changed"),
            "runs": [
                {
                    **picked(item.run, "tool", "ttft_s", "tpot_s"),
                    **picked(item, "ttft_before", "ttft_after", "tpot_before", "tpot_after"),
                }
                for item in found.fit.errors
            ],
            "files": [str(path) for path in self.files],
        }

    def cells(self) -> Cells:
        """A row a run, with its errors."""
        rows = [
            (item.run.tool, *_percents(item.ttft_before, item.ttft_after, item.tpot_before, item.tpot_after))
            for item in self.found.fit.errors
        ]
        return ("tool", "TTFT before", "after", "TPOT before", "after"), rows

    def chart(self) -> Chart:
        """Errors before and after."""
        runs = self.found.fit.errors
        errors = [(item.tpot_before, item.tpot_after) for item in runs]
        return _errors_chart("Error of TPOT", [item.run.tool for item in runs], errors)


@dataclass(frozen=True, slots=True)
class ReplayAnswer(Answer):
    """Every run of the result files as a scenario, its values beside their predictions."""

    runs: tuple[ReplayedRun, ...]

    def to_dict(self) -> Json:
        """Each run with its scenario, as ``roofcast simulate`` takes it, and its values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "runs": [
                {
                    **picked(item, "id=scenario.id", "tool=run.tool"),
                    "scenario": item.scenario.model_dump(mode="json", exclude_unset=True),
                    "values": [dump(value) | {"error": value.error} for value in item.values],
                }
                for item in self.runs
            ],
        }

    def rows(self) -> list[Json]:
        """One row a value."""
        return [{"result": run["id"], **value} for run in self.to_dict()["runs"] for value in run["values"]]

    def cells(self) -> Cells:
        """A row a value."""
        rows = [[cell if isinstance(cell, str) else str(cell.value) for cell in row] for row in replay_rows(self.runs)]
        return REPLAY_COLUMNS, rows

    def to_text(self) -> str:
        """A line for each value under each run."""
        lines = []
        for item in self.runs:
            asked = item.scenario
            load = f"{asked.concurrency} in flight" if asked.concurrency else "open arrivals"
            guessed = "" if item.run.tells_lengths else f", lengths {_VARIED}: the file has means alone"
            lines.append(f"{asked.id} ({item.run.tool}, {load}{guessed})")
            for value in item.values:
                ends = f", 80 %: {value.interval[0]:.4g} to {value.interval[1]:.4g}" if value.interval else ""
                lines.append(
                    f"  {value.metric}: measured {value.measured:.4g}, predicted {value.predicted:.4g} "
                    f"({100 * value.error:+.1f} %{ends})"
                )
        return "\n".join(lines) + "\n"

    def chart(self) -> Chart:
        """Errors by metric."""
        rows = self.rows()
        names = [f"{row['result']} {row['metric']}" for row in rows]
        errors = {"error": [100 * row["error"] for row in rows]}
        return bars_chart("replay", "Predicted over measured", y="Error [%]", names=names, of=errors)


REPLAY_COLUMNS = ("run", "metric", "measured", "predicted", "80 % interval", "error")


def replay_rows(runs: Sequence[ReplayedRun]) -> list[tuple[Cell | str, ...]]:
    """A row for each value, in the order of REPLAY_COLUMNS."""
    return [
        (
            f"{item.run.tool} {place}",
            metric_word(value.metric),
            ordered(_value_text(value, value.measured), value.measured),
            ordered(_value_text(value, value.predicted), value.predicted),
            range_text(value.interval, partial(_value_text, value)) if value.interval else EMPTY,
            ordered(signed_percent_text(value.error), value.error),
        )
        for place, item in enumerate(runs, start=1)
        for value in item.values
    ]


def _value_text(value: ReplayedValue, number: float) -> str:
    return rate_text(number, "tok") if value.metric == "output_tokens_per_s" else seconds_text(number)
