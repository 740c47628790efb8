"""``simulator.fitting.kernel_calibration`` and ``engine_calibration``: complete results, nothing written."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop
from simulator.errors import RoofcastError
from simulator.fitting.engine_overheads import calibrate_engine
from simulator.fitting.kernel_calibration import KernelCalibration, calibrate_kernels
from simulator.fitting.measured_work import measured_work, whole_errors, whole_rows
from simulator.kernels.fits import MEASURED_LIBRARY
from simulator.kernels.library import kernel_library
from simulator.phases.deployment import deploy
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import REQUIRED_COLUMNS, MeasuredKernel, load_measurements
from simulator.specs.measured.serving_results import ServedSpec
from simulator.specs.model.loading import load_model
from simulator.specs.writing import HEADING

RESULTS = Path(__file__).resolve().parents[1] / "data" / "serving_results"
MACHINE = "GPU A,555.1,2.13.0,2026-12-01"
LAUNCH_S, COMPUTE, MEMORY = 8e-6, 0.6, 0.8


def row(**cells: float | str) -> str:
    """One line of a measurement file; cells that are not given stay empty."""
    named = {"mode": "graph", **cells}
    return ",".join(str(named.get(name, "")) for name in REQUIRED_COLUMNS[:-4]) + "," + MACHINE


def products(*, launch_s: float = LAUNCH_S) -> list[str]:
    """40 products that follow the three-parameter roofline of an H100 exactly."""
    hardware = load_hardware("h100")
    assert hardware.peak_flops_per_s["bf16"] is not None  # type: ignore[index]
    lines = []
    for index in range(40):
        m, n, k = 2 ** (index % 14), 512 * (1 + index % 7), 1024 * (1 + index % 5)
        zeros = dict.fromkeys(REQUIRED_COLUMNS[6:15], 0.0)
        measured = MeasuredKernel(
            line=0, family="gemm", kernel="linear", format="bf16", seconds=1.0, mode="", m=m, n=n, k=k, **zeros
        )
        work = measured_work(measured)
        assert work is not None
        peak_s = float(work.flops[0]) / hardware.peak_flops_per_s["bf16"]  # type: ignore[index]
        bandwidth_s = float(work.bytes[0]) / hardware.memory_bytes_per_s
        seconds = launch_s + max(peak_s / COMPUTE, bandwidth_s / MEMORY)
        lines.append(row(family="gemm", kernel="linear", format="bf16", m=m, n=n, k=k, seconds=f"{seconds:.8g}"))
    return lines


def passes() -> list[str]:
    """20 copies that take 4 us and 70 % of an H100's bandwidth."""
    bandwidth = load_hardware("h100").memory_bytes_per_s
    sizes = [2.0**exponent for exponent in np.linspace(16, 30, 20)]
    return [
        row(
            family="elementwise",
            kernel="copy",
            format="bf16",
            bytes=f"{size:.0f}",
            seconds=f"{4e-6 + size / (0.7 * bandwidth):.8g}",
        )
        for size in sizes
    ]


def steps() -> list[str]:
    return [
        row(
            family=family,
            kernel=phase,
            format="bf16",
            sequences=16,
            query_tokens=tokens,
            context_tokens=context,
            layers=layers,
            seconds=0.004,
        )
        for family, layers in (("whole_layer", 1), ("whole_model", 32))
        for phase, tokens, context in (("prefill", 256, ""), ("decode", 1, 2048))
    ]


def table(path: Path, *groups: list[str]) -> str:
    path.write_text("\n".join([",".join(REQUIRED_COLUMNS), *(line for group in groups for line in group)]) + "\n")
    return str(path)


def write(calibration: KernelCalibration, folder: Path) -> str:
    for profile in calibration.profiles:
        path = folder / profile.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(profile.text, encoding="utf-8")
    return str(folder)


def test_parameters_come_back_and_nothing_is_written(tmp_path: Path) -> None:
    found = calibrate_kernels(table(tmp_path / "m.csv", products()), hardware="h100")
    (item,) = found.fits
    assert item.fit.parameters["launch_s"] == pytest.approx(LAUNCH_S, rel=0.01)
    assert item.fit.parameters["compute_fraction"] == pytest.approx(COMPUTE, rel=0.01)
    assert item.fit.parameters["memory_fraction"] == pytest.approx(MEMORY, rel=0.01)
    assert item.after_mape < 0.005 < item.before_mape
    assert [path.name for path in tmp_path.iterdir()] == ["m.csv"]
    (profile,) = found.profiles
    assert profile.path == "calibration/h100-sxm-80gb--torch.roofline.yaml"
    assert profile.text.startswith(f"# {HEADING}\n")


