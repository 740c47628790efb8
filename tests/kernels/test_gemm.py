"""GEMM: bounded by the roofline, monotone in work, never slower on better hardware, and right on measured kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import ProfileError
from simulator.kernels.fits import lattice_of
from simulator.kernels.gemm import SPLITS, TILES, GemmMachine, gemm_machine, gemm_seconds, gemm_timing
from simulator.kernels.timing import Provenance, Terms, Timing, l2_hit_share, smooth_maximum
from simulator.operators.work import GemmShape, MatmulFormat
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import KernelFit, load_arrays, load_calibration
from simulator.specs.model.precision import Dtype

BF16 = MatmulFormat(name="bf16", weight_bits=16, activation_bits=16, math=Dtype.BF16)
FP8 = MatmulFormat(name="fp8", weight_bits=8, activation_bits=8, math=Dtype.FP8, quantises_activations=True)
MACHINE = GemmMachine(peak_flops_per_s=1e15, memory_bytes_per_s=3e12, l2_bytes=5e7, compute_units=128)
PARAMETERS = {
    "launch_s": 2e-6,
    "compute_fraction": 0.9,
    "prologue": 200.0,
    "half_tile": 2.0,
    "wave_quantisation": 0.5,
    "l2_share": 0.5,
    "l2_speedup": 2.0,
    "memory_fraction": 0.85,
    "unit_bandwidth": 5.0,
    "overlap": 4.0,
    "split_s": 2e-6,
    "droop": 0.1,
    "droop_s": 1e-3,
    "quantise_s": 2e-6,
    "quantise_fraction": 0.5,
    "quantise_row_s": 5e-7,
    "quantise_element_s": 1e-10,
}
IDEAL = PARAMETERS | {
    "launch_s": 0.0,
    "compute_fraction": 1.0,
    "prologue": 0.0,
    "half_tile": 0.0,
    "wave_quantisation": 0.0,
    "l2_speedup": 1.0,
    "memory_fraction": 1.0,
    "unit_bandwidth": 1e9,
    "overlap": 50.0,
    "droop": 0.0,
}
SIZES = st.integers(0, 16).map(lambda exponent: float(2**exponent)) | st.integers(1, 70000).map(float)


def priced(
    m: float,
    n: float,
    k: float,
    *,
    machine: GemmMachine = MACHINE,
    parameters: dict[str, float] = PARAMETERS,
    quantises: bool = False,
    batch: float = 1.0,
    cold: bool = False,
) -> Terms:
    return gemm_seconds(
        m,
        n,
        k,
        machine=machine,
        parameters=parameters,
        weight_bytes=2.0,
        activation_bytes=2.0,
        quantises=quantises,
        batch=batch,
        cold=cold,
    )


def calibrated(hardware: str, *, library: str, format: MatmulFormat, m: list[float], n: float, k: float) -> Timing:
    calibration = load_calibration(hardware, library=library, group="gemm")
    assert calibration is not None
    fit: KernelFit = next(fit for fit in calibration.fits if fit.format == format.name)
    lattice = lattice_of(fit.correction, load_arrays(hardware, library=library, group="gemm"))
    shape = GemmShape(m=np.array(m), n=n, k=k, format=format)
    return gemm_timing(shape, hardware=load_hardware(hardware), fit=fit, lattice=lattice)


@given(SIZES, SIZES, SIZES)
def test_never_faster_than_the_roofline(m: float, n: float, k: float) -> None:
    """With fractions of at most 1 and cold weights no case beats either roof."""
    seconds = priced(m, n, k, cold=True).seconds[0]
    moved = 2 * (n * k + m * k + m * n)
    assert seconds >= 2 * m * n * k / MACHINE.peak_flops_per_s
    assert seconds >= moved / MACHINE.memory_bytes_per_s


@given(SIZES, SIZES, SIZES, st.sampled_from(["m", "n", "k"]), st.floats(1.0, 3.0))
def test_more_work_never_takes_less_time(m: float, n: float, k: float, axis: str, factor: float) -> None:
    larger = {"m": m, "n": n, "k": k}
    larger[axis] *= factor
    before = priced(m, n, k, quantises=True).seconds[0]
    assert priced(larger["m"], larger["n"], larger["k"], quantises=True).seconds[0] >= before * (1 - 1e-12)


@given(SIZES, SIZES, SIZES, st.floats(1.0, 4.0))
def test_more_bandwidth_or_rate_is_never_slower(m: float, n: float, k: float, factor: float) -> None:
    before = priced(m, n, k).seconds[0] * (1 + 1e-12)
    wider = GemmMachine(peak_flops_per_s=1e15, memory_bytes_per_s=3e12 * factor, l2_bytes=5e7, compute_units=128)
    faster = GemmMachine(peak_flops_per_s=1e15 * factor, memory_bytes_per_s=3e12, l2_bytes=5e7, compute_units=128)
    larger_l2 = GemmMachine(peak_flops_per_s=1e15, memory_bytes_per_s=3e12, l2_bytes=5e7 * factor, compute_units=128)
    assert priced(m, n, k, machine=wider).seconds[0] <= before
    # A higher rate brings long kernels nearer to the droop's onset, never beyond what the rate gains.
    assert priced(m, n, k, machine=faster).seconds[0] <= before
    assert priced(m, n, k, machine=larger_l2).seconds[0] <= before


def test_without_losses_it_is_the_roofline() -> None:
    """All fractions 1, no launch, whole tiles: max(F / peak, B / bandwidth)."""
    compute_bound = priced(8192, 16384, 8192, parameters=IDEAL, cold=True).seconds[0]
    assert compute_bound == pytest.approx(2 * 8192 * 16384 * 8192 / 1e15, rel=1e-9)
    memory_bound = priced(16, 65536, 8192, parameters=IDEAL, cold=True).seconds[0]
    moved = 2 * (65536 * 8192 + 16 * 8192 + 16 * 65536)
    assert memory_bound == pytest.approx(moved / 3e12, rel=1e-9)


def test_one_tile_by_hand() -> None:
    """16 x 64 outputs over k = 64 fill one tile: one wave on one of 128 units at its share of the peak."""
    parameters = IDEAL | {"split_s": 1.0}
    terms = priced(16, 64, 64, parameters=parameters, cold=True)
    assert terms.compute_s[0] == pytest.approx(2 * 16 * 64 * 64 / (1e15 / 128))
    assert terms.memory_s[0] == pytest.approx(2 * (64 * 64 + 16 * 64 + 16 * 64) / 3e12)


def test_a_wave_too_many_costs_a_whole_wave() -> None:
    """With hard wave quantisation 130 tiles on 128 units take as long as 256."""
    # Only the largest tile (256 x 128 or 128 x 256) is efficient: 128 of them fill the 128 units once.
    hard = IDEAL | {"wave_quantisation": 1.0, "split_s": 1.0, "half_tile": 1e6}
    full, over, twice = (
        priced(rows, 256, 4096, parameters=hard).seconds[0] for rows in (128 * 128, 128 * 130, 256 * 128)
    )
    assert over == pytest.approx(2 * full, rel=1e-4)
    assert over == pytest.approx(twice, rel=1e-4)
    soft = hard | {"wave_quantisation": 0.0}
    assert priced(128 * 130, 256, 4096, parameters=soft).seconds[0] == pytest.approx(130 / 128 * full, rel=1e-4)


def test_split_k_fills_idle_units() -> None:
    """A narrow product with a long k is faster with free splits than with splits that cost a second."""
    free, dear = IDEAL | {"split_s": 0.0}, IDEAL | {"split_s": 1.0}
    narrow = {"m": 16.0, "n": 64.0, "k": 65536.0}
    gain = priced(**narrow, parameters=dear).seconds[0] / priced(**narrow, parameters=free).seconds[0]
    assert 1.5 < gain <= SPLITS.max()


def test_cold_weights_are_never_faster_and_matter_only_where_l2_held_them() -> None:
    streaming = PARAMETERS | {"unit_bandwidth": 1e9}
    small, large = (64, 1024, 1024), (64, 16384, 16384)
    hot_s, cold_s = (priced(*small, parameters=streaming, cold=cold).memory_s[0] for cold in (False, True))
    assert hot_s < cold_s <= PARAMETERS["l2_speedup"] * hot_s
    assert cold_s > 1.5 * hot_s
    assert priced(*large, cold=True).seconds[0] == pytest.approx(priced(*large).seconds[0], rel=0.01)


def test_quantisation_pass_adds_to_the_product() -> None:
    with_pass, without = priced(4096, 4096, 4096, quantises=True), priced(4096, 4096, 4096)
    pass_s = with_pass.seconds[0] - without.seconds[0]
    assert pass_s > PARAMETERS["quantise_s"]
    assert with_pass.memory_s[0] == pytest.approx(without.memory_s[0] + pass_s)


def test_batch_of_products_lies_between_one_and_as_many_launches() -> None:
    one, sixteen = priced(64, 512, 128).seconds[0], priced(64, 512, 128, batch=16.0).seconds[0]
    assert one < sixteen <= 16 * one


@given(st.floats(1e-9, 1.0), st.floats(1e-9, 1.0), st.floats(1.2, 12.0))
def test_smooth_maximum_brackets_the_maximum(first: float, second: float, sharpness: float) -> None:
    joined = smooth_maximum(np.array([first]), np.array([second]), sharpness=sharpness)[0]
    assert max(first, second) * (1 - 1e-12) <= joined <= 2 ** (1 / sharpness) * max(first, second) * (1 + 1e-12)


def test_l2_hit_share_halves_at_capacity() -> None:
    shares = l2_hit_share(np.array([0.0, 5e7, 5e9]), l2_bytes=5e7)
    np.testing.assert_allclose(shares, [1.0, 0.5, 0.0], atol=1e-5)


def test_a_sharper_l2_holds_more_below_its_capacity_and_less_above() -> None:
    sets = np.array([2.5e7, 5e7, 1e8])
    soft, sharp = (l2_hit_share(sets, l2_bytes=5e7, sharpness=sharpness) for sharpness in (3.0, 15.0))
    assert sharp[0] > soft[0]
    assert sharp[1] == pytest.approx(soft[1])
    assert sharp[2] < soft[2]


def test_array_answer_is_the_scalar_answer() -> None:
    m = np.array([1.0, 17.0, 300.0, 8192.0])
    together = gemm_seconds(
        m, 4096, 7168, machine=MACHINE, parameters=PARAMETERS, weight_bytes=2.0, activation_bytes=2.0
    ).seconds
    np.testing.assert_allclose(together, [priced(each, 4096, 7168).seconds[0] for each in m], rtol=1e-14)


def test_candidate_tiles_are_distinct() -> None:
    assert len({tuple(tile) for tile in TILES.tolist()}) == len(TILES)


def test_refuses_a_rate_that_the_hardware_lacks() -> None:
    with pytest.raises(ProfileError, match="a100-sxm-80gb has no fp8 matrix rate"):
        gemm_machine(load_hardware("a100-sxm-80gb"), FP8)


# Measured GEMMs [us] of shapes that no fit saw (aiconfigurator-core 0.12.0, vllm tables), tolerance each.
# hardware, format, m, n, k, measured, tolerance
MEASURED = [
    ("h100-sxm-80gb", BF16, 1, 2048, 16384, 25.92, 0.1),
    ("h100-sxm-80gb", BF16, 64, 16384, 10240, 120.87, 0.1),
    ("h100-sxm-80gb", BF16, 4096, 2560, 10240, 253.87, 0.1),
    ("a100-sxm-80gb", BF16, 1, 5120, 12288, 88.76, 0.1),
    ("a100-sxm-80gb", BF16, 64, 8192, 10240, 126.52, 0.1),
    ("a100-sxm-80gb", BF16, 4096, 2560, 10240, 740.22, 0.1),
    ("h200-sxm-141gb", BF16, 1, 2048, 16384, 20.02, 0.15),
    ("h200-sxm-141gb", BF16, 64, 16384, 10240, 82.30, 0.1),
    ("h200-sxm-141gb", BF16, 4096, 2560, 10240, 255.16, 0.1),
    ("b200-sxm", BF16, 1, 2048, 16384, 14.11, 0.1),
    ("b200-sxm", BF16, 64, 16384, 10240, 52.84, 0.1),
    ("b200-sxm", BF16, 4096, 2560, 10240, 139.12, 0.1),
    ("h100-sxm-80gb", FP8, 1, 2048, 16384, 21.53, 0.1),
    ("h100-sxm-80gb", FP8, 64, 16384, 10240, 65.00, 0.1),
    ("h100-sxm-80gb", FP8, 4096, 2560, 10240, 267.01, 0.1),
]


@pytest.mark.parametrize(("hardware", "format", "m", "n", "k", "measured_us", "tolerance"), MEASURED)
def test_measured_kernels(
    hardware: str, format: MatmulFormat, m: float, n: float, k: float, measured_us: float, tolerance: float
) -> None:
    timing = calibrated(hardware, library="vllm", format=format, m=[m], n=n, k=k)
    assert timing.seconds[0] * 1e6 == pytest.approx(measured_us, rel=tolerance)


@pytest.mark.parametrize("hardware", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm"])
def test_shipped_calibrations_meet_their_bars(hardware: str) -> None:
    bars = {"a100-sxm-80gb": 0.05, "h100-sxm-80gb": 0.04, "h200-sxm-141gb": 0.05, "b200-sxm": 0.06}
    calibration = load_calibration(hardware, library="vllm", group="gemm")
    assert calibration is not None
    fit = next(fit for fit in calibration.fits if fit.format == "bf16")
    assert fit.error.score_mape <= bars[hardware]
    assert 0.75 <= fit.error.coverage_80 <= 0.85
    assert fit.error.score_points > 1000


def test_calibrated_inside_the_box_and_wider_beyond() -> None:
    inside = calibrated("h100-sxm-80gb", library="vllm", format=BF16, m=[16.0, 4096.0], n=8192, k=8192)
    assert np.all(inside.provenance == Provenance.CALIBRATED)
    beyond = calibrated("h100-sxm-80gb", library="vllm", format=BF16, m=[16.0, 4096.0], n=262144, k=8192)
    assert np.all(beyond.provenance == Provenance.EXTRAPOLATED)
    assert np.all(beyond.log_sigma > inside.log_sigma)


@settings(max_examples=40)
@given(st.integers(1, 30000), st.integers(64, 60000), st.integers(64, 60000))
def test_correction_stays_small(m: int, n: int, k: int) -> None:
    """The calibrated time stays within a factor of 2 of the physics everywhere in the box."""
    calibration = load_calibration("h100-sxm-80gb", library="vllm", group="gemm")
    assert calibration is not None
    fit = next(fit for fit in calibration.fits if fit.format == "bf16")
    hardware = load_hardware("h100-sxm-80gb")
    shape = GemmShape(m=np.array([float(m)]), n=float(n), k=float(k), format=BF16)
    lattice = lattice_of(fit.correction, load_arrays("h100-sxm-80gb", library="vllm", group="gemm"))
    bare = gemm_timing(shape, hardware=hardware, fit=fit, lattice=None).seconds[0]
    full = gemm_timing(shape, hardware=hardware, fit=fit, lattice=lattice).seconds[0]
    assert abs(math.log(full / bare)) < math.log(2.0)
