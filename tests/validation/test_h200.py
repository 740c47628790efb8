"""What one H200 gave: the profile comes from its table, and steps that no fit saw are closer with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from simulator.fitting.kernel_calibration import calibrate_kernels
from simulator.fitting.measured_work import measured_work, whole_errors, whole_rows
from simulator.kernels.library import kernel_library
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import load_measurements
from simulator.specs.model.loading import load_model
from validation.end_to_end.h200 import FITTED, FOLDER, HARDWARE, KERNELS, LIBRARY, LIGHTEST, PROFILES, h200_tables

PROFILE = PROFILES / "calibration" / "h200-sxm-141gb--torch.roofline.yaml"


def test_the_profile_is_what_its_table_gives_again_and_again() -> None:
    """Fitted where it is in force already, nothing changes: as close is the same fit, and it is kept."""
    for profiles in (None, str(PROFILES)):
        found = calibrate_kernels(str(KERNELS), hardware=HARDWARE, only=FITTED, profiles=profiles)
        assert [profile.text for profile in found.profiles] == [PROFILE.read_text("utf-8")]
    assert found.whole_before == found.whole_after
    assert all(item.before_mape == pytest.approx(item.after_mape, rel=1e-3) for item in found.fits)


def test_steps_that_no_fit_saw_are_closer_with_fits_of_their_kernels() -> None:
    libraries = [
        kernel_library(load_hardware(HARDWARE), library="torch", profiles=profiles)
        for profiles in (None, str(PROFILES))
    ]
    rows = whole_rows(load_measurements(KERNELS).rows)
    errors = [whole_errors(rows, models=load_model, kernels=kernels) for kernels in libraries]
    means = [sum(item.steps * item.mean for item in found) / sum(item.steps for item in found) for found in errors]
    assert means[1] < 0.8 * means[0]
    assert means[1] < 0.11
    assert max(item.mean for item in errors[1]) < 0.18


def test_products_are_as_the_tables_of_others_say() -> None:
    """cuBLAS is the same in torch and in the engine whose table was fitted: 5.9 % over 365 shapes and three visits."""
    rows = [row for row in load_measurements(KERNELS).rows if (row.family, row.format) == ("gemm", "bf16")]
    works = [work for row in rows if (work := measured_work(row)) is not None]
    kernels = kernel_library(load_hardware(HARDWARE), library=LIBRARY)
    predicted = np.array([float(timing.seconds[0]) for timing in kernels.price_all(works)])
    error = predicted / np.array([row.seconds for row in rows]) - 1
    assert len(rows) > 300
    assert np.abs(error).mean() < 0.065
    assert abs(error.mean()) < 0.03


def test_products_in_blocks_have_no_shape_that_takes_twice_its_neighbours() -> None:
    """An engine's table has hundreds of rows at 1.5 to 3 times the time of more rows: the chip does not do that."""
    rows = [row for row in load_measurements(KERNELS).rows if row.format == "fp8_block"]
    assert len(rows) >= 100
    for n, k in {(row.n, row.k) for row in rows}:
        times = [row.seconds for row in sorted(rows, key=lambda row: row.m) if (row.n, row.k) == (n, k)]
        assert all(earlier < 1.15 * later for earlier, later in pairwise(times))


def test_the_loop_is_simulated_from_its_lightest_run() -> None:
    lines = h200_tables().split("\n\n")[1].splitlines()[2:]
    assert len(lines) == len(list(FOLDER.glob("served-*.json"))) == 7
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0] for row in cells if row[-1] == "fitted"] == ["923 / 116"]
    assert (FOLDER / LIGHTEST).is_file()
    errors = {(row[0], row[1]): float(row[5].split("(")[1].split("%")[0]) for row in cells}
    # Away from saturation; near it, whatever a prompt takes longer is multiplied by the queue.
    light = [errors[key] for key in (("923 / 116", "12"), ("230 / 115", "20"), ("2701 / 181", "4"))]
    assert max(abs(error) for error in light) < 12
