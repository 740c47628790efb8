"""Fits of whole tables, written and read back: made-up tables with known physics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulator.fitting.three_parameter import roofline_seconds
from simulator.kernels.fits import lattice_of
from simulator.kernels.timing import Lattice
from simulator.specs.base import read_yaml, validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec, KernelFit, LatticeSpec, StoredArrays
from simulator.specs.model.precision import Dtype
from validation.fit import three_parameter
from validation.fit.corrected import Fitted, Predicted, box_of, kept_fits, lattice_nodes, rounded, scored, write_fits
from validation.fit.files import packed, packed_corrections
from validation.fit.kernels import gemm
from validation.fit.residuals import NOT_SCORED
from validation.silicon.formats import EXPERT_FORMATS, GEMM_FORMATS, PRODUCT_FORMATS

H100 = load_hardware("h100")


def products(*, launch_s: float = 4e-6, compute: float = 0.7, memory: float = 0.8) -> pd.DataFrame:
    """bf16 products that follow three parameters of an H100 exactly, in the tables' columns."""
    m, n, k = np.meshgrid(
        [1, 16, 128, 1024, 8192], [512, 1024, 2048, 4096, 8192], [512, 1024, 2048, 4096, 8192, 16384], indexing="ij"
    )
    rows = pd.DataFrame({"m": m.ravel(), "n": n.ravel(), "k": k.ravel(), "gemm_dtype": "bfloat16"})
    flops = 2.0 * rows["m"] * rows["n"] * rows["k"]
    moved = 2.0 * (rows["n"] * rows["k"] + rows["m"] * rows["k"] + rows["m"] * rows["n"])
    seconds = roofline_seconds(
        np.log([launch_s, compute, memory]),
        peak_s=(flops / H100.peak_flops_per_s[Dtype.BF16]).to_numpy(),
        bandwidth_s=(moved / H100.memory_bytes_per_s).to_numpy(),
    )[0]
    return rows.assign(latency=1e3 * seconds)


def write_table(root: Path, rows: pd.DataFrame) -> Path:
    pytest.importorskip("pyarrow")
    folder = root / "h100_sxm" / "gemm" / "vllm" / "0.14.0"
    folder.mkdir(parents=True)
    rows.to_parquet(folder / "gemm_perf.parquet")
    return root


def test_the_published_tables_and_a_users_rows_go_through_one_fitter(tmp_path: Path) -> None:
    root = write_table(tmp_path, products())
    ((version, demand),) = three_parameter.demands(H100, root)
    fit = three_parameter.fit_demand(demand, H100)
    assert version == "0.14.0"
    assert (fit.family, fit.format, fit.model) == ("gemm", "bf16", "three_parameter")
    assert fit.parameters["launch_s"] == pytest.approx(4e-6, rel=0.01)
    assert fit.parameters["compute_fraction"] == pytest.approx(0.7, rel=0.01)
    assert fit.parameters["memory_fraction"] == pytest.approx(0.8, rel=0.01)
    assert fit.error.score_mape < 0.002
    assert fit.error.score_points + fit.error.fit_points == len(products())


def test_products_are_fitted_scored_and_written(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = products()
    rows["latency"] *= np.exp(draw.normal(0.0, 0.03, len(rows)))
    out = tmp_path / "out"
    out.mkdir()
    gemm.fit_library("h100-sxm-80gb", library="vllm", root=write_table(tmp_path / "t", rows), directory=out)
    path = out / "h100-sxm-80gb--vllm.gemm.yaml"
    spec = validate(CalibrationSpec, read_yaml(path), where=str(path))
    (fit,) = spec.fits
    assert (spec.hardware, spec.library, spec.library_version) == ("h100-sxm-80gb", "vllm", "0.14.0")
    assert fit.error.score_mape < 0.08
    assert fit.error.score_points + fit.error.fit_points == len(rows)
    assert 0.0 < fit.parameters["compute_fraction"] <= 1.0
    assert fit.box["m"] == (1.0, 8192.0)
    assert fit.correction is not None
    with np.load(path.with_suffix(".npz")) as arrays:
        assert set(arrays.files) == {"gemm.bf16", "m", "n", "k"}
        assert arrays["gemm.bf16"].shape == tuple(len(arrays[axis]) for axis in "mnk")


def test_formats_that_both_tables_name_are_the_same_but_for_scales_of_4_bit_experts() -> None:
    shared = set(GEMM_FORMATS) & set(EXPERT_FORMATS)
    assert shared == {*PRODUCT_FORMATS, "int4_wo"}
    assert [name for name in shared if GEMM_FORMATS[name] != EXPERT_FORMATS[name]] == ["int4_wo"]
    # A 16-bit scale for 128 weights: an eighth of a bit each.
    assert EXPERT_FORMATS["int4_wo"].weight_bits - GEMM_FORMATS["int4_wo"].weight_bits == 16 / 128


def draft() -> KernelFit:
    return KernelFit(
        family="gemm",
        format="bf16",
        model="tiled_gemm",
        parameters={"launch_s": 1e-6},
        correction=LatticeSpec(file="x.npz", key="gemm.bf16", axes=("m",)),
        box={"m": (1.0, 8.0)},
        error=NOT_SCORED,
    )


def lattice(values: tuple[float, ...]) -> Lattice:
    return Lattice(axes=("m",), nodes=(np.arange(len(values), dtype=float),), values=np.array(values))


def test_the_score_counts_the_correction_and_the_physics_apart() -> None:
    measured = np.ones(4)
    predicted = Predicted(
        seconds=np.array([1.1, 0.9, 1.0, 1.0]), log_sigma=np.full(4, 0.1), physics_s=np.array([1.5, 0.5, 9.0, 9.0])
    )
    held = np.array([True, True, False, False])
    found = scored(draft(), lattice=lattice((0.0, 0.1)), measured=measured, predicted=predicted, is_score=held)
    assert found.fit.error.score_mape == pytest.approx(0.1)
    assert found.fit.error.fit_mape == 0.0
    assert found.physics_mape == pytest.approx(0.5)
    assert found.key == "gemm.bf16"


def test_what_is_scored_is_what_the_file_keeps(tmp_path: Path) -> None:
    shipped = rounded(lattice(tuple(np.random.default_rng(0).normal(0.0, 0.3, 50))))
    stored = packed({"x": packed_corrections(shipped.values)})
    (tmp_path / "x.npz").write_bytes(stored)
    np.testing.assert_allclose(StoredArrays(tmp_path / "x.npz")["x"], shipped.values, atol=1e-12)


def test_nodes_enclose_the_points_in_whole_octaves() -> None:
    points = np.random.default_rng(0).uniform(0.3, 9.7, (40, 2))
    for nodes, column, step in zip(
        lattice_nodes(points, axes=("tiles", "sequences")), points.T, (1.0, 3.0), strict=True
    ):
        assert nodes[0] <= column.min()
        assert nodes[-1] >= column.max()
        assert np.diff(nodes) == pytest.approx(step)


def test_the_box_is_the_range_in_the_coordinates_own_unit() -> None:
    points = np.log2([[1.0, 131072.0], [64.0, 512.0]])
    assert box_of(points, axes=("tiles", "tokens")) == {"tiles": (1.0, 64.0), "tokens": (512.0, 131072.0)}


def test_nothing_fitted_writes_nothing(tmp_path: Path) -> None:
    where = {"hardware": "h100-sxm-80gb", "library": "vllm", "version": "1", "split": "none"}
    fitted = Fitted(fit=draft(), lattice=lattice((0.0, 0.1)), physics_mape=0.1)
    write_fits([], group="gemm", directory=tmp_path, **where)
    assert not list(tmp_path.iterdir())
    write_fits([fitted], group="gemm", directory=tmp_path, **where)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".npz", ".yaml"]


