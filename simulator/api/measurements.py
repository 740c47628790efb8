"""``calibrate``, ``demand``, the scorecard and replays: what a user measured, and how wrong predictions were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from simulator.api.questions import ServedFields, served_spec
from simulator.api.results import Answer, Document
from simulator.errors import FileError, RoofcastError
from simulator.fitting.engine_calibration import EngineCalibration, calibrate_engine
from simulator.fitting.kernel_calibration import KernelCalibration, calibrate_kernels
from simulator.fitting.replay import ReplayedRun, replay_results

if TYPE_CHECKING:
    from simulator.reports.answers.validation import Scorecard
    from simulator.reports.charts.chart import Chart
    from simulator.traffic.recorded.demand import RecordedDemand


@dataclass(frozen=True, slots=True)
class CalibrationAnswer(Answer):
    """What was fitted, each error before and after, and the profiles that were written (none without ``out``)."""

    found: KernelCalibration | EngineCalibration
    files: tuple[Path, ...]

    def to_dict(self) -> Document:
        """The figures as fractions and in SI units, and the files."""
        from simulator.reports.answers.calibration import engine_calibration_document, kernel_calibration_document

        document = (
            kernel_calibration_document(self.found)
            if isinstance(self.found, KernelCalibration)
            else engine_calibration_document(self.found)
        )
        return document | {"files": [str(path) for path in self.files]}

    def to_text(self) -> str:
        """What ``roofcast calibrate`` prints."""
        from simulator.reports.answers.calibration import engine_calibration_text, kernel_calibration_text

        if isinstance(self.found, KernelCalibration):
            return kernel_calibration_text(self.found, written=self.files)
        return engine_calibration_text(self.found, written=self.files)

    def rows(self) -> list[Document]:
        """One row a fit, or a run of the benchmark."""
        document = self.to_dict()
        return list(document["fits"] if "fits" in document else document["runs"])

    def chart(self) -> Chart:
        """Errors before and after."""
        from simulator.reports.answers.charts import bars_chart
        from simulator.reports.charts.chart import Axis

        rows = self.rows()
        kernels = isinstance(self.found, KernelCalibration)
        before, after = ("before_mape", "after_mape") if kernels else ("tpot_before", "tpot_after")
        return bars_chart(
            key="calibration",
            title="Error before and after the fit",
            y=Axis(title="Held-out error" if kernels else "Error of TPOT", unit="%"),
            names=[f"{row['family']} {row['format']}" if kernels else str(row["tool"]) for row in rows],
            bars={
                "before": [100 * abs(row[before]) for row in rows],
                "after": [100 * abs(row[after]) for row in rows],
            },
        )


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
) -> CalibrationAnswer:
    """Fit your own measurements: kernels of an accelerator, or the overheads of an engine: ``roofcast calibrate``.

    measured : the CSV of ``python -m validation.measure``; or
    results : vLLM bench, GuideLLM or AIPerf results; the keywords say what served them
    only : families ("gemm") or families and formats ("gemm/bf16") to fit
    out : folder to write profiles into, for ``profiles=`` of every function; None writes nothing

    Raises
    ------
    RoofcastError
        Both kinds or neither were given, an option would change nothing, or the fit is refused.
    FileError
        A profile exists and ``force`` is not given.
    """
    _check_calibration(measured, hardware, results, idle=tuple(served))
    assert hardware is not None, "checked"
    found: KernelCalibration | EngineCalibration
    if measured is not None:
        found = calibrate_kernels(measured, hardware=hardware, only=only, profiles=profiles)
        return CalibrationAnswer(found, _written(found, out=out, force=force))
    if only:
        raise RoofcastError("has no effect with --from", field="--only", code="ignored_option")
    found = calibrate_engine(results, served=served_spec(hardware, served), profiles=profiles)
    return CalibrationAnswer(found, _written(found, out=out, force=force))


def _check_calibration(
    measured: str | None, hardware: str | None, results: Sequence[str], *, idle: Sequence[str]
) -> None:
    """Refuse both kinds of calibration at once and neither, what is missing, and what changes nothing."""
    if idle and not results:
        raise RoofcastError(
            "has no effect without --from", field=f"--{idle[0].replace('_', '-')}", code="ignored_option"
        )
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
    return RoofcastError("is missing", field=flag, code="missing_field", hint=hint)


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


@dataclass(frozen=True, slots=True)
class DemandAnswer(Answer):
    """A recorded workload."""

    demand: RecordedDemand
    sha256: str

    def to_dict(self) -> Document:
        """The document of ``roofcast demand --json``."""
        from simulator.reports.answers.demand import demand_document

        return demand_document(self.demand, sha256=self.sha256)

    def to_text(self) -> str:
        """The workload file that ``roofcast demand`` writes."""
        from simulator.reports.answers.demand import demand_text

        return demand_text(self.demand, sha256=self.sha256)

    def fields(self) -> dict[str, float]:
        """The fields of a plan: ``plan(answer.fields(), model=...)``."""
        from simulator.reports.answers.demand import workload_fields

        return workload_fields(self.demand)

    def chart(self) -> Chart:
        """Demand by hour, where the record says it; its mean otherwise."""
        from simulator.reports.answers.charts import bars_chart
        from simulator.reports.charts.chart import Axis

        hours = self.demand.load_profile or (1.0,)
        return bars_chart(
            key="demand",
            title=f"{self.demand.requests:,} requests, {self.demand.rate_per_s:.4g}/s",
            y=Axis(title="Relative demand"),
            names=[str(hour) for hour in range(len(hours))],
            bars={"demand": hours},
        )


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


@dataclass(frozen=True, slots=True)
class ScorecardAnswer(Answer):
    """Stored errors of kernel fits and of whole runs."""

    card: Scorecard

    def to_dict(self) -> Document:
        """The document of ``roofcast validate --json``."""
        from simulator.reports.answers.validation import scorecard_document

        return scorecard_document(self.card)

    def to_text(self) -> str:
        """What ``roofcast validate`` prints."""
        from simulator.reports.answers.validation import scorecard_text

        return scorecard_text(self.card)

    def rows(self) -> list[Document]:
        """One row a kernel's score, then one a source of whole runs."""
        document = self.to_dict()
        return [*document.get("kernels", []), *document.get("end_to_end", {}).get("scores", [])]

    def chart(self) -> Chart:
        """Mean errors."""
        from simulator.reports.answers.charts import bars_chart
        from simulator.reports.charts.chart import Axis

        rows = [row for row in self.rows() if row.get("mape") is not None]
        return bars_chart(
            key="scorecard",
            title="Mean error",
            y=Axis(title="Error", unit="%"),
            names=[
                " ".join(str(row[name]) for name in ("hardware", "family", "metric") if name in row) for row in rows
            ],
            bars={"error": [100 * row["mape"] for row in rows]},
        )


