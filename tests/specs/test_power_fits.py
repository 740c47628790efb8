"""``simulator.specs.hardware.calibration`` and ``simulator.phases.power``: shares of the power range, and their sum."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.power import average_power_w, energy_prices, energy_split, step_power_w
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.hardware.calibration import load_power_fits
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype
from tests.for_every import for_every

HARDWARE = list_hardware()
SERVING = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm", "mi300x", "l40s")


@cache
def deployment(name: str, tp_size: int = 1) -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"), hardware=load_hardware(name), parallelism=ParallelismSpec(tp_size=tp_size)
    )


@cache
def decode(name: str, tp_size: int = 1) -> StepEstimate:
    return estimate_step(deployment(name, tp_size), decode_step(sequences=[1.0, 16.0, 256.0], context=1024.0))


@cache
def prefill(name: str) -> StepEstimate:
    return estimate_step(deployment(name), prefill_step(sequences=1.0, tokens=[128.0, 2048.0, 8192.0]))


@pytest.mark.parametrize("fit", load_power_fits().fits, ids=lambda fit: fit.architectures[0])
def test_shares_are_fractions_with_a_known_error(fit: object) -> None:
    for name in ("base", "compute", "memory"):
        assert 0 <= getattr(fit, name) <= 2.0, name
    assert fit.points > 0  # type: ignore[attr-defined]
    assert 0 < fit.fit_mape < 0.5  # type: ignore[attr-defined]


def test_no_architecture_has_two_fits_and_strangers_take_the_first() -> None:
    fits = load_power_fits()
    named = [name for fit in fits.fits for name in fit.architectures]
    assert len(named) == len(set(named))
    known = load_hardware("l40s")
    assert known.architecture not in named
    assert fits.of(known) == fits.fits[0]
    for fit in fits.fits:
        assert fit.ranges.keys() <= set(fit.architectures)


@pytest.mark.parametrize(
    ("part", "chip"),
    [("gb300", "b200-sxm"), ("gb200", "b200-sxm"), ("mi325x", "mi300x"), ("mi350x", "mi355x"), ("h200-nvl", "h200")],
)
def test_a_part_of_the_same_chip_draws_the_same_watts_for_the_same_work(part: str, chip: str) -> None:
    ours, theirs = load_hardware(part), load_hardware(chip)
    assert ours.tdp_w != theirs.tdp_w
    span, full = ours.tdp_w - ours.idle_w, theirs.tdp_w - theirs.idle_w
    fit, other = load_power_fits().of(ours), load_power_fits().of(theirs)
    for name in ("base", "compute", "memory"):
        assert getattr(fit, name) * span == pytest.approx(getattr(other, name) * full)


def test_another_chip_of_an_architecture_keeps_the_shares() -> None:
    smaller = load_hardware("h20-96gb")
    assert load_power_fits().of(smaller) in load_power_fits().fits


@for_every(SERVING)
def test_a_busy_device_draws_between_idle_and_tdp(name: str) -> None:
    hardware = load_hardware(name)
    fit = load_power_fits().of(hardware)
    for estimate in (decode(name), prefill(name)):
        watts = step_power_w(estimate, hardware=hardware, fit=fit)
        assert np.all(watts >= hardware.idle_w)
        assert np.all(watts <= hardware.tdp_w + 1e-9)


@for_every(SERVING)
def test_units_work_at_most_the_whole_step_and_padding_counts(name: str) -> None:
    for estimate in (decode(name), prefill(name)):
        for share in (estimate.tensor_share, estimate.memory_share):
            assert np.all((share > 0) & (share <= 1))
        for row in estimate.rows:
            assert np.all(row.timing.tensor_s <= row.timing.compute_s)
    assert decode(name).tensor_share[0] > 2 * decode(name).mfu[0]


@for_every(SERVING)
def test_energy_is_power_times_time(name: str) -> None:
    estimate = decode(name)
    weights = np.array([10.0, 5.0, 1.0])
    fit = load_power_fits().of(load_hardware(name))
    watts = step_power_w(estimate, hardware=load_hardware(name), fit=fit)
    split = energy_split(deployment(name), estimate=estimate, weights=weights)
    assert split.total_j == pytest.approx(float((watts * estimate.step_s) @ weights))
    assert min(split.idle_j, split.busy_j, split.compute_j, split.memory_j) >= 0


@for_every(SERVING)
def test_parts_above_idle_never_exceed_the_range(name: str) -> None:
    hardware = load_hardware(name)
    weights = np.ones(3)
    split = energy_split(deployment(name), estimate=prefill(name), weights=weights)
    seconds = float(prefill(name).step_s.sum())
    assert split.busy_j + split.compute_j + split.memory_j <= (hardware.tdp_w - hardware.idle_w) * seconds + 1e-6
    assert split.idle_j == pytest.approx(hardware.idle_w * seconds)


@for_every(SERVING)
@pytest.mark.parametrize("busy", [0.0, 0.25, 1.0])
def test_idle_time_draws_idle_power(busy: float, name: str) -> None:
    phases = ((np.ones(3), decode(name)),)
    full = average_power_w(deployment(name), phases=phases)
    part = average_power_w(deployment(name), phases=phases, busy_fraction=busy)
    idle = load_hardware(name).idle_w
    assert part - idle == pytest.approx(busy * (full - idle))


def test_a_replica_draws_as_many_times_as_it_has_devices() -> None:
    phases = ((np.ones(3), decode("h100-sxm-80gb", 4)),)
    fit = load_power_fits().of(load_hardware("h100"))
    hardware = load_hardware("h100")
    watts = step_power_w(phases[0][1], hardware=hardware, fit=fit)
    seconds = phases[0][1].step_s
    expected = 4 * float(watts @ seconds) / float(seconds.sum())
    assert average_power_w(deployment("h100-sxm-80gb", 4), phases=phases) == pytest.approx(expected)


@for_every(HARDWARE)
def test_narrower_numbers_cost_no_more_energy_each(name: str) -> None:
    prices = energy_prices(load_hardware(name))
    order = (Dtype.FP32, Dtype.TF32, Dtype.BF16, Dtype.FP8, Dtype.FP4)
    known = [prices.flop_j[dtype] for dtype in order if dtype in prices.flop_j]
    assert all(later <= earlier * 1.0001 for earlier, later in itertools.pairwise(known))


@for_every(HARDWARE)
def test_peaks_at_full_tilt_draw_what_the_fit_says(name: str) -> None:
    """A joule a FLOP times the peak is the compute share of the range, whatever the format."""
    hardware = load_hardware(name)
    fit = load_power_fits().of(hardware)
    prices = energy_prices(hardware)
    span = hardware.tdp_w - hardware.idle_w
    for dtype, peak in hardware.peak_flops_per_s.items():
        assert prices.flop_j[dtype] * peak == pytest.approx(fit.compute * span)
    assert prices.byte_j * hardware.memory_bytes_per_s == pytest.approx(fit.memory * span)
    assert prices.busy_w + prices.idle_w <= hardware.tdp_w * 1.2
