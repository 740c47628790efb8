"""A limit of power slows what the units compute, leaves what the memory reads, and holds."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.step_shape import StepShape, decode_step, prefill_step
from simulator.phases.deployment import deploy
from simulator.phases.power import clock_share, power_capped, step_power_w
from simulator.phases.step import estimate_step
from simulator.specs.hardware.calibration import load_power_fits
from simulator.specs.loading import load_hardware
from simulator.specs.model.loading import load_model

H100 = load_hardware("h100-sxm-80gb")
PROMPT, DECODE = prefill_step(sequences=1, tokens=8192), decode_step(sequences=1, context=1024)


def step(shape: StepShape, cap_w: float | None) -> tuple[float, float]:
    """Time and power of a step."""
    hardware = power_capped(H100, cap_w)
    estimate = estimate_step(deploy(model=load_model("llama-3.1-8b"), hardware=hardware), shape)
    fit = load_power_fits().of(hardware.architecture)
    return float(estimate.step_s.item()), float(step_power_w(estimate, hardware=hardware, fit=fit).item())


def test_prompts_slow_down_more_than_answers_and_neither_draws_more_than_allowed() -> None:
    slower = [step(shape, 400.0)[0] / step(shape, None)[0] for shape in (PROMPT, DECODE)]
    assert slower[0] > 1.15
    assert 1.0 <= slower[1] < 1.03
    assert all(step(shape, 400.0)[1] <= 400.0 for shape in (PROMPT, DECODE))


def test_a_lower_limit_is_never_faster() -> None:
    times = [step(PROMPT, cap)[0] for cap in (None, 600.0, 500.0, 400.0, 300.0)]
    assert times == sorted(times)
    assert clock_share(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("cap_w", [H100.idle_w, H100.idle_w / 2, H100.tdp_w, 2 * H100.tdp_w])
def test_a_limit_below_idle_or_without_effect_is_refused_with_what_is_allowed(cap_w: float) -> None:
    with pytest.raises(RoofcastError, match="allowed: above its idle") as refused:
        power_capped(H100, cap_w)
    assert refused.value.field == "power_cap_w"
