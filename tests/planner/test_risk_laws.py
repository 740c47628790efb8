"""Laws of a plan's uncertainty: quantiles, regret, and bars that point the right way and vanish with their change."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.fleet import Sized
from simulator.planner.plan import plan_capacity
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.usual_search import usual_search
from simulator.planner.studies import sensitivity
from simulator.planner.studies.length_curves import answer_curve, capacities_at_speed_per_s, fitted_curve, prompt_curve
from simulator.planner.studies.sensitivity import TornadoBar, tornado
from simulator.planner.studies.uncertainty import Uncertainty, uncertainty_of
from simulator.specs.question.plan import plan_spec

# Many small replicas, bought one by one, so that changes of a percent show.
ASKED = {
    **{"model": "llama-3.1-8b", "hardware": "a100", "tp": 1, "rps": 2000, "round_to": "device", "spares": 0},
    **{"ttft_p95": "2s", "tpot_p95": "200ms"},
}
RISING = ("request rate", "prompt length", "answer length")
EASING = ("prefix cache hits", "MFU of the kernels", "MBU of the kernels", "step time (80 % interval)")


@pytest.fixture(scope="module")
def question() -> Question:
    return resolve(plan_spec(ASKED))


@pytest.fixture(scope="module")
def sized(question: Question) -> Sized:
    return usual_search(question, platforms(question.spec)[:1]).sized[0]


@pytest.fixture(scope="module")
def bars(question: Question, sized: Sized) -> dict[str, TornadoBar]:
    return {bar.name: bar for bar in tornado(question, sized)}


@pytest.fixture(scope="module")
def plan() -> CapacityPlan:
    return plan_capacity(plan_spec({"rps": 300, "model": "llama-3.1-70b", "hardware": "h100", "uncertainty": True}))


def drawn(sized: Sized, *, sigma: float, seed: int = 0, others: tuple[Sized, ...] = ()) -> Uncertainty:
    question = resolve(plan_spec({**ASKED, "uncertainty": True, "demand_sigma": sigma, "seed": seed, "draws": 2000}))
    return uncertainty_of(question, [sized, *others])


@pytest.mark.usefixtures("draws_alone")
@pytest.mark.parametrize("sigma", [0.0, 0.1, 1.0])
def test_quantiles_are_in_order_and_the_plan_is_not_below_them(sized: Sized, sigma: float) -> None:
    found = drawn(sized, sigma=sigma)
    assert found.cost_per_hour is not None
    for spread in (found.devices, found.cost_per_hour):
        assert spread.p10 <= spread.p50 <= spread.p90
    assert found.devices.p10 <= sized.devices
    # The median draw is the plan without its margin for slower steps: neither factor is biased.
    predicted = sized.devices / sized.evaluated.replica.step_margin
    assert found.devices.p50 == pytest.approx(predicted, rel=0.02 + sigma / 15)
    price = sized.cost.per_device_hour
    assert price is not None
    assert found.cost_per_hour.p90 == pytest.approx(price * found.devices.p90)


@pytest.mark.usefixtures("draws_alone")
def test_a_wider_demand_widens_the_band_and_helps_nobody(sized: Sized) -> None:
    found = [drawn(sized, sigma=sigma) for sigma in (0.0, 0.1, 0.2, 0.4, 0.8)]
    widths = [item.devices.p90 - item.devices.p10 for item in found]
    assert widths == sorted(widths)
    assert widths[0] > 0
    assert widths[-1] > 4 * widths[1]


@pytest.mark.usefixtures("draws_alone")
def test_draws_are_those_of_the_seed(sized: Sized) -> None:
    assert drawn(sized, sigma=0.3, seed=7) == drawn(sized, sigma=0.3, seed=7)
    assert drawn(sized, sigma=0.3, seed=7) != drawn(sized, sigma=0.3, seed=8)


def dearer(sized: Sized, times: float) -> Sized:
    price = sized.cost.per_device_hour
    assert price is not None
    return replace(sized, cost=replace(sized.cost, per_device_hour=price * times))


@pytest.mark.usefixtures("draws_alone")
def test_what_wins_every_draw_is_never_regretted(sized: Sized) -> None:
    found = drawn(sized, sigma=0.3, others=(dearer(sized, 20),)).regrets
    assert [item.best_share for item in found] == [1.0, 0.0]
    assert found[0].mean_regret_per_hour == 0
    assert found[1].mean_regret_per_hour > 0


@pytest.mark.usefixtures("draws_alone")
@pytest.mark.parametrize("times", [0.97, 1.0, 1.02])
def test_where_draws_disagree_every_choice_is_regretted(sized: Sized, times: float) -> None:
    found = drawn(sized, sigma=0.3, others=(dearer(sized, times),)).regrets
    assert all(item.mean_regret_per_hour > 0 for item in found)
    assert all(0 < item.best_share < 1 for item in found)
    assert sum(item.best_share for item in found) >= 1 - 1e-9
    assert found[0].mean_regret_per_hour <= found[1].mean_regret_per_hour


def test_more_requests_and_tokens_need_more_and_better_kernels_and_caches_less(
    bars: dict[str, TornadoBar], sized: Sized
) -> None:
    for name in RISING:
        values = [float(end.split("/")[0].split(" ")[0].replace(",", "")) for end in (bars[name].low, bars[name].high)]
        assert values[0] < values[1], name
        assert bars[name].devices_low < sized.devices < bars[name].devices_high, name
    assert bars["prefix cache hits"].devices_low < sized.devices == bars["prefix cache hits"].devices_high
    for name in EASING[1:]:
        assert bars[name].devices_low < sized.devices < bars[name].devices_high, name


def test_no_change_is_the_plan(question: Question, sized: Sized, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "RELATIVE_END", 0.0)
    for bar in tornado(question, sized):
        if bar.name in (*RISING, "MFU of the kernels", "MBU of the kernels"):
            assert bar.devices_low == bar.devices_high == sized.devices, bar.name
            assert bar.cost_per_hour_low == bar.cost_per_hour_high == sized.cost.per_hour, bar.name


def test_kernels_twice_as_fast_carry_at_most_twice_as_much(question: Question, sized: Sized) -> None:
    base = sized.evaluated.replica.capacity_per_s
    assert capacities_at_speed_per_s(question, sized)[-1] == pytest.approx(base)
    faster = [
        capacities_at_speed_per_s(question, sized, compute=compute, memory=memory)[-1] / base
        for compute, memory in ((2, 1), (1, 2), (2, 2))
    ]
    assert min(faster[:2]) > 1
    assert max(faster[:2]) < faster[2] <= 2.02
    assert capacities_at_speed_per_s(question, sized, compute=0.5, memory=0.5)[-1] / base == pytest.approx(0.5, rel=0.2)


def test_slower_arithmetic_asks_for_more_of_the_pool_that_is_bound_by_it() -> None:
    """Prompts are products of many tokens, answers wait for memory: each pool is sized by its own kernels."""
    question = resolve(plan_spec({**ASKED, "hardware": "h100", "rps": 3000, "serving": "disaggregated"}))
    fleet = usual_search(question, platforms(question.spec)[:1]).sized[0]
    slower = capacities_at_speed_per_s(question, fleet, compute=0.8)
    planned = [part.replica.capacity_per_s for part in fleet.evaluated.parts]
    prompts, answers = (now / then for now, then in zip(slower, planned, strict=True))
    assert prompts < answers <= 1.0
    bar = next(bar for bar in tornado(question, fleet) if bar.name == "MFU of the kernels")
    assert bar.devices_high == sum(ceil(3000 / capacity_per_s) for capacity_per_s in slower)


@pytest.mark.parametrize("make", [prompt_curve, answer_curve])
def test_steps_of_a_percent_never_turn_back(question: Question, sized: Sized, make: object) -> None:
    curve = make(question, sized)  # type: ignore[operator]
    shares = [curve.share(float(scale)) for scale in np.arange(0.8, 1.2001, 0.01)]
    assert (np.diff(shares) < 0).all()


@given(st.lists(st.floats(0.97, 1.03), min_size=5, max_size=5))
def test_noise_on_a_level_curve_never_turns_it_back(values: list[float]) -> None:
    curve = fitted_curve(dict(zip((0.8, 0.9, 1.0, 1.1, 1.2), values, strict=True)))
    shares = [curve.share(float(scale)) for scale in np.linspace(0.8, 1.2, 41)]
    assert (np.diff(shares) <= 1e-12).all()
    # The curve may leave the noise by what its own smoothing adds at the ends.
    assert max(shares) / min(shares) <= 1.01 * 1.03 / 0.97


def test_power_moves_the_cost_of_owning_and_nothing_else(plan: CapacityPlan) -> None:
    assert plan.study(Uncertainty) is not None
    owning = {bar.name: bar for bar in plan.study(Uncertainty).owning}
    power = owning["price of a kWh"]
    assert float(power.low) < float(power.high)
    assert 0 < power.swing < owning["purchase price of an accelerator"].swing
    # The bill is linear in it: both ends lie as far from the plan's.
    middle = (power.annual_low + power.annual_high) / 2
    other = owning["colocation of a kW a month"]
    assert middle == pytest.approx((other.annual_low + other.annual_high) / 2)
    assert "price of a kWh" not in {bar.name for bar in plan.study(Uncertainty).tornado}
