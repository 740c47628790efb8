"""``calibrate``, ``demand``, the scorecard and replays: what a user measured, and how wrong predictions were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from simulator.api.questions import ServedFields, served_spec
from simulator.errors import FileError, RoofcastError, did_you_mean, ignored_option, missing_field
from simulator.fitting.engine_overheads import EngineCalibration, calibrate_engine
from simulator.fitting.kernel_calibration import KernelCalibration, calibrate_kernels
from simulator.fitting.replay import replay_results
from simulator.kernels.transfer import calibrated_relative
from simulator.reports.answers.calibration import EngineCalibrationAnswer, KernelCalibrationAnswer, ReplayAnswer
from simulator.reports.answers.demand import DemandAnswer
from simulator.reports.answers.validation import ScorecardAnswer
from simulator.reports.words.fields import note_text
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import calibrated_hardware, load_transfer_table
from simulator.specs.measured.scores import KernelScore, end_to_end_scores, kernel_scores
from simulator.specs.measured.validation_rows import load_validation_table


def calibrate(
    measured: str | None = None,
    *,
    hardware: str | None = None,
    results: Sequence[str] = (),
    only: Sequence[str] = (),
    out: str | None = None,
    profiles: str | None = None,
    force: bool = False,
    **served: Unpack[ServedFields],
) -> KernelCalibrationAnswer | EngineCalibrationAnswer:
    """Fit your own measurements: kernels of an accelerator, or the overheads of an engine: ``roofcast calibrate``.

    measured : the CSV of ``python -m validation.measure``; or
    results : vLLM bench, GuideLLM or AIPerf results; the keywords say what served them
    only : families ("gemm") or families and formats ("gemm/bf16") to fit
    out : folder to write profiles into, for ``profiles=`` of every function; None writes nothing

    Raises RoofcastError: both kinds or neither were given, an option would change nothing, or the fit is refused.
    Raises FileError: a profile exists and ``force`` is not given.
    """
    _check_calibration(measured, hardware, results, idle=tuple(served))
    assert hardware is not None, "checked"
    if measured is not None:
        kernels = calibrate_kernels(measured, hardware=hardware, only=only, profiles=profiles)
        return KernelCalibrationAnswer(kernels, _written(kernels, out=out, force=force))
    if only:
        raise ignored_option("has no effect with --from", field="--only", hint="")
    asked = served_spec(hardware, served)
    if asked.disaggregation is not None:
        raise ignored_option("has no effect: overheads are fitted to one replica", field="disaggregation", hint="")
    engine = calibrate_engine(results, served=asked, profiles=profiles)
    return EngineCalibrationAnswer(engine, _written(engine, out=out, force=force))


def _check_calibration(
    measured: str | None, hardware: str | None, results: Sequence[str], *, idle: Sequence[str]
) -> None:
    """Refuse both kinds of calibration at once and neither, what is missing, and what changes nothing."""
    if idle and not results:
        raise ignored_option("has no effect without --from", field=f"--{idle[0].replace('_', '-')}", hint="")
    if results and hardware is None:
        raise _missing("--hardware", "what the benchmark ran on")
    if (measured is None) == (not results):
        raise RoofcastError(
            "give either a measured.csv or --from RESULT.json",
            field="measured.csv",
            hint="python -m validation.measure writes the CSV",
        )
    if hardware is None:
        raise _missing("--hardware", "the accelerator measured")


def _missing(flag: str, hint: str) -> RoofcastError:
    return missing_field("is missing", field=flag, hint=hint)


def _written(found: KernelCalibration | EngineCalibration, *, out: str | None, force: bool) -> tuple[Path, ...]:
    """Write the profiles, none of them where one exists and it is not forced."""
    from simulator.files import write_new_files
    from simulator.specs.hardware.calibration import load_calibration

    if out is None:
        return ()
    own = () if isinstance(found, KernelCalibration) or found.profile is None else (found.profile,)
    profiles = found.profiles if isinstance(found, KernelCalibration) else own
    files = [(Path(out) / profile.path, profile.text.encode()) for profile in profiles]
    write_new_files(files, force=force, flag="--out", instead="another directory")
    # A profile looked up before it was written is remembered as missing.
    load_calibration.cache_clear()
    return tuple(path for path, _ in files)


def demand(record: str, *, over: str | None = None) -> DemandAnswer:
    """What recorded traffic asks for: ``roofcast demand``.

    record : a trace, /metrics text, Prometheus ranges or a benchmark result; over : the time that /metrics cover ("6h")
    """
    import hashlib

    from simulator.specs.question.plan_values import duration_s
    from simulator.traffic.recorded.importers import import_demand

    try:
        over_s = duration_s(over) if over is not None else None
    except ValueError as error:
        raise RoofcastError(f"{error}, got {over!r}", field="--over") from None
    found = import_demand(record, over_s=over_s)
    try:
        content = Path(record).expanduser().read_bytes()
    except OSError as error:
        raise FileError(f"{record}: cannot be read: {error.strerror or error}", field="FILE") from None
    return DemandAnswer(found, hashlib.sha256(content).hexdigest())


LIBRARIES = ("vllm", "sglang", "trtllm", "aiter", "nccl", "torch", "xla", "xpu")


def scorecard(
    *,
    hardware: str | None = None,
    libraries: Sequence[str] = (),
    kernels: bool = True,
    end_to_end: bool = True,
    profiles: str | None = None,
) -> ScorecardAnswer:
    """How wrong kernel fits were on shapes that they never saw, and whole runs: ``roofcast validate``.

    Stored errors of one or every accelerator: kernels under the named or all libraries, and whole runs.

    Raises RoofcastError: a library that nothing is fitted for, one beside end-to-end errors alone, or an accelerator of
    which neither kernels (named with its stand-in) nor whole runs were measured.
    """
    _check_libraries(libraries, kernels=kernels)
    name = load_hardware(hardware, profiles=profiles).name if hardware is not None else None
    runs = [row for row in load_validation_table().rows if name in (None, row.hardware)] if end_to_end else []
    found = ScorecardAnswer(
        hardware=name,
        kernels=_kernels(name, libraries=libraries, profiles=profiles) if kernels else None,
        left_out=[row for row in load_transfer_table().nearest if name in (None, row.target)] if kernels else [],
        runs=end_to_end_scores(runs) if end_to_end else None,
    )
    if not found.kernels and not found.runs:
        if not kernels:
            _refuse_runs(name)
        _refuse(name, libraries=libraries, profiles=profiles)
    return found


def _check_libraries(libraries: Sequence[str], *, kernels: bool) -> None:
    if libraries and not kernels:
        raise ignored_option("has no effect on end-to-end errors", field="--library")
    for library in libraries:
        if library not in LIBRARIES:
            raise RoofcastError(
                f"unknown kernel library {library!r}", field="--library", hint=did_you_mean(library, LIBRARIES)
            )


def _kernels(name: str | None, *, libraries: Sequence[str], profiles: str | None) -> list[KernelScore]:
    return [
        score
        for library in libraries or LIBRARIES
        for score in kernel_scores(library, hardware=name, profiles=profiles)
    ]


def _refuse_runs(name: str | None) -> None:
    measured = ", ".join(sorted({row.hardware for row in load_validation_table().rows}))
    raise RoofcastError(
        f"no end-to-end run on {name} is stored; measured: {measured}", field="--hardware", code="not_measured"
    )


def _refuse(name: str | None, *, libraries: Sequence[str], profiles: str | None) -> None:
    """Say that nothing was fitted, and for one accelerator whose fits stand in."""
    where = f" under {', '.join(libraries)}" if libraries else ""
    if name is None:
        raise RoofcastError(f"no kernel fits{where}", field="--library", code="not_calibrated")
    known = calibrated_hardware(LIBRARIES[0], group="roofline", profiles=profiles)
    if name in known:
        raise RoofcastError(
            f"no kernel of {name} was measured{where}",
            field="--library",
            code="not_calibrated",
            hint=f"leave --library out to see what was; all libraries: {', '.join(LIBRARIES)}",
        )
    specs = [load_hardware(other, profiles=profiles) for other in known]
    lent = note_text(calibrated_relative(load_hardware(name, profiles=profiles), available=specs).reason)
    raise RoofcastError(
        f"no kernel of {name} was measured{where}; measured: {', '.join(known)}",
        field="--hardware",
        code="not_calibrated",
        hint=f"kernels without fits are priced with {lent}; measure your own with roofcast calibrate",
    )


def replay(
    results: Sequence[str],
    *,
    hardware: str,
    speculation: str | None = None,
    disaggregation: str | None = None,
    profiles: str | None = None,
    **served: Unpack[ServedFields],
) -> ReplayAnswer:
    """Import benchmark results as scenarios and predict them: ``roofcast validate --from``.

    results : files of InferenceX, vLLM bench, GuideLLM or AIPerf; the keywords say what served them
    speculation : guesses, such as ``mtp``; disaggregation : pools, such as ``prefill_replicas=2,decode_replicas=1``

    Raises RoofcastError: a file is of no known kind, lacks lengths or a load, or the deployment is refused.
    """
    techniques = None if speculation is None else {"speculation": speculation}
    asked = served_spec(hardware, {**served, "techniques": techniques, "disaggregation": disaggregation})
    return ReplayAnswer(replay_results(results, served=asked, profiles=profiles))
