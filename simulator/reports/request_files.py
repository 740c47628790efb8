"""The per-request table of a served run as CSV text or Parquet bytes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import BytesIO, StringIO

import numpy as np

from simulator.engine.request_table import RequestColumn
from simulator.errors import MissingPackageError, RoofcastError

FORMATS = (".csv", ".parquet")


def check_request_format(suffix: str, *, flag: str) -> None:
    """Refuse another suffix, and Parquet where it cannot be written, before work starts."""
    if suffix not in FORMATS:
        raise RoofcastError(f"{suffix or 'no suffix'!r}; allowed: {', '.join(FORMATS)}", field=flag)
    if suffix == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            raise MissingPackageError(
                "Parquet needs the package pyarrow, which is not installed",
                field=flag,
                hint="pip install pyarrow, or name a .csv file",
            )


def request_csv(columns: Sequence[RequestColumn]) -> str:
    """One line per request; times that were never reached are empty."""
    texts = []
    for column in columns:
        if column.values.dtype.kind == "f":
            texts.append(["" if np.isnan(value) else repr(float(value)) for value in column.values])
        else:
            texts.append([str(value) for value in column.values])
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    writer.writerows(zip(*texts, strict=True))
    return stream.getvalue()


def request_parquet(columns: Sequence[RequestColumn]) -> bytes:
    """The same as a Parquet file; times that were never reached are null."""
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    arrays = [pyarrow.array(column.values, from_pandas=column.values.dtype.kind == "f") for column in columns]
    stream = BytesIO()
    parquet.write_table(pyarrow.Table.from_arrays(arrays, names=[column.name for column in columns]), stream)
    return stream.getvalue()
