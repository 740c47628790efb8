"""``roofcast calibrate``: a user's measurements become profiles in the user's own directory, or are refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.cli.output import write_text
from simulator.errors import FileError, RoofcastError
from simulator.fitting.engine_calibration import calibrate_engine
from simulator.fitting.kernel_calibration import calibrate_kernels
from simulator.fitting.kernel_fits import UserFit
from simulator.fitting.profile_text import ProfileText
from simulator.fitting.three_parameter import PARAMETERS
from simulator.fitting.whole_steps import WholeError
from simulator.specs.hardware.calibration import load_calibration
from simulator.units import MICRO, MILLI


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTarget:
    """Where profiles go: ``out`` has the layout of a profile directory; ``profiles`` is read beside the built-in."""

    out: str
    profiles: str | None
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchQuestion:
    """What ran in the benchmark; None leaves a number format as the checkpoint has it."""

    files: tuple[str, ...]
    model: str
    hardware: str
    tp_size: int
    engine: str
    weights: str | None
    kv_cache: str | None


def bench_question(
    files: Sequence[str],
    *,
    model: str | None,
    hardware: str | None,
    tp_size: int,
    engine: str,
    weights: str | None,
    kv_cache: str | None,
) -> BenchQuestion | None:
    """The question of ``--from``, or None without it; refuses a missing model and options that would do nothing."""
    if not files:
        given = {
            "--model": model,
            "--weights": weights,
            "--kv-cache": kv_cache,
            "--tp": tp_size if tp_size > 1 else None,
        }
        idle = [name for name, value in given.items() if value is not None]
        if idle:
            raise RoofcastError("has no effect without --from", field=idle[0], code="ignored_option")
        return None
    for name, value in (("--model", model), ("--hardware", hardware)):
        if value is None:
            raise RoofcastError("is missing", field=name, code="missing_field", hint="what the benchmark ran on")
    return BenchQuestion(
        files=tuple(files),
        model=model or "",
        hardware=hardware or "",
        tp_size=tp_size,
        engine=engine,
        weights=weights,
        kv_cache=kv_cache,
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _write_all(profiles: Sequence[ProfileText], *, target: CalibrationTarget) -> list[Path]:
    """Write the files, none of them where one exists and it is not forced."""
    paths = [Path(target.out) / profile.path for profile in profiles]
    for path in paths:
        if path.exists() and not target.force:
            raise FileError(f"{str(path)!r} exists", field="--out", hint="choose another directory or add --force")
    for path, profile in zip(paths, profiles, strict=True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{path.parent}: cannot be made: {error.strerror or error}", field="--out") from None
        write_text(profile.text, str(path), force=target.force)
    # A profile looked up before it was written is remembered as missing.
    load_calibration.cache_clear()
    return paths


def _report(item: UserFit) -> str:
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
    )


def _whole_report(before: Sequence[WholeError], after: Sequence[WholeError]) -> list[str]:
    """Steps that no fit saw: a layer or a model against the sum of its kernels."""
    return [
        f"{then.family.replace('_', ' ') + ' ' + then.phase:26s} {then.steps:4d} steps, not fitted: error "
        f"{100 * then.mean:.1f} % before, {100 * now.mean:.1f} % after (bias {100 * now.bias:+.1f} %)"
        for then, now in zip(before, after, strict=True)
    ]


def _print_kernels(measured: str, *, hardware: str, only: Sequence[str], target: CalibrationTarget) -> None:
    found = calibrate_kernels(measured, hardware=hardware, only=only, profiles=target.profiles)
    paths = _write_all(found.profiles, target=target)
    table = found.table
    _say(f"{table.device}, torch {table.torch_version}, {table.date}, as {found.hardware.name}")
    for item in found.fits:
        _say(_report(item))
    for line in _whole_report(found.whole_before, found.whole_after):
        _say(line)
    if found.unused:
        _say(f"measured but not fitted: {', '.join(found.unused)}")
    for path in paths:
        _say(f"wrote {path}")
    _say(f"use it with --profiles {target.out}")


def _change(before: float, after: float) -> str:
    return f"{100 * before:+.1f} % before, {100 * after:+.1f} % after"


def _print_engine(question: BenchQuestion, *, target: CalibrationTarget) -> None:
    found = calibrate_engine(
        question.files,
        model=question.model,
        hardware=question.hardware,
        tp_size=question.tp_size,
        engine=question.engine,
        weights=question.weights,
        kv_cache=question.kv_cache,
        profiles=target.profiles,
    )
    (path,) = _write_all((found.profile,), target=target)
    for item in found.fit.errors:
        run = item.run
        load = f"{run.request_rate_per_s:g}/s" if run.request_rate_per_s else f"{run.concurrency:.0f} at once"
        _say(
            f"{run.tool}, {load}, {run.isl_tokens:.0f} in, {run.osl_tokens:.0f} out: "
            f"TTFT {run.ttft_s / MILLI:.4g} ms, off by {_change(item.ttft_before, item.ttft_after)}; "
            f"TPOT {run.tpot_s / MILLI:.4g} ms, off by {_change(item.tpot_before, item.tpot_after)}"
        )
    _say("(errors on the runs that were fitted; two numbers for all of them)")
    fit = found.fit
    _say(f"{found.engine}: step_s {fit.step_s / MILLI:.4g} ms, request_s {fit.request_s / MILLI:.4g} ms")
    _say(f"wrote {path}; use it with --profiles {target.out}")


def run_calibrate(
    measured: str | None,
    *,
    hardware: str | None,
    bench: BenchQuestion | None,
    only: Sequence[str],
    target: CalibrationTarget,
) -> None:
    """One of the two kinds of calibration; refuses both at once, and neither."""
    if (measured is None) == (bench is None):
        raise RoofcastError(
            "give either a measured.csv or --from RESULT.json",
            field="measured.csv",
            hint="python -m validation.measure writes the CSV",
        )
    if hardware is None:
        raise RoofcastError("is missing", field="--hardware", code="missing_field", hint="the accelerator measured")
    if bench is not None:
        if only:
            raise RoofcastError("has no effect with --from", field="--only", code="ignored_option")
        _print_engine(bench, target=target)
    elif measured is not None:
        _print_kernels(measured, hardware=hardware, only=only, target=target)
