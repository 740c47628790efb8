"""The leave-one-GPU-out table: closed, rising, and about accelerators that exist."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.kernels.transfer import calibrated_relative, kernel_distance, transfer_log_sigma
from simulator.specs.base import Source, validate
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import TransferTable, load_transfer_table
from tests.for_every import for_every

TABLE = load_transfer_table()
TARGETS = sorted({row.target for row in TABLE.nearest})


def test_every_calibrated_accelerator_was_left_out_in_every_family():
    for rows in (TABLE.nearest, TABLE.other_generation):
        assert {(row.target, row.family) for row in rows} == {
            (target, family) for target in TARGETS for family in ("gemm", "prefill_attention", "decode_attention")
        }
    assert len(TARGETS) == 9


@for_every(TARGETS)
def test_the_stored_relative_is_the_one_that_the_simulator_takes(target):
    others = [load_hardware(name) for name in TARGETS if name != target]
    chosen = calibrated_relative(load_hardware(target), available=others)
    mine = [row for row in TABLE.nearest if row.target == target]
    assert {row.relative for row in mine} == {chosen.name}
    distance = kernel_distance(load_hardware(target), relative=load_hardware(chosen.name))
    assert [row.distance for row in mine] == pytest.approx([distance] * len(mine), abs=1e-3)


def test_relatives_of_another_generation_are_farther_and_err_more():
    far, near = TABLE.other_generation, TABLE.nearest
    for rows_far, rows_near in zip(far, near, strict=True):
        assert rows_far.distance >= rows_near.distance
        names = (rows_far.target, rows_far.relative)
        generations = {load_hardware(name).architecture.split("-")[0] for name in names}
        assert len(generations) == 2
    assert sum(row.mape for row in far) > sum(row.mape for row in near)


def test_mean_error_on_an_accelerator_left_out_is_within_the_bar():
    for family in ("gemm", "prefill_attention", "decode_attention"):
        errors = [row.mape for row in TABLE.nearest if row.family == family]
        assert sum(errors) / len(errors) < 0.15


def test_interval_widens_with_distance_and_passes_through_the_measured_points():
    sigmas = [transfer_log_sigma(distance) for distance in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 9.0)]
    assert sigmas == sorted(sigmas)
    for point in TABLE.curve:
        assert transfer_log_sigma(point.distance) == pytest.approx(point.log_sigma_extra)


def test_a_curve_that_falls_is_refused():
    points = [
        {"distance": 0.0, "mape": 0.2, "log_sigma_extra": 0.2, "pairs": 1},
        {"distance": 1.0, "mape": 0.1, "log_sigma_extra": 0.1, "pairs": 1},
    ]
    document = {**TABLE.model_dump(), "curve": points}
    with pytest.raises(RoofcastError, match="never fall"):
        validate(TransferTable, document, where="test")


def test_a_release_known_to_the_month_or_year_is_as_far_as_its_first_day():
    target, other = load_hardware("a100"), load_hardware("vr200")
    found = {}
    for released in ("2024-03-01", "2024-03", "2024-01-01", "2024", "2023"):
        own = validate(AcceleratorSpec, {**other.model_dump(), "release_date": released}, where="own.yaml")
        found[released] = kernel_distance(own, relative=target)
    assert found["2024-03"] == found["2024-03-01"]
    assert found["2024"] == found["2024-01-01"]
    assert found["2023"] < found["2024"] < found["2024-03"]


@for_every(["2024-13", "24", "2024-3", "", "2024-03-", "March 2024", "2024-W10", "20240301", "\u00b2"])
def test_what_is_no_date_is_refused_by_its_field(text):
    own = load_hardware("b200").model_dump()
    with pytest.raises(RoofcastError, match="release_date.*2026-11 or 2026 is needed"):
        validate(AcceleratorSpec, {**own, "release_date": text}, where="own.yaml")
    with pytest.raises(RoofcastError, match="date.*2026-11 or 2026 is needed"):
        validate(Source, {"source": "datasheet", "date": text}, where="own.yaml")


def test_a_source_known_to_the_month_is_no_newer_than_a_day_of_it():
    own = load_hardware("b200").model_dump()
    sources = {name: {**source, "date": "2026-11"} for name, source in own["sources"].items()}
    spec = validate(AcceleratorSpec, {**own, "sources": sources}, where="own.yaml")
    assert spec.rates_date == spec.facts_date == "2026-11" < "2026-11-01"


def test_parts_of_one_generation_with_one_memory_are_nearer_than_any_other_architecture() -> None:
    b200, b300, rubin, rtx = (load_hardware(name) for name in ("b200-sxm", "b300-sxm", "vr200", "rtx-pro-6000"))
    near = kernel_distance(b300, relative=b200)
    assert kernel_distance(load_hardware("gb200"), relative=b200) < near < 0.2
    assert min(kernel_distance(rubin, relative=b300), kernel_distance(rtx, relative=b200)) >= 1.0
    assert transfer_log_sigma(1.0) > 2 * transfer_log_sigma(near)
