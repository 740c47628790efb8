"""Memory passes: launch and bandwidth limits, cache residence, measured rows, and the relatives of a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import ProfileError
from simulator.kernels.roofline import ASSUMED_PARAMETERS, elementwise_timing
from simulator.kernels.timing import Provenance
from simulator.kernels.transfer import Relative, calibrated_relative, kernel_distance, link_relative
from simulator.operators.work import ElementwiseShape
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import KernelFit, load_calibration
from simulator.units import MICRO

SIZES = np.geomspace(1e3, 1e11, 200)
CALIBRATED = ["h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm", "l40s", "rtx-pro-6000"]

# Static fp8 quantisation under vllm 0.24.0 on H100 (read bf16, write fp8: 3 bytes an element): tokens, row, us.
# aiconfigurator-core 0.12.0 (Apache-2.0), h100_sxm quantize/scale_matrix, read 2026-11-21.
H100_QUANTISE = [
    (1, 2048, 1.96),
    (128, 4096, 2.30),
    (512, 8192, 4.10),
    (2048, 4096, 5.98),
    (2048, 16384, 36.27),
    (8192, 8192, 68.52),
    (32768, 4096, 132.81),
    (32768, 16384, 524.43),
]


def elementwise_fit(hardware: str, library: str = "vllm") -> KernelFit:
    calibration = load_calibration(hardware, library=library, group="elementwise")
    assert calibration is not None
    return calibration.fits[0]


def passes(moved: object, launches: float = 1.0) -> ElementwiseShape:
    return ElementwiseShape(bytes=np.atleast_1d(np.asarray(moved, float)), launches=launches)


@pytest.mark.parametrize("hardware", CALIBRATED)
@pytest.mark.parametrize("library", ["vllm", "trtllm"])
def test_time_grows_with_bytes_from_launch_to_bandwidth(hardware, library):
    spec, fit = load_hardware(hardware), elementwise_fit(hardware, library)
    timing = elementwise_timing(passes(SIZES), hardware=spec, fit=fit)
    assert (np.diff(timing.seconds) > 0).all()
    assert timing.seconds[0] == pytest.approx(fit.parameters["launch_s"], rel=0.01)
    rate = SIZES[-1] / timing.seconds[-1]
    assert rate == pytest.approx(fit.parameters["memory_fraction"] * spec.memory_bytes_per_s, rel=0.01)


def test_passes_that_fit_in_the_cache_are_faster_per_byte():
    spec, fit = load_hardware("h100-sxm-80gb"), elementwise_fit("h100-sxm-80gb")
    moved = np.array([0.3, 4.0]) * spec.l2_bytes
    timing = elementwise_timing(passes(moved), hardware=spec, fit=fit)
    per_byte = (timing.seconds - fit.parameters["launch_s"]) / moved
    assert per_byte[1] / per_byte[0] == pytest.approx(fit.parameters["l2_speedup"], rel=0.05)


def test_a_fall_of_any_sharpness_is_priced_and_a_value_that_a_fit_lacks_is_named():
    spec, fit = load_hardware("h100-sxm-80gb"), elementwise_fit("h100-sxm-80gb")
    fields = fit.model_dump()
    steep = KernelFit.model_validate({**fields, "parameters": {**fit.parameters, "l2_sharpness": 1e30}})
    seconds = elementwise_timing(passes(SIZES), hardware=spec, fit=steep).seconds
    assert np.isfinite(seconds).all()
    lacking = {name: value for name, value in fit.parameters.items() if name != "launch_s"}
    with pytest.raises(ProfileError, match="a fit has no 'launch_s'"):
        elementwise_timing(
            passes(SIZES), hardware=spec, fit=KernelFit.model_validate({**fields, "parameters": lacking})
        )


def test_launches_add_up():
    spec, fit = load_hardware("h100-sxm-80gb"), elementwise_fit("h100-sxm-80gb")
    one = elementwise_timing(passes(SIZES / 3), hardware=spec, fit=fit)
    three = elementwise_timing(passes(SIZES, launches=3.0), hardware=spec, fit=fit)
    assert three.seconds == pytest.approx(3 * one.seconds)


def test_no_bytes_take_no_time():
    timing = elementwise_timing(passes([0.0, 1e6]), hardware=load_hardware("h100-sxm-80gb"), fit=None)
    assert timing.seconds[0] == 0
    assert timing.log_sigma[0] == 0
    assert timing.seconds[1] > 0


@pytest.mark.parametrize("fit_known", [True, False])
def test_faster_memory_is_never_slower(fit_known):
    spec = load_hardware("h100-sxm-80gb")
    fit = elementwise_fit("h100-sxm-80gb") if fit_known else None
    fast = spec.model_copy(update={"memory_bytes_per_s": 2 * spec.memory_bytes_per_s})
    before = elementwise_timing(passes(SIZES), hardware=spec, fit=fit)
    after = elementwise_timing(passes(SIZES), hardware=fast, fit=fit)
    assert (after.seconds < before.seconds).all()


def test_assumption_is_marked_and_near_the_fits():
    spec = load_hardware("h100-sxm-80gb")
    assumed = elementwise_timing(passes(SIZES), hardware=spec, fit=None)
    fitted = elementwise_timing(passes(SIZES), hardware=spec, fit=elementwise_fit("h100-sxm-80gb"))
    assert (assumed.provenance == Provenance.ASSUMED).all()
    assert (fitted.provenance == Provenance.CALIBRATED).all()
    assert np.abs(np.log(assumed.seconds / fitted.seconds)).max() < 0.5
    assert (assumed.log_sigma > fitted.log_sigma).all()
    launches = [elementwise_fit(name).parameters["launch_s"] for name in CALIBRATED]
    assert min(launches) <= ASSUMED_PARAMETERS["launch_s"] <= max(launches)


@pytest.mark.parametrize(("tokens", "row", "microseconds"), H100_QUANTISE)
def test_measured_quantisation_passes(tokens, row, microseconds):
    spec, fit = load_hardware("h100-sxm-80gb"), elementwise_fit("h100-sxm-80gb")
    timing = elementwise_timing(passes(3.0 * tokens * row), hardware=spec, fit=fit)
    # Twice the 10 % mean error that the fit records on held-out rows.
    assert timing.seconds[0] == pytest.approx(microseconds * MICRO, rel=0.2)


def test_interval_is_wider_where_the_launch_decides_and_on_a_relative():
    spec, fit = load_hardware("h100-sxm-80gb"), elementwise_fit("h100-sxm-80gb")
    timing = elementwise_timing(passes([1e4, 1e10]), hardware=spec, fit=fit)
    borrowed = elementwise_timing(
        passes([1e4, 1e10]),
        hardware=load_hardware("a100-sxm-80gb"),
        fit=fit,
        relative=Relative(name="h100-sxm-80gb", log_sigma_extra=0.2, reason="test"),
    )
    assert timing.log_sigma[0] > timing.log_sigma[1]
    assert (borrowed.log_sigma > timing.log_sigma).all()
    assert (borrowed.provenance == Provenance.EXTRAPOLATED).all()


MEASURED = [load_hardware(name) for name in ["a100-sxm-80gb", *CALIBRATED]]


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        ("h800-sxm-80gb", {"h100-sxm-80gb"}),
        ("h100-pcie-80gb", {"h100-sxm-80gb", "h200-sxm-141gb"}),
        ("h20-96gb", {"h200-sxm-141gb", "h100-sxm-80gb"}),
        ("a100-sxm-40gb", {"a100-sxm-80gb"}),
        ("l4", {"l40s"}),
        ("rtx-4090", {"l40s"}),
        ("rtx-5090", {"rtx-pro-6000"}),
        ("v100-sxm-32gb", {"a100-sxm-80gb"}),
        ("gb200", {"b200-sxm"}),
        ("vr200", {"b200-sxm", "gb200"}),  # not H200, a late part of an older generation
    ],
)
def test_relative_is_of_the_nearest_architecture(hardware, expected):
    assert calibrated_relative(load_hardware(hardware), available=MEASURED).name in expected


def test_an_accelerator_is_its_own_relative():
    for spec in MEASURED:
        relative = calibrated_relative(spec, available=MEASURED)
        assert (relative.name, relative.log_sigma_extra) == (spec.name, 0.0)
        assert kernel_distance(spec, relative=spec) == 0


def test_other_vendors_get_the_widest_interval():
    near = calibrated_relative(load_hardware("h800-sxm-80gb"), available=MEASURED)
    for name in ("mi300x", "gaudi3", "tpu-v5e", "trainium2"):
        far = calibrated_relative(load_hardware(name), available=MEASURED)
        assert far.log_sigma_extra > 3 * near.log_sigma_extra


def test_links_are_matched_by_kind_and_speed():
    assert link_relative(load_hardware("gb200"), available=MEASURED).name == "b200-sxm"
    assert link_relative(load_hardware("a100-sxm-40gb"), available=MEASURED).name == "a100-sxm-80gb"
    assert link_relative(load_hardware("rtx-5090"), available=MEASURED).name == "rtx-pro-6000"
    pcie = link_relative(load_hardware("l4"), available=MEASURED)
    nvlink = link_relative(load_hardware("h800-sxm-80gb"), available=MEASURED)
    assert pcie.log_sigma_extra > nvlink.log_sigma_extra


def test_nothing_calibrated_is_refused():
    with pytest.raises(ProfileError, match="nothing is calibrated"):
        calibrated_relative(load_hardware("mi300x"), available=())
