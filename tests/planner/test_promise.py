"""``simulator.planner.verification.promise`` and ``roofcast verify``: a signed fleet, replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import simulator
from simulator.cli.roofcast import app
from simulator.cli.shared import run
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.planner.verification.promise import ENOUGH, Promise, PromiseCase, SignedFleet, replayed_promise
from simulator.reports.tables.plan_document import plan_document
from simulator.specs.question.plan import PlanSpec

QUESTION: dict[str, Any] = {"rps": 40, "model": "llama-3.1-8b", "hardware": ("h100",), "tp": (1,)}


@pytest.fixture(scope="module")
def plan() -> CapacityPlan:
    return plan_capacity(PlanSpec(**QUESTION, prefix_hit=0.4))


def fleet_of(plan: CapacityPlan, *, replicas: int | None = None) -> SignedFleet:
    best = plan.best
    return SignedFleet(hardware=best.hardware, label=best.label, replicas=replicas or best.replicas, spares=best.spares)


@pytest.fixture(scope="module")
def promise(plan: CapacityPlan) -> Promise:
    return replayed_promise(plan, fleet_of(plan), seeds=4)


def test_a_plan_with_a_margin_keeps_its_promise(promise: Promise) -> None:
    assert promise.kept
    assert all(item.margin is not None and item.margin > 0 for item in promise.cases[:2])


def test_the_cases_are_what_was_promised_and_what_was_not(promise: Promise, plan: CapacityPlan) -> None:
    assert [item.case for item in promise.cases] == list(PromiseCase)
    best = plan.best
    assert [item.replicas for item in promise.cases] == [best.replicas + best.spares, *[best.replicas] * 3]


def test_fewer_replicas_burstier_arrivals_and_a_cold_cache_make_every_request_slower(promise: Promise) -> None:
    up, down, burstier, cold = (item.found.objectives[0].simulated_s for item in promise.cases)
    assert up < down < burstier
    assert down < cold


def test_the_rate_is_shared_by_those_that_are_up(promise: Promise, plan: CapacityPlan) -> None:
    for item in promise.cases:
        assert item.found.rate_per_s * item.replicas == pytest.approx(plan.demand.planned_rate_per_s)


def test_the_smallest_fleet_holds_and_one_less_does_not(promise: Promise, plan: CapacityPlan) -> None:
    least = promise.least_replicas
    assert least is not None
    assert least <= plan.best.replicas
    with_least = replayed_promise(plan, fleet_of(plan, replicas=least), seeds=4)
    assert with_least.cases[1].found.held_fraction >= ENOUGH
    with_fewer = replayed_promise(plan, fleet_of(plan, replicas=least - 1), seeds=4)
    assert not with_fewer.kept
    assert with_fewer.least_replicas == least


def test_without_spares_nothing_goes_down() -> None:
    plan = plan_capacity(PlanSpec(**QUESTION, spares=0))
    found = replayed_promise(plan, fleet_of(plan), seeds=2)
    assert [item.case for item in found.cases] == [PromiseCase.ALL_UP, PromiseCase.BURSTIER]
    assert found.least_replicas is not None


def test_a_set_up_that_serves_no_more_is_named(plan: CapacityPlan) -> None:
    with pytest.raises(RoofcastError, match="TP7 no longer serves this question"):
        replayed_promise(plan, SignedFleet(hardware="h100-sxm-80gb", label="TP7", replicas=1, spares=0))


def written(plan: CapacityPlan, folder: Path, **changes: object) -> str:
    document = json.loads(plan_document(plan))
    document["plan"] |= changes
    path = folder / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_the_command_says_kept_and_exits_0(
    plan: CapacityPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, name="roofcast", arguments=["verify", written(plan, tmp_path), "--seeds", "3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Kept: ")
    assert "spares down" in text


def test_a_fleet_that_misses_exits_3_and_is_replayed_as_it_was_signed(
    plan: CapacityPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(plan, tmp_path, replicas=1, spare_replicas=0, devices=1)
    assert run(app, name="roofcast", arguments=["verify", path, "--seeds", "2", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["kept"] is False
    assert (document["replicas"], document["cases"][0]["replicas"]) == (1, 1)
    assert 1 < document["least_replicas"] <= plan.best.replicas
    assert document["changes"] == [{"field": "plan.devices", "stated": 1, "now": plan.best.devices}]


def test_a_workload_file_is_planned_first(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text("model: llama-3.1-8b\nrate_per_s: 40\nhardware: [h100]\ntp_size: [1]\n", encoding="utf-8")
    answer = simulator.verify(str(path), seeds=2)
    assert answer.promise.kept
    assert [row["case"] for row in answer.rows()] == [item.case.value for item in answer.promise.cases]


@pytest.mark.parametrize("seeds", [0, 1, 101])
def test_a_number_of_replays_out_of_range_is_refused(seeds: int) -> None:
    with pytest.raises(RoofcastError, match="allowed: 2 to 100"):
        simulator.verify({"rps": 1, "model": "llama-3.1-8b"}, seeds=seeds)


def test_a_document_without_a_fleet_is_refused(plan: CapacityPlan, tmp_path: Path) -> None:
    with pytest.raises(RoofcastError, match=r"plan\.replicas"):
        simulator.verify(written(plan, tmp_path, replicas="many"))


@pytest.mark.parametrize(
    ("field", "value", "least"), [("replicas", 0, 1), ("replicas", 10**9, 1), ("spare_replicas", -1, 0)]
)
def test_a_signed_fleet_of_impossible_size_is_refused(
    plan: CapacityPlan, tmp_path: Path, field: str, value: int, least: int
) -> None:
    path = written(plan, tmp_path, **{field: value})
    with pytest.raises(RoofcastError, match=f"{value} is out of range; allowed: {least} to 1,000,000") as caught:
        simulator.verify(path)
    assert caught.value.field == f"plan.{field}"


POOLS: dict[str, Any] = {
    "rps": 60,
    "model": "llama-3.1-8b",
    "hardware": ("h100",),
    "tp": (1,),
    "isl": 3000,
    "osl": 200,
    "serving": ("disaggregated",),
}


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(plan_document(plan_capacity(PlanSpec(**POOLS))))


class TestTwoPools:
    """What is replayed of both pools is what was signed, spares of each included."""

    def verified(self, document: dict[str, Any], folder: Path, **prefill: int) -> dict[str, Any]:
        stated = {**document["plan"]["prefill"], **prefill}
        path = folder / "plan.json"
        path.write_text(json.dumps({**document, "plan": {**document["plan"], "prefill": stated}}))
        return simulator.verify(str(path), seeds=2).to_dict()

    def test_both_pools_are_replayed_with_their_own_spares(self, document: dict[str, Any], tmp_path: Path) -> None:
        up, down, *_ = self.verified(document, tmp_path)["cases"]
        plan, prefill = document["plan"], document["plan"]["prefill"]
        assert (down["prefill_replicas"], down["replicas"]) == (prefill["replicas"], plan["replicas"])
        assert up["prefill_replicas"] == prefill["replicas"] + prefill["spare_replicas"]
        assert up["replicas"] == plan["replicas"] + plan["spare_replicas"]
        # A group of both pools stands for the fleet: of nearly its ratio, never less loaded.
        for case in (up, down):
            assert 60 <= case["rate_per_replica_per_s"] * case["replicas"] < 60 * 1.25

    @pytest.mark.slow
    def test_fewer_prefill_replicas_than_planned_are_slower(self, document: dict[str, Any], tmp_path: Path) -> None:
        planned = self.verified(document, tmp_path)
        signed = self.verified(document, tmp_path, replicas=document["plan"]["prefill"]["replicas"] - 1)
        slow, fast = (found["cases"][1]["objectives"][0]["simulated_s"] for found in (signed, planned))
        assert slow > fast

    def test_a_pool_without_a_number_is_refused_by_its_field(self, document: dict[str, Any], tmp_path: Path) -> None:
        with pytest.raises(RoofcastError, match=r"plan\.prefill\.replicas: 0 is out of range; allowed: 1 to"):
            self.verified(document, tmp_path, replicas=0)

    def test_a_pool_that_is_no_pool_is_refused(self, document: dict[str, Any], tmp_path: Path) -> None:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({**document, "plan": {**document["plan"], "prefill": []}}))
        with pytest.raises(RoofcastError, match=r"plan\.prefill: is of another kind"):
            simulator.verify(str(path), seeds=2)
