"""The split is fixed by a hash, and the tables arrive in SI units from the newest version."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulator.errors import FileError
from validation.silicon.split import even_folds, folds, is_score, shape_bucket
from validation.silicon.tables import load_table, tables_root, versions

SHAPES = pd.DataFrame(
    [(2**i, 128 * j, m) for i in range(5, 17) for j in range(1, 40) for m in (1, 64)], columns=list("nkm")
)


def test_bucket_is_the_crc_of_the_written_shape() -> None:
    assert shape_bucket("gemm", (4096, 8192.0), buckets=5, salt="score") == zlib.crc32(b"gemm|score|4096,8192") % 5


def test_one_shape_in_five_is_held_out_with_all_its_rows() -> None:
    held = is_score(SHAPES, family="gemm", columns=("n", "k"))
    assert held.mean() == pytest.approx(0.2, abs=0.04)
    per_shape = SHAPES.assign(held=held).groupby(["n", "k"])["held"].nunique()
    assert (per_shape == 1).all()


def test_folds_are_independent_of_the_score_split() -> None:
    held = is_score(SHAPES, family="gemm", columns=("n", "k"))
    fold = folds(SHAPES, family="gemm", columns=("n", "k"), count=4)
    for index in range(4):
        assert held[fold == index].mean() == pytest.approx(0.2, abs=0.08)


def test_even_folds_share_the_shapes_out_evenly() -> None:
    fold = even_folds(SHAPES, family="gemm", columns=("n", "k"), count=4)
    shapes = SHAPES.assign(fold=fold).groupby(["n", "k"])["fold"]
    assert (shapes.nunique() == 1).all()
    assert np.ptp(np.bincount(shapes.first())) <= 1
    few = SHAPES[:6]  # three shapes of two rows: a fold each
    assert len(np.unique(even_folds(few, family="gemm", columns=("n", "k"), count=4))) == 3


def test_another_salt_holds_out_other_shapes() -> None:
    first = is_score(SHAPES, family="gemm", columns=("n", "k"))
    second = is_score(SHAPES, family="gemm", columns=("n", "k"), salt="attention-2")
    assert second.mean() == pytest.approx(0.2, abs=0.04)
    assert second[first].mean() == pytest.approx(0.2, abs=0.08)


def test_tables_come_in_seconds_from_the_newest_version(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for version, milliseconds in (("0.9.0", 3.0), ("0.10.0rc2", 5.0), ("0.10.0", 2.0), ("0.10.0.post1", 1.5)):
        folder = tmp_path / "h100_sxm" / "gemm" / "vllm" / version
        folder.mkdir(parents=True)
        rows = pd.DataFrame({"m": [1, 2], "latency": [milliseconds, 0.0]})
        rows.to_parquet(folder / "gemm_perf.parquet")
    found = versions(tmp_path, hardware="h100-sxm-80gb", family="gemm", library="vllm", table="gemm")
    assert found == ("0.9.0", "0.10.0rc2", "0.10.0", "0.10.0.post1")
    table = load_table(tmp_path, hardware="h100-sxm-80gb", family="gemm", library="vllm", table="gemm")
    assert table is not None
    assert table.version == "0.10.0.post1"
    np.testing.assert_allclose(table.rows["seconds"], [1.5e-3])  # the row without a time is dropped
    assert load_table(tmp_path, hardware="h100-sxm-80gb", family="moe", library="vllm", table="moe") is None


def test_unknown_hardware_and_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="h100-sxm-80gb"):
        versions(tmp_path, hardware="h100-sxm", family="gemm", library="vllm", table="gemm")
    with pytest.raises(FileError, match="not a directory"):
        tables_root(tmp_path / "absent")