def test_checked_steps_are_the_same_before_and_after_the_profiles_are_written(tmp_path: Path) -> None:
    """The new errors come from fits at hand; reading the written profiles back must give the same."""
    measured = table(tmp_path / "m.csv", products(), passes(), steps())
    found = calibrate_kernels(measured, hardware="h100")
    assert [profile.path.rsplit(".", 2)[1] for profile in found.profiles] == ["roofline", "elementwise"]
    written = write(found, tmp_path / "mine")
    kernels = kernel_library(found.hardware, library=MEASURED_LIBRARY, profiles=written)
    rows = whole_rows(load_measurements(measured).rows)
    again = whole_errors(rows, models=load_model, kernels=kernels)
    assert found.whole_after == again
    assert found.whole_after != found.whole_before
    assert [(error.family, error.phase, error.steps) for error in again] == [
        (family, phase, 1) for family in ("whole_layer", "whole_model") for phase in ("prefill", "decode")
    ]


def test_a_faster_measurement_never_makes_a_checked_step_slower(tmp_path: Path) -> None:
    """Signed errors rise with the launch time of the products that the steps are made of."""
    bias = [
        [
            error.bias
            for error in calibrate_kernels(
                table(tmp_path / f"{launch_s}.csv", products(launch_s=launch_s), steps()), hardware="h100"
            ).whole_after
        ]
        for launch_s in (2e-6, 8e-6, 32e-6)
    ]
    for lower, higher in pairwise(bias):
        assert all(one < other for one, other in zip(lower, higher, strict=True))


def test_only_chooses_families_and_formats(tmp_path: Path) -> None:
    measured = table(tmp_path / "m.csv", products(), passes())
    assert [item.fit.family for item in calibrate_kernels(measured, hardware="h100").fits] == ["gemm", "elementwise"]
    for only in ("gemm", "gemm/bf16"):
        assert [item.fit.family for item in calibrate_kernels(measured, hardware="h100", only=(only,)).fits] == ["gemm"]
    with pytest.raises(RoofcastError, match="gemm/bf16") as refused:
        calibrate_kernels(measured, hardware="h100", only=("gemm/fp8",))
    assert refused.value.field == "only"


def test_what_cannot_be_fitted_is_named(tmp_path: Path) -> None:
    odd = row(family="gemm_sparse", kernel="cusparselt", format="bf16", m=64, n=64, k=64, seconds=1e-5)
    found = calibrate_kernels(table(tmp_path / "m.csv", products(), [odd]), hardware="h100")
    assert found.unused == ("gemm_sparse/bf16 (cusparselt)",)
    with pytest.raises(RoofcastError, match="nothing that can be fitted"):
        calibrate_kernels(table(tmp_path / "odd.csv", [odd]), hardware="h100")


def test_an_engine_profile_holds_the_fitted_overheads_and_leaves_the_others(tmp_path: Path) -> None:
    deployment = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"))
    lengths = LoopLengths(isl_tokens=512, osl_tokens=64)
    result = closed_loop(deployment, concurrency=4, lengths=lengths, num_requests=32)
    data = json.loads((RESULTS / "vllm_bench.json").read_text("utf-8"))
    data |= {"max_concurrency": 4, "completed": 32, "duration": 32 / result.requests_per_s}
    data |= {"total_input_tokens": 32 * 512, "total_output_tokens": 32 * 64}
    data |= {"mean_ttft_ms": result.ttft_s * 1e3 + 5.0, "mean_tpot_ms": result.tpot_s * 1e3 + 2.0}
    bench = tmp_path / "bench.json"
    bench.write_text(json.dumps(data))
    found = calibrate_engine([str(bench)], served=ServedSpec(model="llama-3.1-8b", hardware="h100"))
    assert found.profile is not None
    assert found.engine == "vllm"
    assert found.profile.path == "engines/vllm.yaml"
    assert found.fit.step_s > deployment.engine.overheads.step_s
    (errors,) = found.fit.errors
    assert errors.ttft_before < -0.01
    assert errors.tpot_before < -0.1
    assert abs(errors.tpot_after) < 0.01
    assert abs(errors.ttft_after) < 0.01
    assert f"step_s: {float(format(found.fit.step_s, '.4g'))}" in found.profile.text
