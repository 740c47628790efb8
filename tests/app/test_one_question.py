"""One question goes through every page, and a page that nobody has touched asks what its bare command asks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.address.opening import pools_values, widget_values
from app.fields.inputs import profile_name
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity as planned
from simulator.planner.replica_setup import fleet_setups, pools_setup, refused_setup
from simulator.reports.content.quantities import count_text, seconds_text
from simulator.specs.base import validate
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import HARDWARE, MODEL, PLANNED_MODEL, PLANNED_RATE_PER_S, SERVED_RATE_PER_S
from simulator.specs.question.scenario import ScenarioSpec
from tests.app.pages import PAGES, bar, document_of, equation, headline, metrics, opened, printed, tables


def test_the_first_plan_is_that_of_the_shortest_command() -> None:
    bare = document_of(f"plan-capacity --rps {PLANNED_RATE_PER_S:g} --model {PLANNED_MODEL}")
    assert (PLANNED_RATE_PER_S, PLANNED_MODEL) == (1000, "llama-3.1-70b"), "what the README says first"
    (document,) = printed(opened("plan"))
    assert document["plan"] == bare["plan"]
    assert document["assumptions"] == bare["assumptions"]
    assert {"spares", "workload", "objectives"}.isdisjoint(document.get("given", ()))


def test_the_first_load_is_that_of_the_shortest_command() -> None:
    bare = document_of(f"roofcast serve --model {MODEL} --hardware {HARDWARE} --rate {SERVED_RATE_PER_S:g}")
    page = opened("serving")
    (document,) = printed(page)
    assert document["overall"] == bare["overall"]
    assert document["interval"] == bare["interval"]
    assert metrics(page)["TTFT p95"] == seconds_text(bare["overall"]["ttft_p95_s"])


def test_the_first_roofline_is_that_of_the_shortest_command() -> None:
    bare = document_of(f"roofcast step --model {MODEL} --hardware {HARDWARE} --batch 32")
    page = opened("roofline")
    (document,) = printed(page)
    assert document == bare
    assert metrics(page)["Decode step"] == seconds_text(bare["step_s"])


@pytest.mark.parametrize("name", ["what_if", "compare", "sweep"])
def test_the_first_deployments_are_those_of_bare_scenarios(name: str) -> None:
    page = opened(name)
    printed(page)
    lines = [json.loads(line) for item in list(page.code)[1:] for line in item.value.splitlines()]
    assert lines
    for line in lines:
        # What a scenario cannot do without, and what this page changes from point to point.
        asked = ("id", "kind", "model", "hardware", "batch_size", "isl_tokens", "osl_tokens")
        bare = {key: value for key, value in line.items() if key in asked or (key == "tp_size" and name == "sweep")}
        assert _scenario(line).model_dump() == _scenario(bare).model_dump()
    assert (lines[0]["model"], lines[0]["hardware"]) == (MODEL, profile_name(HARDWARE))


def _scenario(fields: dict[str, Any]) -> ScenarioSpec:
    return validate(ScenarioSpec, fields, where="")


def test_a_limit_of_power_is_asked_like_the_command_and_goes_on_with_the_fleet() -> None:
    page = opened("plan", {"gpus": profile_name(HARDWARE), "max_w": "400"})
    (document,) = printed(page)
    command = (
        f"plan-capacity --rps {PLANNED_RATE_PER_S:g} --model {PLANNED_MODEL} --hardware {HARDWARE} --power-cap 400"
    )
    assert document["plan"] == document_of(command)["plan"]
    assert "≤ 400 W" in bar(page)
    found = planned(plan_spec({"rps": 10, "model": MODEL, "hardware": HARDWARE, "power_cap": 400, "verify": False}))
    assert widget_values(fleet_setups(found, 0)[0])["cap"] == 400
    roofline = opened("roofline", {"cap": "400"})
    assert printed(roofline)[0] == document_of(
        f"roofcast step --model {MODEL} --hardware {HARDWARE} --batch 32 --power-cap 400"
    )


def test_techniques_are_asked_as_the_library_means_them() -> None:
    page = opened("what_if", {"speculation": "eagle"})
    (line,) = [json.loads(item.value) for item in _opened_command(page)]
    assert line["techniques"] == {"speculation": {"method": "eagle"}}


def _opened_command(page: AppTest) -> list[Any]:
    printed(page)
    return list(page.code)[1:]


@pytest.mark.parametrize("name", PAGES)
def test_every_page_says_the_question(name: str) -> None:
    asked = {"model": "llama-3.1-8b", "isl": "777", "ttft": "3", "gpus": "h100-sxm-80gb", "rps": "33"}
    said = bar(opened(name, asked))
    for part in ("**llama-3.1-8b**", "777 → 211 tokens", "TTFT p95 ≤ 3.00 s", "TPOT p95 ≤ 50.0 ms", "33.0 requests/s"):
        assert part in said, part


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("what_if", "batch 32"),
        ("compare", "batch 32"),
        ("roofline", "a step of 32 at 1,024 tokens"),
        ("serving", "8.00 requests/s on it"),
    ],
)
def test_a_page_of_one_deployment_says_the_load_that_it_asks_about(name: str, said: str) -> None:
    assert bar(opened(name)).endswith(f" · {said}")
    if name == "what_if":
        assert "batch" not in bar(opened("sweep", {"batch": "7"})), "what is swept has many values"


def test_pools_that_nobody_asked_for_are_no_part_of_the_question() -> None:
    page = opened("serving", {"gpu": "h100-sxm-80gb"})
    kept = page.session_state["_kept"]
    assert kept["gpu"] == "h100-sxm-80gb"
    assert not [key for key in kept if key.startswith("prefill_") or key == "link"]


def address_text(values: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value is not None}


def test_a_plan_is_handed_on_as_it_was_found() -> None:
    spec = plan_spec({"rate_per_s": 5.0, "model": "llama-3.1-405b", "hardware": ("b200-sxm",)})
    plan = planned(spec)
    (setup,) = fleet_setups(plan, 0)
    page = opened("serving", {"model": "llama-3.1-405b", **address_text(widget_values(setup))})
    assert not page.error
    assert not page.warning
    (document,) = printed(page)
    assert document["overall"]["requests_per_s"] > 0
    assert f"one of {count_text(plan.best.replicas)} replicas of b200-sxm {plan.best.label}" in bar(page)
    # Four ways to say the same deployment: its memory is the plan's, to the block.
    assert document["memory"]["kv_blocks"] * 16 == plan.best.replica.memory.kv_capacity_tokens


@pytest.mark.slow
def test_a_fleet_that_is_sized_again_is_the_one_that_every_number_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned(plan_spec({"rate_per_s": 7.25, "model": "llama-3.1-8b"})).best.replicas

    def one_more(plan: CapacityPlan) -> CapacityPlan:
        if plan.best.replicas > before:
            return plan
        (pool,) = plan.best.pools
        return replace(plan, best=replace(plan.best, pools=(replace(pool, replicas=before + 1),)))

    monkeypatch.setattr("app.hosting.work.planner.checked", one_more)
    asked = {"model": "llama-3.1-8b", "rps": "7.25"}
    page = opened("plan", asked)
    assert not page.exception
    assert f"= {before + 1} × " in equation(page)
    monkeypatch.undo()
    assert f"= {before + 1} × " in equation(opened("plan", asked)), "from the first number on"


def test_every_fleet_and_refusal_can_be_opened() -> None:
    roles = set()
    for model, rate_per_s, hardware, of_experts in (
        ("deepseek-v3", 20.0, ("h200", "mi300x", "l4"), ("dp", "ep")),
        (PLANNED_MODEL, 1000.0, ("b300-sxm",), ()),
    ):
        plan = planned(plan_spec({"rate_per_s": rate_per_s, "model": model, "hardware": hardware}))
        setups = [setup for place in range(len(plan.fleets)) for setup in fleet_setups(plan, place)]
        setups += [refused_setup(item.candidate) for item in plan.rejections[:20]]
        roles |= {setup.role for setup in setups}
        page = opened("what_if", {"model": model})
        for key in ("tp", "pp", *of_experts, "weights", "kv", "engine", "gpu"):
            options = set(page.selectbox(key=key).options)
            assert {str(widget_values(setup)[key]) for setup in setups} <= options, key
    assert roles == {"", "prefill", "decode"}


def test_a_fleet_of_two_pools_opens_as_found() -> None:
    spec = plan_spec({"rate_per_s": 1000.0, "model": PLANNED_MODEL, "hardware": ("b300-sxm",)})
    plan = planned(spec)
    place = next(place for place, fleet in enumerate(plan.fleets) if len(fleet.pools) > 1)
    prefill, decode = fleet_setups(plan, place)
    assert prefill.engine.max_num_batched_tokens != decode.engine.max_num_batched_tokens, "only the prefill pool's"
    values = pools_values(pools_setup(prefill, decode))
    page = opened("serving", {"model": PLANNED_MODEL, **address_text(values)})
    assert not page.error
    assert not page.warning
    (document,) = printed(page)
    fleet = plan.fleets[place]
    assert document["memory"]["kv_blocks"] * 16 == fleet.replica.memory.kv_capacity_tokens
    # From 256 sequences on a step takes a fifth more: the plan counts how often a replica passes them, a run may not.
    assert document["overall"]["tpot_mean_s"] == pytest.approx(fleet.degraded.tpot_mean_s, rel=0.15)
    assert headline(page).startswith("Holds its objectives"), "as the plan says"
    group = f"{values['prefill_replicas']} prefill + {values['decode_replicas']} of {decode.replicas} decode replicas"
    assert group in bar(page)
    assert "TTFT p95" in metrics(page)
    assert "Saturation" not in metrics(page), "not known of two pools with an interval"


def test_a_plan_of_two_pools_has_a_door_to_both_and_to_each() -> None:
    page = opened("plan")
    assert "prefill" in equation(page)
    assert {"**Both pools**", "**Prefill**", "**Decode**"} <= {item.value for item in page.markdown}
    refused = next(name for name in page.selectbox(key="look").options if name.endswith("(refused)"))
    page.selectbox(key="look").set_value(refused).run()
    assert not page.exception
    assert "**Both pools**" not in {item.value for item in page.markdown}


def test_a_comparison_starts_from_the_deployment_of_the_question() -> None:
    page = opened("compare", {"model": "llama-3.1-70b", "gpu": "b200-sxm", "tp": "2", "weights": "fp8"})
    columns = list(tables(page)[0].columns)
    assert columns[1:] == ["b200-sxm TP2 fp8", "h200-sxm-141gb TP2 fp8", "h100-sxm-80gb TP2 fp8"]
    assert "b200-sxm" in headline(page)


def test_a_changed_deployment_is_no_longer_one_of_the_plan() -> None:
    page = opened("what_if", {"gpu": "b200-sxm", "replicas": "5"})
    assert "one of 5 replicas of b200-sxm" in bar(page)
    page.selectbox(key="tp").set_value(2).run()
    assert "replicas" not in bar(page)


@pytest.mark.parametrize("count", ["9" * 400, "-1", "nan"])
def test_a_count_that_cannot_be_meant_is_left_out_of_thebar(count: str) -> None:
    page = opened("serving", {"model": PLANNED_MODEL, "pool": "decode", "replicas": count})
    assert not page.exception
    assert "replicas" not in bar(page)


@pytest.mark.slow
def test_a_fleet_of_unlike_pools_is_planned_and_opens_as_found() -> None:
    asked = {"model": "llama-3.1-70b", "gpus": "h200-sxm-141gb", "prefill_gpus": "h100-sxm-80gb", "rps": "50"}
    page = opened("plan", asked)
    assert not page.error
    spec = plan_spec(
        {"rate_per_s": 50.0, "model": "llama-3.1-70b", "hardware": "h200", "prefill_hardware": "h100-sxm-80gb"}
    )
    plan = planned(spec)
    place = next(place for place, fleet in enumerate(plan.fleets) if fleet.is_unlike)
    prefill, decode = fleet_setups(plan, place)
    assert (prefill.hardware, decode.hardware) == ("h100-sxm-80gb", "h200-sxm-141gb")
    values = pools_values(pools_setup(prefill, decode))
    page = opened("serving", {"model": "llama-3.1-70b", **address_text(values)})
    assert not page.error
    assert not page.warning
    (document,) = printed(page)
    fleet = plan.fleets[place]
    assert document["overall"]["tpot_mean_s"] == pytest.approx(fleet.degraded.tpot_mean_s, rel=0.1)
    assert document["overall"]["ttft_mean_s"] == pytest.approx(fleet.degraded.ttft_mean_s, rel=0.25)
    assert "prefill of h100-sxm-80gb" in bar(page)
