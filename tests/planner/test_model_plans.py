"""Several models for one demand: what each step down saves and loses, and fleets that share the requests."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from simulator import plan, plan_models
from simulator.cli.plan_capacity import main
from simulator.errors import InfeasibleError, RoofcastError
from simulator.planner.model_plans import ModelPlans
from simulator.reports.words.fields import note_text

FIELDS = {"rate_per_s": 200.0, "hardware": "h100"}
LARGE, SMALL = "llama-3.1-70b", "llama-3.1-8b"


def test_each_model_has_the_plan_that_it_has_alone() -> None:
    found = plan_models([LARGE, SMALL], FIELDS).found
    assert isinstance(found, ModelPlans)
    for item, planned in found.planned:
        alone = plan(model=item.model, **FIELDS).plan
        assert (planned.best.label, planned.best.devices) == (alone.best.label, alone.best.devices)
    (step,) = found.steps
    high, low = step.fleets
    assert low.cost.per_hour < high.cost.per_hour
    assert "84.4 -> 73.79" in note_text(step.quality)


def test_steps_go_down_whatever_order_was_given() -> None:
    (step,) = plan_models([SMALL, LARGE], FIELDS).found.steps
    assert (step.before.model, step.after.model) == (LARGE, SMALL)
    # Both fill one server: of equal cost the larger model stands first.
    answer = plan_models([SMALL, LARGE], {**FIELDS, "rate_per_s": 10.0})
    (step,) = answer.found.steps
    assert answer["answer"].startswith(f"{SMALL} and {LARGE} cost the same, the least of 2: $")
    assert (step.before.model, step.after.model) == (LARGE, SMALL)


def test_formats_are_steps_too() -> None:
    found = plan_models([SMALL], FIELDS, weights=["bf16", "fp8"]).found
    assert [item.name for item in found.members] == [f"{SMALL} bf16", f"{SMALL} fp8"]
    assert note_text(found.steps[0].quality).startswith("as published -> openllm v1 average")


@pytest.mark.parametrize("fields", [FIELDS, {**FIELDS, "rate_per_s": 2.0}, {**FIELDS, "round_to": "device"}])
def test_a_mix_shares_the_rate_and_the_servers_of_its_fleets(fields: dict[str, object]) -> None:
    answer = plan_models([f"{LARGE}=0.3", f"{SMALL}=0.7"], fields)
    found, rate = answer.found, fields["rate_per_s"]
    fleets = [planned.best for _, planned in found.planned]
    rates = [planned.demand.planned_rate_per_s for _, planned in found.planned]
    assert rates == pytest.approx([0.3 * rate, 0.7 * rate])
    busy = sum(fleet.devices - fleet.idle_devices for fleet in fleets)
    assert found.devices == (busy if "round_to" in fields else 8 * math.ceil(busy / 8))
    assert found.cost_per_hour == pytest.approx(found.devices * fleets[0].cost.per_device_hour)
    assert found.steps == ()
    # Two half empty servers are not paid for where one holds both models.
    assert found.devices < sum(fleet.devices for fleet in fleets) or rate > 2
    counts = [int(text) for text in re.findall(r"(\d+) (?:GPUs|for|idle)", answer.to_text().split(":")[0])]
    assert counts[0] == sum(counts[1:]) == found.devices


@pytest.mark.usefixtures("few_accelerators")
def test_a_model_without_a_fleet_does_not_hide_the_others() -> None:
    found = plan_models([LARGE, SMALL], rate_per_s=5.0, hardware="l4", tp_size=1).found
    assert [item.model for item, _ in found.planned] == [SMALL]
    assert "no feasible plan" in found.members[0].refusal
    with pytest.raises(InfeasibleError):
        plan_models([f"{LARGE}=0.5", f"{SMALL}=0.5"], rate_per_s=5.0, hardware="l4", tp_size=1)


@pytest.mark.parametrize(
    ("models", "fields", "said"),
    [
        ((f"{LARGE}=0.3", SMALL), {}, "not of others"),
        ((f"{LARGE}=0.3", f"{SMALL}=0.5"), {}, "sum to 0.8"),
        ((f"{LARGE}=1.3",), {}, "up to 1"),
        ((LARGE, SMALL), {"measured_rps_per_gpu": 1.0}, "measured with one model"),
        ((f"{LARGE}=0.5", f"{SMALL}=0.5"), {"max_gpus": 8}, "has several"),
    ],
)
def test_contradictions_are_refused(models: tuple[str, ...], fields: dict[str, int], said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        plan_models(models, {**FIELDS, **fields})


def test_the_command_prints_what_the_library_answers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rps", "200", "--hardware", "h100", "--model", LARGE, "--model", SMALL]
    answer = plan_models([LARGE, SMALL], FIELDS)
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == answer["steps"]
    assert main(words) == 0
    assert capsys.readouterr().out == answer.to_text()
    assert main([*words, "--output", "csv"]) == 2


def test_a_mix_takes_the_accelerator_whose_servers_all_can_share() -> None:
    # Alone the small model is cheaper on another kind, in a server that it leaves half empty.
    fields = {"rate_per_s": 100.0, "hardware": ("mi355x", "rtx-pro-6000"), "serving": "aggregated"}
    mix = plan_models([f"{LARGE}=0.3", f"{SMALL}=0.7"], fields)
    shares = {LARGE: 30.0, SMALL: 70.0}
    alone = [plan(model=name, **fields | {"rate_per_s": rate}).plan.best for name, rate in shares.items()]
    assert {fleet.hardware for fleet in alone} == {"mi355x", "rtx-pro-6000"}
    assert {planned.best.hardware for _, planned in mix.found.planned} == {"mi355x"}
    assert mix.found.cost_per_hour < sum(fleet.cost.per_hour for fleet in alone)
    assert [item.alone for item in mix.found.members] == ["", "rtx-pro-6000"]
    assert f"{SMALL} alone would take rtx-pro-6000" in mix.to_text()


@pytest.mark.slow
def test_several_models_have_a_report_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rps", "20", "--model", f"{SMALL}=0.5", "--model", "mistral-7b=0.5", "--hardware", "h100"]
    assert main([*words, "--tp", "1", "--serving", "aggregated", "--report", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "models.md").read_text("utf-8")
    assert capsys.readouterr().out.partition("\n")[0] in text
    for name in (SMALL, "mistral-7b"):
        report = json.loads((tmp_path / "out" / name / "report.json").read_text("utf-8"))
        assert report["totals"]["devices"] == 8
    assert main([*words, "--report", str(tmp_path / "out")]) == 5
