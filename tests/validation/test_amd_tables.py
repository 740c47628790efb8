"""AMD's tuned tables: whose time a row holds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from validation.silicon.amd_tables import GEMM_TABLE, MOE_TABLE, gemm_rows, moe_rows

ROW = {
    "gfx": "gfx942",
    "cu_num": 80,
    "model_dim": 4096,
    "inter_dim": 256,
    "experts": 128,
    "topk": 8,
    "dtype_a": "float8_e4m3fnuz",
    "dtype_w": "float8_e4m3fnuz",
    "quant": "per_1x128",
    "gated": 1,
}


def kept(folder: Path, times: dict[int, float], **changed: object) -> dict[int, float]:
    """Tokens -> microseconds of the rows that are left of a table with these."""
    path = folder / MOE_TABLE
    path.parent.mkdir()
    pd.DataFrame([{**ROW, **changed, "tokens": tokens, "us": us} for tokens, us in times.items()]).to_csv(path)
    rows = moe_rows(folder, name="mi308x", fmt="fp8_block")
    return dict(zip(rows["num_tokens"].tolist(), (rows["seconds"] * 1e6).tolist(), strict=True))


def test_a_time_of_several_numbers_of_tokens_is_of_the_one_that_was_tuned(tmp_path: Path) -> None:
    assert kept(tmp_path, {1: 50.0, 16: 50.0, 512: 300.0, 1024: 400.0, 2048: 400.0}) == pytest.approx(
        {16: 50.0, 512: 300.0, 1024: 400.0}
    )


def test_a_time_that_was_carried_up_from_a_row_that_is_missing_is_nobodys(tmp_path: Path) -> None:
    """MI308X: 880 us for 2,048 to 32,768 tokens is what 1,024 took, 827 us for 16,384 another model's."""
    assert kept(tmp_path, {512: 300.0, 2048: 400.0, 16384: 400.0, 32768: 400.0}) == pytest.approx({512: 300.0})


def test_parts_of_experts_that_miss_the_fused_kernel_are_left_to_recipes(tmp_path: Path) -> None:
    assert not kept(tmp_path, {16: 525.0, 512: 864.0}, inter_dim=384)


@pytest.mark.parametrize(("width", "library", "stays"), [(800, "triton", 0), (768, "triton", 1), (800, "torch", 1)])
def test_products_of_a_width_for_which_tritons_kernel_was_not_tuned_are_left_out(
    tmp_path: Path, width: int, library: str, stays: int
) -> None:
    """MI355X, 5,120 inputs: 170 us for 1,024 rows of 800 outputs, 111 us for 4,096."""
    path = tmp_path / GEMM_TABLE
    path.parent.mkdir()
    row = {"gfx": "gfx950", "cu_num": 256, "b": 1, "m": 1024, "n": width, "k": 5120, "libtype": library}
    pd.DataFrame([{**row, "dtype_w": "bf16", "quant": "none", "us": 169.7}]).to_csv(path)
    assert len(gemm_rows(tmp_path, name="mi355x", fmt="bf16")) == stays