def scorecard(
    *,
    hardware: str | None = None,
    libraries: Sequence[str] = (),
    kernels: bool = True,
    end_to_end: bool = True,
    profiles: str | None = None,
) -> ScorecardAnswer:
    """How wrong kernel fits were on shapes that they never saw, and whole runs: ``roofcast validate``."""
    from simulator.reports.answers import validation

    card = validation.scorecard(
        hardware=hardware, libraries=libraries, kernels=kernels, end_to_end=end_to_end, profiles=profiles
    )
    return ScorecardAnswer(card)


@dataclass(frozen=True, slots=True)
class ReplayAnswer(Answer):
    """Every run of the result files as a scenario, its values beside their predictions."""

    runs: tuple[ReplayedRun, ...]

    def to_dict(self) -> Document:
        """Each run with its scenario, as ``roofcast simulate`` takes it, and its values."""
        from simulator.reports.answers.replay import replay_document

        return replay_document(self.runs)

    def rows(self) -> list[Document]:
        """One row a value."""
        return [{"result": run["id"], **value} for run in self.to_dict()["runs"] for value in run["values"]]

    def to_text(self) -> str:
        """A table for people."""
        from simulator.reports.answers.replay import replay_text

        return replay_text(self.runs)

    def chart(self) -> Chart:
        """Errors by metric."""
        from simulator.reports.answers.charts import bars_chart
        from simulator.reports.charts.chart import Axis

        rows = self.rows()
        return bars_chart(
            key="replay",
            title="Predicted over measured",
            y=Axis(title="Error", unit="%"),
            names=[f"{row['result']} {row['metric']}" for row in rows],
            bars={"error": [100 * row["error"] for row in rows]},
        )


def replay(
    results: Sequence[str], *, hardware: str, profiles: str | None = None, **served: Unpack[ServedFields]
) -> ReplayAnswer:
    """Import benchmark results as scenarios and predict them: ``roofcast validate --from``.

    results : files of InferenceX, vLLM bench, GuideLLM or AIPerf; the keywords say what served them

    Raises
    ------
    RoofcastError
        A file is of no known kind, lacks lengths or a load, or the deployment is refused.
    """
    return ReplayAnswer(replay_results(results, served=served_spec(hardware, served), profiles=profiles))
