"""A limit of each accelerator: what a fleet draws, how many it takes, what is refused, and what is remembered."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.handoff import fleet_settings
from simulator.planner.money.facilities import facilities
from simulator.planner.money.tco import mean_power_w
from simulator.planner.plan import plan_capacity
from simulator.planner.replica_setup import fleet_setups
from simulator.reports.handoff.notes import handoff_notes
from simulator.reports.tables.plan_document import plan_document
from simulator.specs.hardware.accelerator import load_hardware, load_server
from simulator.specs.money.ownership import load_ownership
from simulator.specs.question.plan import plan_spec

H100 = load_hardware("h100-sxm-80gb")
LIMITS = (None, 600.0, 500.0, 400.0, 300.0)


@cache
def plan(power_cap_w: float | None = None, *hardware: str, **more: Any) -> CapacityPlan:
    fields = {"rps": 2000.0, "model": "llama-3.1-8b", "hardware": hardware or ("h100",), "verify": False, **more}
    return plan_capacity(plan_spec({**fields, "power_cap": power_cap_w}))


def test_a_lower_limit_takes_no_fewer_replicas_and_is_never_faster() -> None:
    fleets = [plan(cap, tp_size=1).best for cap in LIMITS]
    counts = [fleet.replicas for fleet in fleets]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    unloaded = [fleet.replica.unloaded.e2e_p95_s for fleet in fleets]
    assert unloaded == sorted(unloaded)


def test_a_server_draws_less_by_what_its_accelerators_do() -> None:
    server = load_server("dgx-h100")
    capped = H100.model_copy(update={"power_cap_w": 400.0})
    assert server.nameplate_w(H100) == server.system_power_max_w
    assert server.expected_w(H100) == server.system_power_typical_w
    assert server.nameplate_w(capped) == server.system_power_max_w - 8 * 300
    assert server.expected_w(capped) == pytest.approx(7500 - 8 * (70 + 630 * 7500 / 10200 - 400))
    watts = [server.expected_w(H100.model_copy(update={"power_cap_w": cap})) for cap in (650.0, 533.0, 500.0, 200.0)]
    assert watts == sorted(watts, reverse=True)
    assert watts[0] == server.system_power_typical_w


@pytest.mark.parametrize("round_to", ["server", "device"])
def test_power_of_a_server_racks_and_idle_hours_follow(round_to: str) -> None:
    """By the accelerator: a fleet under a limit may have more of them. What idles draws the same under any limit."""
    fleets = [plan(cap, round_to=round_to).best for cap in LIMITS]
    for power in (
        [fleet.typical_w / fleet.devices for fleet in fleets],
        [fleet.maximum_w / fleet.devices for fleet in fleets],
        [mean_power_w(fleet, mean_load=0.5) / fleet.devices for fleet in fleets],
    ):
        assert power == sorted(power, reverse=True)
        assert power[-1] < power[0]
    idle = [mean_power_w(fleet, mean_load=0.0) / fleet.devices for fleet in fleets]
    assert idle == pytest.approx([idle[0]] * len(idle))


def test_more_servers_fit_a_rack() -> None:
    ownership = load_ownership()
    narrow = ownership.model_copy(
        update={"rack_power_limit_w": ownership.rack_power_limit_w.model_copy(update={"value": 16_000.0})}
    )
    full, capped = (facilities(plan(cap).best, ownership=narrow) for cap in (None, 300.0))
    assert (full.servers_per_rack, capped.servers_per_rack) == (1, 2)
    assert full.rack_maximum_w == 10_200
    assert capped.rack_maximum_w == 2 * (10_200 - 8 * 400)


def test_a_limit_that_one_never_reaches_leaves_it_as_it_is() -> None:
    mixed, alone = plan(400.0, "h100", "l40s"), plan(None, "l40s")
    found = next(fleet for fleet in mixed.fleets if fleet.hardware == "l40s")
    assert (found.label, found.devices, found.typical_w) == (alone.best.label, alone.best.devices, alone.best.typical_w)
    assert "<= 400 W" in next(fleet for fleet in mixed.fleets if fleet.hardware == "h100-sxm-80gb").label


@pytest.mark.usefixtures("few_accelerators")
def test_a_search_over_all_leaves_out_what_does_not_run_on_so_little() -> None:
    found = plan_capacity(plan_spec({"rps": 5.0, "model": "llama-3.1-8b", "verify": False, "power_cap": 110.0}))
    left_out = next(item.value for item in found.assumptions if item.key == "hardware")
    assert "a100-sxm-80gb" in left_out
    assert all(fleet.hardware != "a100-sxm-80gb" for fleet in found.fleets)


@pytest.mark.parametrize(
    ("watts", "code", "said"),
    [(700.0, "no_effect", "none of them draws more than 700 W"), (70.0, "out_of_range", "allowed: above the 107.8 W")],
)
def test_limits_out_of_range_are_refused_in_a_line(watts: float, code: str, said: str) -> None:
    with pytest.raises(RoofcastError, match=said) as refused:
        plan(watts)
    assert (refused.value.field, refused.value.code) == ("power_cap_w", code)
    assert "\n" not in str(refused.value)


def test_question_document_and_launch_notes_say_it() -> None:
    found = plan(400.0)
    document = json.loads(plan_document(found))["plan"]
    assert "<= 400 W" in document["setup"]
    assert document["energy_per_output_token_j"] == pytest.approx(found.best.typical_w / (2000 * 211))
    assert any(item.key == "power_cap_w" for item in found.assumptions)
    assert fleet_setups(found, 0)[0].power_cap_w == 400.0
    notes = handoff_notes(
        fleet_settings(found.best, model_id="meta-llama/Llama-3.1-8B-Instruct", scheme=None),
        found.best,
        demand=found.demand,
    )
    assert any("nvidia-smi -pl 400" in note for note in notes)


def test_plans_with_and_without_a_limit_do_not_share_what_is_remembered() -> None:
    first = plan(None).best.replica.capacity_per_s
    assert plan(300.0).best.replica.capacity_per_s < first
    again = plan_capacity(plan_spec({"rps": 2000.0, "model": "llama-3.1-8b", "hardware": "h100", "verify": False}))
    assert again.best.replica.capacity_per_s == first
