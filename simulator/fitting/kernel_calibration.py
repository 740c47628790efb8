"""A user's kernel measurements become calibration profiles: fits, their errors before and after, and their text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from simulator.errors import RoofcastError
from simulator.fitting.kernel_fits import MeasuredFamily, UserFit, check_points, demands, fit_demand
from simulator.fitting.measured_work import WholeError, whole_errors, whole_rows
from simulator.kernels.fits import MEASURED_LIBRARY, given_fits
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.operators.work import Family
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import CalibrationGroup, CalibrationSpec, calibration_name
from simulator.specs.measured.kernel_times import MeasuredTable, load_measurements
from simulator.specs.model.loading import load_model
from simulator.specs.writing import HEADING, ProfileText, yaml_text


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCalibration:
    """Fits of one accelerator and what they are worth.

    fits : one a family and format, each with its held-out error before and after; those that are not better than the
        fits in force are neither used nor written
    skipped : families and formats that could not be fitted, with the reason
    whole_before, whole_after : errors of measured layers and models, which no fit saw, with the fits in force and the
        new ones
    unused : families and formats, with their kernels, that were measured and neither fitted nor checked
    profiles : what to write below a profile directory
    """

    hardware: AcceleratorSpec
    table: MeasuredTable
    fits: tuple[UserFit, ...]
    whole_before: tuple[WholeError, ...]
    whole_after: tuple[WholeError, ...]
    skipped: tuple[str, ...]
    unused: tuple[str, ...]
    profiles: tuple[ProfileText, ...]


def _selected(table: MeasuredTable, *, only: Sequence[str]) -> MeasuredTable:
    if not only:
        return table
    rows = tuple(row for row in table.rows if row.family in only or f"{row.family}/{row.format}" in only)
    if not rows:
        known = sorted({f"{row.family}/{row.format}" for row in table.rows})
        raise RoofcastError(
            f"{', '.join(only)} is not in {table.path}", field="only", hint=f"there: {', '.join(known)}"
        )
    return replace(table, rows=rows)


def _check_date(table: MeasuredTable, hardware: AcceleratorSpec) -> None:
    if table.date < hardware.rates_date:
        raise RoofcastError(
            f"measured on {table.date}, before peaks or bandwidth of {hardware.name} were last changed "
            f"({hardware.rates_date})",
            field="date",
            code="outdated_measurement",
            hint="measure again",
        )


def _group(fit: UserFit) -> CalibrationGroup:
    return "elementwise" if fit.fit.family == Family.ELEMENTWISE else "roofline"


def _profile(
    group: CalibrationGroup, *, fits: Sequence[UserFit], hardware: AcceleratorSpec, table: MeasuredTable
) -> ProfileText:
    spec = CalibrationSpec(
        hardware=hardware.name,
        library=MEASURED_LIBRARY,
        library_version=table.torch_version,
        date=table.date,
        source=f"{Path(table.path).name}: {table.device}, driver {table.driver}, torch {table.torch_version}",
        fits=tuple(item.fit for item in fits),
    )
    name = calibration_name(hardware.name, library=MEASURED_LIBRARY, group=group)
    return ProfileText(path=f"calibration/{name}.yaml", text=yaml_text(spec, heading=HEADING))


def with_fits(kernels: KernelLibrary, fits: Sequence[UserFit]) -> KernelLibrary:
    """``kernels`` with a user's new fits in force, as if their profiles were already written and read."""
    name = kernels.hardware.name
    rooflines = tuple(item.fit for item in fits if _group(item) == "roofline")
    passes = tuple(item.fit for item in fits if _group(item) == "elementwise")
    if rooflines:
        kernels = replace(kernels, measured=given_fits(name, group="roofline", fits=rooflines))
    if passes:
        kernels = replace(kernels, elementwise=given_fits(name, group="elementwise", fits=passes))
    return kernels


def _fitted(found: Sequence[MeasuredFamily], *, kernels: KernelLibrary) -> tuple[tuple[UserFit, ...], tuple[str, ...]]:
    fits: list[UserFit] = []
    refusals: list[RoofcastError] = []
    for demand in found:
        try:
            check_points(demand)
            fits.append(fit_demand(demand, kernels=kernels))
        except RoofcastError as error:
            refusals.append(error)
    if not fits:
        raise refusals[0]
    return tuple(fits), tuple(str(error) for error in refusals)


def calibrate_kernels(
    measured: str, *, hardware: str, only: Sequence[str] = (), profiles: str | None = None
) -> KernelCalibration:
    """Fit the measured kernels of one accelerator, and check whole layers and models with the fits.

    Parameters
    ----------
    measured : CSV that ``python -m validation.measure`` writes; hardware : profile name of what was measured
    only : families ("gemm") or families and formats ("gemm/bf16") to fit; all without it
    profiles : directory of profiles read beside the built-in ones

    Raises
    ------
    RoofcastError
        Nothing can be fitted (too few points, shapes that launches hide), times that the accelerator cannot reach, or
        measurements older than the accelerator's peaks and bandwidth.
    """
    accelerator = load_hardware(hardware, profiles=profiles)
    whole = load_measurements(measured)
    table = _selected(whole, only=only)
    _check_date(table, accelerator)
    found = demands(table, hardware=accelerator)
    if not found:
        families = ", ".join(sorted({f"{row.family}/{row.format}" for row in table.rows}))
        raise RoofcastError(f"row 2: nothing that can be fitted in {table.path}; it has {families}", field="family")
    kernels = kernel_library(accelerator, library=MEASURED_LIBRARY, profiles=profiles)
    fits, skipped = _fitted(found, kernels=kernels)
    better = tuple(item for item in fits if item.is_kept)
    steps = whole_rows(whole.rows)
    models = partial(load_model, profiles=profiles)
    used = {row.line for demand in found for row in demand.rows} | {row.line for row in steps}
    groups: dict[CalibrationGroup, list[UserFit]] = {"roofline": [], "elementwise": []}
    for item in better:
        groups[_group(item)].append(item)
    return KernelCalibration(
        hardware=accelerator,
        table=table,
        fits=fits,
        whole_before=whole_errors(steps, models=models, kernels=kernels),
        whole_after=whole_errors(steps, models=models, kernels=with_fits(kernels, better)),
        skipped=skipped,
        unused=tuple(
            sorted({f"{row.family}/{row.format} ({row.kernel})" for row in table.rows if row.line not in used})
        ),
        profiles=tuple(
            _profile(group, fits=members, hardware=accelerator, table=table)
            for group, members in groups.items()
            if members
        ),
    )
