"""A limit of power slows what the units compute, leaves what the memory reads, and holds."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.work import StepShape, decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.power import clock_share, power_capped, step_power_w
from simulator.phases.step import estimate_step
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.hardware.calibration import load_power_fits
from simulator.specs.model.loading import load_model

H100 = load_hardware("h100-sxm-80gb")
PROMPT, DECODE = prefill_step(sequences=1, tokens=8192), decode_step(sequences=1, context=1024)


def least_w(hardware: AcceleratorSpec) -> float:
    """What it draws before any work."""
    return hardware.idle_w + load_power_fits().of(hardware).base * (hardware.tdp_w - hardware.idle_w)


def step(shape: StepShape, cap_w: float | None, *, hardware: AcceleratorSpec = H100) -> tuple[float, float]:
    """Time and power of a step."""
    hardware = power_capped(hardware, cap_w)
    estimate = estimate_step(deploy(model=load_model("llama-3.1-8b"), hardware=hardware), shape)
    fit = load_power_fits().of(hardware)
    return float(estimate.step_s.item()), float(step_power_w(estimate, hardware=hardware, fit=fit).item())


def test_prompts_slow_down_more_than_answers_and_neither_draws_more_than_allowed() -> None:
    slower = [step(shape, 450.0)[0] / step(shape, None)[0] for shape in (PROMPT, DECODE)]
    assert slower[0] > 1.15
    assert 1.0 <= slower[1] < 1.03
    assert all(step(shape, cap)[1] <= cap for shape in (PROMPT, DECODE) for cap in (450.0, 150.0))


@pytest.mark.parametrize("shape", [PROMPT, DECODE])
def test_a_lower_limit_is_never_faster_and_never_draws_more(shape: StepShape) -> None:
    times, watts = zip(*(step(shape, cap) for cap in (None, 600.0, 500.0, 400.0, 300.0, 200.0, 110.0)), strict=True)
    assert times == tuple(sorted(times))
    assert watts == tuple(sorted(watts, reverse=True))


@pytest.mark.parametrize("shape", [PROMPT, DECODE])
def test_a_limit_at_tdp_is_none(shape: StepShape) -> None:
    assert step(shape, H100.tdp_w * (1 - 1e-9)) == pytest.approx(step(shape, None), rel=1e-6)
    assert clock_share(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "a100-sxm-80gb", "mi300x", "b200-sxm"])
def test_a_token_of_an_answer_takes_least_energy_between_idle_and_tdp(name: str) -> None:
    """Too little power stretches the step until what is drawn before any work costs more than is saved."""
    hardware = load_hardware(name)
    limits = [share * hardware.tdp_w for share in (0.999, 0.8, 0.6, 0.5, 0.4, 0.3)]
    limits.append(1.05 * least_w(hardware))
    energies = [time * watts for time, watts in (step(DECODE, cap, hardware=hardware) for cap in limits)]
    assert min(energies) < 0.9 * energies[0]
    assert min(energies) < 0.9 * energies[-1]


def test_the_same_limit_gives_the_same_accelerator() -> None:
    assert power_capped(H100, 400.0) is power_capped(H100, 400.0)
    assert power_capped(H100, 400.0) is not power_capped(H100, 401.0)


@pytest.mark.parametrize("cap_w", [H100.idle_w, H100.idle_w / 2, least_w(H100), H100.tdp_w, 2 * H100.tdp_w])
def test_a_limit_below_all_work_or_without_effect_is_refused_with_what_is_allowed(cap_w: float) -> None:
    with pytest.raises(RoofcastError, match=f"allowed: above the {least_w(H100):.4g} W") as refused:
        power_capped(H100, cap_w)
    assert refused.value.field == "power_cap_w"
