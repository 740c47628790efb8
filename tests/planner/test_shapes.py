"""Laws of serving shapes: what holds of every shape, whichever it is, and what two pools share with one."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernels.timing import Provenance
from simulator.planner.fleet.fleet import Sized, complete, housed, size
from simulator.planner.fleet.records import pack
from simulator.planner.fleet.resizing import resizer
from simulator.planner.money.facilities import facilities
from simulator.planner.money.market import PriceRule, market_price, purchase_offer
from simulator.planner.money.tco import Books, owning_cost, shelved, spare_accelerators, total_cost
from simulator.planner.plan import plan_capacity
from simulator.planner.search.candidates import candidates, platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.serving.disaggregated import Disaggregated, evaluate_pools
from simulator.planner.serving.replica import NearestSteps
from simulator.planner.serving.shapes import Aggregated, Shape, evaluate, replicas_for
from simulator.specs.money.ownership import load_ownership
from simulator.specs.question.plan import plan_spec

NAMES = ("one kind", "pools", "unequal pools", "mixed pools")


@lru_cache(maxsize=1)
def question() -> Question:
    fields = {"rps": 60, "model": "llama-3.1-8b", "hardware": ("h100", "h200"), "tp": (1, 2)}
    return resolve(plan_spec(fields))


@lru_cache(maxsize=8)
def shape(name: str) -> Shape:
    asked = question()
    (h100, h100_tp2), (h200, _) = (
        candidates(asked.spec, model=asked.model, platform=platform) for platform in platforms(asked.spec)
    )
    known = {"model": asked.model, "mix": asked.demand.mix, "objectives": asked.objectives, "policy": asked.policy}
    if name == "one kind":
        found = evaluate(h100, **known)  # type: ignore[arg-type]
    else:
        prefill = {"pools": h100, "unequal pools": h100_tp2, "mixed pools": h200}[name]
        found = evaluate_pools(replace(h100, prefill=prefill), **known)  # type: ignore[arg-type, assignment]
    assert isinstance(found, Aggregated | Disaggregated)
    return found


def sized(name: str) -> Sized:
    asked = question()
    return size(shape(name), demand=asked.demand, spec=asked.spec, prices=asked.prices)


@pytest.mark.parametrize("name", NAMES)
@given(rate=st.floats(0.5, 2000.0), more=st.floats(1.0, 3.0))
def test_counts_carry_their_rate_and_grow_with_it(name: str, rate: float, more: float) -> None:
    found = shape(name)
    counts = found.counts(rate)
    assert found.capacity_per_s(counts) >= rate * (1 - 1e-6)
    assert all(low <= high for low, high in zip(counts, found.counts(rate * more), strict=True))
    fewer = tuple(count - 1 for count in counts)
    assert all(
        count * part.replica.capacity_per_s < rate for count, part in zip(fewer, found.parts, strict=True) if count
    )
    assert found.counts(rate, replicas=counts[-1]) == counts
    assert found.load(rate, counts) < 1


@pytest.mark.parametrize("name", ["one kind", "pools", "unequal pools"])
@given(devices=st.integers(1, 24))
def test_nothing_on_the_same_devices_carries_more(name: str, devices: int) -> None:
    found = shape(name)
    best = found.most(devices)
    ranges = [range(1, devices // part.replica.devices + 1) for part in found.parts]
    fitting = [counts for counts in product(*ranges) if found.devices(counts) <= devices]
    assert (best is None) == (not fitting)
    if best is not None:
        assert found.devices(best) <= devices
        assert found.capacity_per_s(best) == max(map(found.capacity_per_s, fitting))
        counts, spare = found.within(devices, rate_per_s=1e9, spare=(2,) * len(found.parts))
        assert found.devices(counts) + found.devices(spare) <= devices
        assert min(counts) >= 1


@pytest.mark.parametrize("name", NAMES)
def test_a_resized_fleet_is_the_fleet_at_its_own_rate(name: str) -> None:
    found = sized(name)
    assert int(resizer(found).devices_for(60.0)) == found.devices
    assert int(resizer(found).devices(found.replicas)) == found.devices
    busy = found.evaluated.devices(found.totals)
    assert found.devices == busy + sum(item.idle_devices for item in found.housing)
    alone = housed(found.evaluated, found.totals, round_to="device")
    assert sum(item.devices for item in alone) == busy <= found.devices


@pytest.mark.parametrize("name", NAMES)
def test_a_fleet_says_the_same_of_a_rate_however_it_is_asked(name: str) -> None:
    asked, found = question(), sized(name)
    fleet = complete(found, demand=asked.demand, objectives=asked.objectives, spec=asked.spec)
    (again,) = found.evaluated.at_counts(60.0, found.counts, objectives=asked.objectives)
    assert again.objectives_s == pytest.approx(fleet.degraded.objectives_s, rel=1e-9)
    assert again.e2e_p95_s == pytest.approx(fleet.degraded.e2e_p95_s, rel=1e-9)
    assert fleet.at_peak.ttft_p95_s <= fleet.degraded.ttft_p95_s * (1 + 1e-9)
    assert all(value <= item.bound_s for value, item in zip(again.objectives_s, asked.objectives, strict=True))
    assert fleet.devices == found.devices
    assert sum(pool.devices for pool in fleet.pools) + fleet.idle_devices == fleet.devices


def test_a_free_link_never_makes_requests_wait_longer_nor_a_pool_larger() -> None:
    asked, found = question(), shape("pools")
    assert isinstance(found, Disaggregated)
    free = replace(found, link=replace(found.link, token_s=0.0, request_s=0.0))
    for load in (0.2, 0.5, 0.8):
        rate = load * found.replica.saturation_per_s
        slow_at, fast_at = (item.latencies(rate, objectives=())[0] for item in (found, free))
        assert fast_at.ttft_p95_s < slow_at.ttft_p95_s
        assert fast_at.tpot_p95_s == slow_at.tpot_p95_s
    assert all(low <= high for low, high in zip(free.counts(60.0), found.counts(60.0), strict=True))
    assert free.transfer_at(60.0, free.counts(60.0)).prompt_s == 0  # type: ignore[union-attr]
    assert asked.demand.mix.isl.mean_tokens > 0


def test_pools_on_two_kinds_of_accelerators_have_servers_bills_and_power_of_their_own() -> None:
    asked, found = question(), sized("mixed pools")
    fleet = complete(found, demand=asked.demand, objectives=asked.objectives, spec=asked.spec)
    assert [pool.hardware for pool in fleet.pools] == ["h200-sxm-141gb", "h100-sxm-80gb"]
    assert fleet.hardware == "h200-sxm-141gb + h100-sxm-80gb"
    for item, total in zip(found.housing, found.totals, strict=True):
        assert item.server is not None
        assert item.servers == pack((total,), devices=(1,), devices_per_server=8)
    assert fleet.typical_w == sum(item.typical_w for item in fleet.housing)
    each = [market_price(asked.prices, hardware=item.hardware, rule=PriceRule()) for item in fleet.housing]
    assert fleet.cost.prices == tuple(each)
    bill = sum(item.devices * price.per_hour for item, price in zip(fleet.housing, each, strict=True) if price)
    assert fleet.cost.per_hour == pytest.approx(bill)
    assert fleet.cost.per_hour == pytest.approx(fleet.devices * (fleet.cost.per_device_hour or 0))
    assert 0 < fleet.prompt_share < 1


def test_pools_on_two_kinds_are_rented_and_bought_at_each_ones_price() -> None:
    asked, found = question(), sized("mixed pools")
    fleet = complete(found, demand=asked.demand, objectives=asked.objectives, spec=asked.spec)
    plan = replace(plan_capacity(asked.spec), best=fleet)
    cost = total_cost(plan, prices=asked.prices, ownership=load_ownership())
    assert cost.rent is not None
    assert cost.rent.annual == pytest.approx(12 * (fleet.cost.per_month or 0.0))
    assert cost.owning is not None
    bought = [(purchase_offer(asked.prices, hardware=item.hardware), item.devices) for item in fleet.housing]
    servers = sum((offer.per_device or 0.0) * devices for offer, devices in bought)
    assert cost.owning.capex[0].amount == pytest.approx(servers)
    assert cost.break_even_price is not None
    priced = cost.owning.offer.model_copy(update={"per_device": cost.break_even_price})
    books = Books(fleet=fleet, tokens=cost.tokens, prices=asked.prices, ownership=load_ownership())
    even = owning_cost(books, offer=priced)
    assert cost.lasting is not None
    assert even.present_value == pytest.approx(cost.lasting.present_value)


def test_spare_accelerators_of_two_kinds_do_not_stand_in_for_each_other() -> None:
    asked, found, ownership = question(), sized("mixed pools"), load_ownership()
    fleet = complete(found, demand=asked.demand, objectives=asked.objectives, spec=asked.spec)
    each = [spare_accelerators(item.devices, ownership=ownership) for item in fleet.housing]
    assert shelved(fleet, ownership=ownership) == sum(each)
    assert sum(each) >= spare_accelerators(fleet.devices, ownership=ownership)


def test_racks_hold_one_kind_of_server() -> None:
    asked, found, ownership = question(), sized("mixed pools"), load_ownership()
    fleet = complete(found, demand=asked.demand, objectives=asked.objectives, spec=asked.spec)
    rooms = facilities(fleet, ownership=ownership)
    racks = 0
    for item, pool in zip(fleet.housing, fleet.pools, strict=True):
        alone = facilities(replace(fleet, pools=(pool,), housing=(item,)), ownership=ownership)
        racks += alone.racks or 0
        assert alone.servers_per_rack is not None
    assert rooms.racks == racks
    assert rooms.servers_per_rack is None
    assert rooms.nameplate_w == fleet.maximum_w


def test_exact_multiples_need_no_extra_replica() -> None:
    assert replicas_for(0.1 * 3, capacity_per_s=0.1) == 3


@pytest.mark.parametrize(
    ("prompt_share", "known"),
    [(0.0, Provenance.CALIBRATED), (0.5, Provenance.ASSUMED), (1.0, Provenance.ASSUMED), (0.01, Provenance.CALIBRATED)],
)
def test_only_steps_that_a_pool_runs_say_how_it_is_known(prompt_share: float, known: Provenance) -> None:
    steps = SimpleNamespace(provenance=np.array([Provenance.CALIBRATED, Provenance.ASSUMED], dtype=np.float64))
    assert NearestSteps(plain=0, prompts=1, prompt_share=prompt_share).known(steps) is known
