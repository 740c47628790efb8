"""The command line of fits to measured tables, and what they write: a YAML of fits, an .npz of their lattices."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Protocol
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.timing import Lattice
from simulator.specs.base import Source, read_yaml, validate
from simulator.specs.engine.fits import EngineFit, EngineFits, VendorFit
from simulator.specs.hardware.calibration import CORRECTION_STEP, CalibrationSpec, neighbour_axes
from simulator.specs.profiles import profile_root
from simulator.specs.writing import yaml_text
from validation.silicon.tables import SYSTEMS, tables_root
from validation.writing import json_yaml_text, write_whole

HEADING = "Written by validation/fit; do not edit."
HEADER = f"# {HEADING}\n"


def packed_corrections(values: NDArray[np.float64]) -> NDArray[np.generic]:
    """Values of a correction lattice as a file keeps them: whole steps from node to node, in one byte where all fit.

    Half a step is 0.5 %, a tenth of the error of the best fits: what lies below is noise that no packing makes small.
    """
    steps = np.round(values / CORRECTION_STEP)
    for axis in neighbour_axes(values):
        steps = np.diff(steps, axis=axis, prepend=0.0)
    return steps.astype(np.int8 if np.abs(steps).max(initial=0.0) <= np.iinfo(np.int8).max else np.int16)


def lattice_arrays(lattice: Lattice, *, key: str) -> dict[str, NDArray[np.generic]]:
    """Arrays of one lattice as ``lattice_of`` reads them back."""
    arrays: dict[str, NDArray[np.generic]] = {key: packed_corrections(lattice.values)}
    for axis, nodes in zip(lattice.axes, lattice.nodes, strict=True):
        arrays[f"{key}.{axis}"] = np.exp2(nodes).round(9)
    return arrays


def shared_nodes(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Arrays of a file's lattices with the commonest nodes of each axis once, under the name of the axis alone."""
    nodes: dict[str, Counter[bytes]] = {}
    for name, values in arrays.items():
        if values.dtype == np.float64:
            nodes.setdefault(name.rsplit(".", maxsplit=1)[-1], Counter())[values.tobytes()] += 1
    common = {axis: found.most_common(1)[0][0] for axis, found in nodes.items()}
    own = {
        name: values
        for name, values in arrays.items()
        if values.dtype != np.float64 or values.tobytes() != common[name.rsplit(".", maxsplit=1)[-1]]
    }
    return {**{axis: np.frombuffer(stored) for axis, stored in common.items()}, **own}


