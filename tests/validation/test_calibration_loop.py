"""The whole loop on this machine: measure its CPU, fit, write a profile, predict from it, score on unseen shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.fitting.kernel_fits import MeasuredFamily, demands
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.kernel_times import load_measurements

FAMILIES = ("gemm fp32", "decode attention flash", "copy")
# A stand-in for a datasheet: more than one core of a server reaches, its caches included, so that shares stay below 1.
CORE_FLOPS_PER_S, CORE_BYTES_PER_S = 400e9, 200e9


def cpu_profile(directory: Path) -> None:
    facts = yaml.safe_load((Path(__file__).resolve().parents[2] / "hardware_profiles" / "l4.yaml").read_text("utf-8"))
    facts |= {"name": "this-cpu", "aliases": [], "vendor": "amd", "architecture": "x86", "memory_kind": "ddr"}
    facts |= {"peak_flops_per_s": {"fp32": CORE_FLOPS_PER_S, "bf16": 2 * CORE_FLOPS_PER_S}}
    facts |= {"sparse_peak_flops_per_s": {}, "vector_flops_per_s": {"fp32": CORE_FLOPS_PER_S}}
    facts |= {"memory_bytes_per_s": CORE_BYTES_PER_S, "l2_bytes": 1e6, "compute_units": 1}
    facts["sources"] = {"peak_flops_per_s": {"source": "a bound for tests", "date": "2020-01-01"}}
    directory.mkdir()
    (directory / "this-cpu.yaml").write_text(yaml.safe_dump(facts))


def held_out_error(demand: MeasuredFamily, kernels: KernelLibrary) -> float:
    """Mean |log(predicted / measured)|: half and double count alike."""
    predicted = np.array([float(kernels.price(work).seconds[0]) for work in demand.works])
    return float(np.abs(np.log(predicted / demand.seconds))[demand.held_out].mean())


@pytest.mark.slow
def test_a_calibrated_cpu_is_predicted_better_than_an_uncalibrated_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, profiles = tmp_path / "measured.csv", tmp_path / "profiles"
    chosen = [word for name in FAMILIES for word in ("--only", name)]
    from validation.measure.__main__ import main  # torch takes seconds to load

    assert main(["--device", "cpu", "--out", str(csv), "--budget-s", "8", "--points", "25", *chosen]) == 0
    cpu_profile(profiles)
    hardware = load_hardware("this-cpu", profiles=profiles)
    # Priced before anything is calibrated: the fits of the nearest relative on this CPU's facts.
    found = demands(load_measurements(csv), hardware=hardware)
    unfitted = kernel_library(hardware, library="torch", profiles=str(profiles))
    before = {demand.family: held_out_error(demand, unfitted) for demand in found}
    words = ("calibrate", str(csv), "--hardware", "this-cpu", "--profiles", str(profiles), "--out", str(profiles))
    assert run(app, name="roofcast", arguments=words) == 0, capsys.readouterr().err
    fitted = kernel_library(hardware, library="torch", profiles=str(profiles))
    after = {demand.family: held_out_error(demand, fitted) for demand in found}
    assert set(after) == {"gemm", "decode_attention", "elementwise"}
    # A fit that a busy machine spoilt is not used; what is used is closer.
    for family, error in after.items():
        assert error <= before[family], f"{family}: {before[family]:.2f} before, {error:.2f} after"
    assert sum(after.values()) < sum(before.values())
    # Machines shared with others are noisy, but not by a factor e on average.
    assert max(after.values()) < 1.0
    print({family: (round(before[family], 3), round(after[family], 3)) for family in after})
