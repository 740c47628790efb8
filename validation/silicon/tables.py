"""Measured kernel tables in SI units, from the optional package aiconfigurator-core (Apache-2.0) or a directory.

Layout below the root: ``<system>/<family>/<library>/<version>/<table>_perf.parquet``. ``latency`` is in milliseconds
there; every loader returns ``seconds``. ``silicon_sample.csv`` is the project's independent test set and is
never opened: only parquet files of a named system and family are.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from simulator.errors import FileError, did_you_mean
from simulator.units import MILLI

SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm",
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "l40s": "l40s",
    "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
"""Our hardware profile of NVIDIA's -> directory of the tables."""

XE_SYSTEMS = {"arc-pro-b60": "b60"}
"""The same of Intel's, whose kernels are written for it alone and filed under a library of their own."""

ALL_SYSTEMS = SYSTEMS | XE_SYSTEMS

MEASURED_UNDER = {"xpu": "vllm"}
"""Library of kernels -> directory of the engine that ran them, where it is another."""

SOURCE = "aiconfigurator-core 0.12.0 (Apache-2.0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One measured table: the library's version and the rows, time in ``seconds``."""

    hardware: str
    library: str
    version: str
    rows: pd.DataFrame


def tables_root(directory: Path | None = None) -> Path:
    """``directory`` if given, otherwise ``systems/data`` inside the installed package aiconfigurator_core."""
    if directory is not None:
        if not directory.is_dir():
            raise FileError(
                f"{directory} is not a directory", field="--tables", hint="give the folder that holds h100_sxm/"
            )
        return directory
    found = importlib.util.find_spec("aiconfigurator_core")
    if found is None or not found.submodule_search_locations:
        raise FileError(
            "the package aiconfigurator_core is not installed",
            field="--tables",
            hint='pip install "roofcast[validation]", or name a directory with --tables',
        )
    return Path(next(iter(found.submodule_search_locations))) / "systems" / "data"


def _version_key(version: str) -> tuple[int, ...]:
    """Order of versions such as 0.5.6.post2 and 1.3.0rc20 (a candidate stands before its release)."""
    parts = re.findall(r"[0-9]+|rc|post", version)
    ranks = {"rc": -1, "post": 1}
    return (*(ranks[part] if part in ranks else int(part) for part in parts), 0)


def versions(root: Path, *, hardware: str, family: str, library: str, table: str) -> tuple[str, ...]:
    """Versions of ``library`` that measured ``table`` on ``hardware``, oldest first."""
    if hardware not in ALL_SYSTEMS:
        raise FileError(f"no tables for {hardware}", field="hardware", hint=did_you_mean(hardware, ALL_SYSTEMS))
    folder = _folder(root, hardware=hardware, family=family, library=library)
    found = [path.parent.name for path in folder.glob(f"*/{table}_perf.parquet")]
    return tuple(sorted(found, key=_version_key))


def _folder(root: Path, *, hardware: str, family: str, library: str) -> Path:
    return root / ALL_SYSTEMS[hardware] / family / MEASURED_UNDER.get(library, library)


def load_table(
    root: Path, *, hardware: str, family: str, library: str, table: str, version: str | None = None
) -> Table | None:
    """Rows of one table in the given or the newest version, or None where it was not measured."""
    known = versions(root, hardware=hardware, family=family, library=library, table=table)
    if not known:
        return None
    chosen = version or known[-1]
    path = _folder(root, hardware=hardware, family=family, library=library) / chosen / f"{table}_perf.parquet"
    rows = pd.read_parquet(path)
    rows["seconds"] = rows["latency"].astype(float) * MILLI
    rows = rows[rows["seconds"] > 0].drop(columns=["latency"])
    return Table(hardware=hardware, library=library, version=chosen, rows=rows.reset_index(drop=True))