def packed(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """The .npz file of a calibration's lattices."""
    file = BytesIO()
    with ZipFile(file, "w", compression=ZIP_DEFLATED, compresslevel=9) as archive:
        for name, values in shared_nodes(arrays).items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
    return file.getvalue()


def calibration_directory() -> Path:
    """Where the built-in calibrations are."""
    return profile_root("hardware_profiles") / "calibration"


def write_calibration(
    calibration: CalibrationSpec,
    *,
    group: str,
    directory: Path,
    arrays: Mapping[str, NDArray[np.generic]] | None = None,
) -> Path:
    """Write ``<hardware>--<library>.<group>.yaml`` and, if there are arrays, the .npz beside it; returns the YAML.

    The arrays are written first, so that no fit names a lattice that is not there.
    """
    stem = f"{calibration.hardware}--{calibration.library}.{group}"
    if arrays:
        write_whole(directory / f"{stem}.npz", packed(arrays))
    path = directory / f"{stem}.yaml"
    write_whole(path, json_yaml_text(calibration, heading=HEADING))
    return path


def write_engine_fits(
    engine: str,
    *,
    release: str | None = None,
    vendor: str | None = None,
    overheads: Mapping[str, float] | None = None,
    spread: Mapping[str, float | dict[str, float]] | None = None,
    sources: Mapping[str, Source] | None = None,
    directory: Path | None = None,
) -> Path:
    """Put fitted numbers of an engine, of an earlier release, or of the latest one on a vendor's accelerators into its
    file; what was not fitted again stays."""
    path = (directory or calibration_directory() / "engines") / f"{engine}.yaml"
    fits = validate(EngineFits, read_yaml(path), where=str(path))
    before: EngineFits | EngineFit = fits if release is None else fits.releases[release]
    if vendor in fits.vendors:
        before = fits.vendors[vendor]
    widths = {
        name: round(width, 3) if isinstance(width, float) else _rounded(width, digits=3)
        for name, width in (spread or {}).items()
    }
    fitted: dict[str, object] = {
        "overheads": before.overheads.model_copy(update=_rounded(overheads, digits=4)),
        "spread": before.spread.model_copy(update=widths),
        "sources": {**before.sources, **(sources or {})},
    }
    if vendor in fits.vendors:
        # One spread for all releases there: runs pool them.
        releases = {
            ended: fit.model_copy(update={"spread": fit.spread.model_copy(update=widths)})
            for ended, fit in fits.vendors[vendor].releases.items()
        }
        own = before.model_copy(update={**fitted, "releases": releases})
        fitted = {"vendors": {**fits.vendors, vendor: own}}
    if release is not None:
        fitted = {"releases": {**fits.releases, release: before.model_copy(update=fitted)}}
    dated = {**fitted, "date": datetime.now(UTC).date().isoformat()}
    write_whole(path, yaml_text(fits.model_copy(update=dated), heading=HEADING))
    return path


def vendor_source(vendor: str, *, note: str) -> Source:
    """What engines were fitted to on a vendor's accelerators."""
    return Source(
        source=f"InferenceX (database dump of 2026-07-20), loops on {vendor}; validation/fit/runs/vendor_engines.py",
        date=datetime.now(UTC).date().isoformat(),
        note=note,
    )


def write_vendor_fits(
    engine: str,
    *,
    vendor: str,
    overheads: Mapping[str, float],
    spread: float,
    whole_runs: Mapping[str, tuple[str, ...]],
    note: str,
    before: str | None = None,
    directory: Path | None = None,
) -> Path:
    """Put numbers fitted on a vendor's accelerators into an engine's file; overheads not fitted stay as the runs of the
    fit had them: the vendor's, the engine's own where it has none yet.

    spread : log-sigma of whole runs under numbers that they had no part in; before : the release that ended the one
        which they are of, None for the latest
    """
    path = (directory or calibration_directory() / "engines") / f"{engine}.yaml"
    fits = validate(EngineFits, read_yaml(path), where=str(path))
    source = vendor_source(vendor, note=note)
    kept = fits.vendors.get(vendor)
    known = kept if kept is None or before is None else kept.releases.get(before, kept)
    fit = EngineFit(
        overheads=(known or fits).overheads.model_copy(update=_rounded(overheads, digits=4)),
        spread=fits.spread.model_copy(update=dict.fromkeys(("ttft", "tpot", "e2e", "loops"), round(spread, 3))),
        sources={"overheads": source, "spread": source.model_copy(update={"note": "of TPOT; that of TTFT is assumed"})},
        whole_runs=dict(whole_runs),
    )
    kept = kept or VendorFit.model_validate(fit.model_dump())
    if before is not None:
        own = kept.model_copy(update={"releases": {**kept.releases, before: fit}})
    else:
        own = VendorFit(**dict(fit), releases=kept.releases)
    changed = {"vendors": {**fits.vendors, vendor: own}, "date": source.date}
    write_whole(path, yaml_text(fits.model_copy(update=changed), heading=HEADING))
    return path


def _rounded(values: Mapping[str, float] | None, *, digits: int) -> dict[str, float]:
    return {name: float(f"{value:.{digits}g}") for name, value in (values or {}).items()}


class FitLibrary(Protocol):
    """Fits the tables of one accelerator and library, and writes their calibration."""

    def __call__(self, hardware_name: str, *, library: str, root: Path, directory: Path) -> None:
        """Nothing where there is no table."""
        ...


def table_parser(description: str | None) -> argparse.ArgumentParser:
    """Command line of a fit: which accelerators and libraries, where their tables are and where fits go."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tables", type=Path, help="folder that holds h100_sxm/ ...; default: aiconfigurator_core")
    parser.add_argument("--hardware", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--library", nargs="*", default=["vllm", "sglang", "trtllm"])
    parser.add_argument("--output", type=Path, default=calibration_directory())
    return parser


def fit_tables(fit_library: FitLibrary, *, description: str | None) -> None:
    """Fit every accelerator and library that the command line names."""
    fit_each(fit_library, table_parser(description).parse_args())


def fit_each(fit_library: FitLibrary, arguments: argparse.Namespace) -> None:
    """``fit_library`` for what parsed ``arguments`` of a `table_parser` name."""
    root = tables_root(arguments.tables)
    for library in arguments.library:
        for hardware in arguments.hardware:
            fit_library(hardware, library=library, root=root, directory=arguments.output)
