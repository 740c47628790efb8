"""Reports into a folder: all files or none, each under its name only when it is complete.

A report from a plan: the thirteen sections, in the order that people who sign expect.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from simulator.errors import FileError
from simulator.planner.records import CapacityPlan
from simulator.reports.content.document import Report
from simulator.reports.content.quantities import rate_text
from simulator.reports.formats.rendering import ALL_FORMATS, Rendered, ReportFormat, check_packages, file_names, render
from simulator.reports.sections.appendix import appendix_section
from simulator.reports.sections.choice import options_section, sizing_section
from simulator.reports.sections.cost import cost_section
from simulator.reports.sections.decision import decision_section
from simulator.reports.sections.inputs import software_section, workload_section
from simulator.reports.sections.performance import performance_section
from simulator.reports.sections.risks import risk_section
from simulator.reports.sections.sensitivity import sensitivity_section
from simulator.reports.sections.sites import energy_section, facilities_section, growth_section
from simulator.reports.studies import Studies, gather

SECTIONS = (
    decision_section,
    workload_section,
    software_section,
    options_section,
    sizing_section,
    performance_section,
    sensitivity_section,
    cost_section,
    facilities_section,
    energy_section,
    growth_section,
    risk_section,
    appendix_section,
)


def build_report(studies: Studies) -> Report:
    """The content of the report; every format is made from it."""
    plan = studies.plan
    return Report(
        title=f"Capacity plan: {plan.best.replica.deployment.model.name}",
        subtitle=f"{rate_text(plan.demand.mean_rate_per_s, 'requests')} on {plan.best.hardware}",
        created=studies.created,
        currency=studies.currency,
        version=studies.version,
        sections=tuple(section(studies) for section in SECTIONS),
    )


_PUBLIC_FILE = 0o644


def check_targets(
    folder: str,
    *,
    formats: tuple[ReportFormat, ...] = ALL_FORMATS,
    force: bool,
    flag: str,
    others: tuple[str, ...] = (),
) -> None:
    """Refuse before anything is computed: files that exist, a folder that cannot be written, a missing package.

    others : names of files that may be written beside those of the formats

    Raises
    ------
    FileError
        Exit code 5; names ``flag``, the path and the way out.
    RoofcastError
        A format needs a package that is not installed.
    """
    check_packages(formats)
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise FileError(f"{folder!r} is a file, a folder is needed", field=flag)
    existing = [name for name in (*file_names(formats), *others) if (path / name).exists()]
    if existing and not force:
        more = f" and {len(existing) - 1} more exist" if len(existing) > 1 else " exists"
        message = f"{str(path / existing[0])!r}{more}"
        raise FileError(message, field=flag, hint="choose another folder or add --force")
    parent = path
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise FileError(f"{str(parent)!r} is a file, a folder is needed", field=flag)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise FileError(f"cannot write to {str(parent)!r}: permission denied", field=flag)


def _written(data: bytes, folder: Path, name: str) -> Path:
    """A complete temporary file beside its target."""
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    path = Path(temporary)
    path.chmod(_PUBLIC_FILE)
    return path


def write_files(files: tuple[Rendered, ...], *, folder: str, flag: str) -> tuple[Path, ...]:
    """All files into ``folder``, which is made where it is missing; on an error none of them appears.

    Raises
    ------
    FileError
        The folder or a file cannot be written.
    """
    target = Path(folder)
    temporary: list[Path] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file in files:
            temporary.append(_written(file.data, target, file.name))
        paths = tuple(target / file.name for file in files)
        for source, path in zip(temporary, paths, strict=True):
            source.replace(path)
    except OSError as error:
        raise FileError(f"cannot write to {folder!r}: {error.strerror}", field=flag) from error
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)
    return paths


def write_reports(
    plan: CapacityPlan,
    *,
    folder: str,
    formats: tuple[ReportFormat, ...] = ALL_FORMATS,
    command: str,
    force: bool,
    ownership: str | None = None,
    created: str | None = None,
    flag: str = "--report",
) -> tuple[Path, ...]:
    """Every format of the plan's report in ``folder``; returns the paths.

    command : the line that reproduces the plan, for the appendix
    ownership : profile of owning costs, by name or file; created : ISO date, today where None

    Raises
    ------
    FileError
        A file exists and ``force`` is not set, or the folder cannot be written.
    ProfileError
        No price of the chosen accelerator is known, or currencies differ.
    """
    check_targets(folder, formats=formats, force=force, flag=flag)
    studies = gather(plan, command=command, ownership=ownership, created=created)
    report = build_report(studies)
    files = tuple(file for form in formats for file in render(report, studies, form))
    return write_files(files, folder=folder, flag=flag)
