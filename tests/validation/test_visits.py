"""What an H200 and an H100 gave: the profile comes from the table of one, steps and loops of both are close with it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from simulator.fitting.kernel_calibration import calibrate_kernels
from simulator.fitting.measured_work import model_of, whole_errors, whole_rows
from simulator.kernels.library import kernel_library
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.techniques.structure import with_routing_skew
from validation.end_to_end.visits import (
    FITTED,
    H100,
    H200,
    LIBRARY,
    PROFILES,
    Visit,
    fitted_profiles,
    kernel_errors,
    kernels_table,
    loop_runs,
    loop_table,
)

PROFILE = PROFILES / "calibration" / "h200-sxm-141gb--torch.roofline.yaml"
both = pytest.mark.parametrize("visit", [H200, H100], ids=["h200", "h100"])


@pytest.mark.slow
def test_the_profile_is_what_its_table_gives_again_and_again() -> None:
    """Fitted where it is in force already, nothing changes: as close is the same fit, and it is kept."""
    for profiles in (None, str(PROFILES)):
        found = calibrate_kernels(str(H200.folder / "kernels.csv"), hardware="h200", only=FITTED, profiles=profiles)
        assert [profile.text for profile in found.profiles] == [PROFILE.read_text("utf-8")]
    assert found.whole_before == found.whole_after
    assert all(item.before_mape == pytest.approx(item.after_mape, rel=1e-3) for item in found.fits)


def test_steps_that_no_fit_saw_are_closer_with_fits_of_their_kernels() -> None:
    libraries = [
        kernel_library(load_hardware("h200"), library="torch", profiles=profiles) for profiles in (None, str(PROFILES))
    ]
    rows = whole_rows(H200.rows())
    errors = [whole_errors(rows, models=load_model, kernels=kernels) for kernels in libraries]
    means = [sum(item.steps * item.mean for item in found) / sum(item.steps for item in found) for found in errors]
    assert means[1] < 0.8 * means[0]
    assert means[1] < 0.11
    assert max(item.mean for item in errors[1]) < 0.18


def test_steps_of_the_harness_are_priced_as_its_random_router_chooses() -> None:
    """Whatever skew the model's own router is known for."""
    kernels = kernel_library(load_hardware("h200"), library="torch")
    rows = [row for row in whole_rows(H200.rows()) if load_model(model_of(row)).has_experts]
    skewed = whole_errors(rows, models=lambda name: with_routing_skew(load_model(name), 1.4), kernels=kernels)
    assert rows
    assert skewed == whole_errors(rows, models=load_model, kernels=kernels)


def test_fits_carried_to_a_sibling_are_the_same_shares_of_its_own_peaks() -> None:
    with fitted_profiles(H100) as profiles:
        (carried,) = (Path(profiles) / "calibration").iterdir()
        assert carried.name == "h100-sxm-80gb--torch.roofline.yaml"
        lines = zip(carried.read_text("utf-8").splitlines(), PROFILE.read_text("utf-8").splitlines(), strict=True)
        assert [pair for pair in lines if len(set(pair)) > 1] == [
            ("hardware: h100-sxm-80gb", "hardware: h200-sxm-141gb")
        ]
        kernels = kernel_library(load_hardware("h100"), library="torch", profiles=profiles)
        errors = whole_errors(whole_rows(H100.rows()), models=load_model, kernels=kernels)
    assert max(item.mean for item in errors) < 0.15
    with fitted_profiles(H200) as own:
        assert own == str(PROFILES)


@both
def test_products_are_as_the_tables_of_others_say(visit: Visit) -> None:
    """cuBLAS is the same in torch and in the engine whose table was fitted: 5.9 and 5.3 % over more than 360 shapes."""
    kernels = kernel_library(load_hardware(visit.hardware), library=LIBRARY)
    error = kernel_errors(visit.rows(), family="gemm", fmt="bf16", kernels=kernels)
    assert len(error) > 300
    assert np.abs(error).mean() < 0.065
    assert abs(error.mean()) < 0.03


@both
def test_products_in_blocks_have_no_shape_that_takes_twice_its_neighbours(visit: Visit) -> None:
    """An engine's table has hundreds of rows at 1.5 to 3 times the time of more rows: the chip does not do that."""
    rows = [row for row in visit.rows() if row.format == "fp8_block"]
    assert len(rows) >= 100
    for n, k in {(row.n, row.k) for row in rows}:
        times = [row.seconds for row in sorted(rows, key=lambda row: row.m) if (row.n, row.k) == (n, k)]
        assert all(earlier < 1.15 * later for earlier, later in pairwise(times))


@pytest.mark.slow
def test_open_loops_are_simulated_from_their_lightest_run() -> None:
    runs = loop_runs(H200, kind="served")
    assert len(runs) == 7
    assert [run.path.name for run in runs if run.is_fitted] == ["served-1024-128-5.json"]
    errors = {run.path.stem: run.simulated.tpot_s / run.measured.tpot_s - 1 for run in runs}
    # Away from saturation; near it, whatever a prompt takes longer is multiplied by the queue.
    light = [errors[f"served-{name}"] for name in ("1024-128-12", "256-128-20", "3000-200-4")]
    assert max(abs(error) for error in light) < 0.12


@both
def test_closed_loops_are_simulated_from_the_lightest_run(visit: Visit) -> None:
    """Mean TTFT within 15 %, TPOT within 17 %; the median request waits less, the first wave longer than simulated."""
    runs = loop_runs(visit, kind="closed")
    scored = [run for run in runs if not run.is_fitted]
    assert [run.load for run in runs if run.is_fitted] == [4]
    assert len(scored) == 4
    assert np.mean([abs(run.simulated.ttft_s / run.measured.ttft_s - 1) for run in scored]) < 0.07
    for run in scored:
        assert run.simulated.ttft_s == pytest.approx(run.measured.ttft_s, rel=0.16)
        assert run.simulated.tpot_s == pytest.approx(run.measured.tpot_s, rel=0.18)
        assert run.measured.ttft is not None
        assert run.simulated.ttft is not None
        assert run.simulated.ttft.p95_s == pytest.approx(run.measured.ttft.p95_s, rel=0.35)


@pytest.mark.slow
def test_tables_hold_a_line_for_each_run_and_none_where_there_is_no_run() -> None:
    assert loop_table(H100, kind="served") == ""
    heading, rule, *lines = loop_table(H100, kind="closed").splitlines()
    assert len(lines) == len(list(H100.folder.glob("closed-*.json"))) == 5
    assert {line.count("|") for line in (heading, rule, *lines)} == {12}
    assert "| decode attention bf16" in kernels_table(H100)
    assert "decode attention" not in kernels_table(H200)