def test_fits_that_are_not_made_again_keep_their_lattices(tmp_path: Path) -> None:
    where = {"hardware": "h100-sxm-80gb", "library": "vllm", "version": "1", "split": "none"}
    values = {"gemm.bf16": (0.0, 0.1), "gemm.fp8": (0.2, -0.3), "gemm.int8": (0.1, 0.0, 0.4)}
    fits = [
        Fitted(
            fit=draft().model_copy(
                update={"format": key.removeprefix("gemm."), "correction": LatticeSpec(file="x", key=key, axes=("m",))}
            ),
            lattice=lattice(of),
            physics_mape=0.1,
        )
        for key, of in values.items()
    ]
    write_fits(fits, group="gemm", directory=tmp_path, **where)
    path = tmp_path / "h100-sxm-80gb--vllm.gemm.yaml"
    for _ in range(2):
        kept = kept_fits(path, made_again=lambda fit: fit.format == "bf16")
        write_fits(fits[:1], group="gemm", directory=tmp_path, kept=kept, **where)
    stored = StoredArrays(path.with_suffix(".npz"))
    for item in fits:
        read = lattice_of(item.fit.correction, stored)
        assert read is not None
        assert np.array_equal(read.nodes[0], item.lattice.nodes[0])
        np.testing.assert_allclose(read.values, item.lattice.values, atol=1e-12)


def test_one_row_takes_the_time_of_two_where_a_table_has_it_slower_throughout() -> None:
    def table(first: float) -> pd.DataFrame:
        rows = [
            {"gemm_dtype": "fp8", "m": m, "n": n, "k": 1024, "seconds": seconds}
            for n in (1024, 2048, 4096)
            for m, seconds in ((1, first), (2, 6e-6), (4, 7e-6))
        ]
        return pd.DataFrame(rows)

    slow, like = (gemm.gemm_rows(table(first), gemm_dtype="fp8", library="vllm") for first in (20e-6, 6.6e-6))
    assert set(slow[slow["m"] == 1]["seconds"]) == {6e-6}
    assert set(slow[slow["m"] == 4]["seconds"]) == {7e-6}
    assert set(like[like["m"] == 1]["seconds"]) == {6.6e-6}
    assert set(slow[slow["m"] == 1]["measured_s"]) == {20e-6}


def test_a_product_far_slower_than_with_more_rows_takes_their_time_in_uneven_tables() -> None:
    seconds = {64: 10e-6, 256: 60e-6, 257: 45e-6, 512: 25e-6, 768: 26e-6, 1024: 39e-6, 2048: 30e-6, 4096: 70e-6}
    table = pd.DataFrame(
        [
            {"gemm_dtype": "fp8_block", "m": m, "n": n, "k": 1024, "seconds": scale * each}
            for n, scale in ((1024, 1.0), (2048, 2.0))
            for m, each in seconds.items()
        ]
    )
    even, raw = (gemm.gemm_rows(table, gemm_dtype="fp8_block", library=name) for name in ("sglang", "trtllm"))
    narrow = even[even["n"] == 1024].set_index("m")["seconds"]
    assert narrow[256] == narrow[257] == narrow[512] == 25e-6
    assert narrow[1024] == 39e-6  # 1.3 times those of 2048 rows: kernels differ so much
    np.testing.assert_allclose(even[even["n"] == 2048].set_index("m")["seconds"], 2.0 * narrow)
    assert raw[raw["n"] == 1024].set_index("m")["seconds"].to_dict() == seconds
    # What is scored are the rows as they were measured.
    assert even[even["n"] == 1024].set_index("m")["measured_s"].to_dict() == seconds
