"""The split that every kernel fit obeys: whole shapes, chosen by a hash, never by a random draw.

GEMM shapes are (n, k), MoE shapes (hidden, inter, topk, experts), attention shapes the head layout. All rows of a
shape (every m, every batch) fall on the same side.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SCORE_SHARE = 5
"""One shape in five is held out."""


def shape_bucket(family: str, values: Sequence[float], *, buckets: int, salt: str = "") -> int:
    """Bucket of one shape: CRC-32 of ``family|salt|v1,v2,...`` modulo ``buckets``; the same on every machine."""
    text = f"{family}|{salt}|" + ",".join(str(int(value)) for value in values)
    return zlib.crc32(text.encode("ascii")) % buckets


def buckets_of(
    table: pd.DataFrame, *, family: str, columns: Sequence[str], buckets: int, salt: str
) -> NDArray[np.int64]:
    """Bucket of every row of ``table`` by the shape in ``columns``."""
    shapes = table[list(columns)].drop_duplicates()
    known = {
        tuple(row): shape_bucket(family, row, buckets=buckets, salt=salt)
        for row in shapes.itertuples(index=False, name=None)
    }
    rows = table[list(columns)].itertuples(index=False, name=None)
    return np.array([known[tuple(row)] for row in rows], dtype=np.int64)


def is_score(table: pd.DataFrame, *, family: str, columns: Sequence[str], salt: str = "score") -> NDArray[np.bool_]:
    """True for the rows whose shape is held out for the score; another ``salt`` holds out other shapes."""
    return buckets_of(table, family=family, columns=columns, buckets=SCORE_SHARE, salt=salt) == 0


def even_folds(table: pd.DataFrame, *, family: str, columns: Sequence[str], count: int) -> NDArray[np.int64]:
    """Folds with equally many shapes, in the order of their hash; one fold a shape where there are fewer shapes."""
    order = buckets_of(table, family=family, columns=columns, buckets=2**32, salt="fold")
    _, rank = np.unique(order, return_inverse=True)
    return np.asarray(rank % count, dtype=np.int64)


def folds(table: pd.DataFrame, *, family: str, columns: Sequence[str], count: int) -> NDArray[np.int64]:
    """Cross-validation fold of every row, for choices made inside the fit part."""
    return buckets_of(table, family=family, columns=columns, buckets=count, salt="fold")
