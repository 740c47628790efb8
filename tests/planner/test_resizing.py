"""Two pools under another demand: each is sized for it on its own, and the weaker one breaks first."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.planner.fleet.resizing import ResizedPart, Resizer
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.specs.question.plan import plan_spec

# 19 replicas of 2 devices for prompts at 5.3 requests/s each, 4 of 4 devices for answers at 31.5 requests/s each.
PROMPTS = ResizedPart(capacity_per_s=5.3, per_replica=19 / 4, devices=2, spares=1, server_devices=8)
ANSWERS = ResizedPart(capacity_per_s=31.5, devices=4, spares=1, server_devices=8)
POOLS = Resizer(parts=(PROMPTS, ANSWERS), price_per_hour=3.0, log_sigma=0.05)


def by_hand(rate_per_s: float) -> int:
    prompts, answers = ceil(rate_per_s / 5.3) + 1, ceil(rate_per_s / 31.5) + 1
    return 8 * ceil((2 * prompts + 4 * answers) / 8)


@given(st.floats(0.5, 5000.0))
def test_each_pool_is_sized_for_the_rate_on_its_own(rate_per_s: float) -> None:
    assert int(POOLS.devices_for(rate_per_s)) == by_hand(rate_per_s)


def test_the_planned_rate_gives_the_planned_devices_either_way() -> None:
    assert int(POOLS.devices_for(100.0)) == int(POOLS.devices(4)) == by_hand(100.0) == 64


def test_slower_prompts_ask_for_more_of_their_own_pool_alone() -> None:
    slower = int(POOLS.devices_for(100.0, prefill_factor=0.5))
    assert slower == 8 * ceil((2 * (ceil(100 / 2.65) + 1) + 4 * 5) / 8)


def test_a_rate_is_carried_where_both_pools_carry_it() -> None:
    rates = np.array([100.0, 100.6, 100.8, 126.0])
    # 19 x 5.3 = 100.7 is less than 4 x 31.5 = 126: the answers' pool alone would carry them all.
    assert POOLS.carried(rates, capacity_factor=1.0, replicas=4).tolist() == [True, True, False, False]
    alone = replace(POOLS, parts=(ANSWERS,))
    assert alone.carried(rates, capacity_factor=1.0, replicas=4).all()
    assert POOLS.slacks(100.0, replicas=4) == pytest.approx((1.26, 1.007))


def test_what_breaks_first_is_the_pool_with_less_slack() -> None:
    question = {"rps": 100, "model": "llama-3.1-70b", "hardware": "h100", "serving": "disaggregated"}
    plan = plan_capacity(plan_spec({**question, "uncertainty": True, "draws": 200}))
    fleet, found = plan.best, plan.study(Uncertainty)
    assert found is not None
    assert fleet.prefill is not None
    margins = {item.name: item.margin for item in found.breaks_first}
    slack = min(pool.replicas * pool.replica.capacity_per_s / 100 for pool in (fleet, fleet.prefill))
    assert margins["request rate"] == pytest.approx(slack - 1)
    assert margins["prompt length"] <= fleet.prefill.replicas * fleet.prefill.replica.capacity_per_s / 100 - 1 + 1e-9
    bars = {bar.name: bar for bar in found.tornado}
    assert bars["prompt length"].devices_low < bars["prompt length"].devices_high
