"""Scorecard rows: weighted by points, absent where nothing was held out, and the same as what the fits store."""

from __future__ import annotations

import pytest
import yaml

from simulator.reports.tables.validation import score_lines
from simulator.specs.hardware.calibration import load_calibration
from simulator.specs.measured.scores import kernel_scores


def fit_document(*, variant: str, mape: float, bias: float, coverage: float, points: int) -> dict[str, object]:
    return {
        "family": "prefill_attention",
        "format": "bf16",
        "variant": variant,
        "model": "tiled_prefill_attention",
        "parameters": {"launch_s": 1e-6},
        "box": {"tiles": [1.0, 2.0]},
        "error": {
            "score_mape": mape,
            "fit_mape": 0.01,
            "score_bias": bias,
            "log_sigma": 0.1,
            "coverage_80": coverage,
            "score_points": points,
            "fit_points": 100,
        },
    }


@pytest.fixture
def profiles(tmp_path):
    def write(*fits: dict[str, object]) -> str:
        document = {
            "hardware": "l4",
            "library": "vllm",
            "library_version": "1",
            "date": "2030-01-01",
            "source": "test",
            "fits": list(fits),
        }
        (tmp_path / "calibration").mkdir()
        path = tmp_path / "calibration" / "l4--vllm.attention.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return str(tmp_path)

    return write


def test_variants_are_merged_by_their_points(profiles):
    folder = profiles(
        fit_document(variant="d64", mape=0.10, bias=0.04, coverage=0.9, points=100),
        fit_document(variant="d128", mape=0.02, bias=-0.02, coverage=0.7, points=300),
    )
    (row,) = kernel_scores("vllm", hardware="l4", profiles=folder)
    assert (row.group, row.family, row.format, row.points) == ("attention", "prefill_attention", "bf16", 400)
    assert row.mape == pytest.approx(0.04)
    assert row.bias == pytest.approx(-0.005)
    assert row.coverage_80 == pytest.approx(0.75)


def test_a_fit_without_held_out_points_has_no_error(profiles):
    folder = profiles(fit_document(variant="d64", mape=0.0, bias=0.0, coverage=0.0, points=0))
    (row,) = kernel_scores("vllm", hardware="l4", profiles=folder)
    assert (row.mape, row.bias, row.coverage_80, row.points) == (None, None, None, 0)
    assert score_lines([row])[1].split()[-4:] == ["-", "-", "-", "0"]


def test_a_single_variant_reports_what_its_fit_stores():
    calibration = load_calibration("h100-sxm-80gb", library="vllm", group="gemm")
    assert calibration is not None
    rows = {row.format: row for row in kernel_scores("vllm", groups=("gemm",), hardware="h100-sxm-80gb")}
    assert set(rows) == {fit.format for fit in calibration.fits}
    for fit in calibration.fits:
        assert rows[fit.format].mape == pytest.approx(fit.error.score_mape)
        assert rows[fit.format].points == fit.error.score_points


def test_lines_are_aligned_under_one_heading():
    lines = score_lines(kernel_scores("vllm", groups=("gemm",)))
    assert lines[0].startswith("accelerator")
    assert len({len(line) for line in lines}) == 1
