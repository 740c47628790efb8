"""``roofcast calibrate``: a user's measurements become profiles in the user's own directory, or are refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from simulator.cli.output import write_text
from simulator.errors import FileError, RoofcastError
from simulator.fitting.engine_overheads import OverheadFit, fit_overheads
from simulator.fitting.kernel_fits import PARAMETERS, UserFit, demands, fit_demand
from simulator.fitting.whole_steps import MEASURED_MODEL, WholeError, whole_errors, whole_rows
from simulator.kernels.fits import MEASURED_LIBRARY
from simulator.kernels.library import kernel_library
from simulator.operators.work import Family
from simulator.phases.deployment import deploy
from simulator.specs.base import Source
from simulator.specs.documents import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineOverheads, EngineProfile, EngineSpec, load_engine
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import CalibrationGroup, CalibrationSpec, calibration_name, load_calibration
from simulator.specs.loading import load_hardware
from simulator.specs.measured.kernel_times import MeasuredTable, load_measurements
from simulator.specs.measured.serving_results import load_serving_runs
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.writing import yaml_text
from simulator.units import MICRO, MILLI

HEADING = "Written by roofcast calibrate from measurements; do not edit."


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


def _write_all(texts: Sequence[tuple[Path, str]], *, force: bool) -> None:
    """Write the files, none of them where one exists and ``force`` is not given."""
    for path, _ in texts:
        if path.exists() and not force:
            raise FileError(f"{str(path)!r} exists", field="--out", hint="choose another directory or add --force")
    for path, text in texts:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{path.parent}: cannot be made: {error.strerror or error}", field="--out") from None
        write_text(text, str(path), force=force)


def _selected(table: MeasuredTable, *, only: Sequence[str]) -> MeasuredTable:
    """Rows of the chosen families ("gemm") or families and formats ("gemm/bf16")."""
    if not only:
        return table
    rows = tuple(row for row in table.rows if row.family in only or f"{row.family}/{row.format}" in only)
    if not rows:
        known = sorted({f"{row.family}/{row.format}" for row in table.rows})
        raise RoofcastError(
            f"{', '.join(only)} is not in {table.path}", field="--only", hint=f"there: {', '.join(known)}"
        )
    return replace(table, rows=rows)


def _calibration(hardware: AcceleratorSpec, table: MeasuredTable, fits: Sequence[UserFit]) -> CalibrationSpec:
    return CalibrationSpec(
        hardware=hardware.name,
        library=MEASURED_LIBRARY,
        library_version=table.torch_version,
        date=table.date,
        source=f"{Path(table.path).name}: {table.device}, driver {table.driver}, torch {table.torch_version}",
        fits=tuple(item.fit for item in fits),
    )


def _check_date(table: MeasuredTable, hardware: AcceleratorSpec) -> None:
    if table.date < hardware.facts_date:
        raise RoofcastError(
            f"measured on {table.date}, before the facts of {hardware.name} were last changed ({hardware.facts_date})",
            field="date",
            code="outdated_measurement",
            hint="measure again",
        )


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


def calibrate_kernels(measured: str, *, hardware: str, only: Sequence[str], target: CalibrationTarget) -> None:
    """Fit the measured kernels of one accelerator, print each error before and after, and write the profiles."""
    accelerator = load_hardware(hardware, profiles=target.profiles)
    whole = load_measurements(measured)
    table = _selected(whole, only=only)
    _check_date(table, accelerator)
    found = demands(table, hardware=accelerator)
    if not found:
        families = ", ".join(sorted({f"{row.family}/{row.format}" for row in table.rows}))
        raise RoofcastError(f"row 2: nothing that can be fitted in {table.path}; it has {families}", field="family")
    kernels = kernel_library(accelerator, library=MEASURED_LIBRARY, profiles=target.profiles)
    fits = [fit_demand(demand, kernels=kernels) for demand in found]
    steps = whole_rows(whole.rows)
    model = load_model(MEASURED_MODEL, profiles=target.profiles)
    before = whole_errors(steps, model=model, kernels=kernels)
    groups: tuple[tuple[CalibrationGroup, list[UserFit]], ...] = (
        ("roofline", [item for item in fits if item.fit.family != Family.ELEMENTWISE]),
        ("elementwise", [item for item in fits if item.fit.family == Family.ELEMENTWISE]),
    )
    texts = []
    for group, members in groups:
        if members:
            name = calibration_name(accelerator.name, library=MEASURED_LIBRARY, group=group)
            text = yaml_text(_calibration(accelerator, table, members), heading=HEADING)
            texts.append((Path(target.out) / "calibration" / f"{name}.yaml", text))
    _write_all(texts, force=target.force)
    # A profile looked up before it was written is remembered as missing.
    load_calibration.cache_clear()
    _say(f"{table.device}, torch {table.torch_version}, {table.date}, as {accelerator.name}")
    for item in fits:
        _say(_report(item))
    now = kernel_library(accelerator, library=MEASURED_LIBRARY, profiles=target.out)
    for line in _whole_report(before, whole_errors(steps, model=model, kernels=now)):
        _say(line)
    used = {row.line for demand in found for row in demand.rows} | {row.line for row in steps}
    unused = sorted({f"{row.family}/{row.format} ({row.kernel})" for row in table.rows if row.line not in used})
    if unused:
        _say(f"measured but not fitted: {', '.join(unused)}")
    for path, _ in texts:
        _say(f"wrote {path}")
    _say(f"use it with --profiles {target.out}")


def _fitted_profile(
    profile: EngineProfile, fit: OverheadFit, *, measured_on: EngineOverheads, question: BenchQuestion
) -> EngineProfile:
    tools = ", ".join(sorted({item.run.tool for item in fit.errors}))
    names = ", ".join(Path(name).name for name in question.files)
    earlier = profile.sources.get("overheads")
    rest = f"; the others as before: {earlier.source}" if earlier else ""
    source = Source(
        source=f"fitted by roofcast calibrate on {names} ({tools})",
        date=datetime.now(UTC).date().isoformat(),
        note=f"step_s and request_s from {question.model} on {question.hardware}, tp {question.tp_size}{rest}",
    )
    values = {"step_s": float(f"{fit.step_s:.4g}"), "request_s": float(f"{fit.request_s:.4g}")}
    overheads = measured_on.model_copy(update=values)
    return profile.model_copy(update={"overheads": overheads, "sources": {**profile.sources, "overheads": source}})


def _change(before: float, after: float) -> str:
    return f"{100 * before:+.1f} % before, {100 * after:+.1f} % after"


def calibrate_engine(question: BenchQuestion, *, target: CalibrationTarget) -> None:
    """Fit an engine's time per step and per request to benchmark results, print the errors, and write its profile."""
    runs = tuple(run for name in question.files for run in load_serving_runs(name))
    profile = load_engine(question.engine, profiles=target.profiles)
    precision = {"weights": question.weights, "kv_cache": question.kv_cache}
    deployment = deploy(
        model=load_model(question.model, profiles=target.profiles),
        hardware=load_hardware(question.hardware, profiles=target.profiles),
        parallelism=ParallelismSpec(tp_size=question.tp_size),
        precision=validate(PrecisionSpec, precision, where=""),
        engine=validate(EngineSpec, {"name": question.engine}, where=""),
        profiles=target.profiles,
    )
    fit = fit_overheads(deployment, runs=runs)
    path = Path(target.out) / "engines" / f"{profile.name}.yaml"
    fitted = _fitted_profile(profile, fit, measured_on=deployment.engine.overheads, question=question)
    text = yaml_text(fitted, heading=HEADING)
    _write_all([(path, text)], force=target.force)
    for item in fit.errors:
        run = item.run
        load = f"{run.request_rate_per_s:g}/s" if run.request_rate_per_s else f"{run.concurrency:.0f} at once"
        _say(
            f"{run.tool}, {load}, {run.isl_tokens:.0f} in, {run.osl_tokens:.0f} out: "
            f"TTFT {run.ttft_s / MILLI:.4g} ms, off by {_change(item.ttft_before, item.ttft_after)}; "
            f"TPOT {run.tpot_s / MILLI:.4g} ms, off by {_change(item.tpot_before, item.tpot_after)}"
        )
    _say("(errors on the runs that were fitted; two numbers for all of them)")
    _say(f"{profile.name}: step_s {fit.step_s / MILLI:.4g} ms, request_s {fit.request_s / MILLI:.4g} ms")
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
        calibrate_engine(bench, target=target)
    elif measured is not None:
        calibrate_kernels(measured, hardware=hardware, only=only, target=target)
