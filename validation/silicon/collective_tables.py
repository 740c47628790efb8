"""Measured collectives in bytes and seconds: NCCL's operations and the engines' own all-reduce.

``message_size`` counts elements in these tables: two bytes for half and bfloat16, one for int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.operators.work import Collective
from validation.silicon.tables import Table, load_table, versions

ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "int8": 1}
OPERATIONS = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALL_TO_ALL,
}
REDUCTIONS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm"}

AGREEMENT = 1.5
"""An engine's largest all-reduce must be within this factor of NCCL's: versions of GB200 and GB300 fall out by 2.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTable:
    """Rows of one operation: participants, message_bytes, seconds; one row a point (the fastest repeat)."""

    operation: Collective
    version: str
    graph: bool
    rows: pd.DataFrame


def _points(rows: pd.DataFrame, *, dtype_column: str) -> pd.DataFrame:
    element_bytes = rows[dtype_column].map(ELEMENT_BYTES)
    points = pd.DataFrame(
        {
            "participants": pd.to_numeric(rows["num_gpus"]).astype(int),
            "message_bytes": (pd.to_numeric(rows["message_size"]) * element_bytes).astype("int64"),
            "seconds": rows["seconds"],
        }
    )
    # Repeats of a point (two dtypes of equal bytes, two runs): outliers are slow, never fast.
    return points.groupby(["participants", "message_bytes"], as_index=False)["seconds"].min()


def nccl_tables(root: Path, *, hardware: str) -> tuple[CollectiveTable, ...]:
    """NCCL's four operations in the newest version measured; reductions in half precision only."""
    table = load_table(root, hardware=hardware, family="comm", library="nccl", table="nccl")
    if table is None:
        return ()
    tables = []
    for name, operation in OPERATIONS.items():
        rows = table.rows[table.rows["op_name"] == name]
        if operation in REDUCTIONS:
            rows = rows[rows["nccl_dtype"] == "half"]
        points = _points(rows, dtype_column="nccl_dtype")
        tables.append(CollectiveTable(operation=operation, version=table.version, graph=True, rows=points))
    return tuple(tables)


def _measured_version(table: Table) -> str:
    """The version that the rows name: a few folders repeat an older version's table."""
    return str(table.rows["version"].iloc[0]) if "version" in table.rows else table.version


def _agrees(points: pd.DataFrame, nccl: pd.DataFrame) -> bool:
    """Whether each group's largest common message takes about as long as NCCL's."""
    both = points.merge(nccl, on=["participants", "message_bytes"], suffixes=("", "_nccl"))
    largest = both.sort_values("message_bytes").groupby("participants").tail(1)
    ratio = np.abs(np.log(largest["seconds"] / largest["seconds_nccl"]))
    return bool((ratio <= np.log(AGREEMENT)).all())


def _by_mode(table: Table) -> Sequence[tuple[bool, pd.DataFrame]]:
    rows = table.rows
    if "backend" not in rows:
        return ((True, rows),)
    return tuple((graph, rows[rows["backend"].str.endswith("graph") == graph]) for graph in (True, False))


def engine_tables(root: Path, *, hardware: str, library: str) -> tuple[CollectiveTable, ...]:
    """The engine's own all-reduce, CUDA graph and eager, in the newest usable version.

    A version is usable when its rows come from that engine (some repeat another's table) and agree with NCCL on
    the largest message.
    """
    nccl = {table.operation: table.rows for table in nccl_tables(root, hardware=hardware)}
    known = versions(root, hardware=hardware, family="comm", library=library, table="custom_allreduce")
    for version in reversed(known):
        table = load_table(
            root, hardware=hardware, family="comm", library=library, table="custom_allreduce", version=version
        )
        if table is None or not table.rows["framework"].str.lower().eq(ENGINES[library]).all():
            continue
        modes = [(graph, _points(rows, dtype_column="allreduce_dtype")) for graph, rows in _by_mode(table)]
        if all(_agrees(points, nccl[Collective.ALL_REDUCE]) for _, points in modes):
            return tuple(
                CollectiveTable(
                    operation=Collective.ALL_REDUCE, version=_measured_version(table), graph=graph, rows=points
                )
                for graph, points in modes
            )
    return ()
