"""Fits of a user's measurements: known parameters come back, what the data cannot tell is kept or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import ProfileError, RoofcastError
from simulator.fitting.kernel_fits import (
    HELD_OUT_SHARE,
    POINTS_AT_LEAST,
    UserFit,
    check_points,
    demands,
    fit_demand,
    held_out,
)
from simulator.fitting.measured_work import measured_work
from simulator.kernels.fits import measured_fits
from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.kernels.timing import Provenance
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import CalibrationSpec
from simulator.specs.measured.kernel_times import MeasuredKernel, MeasuredTable
from simulator.specs.writing import yaml_text

TRUE = {"launch_s": 7e-6, "compute_fraction": 0.62, "memory_fraction": 0.71}
H100 = load_hardware("h100")


def row(**values: object) -> MeasuredKernel:
    numbers = dict.fromkeys(
        ("m", "n", "k", "groups", "sequences", "query_tokens", "context_tokens", "num_heads", "num_kv_heads"), 0.0
    )
    given = {"line": 2, "family": "gemm", "kernel": "linear", "format": "bf16", "mode": "graph", "seconds": 1.0}
    return MeasuredKernel(**{**numbers, "head_dim": 0.0, "bytes": 0.0, "layers": 0.0, **given, **values})  # type: ignore[arg-type]


def timed(shape: MeasuredKernel, *, hardware: AcceleratorSpec, noise: float = 1.0) -> MeasuredKernel:
    """The row with the time of the true parameters."""
    work = measured_work(shape)
    assert work is not None
    compute_s = float(work.flops[0]) / (TRUE["compute_fraction"] * hardware.peak_flops_per_s["bf16"])  # type: ignore[index]
    memory_s = float(work.bytes[0]) / (TRUE["memory_fraction"] * hardware.memory_bytes_per_s)
    return replace(shape, seconds=(TRUE["launch_s"] + max(compute_s, memory_s)) * noise)


def gemms(count: int = 120, *, largest_m: int = 8192, sigma: float = 0.05) -> tuple[MeasuredKernel, ...]:
    random = np.random.default_rng(3)
    found = []
    for index in range(count):
        m, n, k = (int(2 ** random.uniform(0, np.log2(largest_m))), *(128 * int(random.integers(2, 64)) for _ in "nk"))
        shape = row(line=index + 2, m=float(m), n=float(n), k=float(k))
        found.append(timed(shape, hardware=H100, noise=float(np.exp(random.normal(0, sigma)))))
    return tuple(found)


def table(rows: tuple[MeasuredKernel, ...], *, date: str = "2026-12-01") -> MeasuredTable:
    return MeasuredTable(path="x.csv", device="GPU", driver="1", torch_version="2.13.0", date=date, rows=rows)


@pytest.fixture(scope="module")
def kernels() -> KernelLibrary:
    return kernel_library(H100, library="torch")


@pytest.fixture(scope="module")
def fitted(kernels: KernelLibrary) -> UserFit:
    (demand,) = demands(table(gemms()), hardware=H100)
    return fit_demand(demand, kernels=kernels)


def test_known_parameters_come_back_through_noise(fitted: UserFit) -> None:
    for name, value in TRUE.items():
        assert fitted.fit.parameters[name] == pytest.approx(value, rel=0.05), name
    assert fitted.kept == ()
    # The mean of |log-normal - 1| at sigma 0.05 is 0.04.
    assert fitted.after_mape < 0.06 < fitted.before_mape
    assert fitted.fit.error.score_points == 120 // HELD_OUT_SHARE
    assert 0.03 < fitted.fit.error.log_sigma < 0.08


def test_without_noise_the_fit_is_exact(kernels: KernelLibrary) -> None:
    (demand,) = demands(table(gemms(sigma=0.0)), hardware=H100)
    fit = fit_demand(demand, kernels=kernels).fit
    assert dict(fit.parameters) == pytest.approx(TRUE, rel=2e-3)
    assert fit.error.score_mape < 1e-3


def test_an_outlier_does_not_move_the_fit(kernels: KernelLibrary, fitted: UserFit) -> None:
    rows = list(gemms())
    rows[5] = replace(rows[5], seconds=rows[5].seconds * 100)
    (demand,) = demands(table(tuple(rows)), hardware=H100)
    parameters = fit_demand(demand, kernels=kernels).fit.parameters
    assert dict(parameters) == pytest.approx(dict(fitted.fit.parameters), rel=0.1)


def test_what_the_shapes_do_not_tell_is_kept_and_named(kernels: KernelLibrary) -> None:
    """One-token products never wait for the multipliers: the compute share stays what it was."""
    (demand,) = demands(table(gemms(largest_m=4)), hardware=H100)
    result = fit_demand(demand, kernels=kernels)
    current = kernels.roofline.find(family="gemm", fmt="bf16")
    assert current is not None
    assert result.kept == ("compute_fraction",)
    assert result.fit.parameters["compute_fraction"] == pytest.approx(current.parameters["compute_fraction"], rel=1e-4)
    assert result.fit.parameters["memory_fraction"] == pytest.approx(TRUE["memory_fraction"], rel=0.1)
    assert "compute_fraction" in result.fit.note


def test_a_rate_above_the_datasheet_rests_on_its_bound_and_says_so(kernels: KernelLibrary) -> None:
    """Operands that stay in a cache: memory looks four times as fast as it is."""
    random = np.random.default_rng(5)
    rows = []
    for index in range(60):
        moved = float(2 ** random.uniform(20, 31))
        seconds = 3e-6 + moved / (4 * H100.memory_bytes_per_s)
        rows.append(row(line=index + 2, family="elementwise", kernel="copy", bytes=moved, seconds=seconds))
    (demand,) = demands(table(tuple(rows)), hardware=H100)
    result = fit_demand(demand, kernels=kernels)
    assert result.fit.parameters["memory_fraction"] == pytest.approx(1.0)
    assert "datasheet rate" in result.fit.note


def test_launches_alone_are_refused(kernels: KernelLibrary) -> None:
    tiny = tuple(replace(item, n=128.0, k=16.0 * (index + 1), m=1.0) for index, item in enumerate(gemms(30)))
    rows = tuple(timed(item, hardware=H100) for item in tiny)
    (demand,) = demands(table(rows), hardware=H100)
    with pytest.raises(RoofcastError, match="launches") as caught:
        fit_demand(demand, kernels=kernels)
    assert caught.value.code == "not_identifiable"


def test_too_few_points_and_impossible_times_are_named() -> None:
    with pytest.raises(RoofcastError, match="row 2: 14 points of gemm bf16") as few:
        check_points(demands(table(gemms(POINTS_AT_LEAST - 1)), hardware=H100)[0])
    assert few.value.field == "family"
    rows = list(gemms())
    rows[7] = replace(rows[7], m=8192.0, n=8192.0, k=8192.0, seconds=1e-4)
    with pytest.raises(RoofcastError, match="row 9: .* times the bf16 peak of h100") as fast:
        demands(table(tuple(rows)), hardware=H100)
    assert fast.value.field == "seconds"


def test_equal_shapes_fall_on_one_side_and_the_split_is_fixed() -> None:
    rows = gemms(60)
    once, twice = held_out(rows), held_out((*rows, *rows))
    assert (twice[:60] == twice[60:]).all()
    assert (held_out(rows[::-1]) == once[::-1]).all()
    assert once.sum() == 12


def test_work_is_counted_by_hand() -> None:
    product = measured_work(row(m=8.0, n=256.0, k=512.0, format="w4a16"))
    assert product is not None
    assert product.flops[0] == 2 * 8 * 256 * 512
    assert product.weight_bytes[0] == 256 * 512 * 4.25 / 8
    heads = {"num_heads": 8.0, "num_kv_heads": 2.0, "head_dim": 64.0, "kernel": "flash"}
    decode = measured_work(
        row(family="decode_attention", sequences=3.0, query_tokens=1.0, context_tokens=99.0, **heads)
    )
    assert decode is not None
    assert decode.flops[0] == 4 * 3 * 100 * 8 * 64
    assert decode.kv_bytes[0] == 2 * 3 * 100 * 2 * 64 * 2
    prefill = measured_work(row(family="prefill_attention", sequences=1.0, query_tokens=10.0, **heads))
    assert prefill is not None
    assert prefill.flops[0] == 4 * 55 * 8 * 64
    assert measured_work(row(format="bf16_2_4")) is None
    assert measured_work(row(family="whole_model")) is None


def profile(directory: Path, fit: UserFit, **updates: str) -> str:
    spec = CalibrationSpec(
        **{"hardware": "h100-sxm-80gb", "library": "torch", "date": "2026-12-01", **updates},
        library_version="2.13.0",
        source="x.csv",
        fits=(fit.fit,),
    )
    (directory / "calibration").mkdir()
    path = directory / "calibration" / "h100-sxm-80gb--torch.roofline.yaml"
    path.write_text(yaml_text(spec, heading="test"))
    return str(directory)


def test_the_users_fit_prices_torch_and_leaves_the_engines_own_tables(tmp_path: Path, fitted: UserFit) -> None:
    profiles = profile(tmp_path, fitted)
    work = measured_work(row(m=512.0, n=4096.0, k=4096.0))
    assert work is not None
    priced = kernel_library(H100, library="torch", profiles=profiles).price(work)
    assert priced.seconds[0] == pytest.approx(timed(row(m=512.0, n=4096.0, k=4096.0), hardware=H100).seconds, rel=0.05)
    assert priced.provenance[0] == Provenance.MEASURED
    beyond = measured_work(row(m=2.0**20, n=65536.0, k=65536.0))
    assert beyond is not None
    assert kernel_library(H100, library="torch", profiles=profiles).price(beyond).provenance[0] == Provenance.CALIBRATED
    plain = kernel_library(H100, library="vllm").price(work)
    assert kernel_library(H100, library="vllm", profiles=profiles).price(work).seconds[0] == plain.seconds[0]


def test_on_a_gpu_without_tables_the_users_fit_goes_before_a_relatives(tmp_path: Path, fitted: UserFit) -> None:
    profiles = profile(tmp_path, fitted)
    source = Path(tmp_path / "calibration" / "h100-sxm-80gb--torch.roofline.yaml")
    l4 = load_hardware("l4")
    source.with_name("l4--torch.roofline.yaml").write_text(
        source.read_text().replace("hardware: h100-sxm-80gb", "hardware: l4")
    )
    work = measured_work(row(m=512.0, n=4096.0, k=4096.0))
    assert work is not None
    priced = kernel_library(l4, library="vllm", profiles=profiles).price(work)
    assert priced.seconds[0] == pytest.approx(timed(row(m=512.0, n=4096.0, k=4096.0), hardware=l4).seconds, rel=0.05)
    assert kernel_library(l4, library="vllm").price(work).provenance[0] == Provenance.EXTRAPOLATED


@pytest.mark.parametrize(
    ("updates", "field"),
    [({"date": "2020-01-01"}, "date"), ({"hardware": "a100-sxm-80gb"}, "hardware"), ({"library": "vllm"}, "library")],
)
def test_a_calibration_that_does_not_belong_is_refused(
    tmp_path: Path, fitted: UserFit, updates: dict[str, str], field: str
) -> None:
    profiles = profile(tmp_path, fitted, **updates)
    with pytest.raises(ProfileError) as caught:
        measured_fits(H100, profiles=profiles)
    assert caught.value.field == field
