"""The error curve over distance, on made-up pairs with known means."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.kernels.transfer import generation
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import TransferRow
from validation.fit.leave_one_gpu_out import chosen_rows, curve_of


def pair(distance: float, error: float, *, target: str = "a", relative: str = "b") -> TransferRow:
    return TransferRow(
        target=target,
        relative=relative,
        family="gemm",
        distance=distance,
        mape=error,
        bias=0.0,
        log_sigma=error + 0.01,
        log_sigma_extra=error,
        points=10,
    )


def test_bands_are_means_in_order_of_distance():
    curve = curve_of([pair(0.1, 0.04), pair(0.12, 0.06), pair(1.0, 0.2)])
    assert [point.pairs for point in curve] == [2, 1]
    assert curve[0].distance == pytest.approx(0.11)
    assert curve[0].log_sigma_extra == pytest.approx(0.05)
    assert curve[1].mape == pytest.approx(0.2)


def test_a_farther_band_that_errs_less_is_pooled_with_the_nearer_one():
    curve = curve_of([pair(0.1, 0.05), pair(1.0, 0.3), pair(1.5, 0.1), pair(3.0, 0.6)])
    assert [point.pairs for point in curve] == [1, 2, 1]
    assert curve[1].mape == pytest.approx(0.2)
    assert (np.diff([point.log_sigma_extra for point in curve]) > 0).all()


def test_pooling_reaches_back_over_several_bands():
    curve = curve_of([pair(0.1, 0.3), pair(1.0, 0.35), pair(1.5, 0.05)])
    assert [point.pairs for point in curve] == [3]


def test_generations_are_crossed_only_when_asked():
    hardware = [load_hardware(name) for name in ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "gb300")]
    rows = [
        pair(1.0, 0.1, target=first.name, relative=second.name)
        for first in hardware
        for second in hardware
        if first is not second
    ]
    near = {row.target: row.relative for row in chosen_rows(rows, hardware=hardware, across_generations=False)}
    far = {row.target: row.relative for row in chosen_rows(rows, hardware=hardware, across_generations=True)}
    assert near["h100-sxm-80gb"] == "h200-sxm-141gb"
    assert far["h100-sxm-80gb"] == "b200-sxm"
    assert generation(load_hardware("gb300")) == generation(load_hardware("b200-sxm"))
    assert far["gb300"].startswith("h")
