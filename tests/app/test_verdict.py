"""The verdict stands before the numbers, and a refusal comes with what would work."""

from __future__ import annotations

from html import escape

import pytest

from simulator.planner.fleet.replica_load import meeting_chances
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.uncertainty import Uncertainty, drawn_fleet
from simulator.planner.what_if import fitting_changes
from simulator.reports.content.quantities import chance_text, count_text, percent_text
from simulator.reports.tables.serving import objective_chances
from simulator.specs.base import validate
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.scenario import ScenarioSpec
from tests.app.pages import headline, metrics, opened, printed, tables

SMALL = {"gpus": "h100-sxm-80gb", "rps": "50"}


def test_a_verdict_draws_what_the_risk_study_draws() -> None:
    plan = plan_capacity(plan_spec({"rate_per_s": 50.0, "hardware": ("h100",), "uncertainty": True}))
    study = plan.study(Uncertainty)
    assert study is not None
    drawn = drawn_fleet(plan.basis.question, plan.basis.shown[0])
    assert (drawn.enough_share, drawn.devices) == (study.enough_share, study.devices)


@pytest.mark.parametrize("confidence", [50, 80, 90])
def test_a_fleet_holds_its_objectives_as_surely_as_it_was_sized_for(confidence: int) -> None:
    plan = plan_capacity(plan_spec({"rate_per_s": 500.0, "hardware": ("h100",), "confidence": confidence}))
    chances = meeting_chances(plan.best, objectives=plan.objectives)
    # Whole replicas, and the highest load of one, leave more than was asked; never less.
    assert confidence / 100 - 0.05 <= min(chances) <= 1.0


def test_the_verdict_stands_on_the_page_with_the_chance_of_every_objective() -> None:
    page = opened("plan", SMALL)
    (document,) = printed(opened("plan", {**SMALL, "view": "Risk"}))
    risk = document["uncertainty"]
    said = " ".join(item.value for item in page.markdown)
    assert f"Carries {percent_text(risk['enough_share'])} of draws where demand is uncertain as well" in said
    assert f"need {count_text(risk['devices']['p90'])} GPUs" in said
    assert "Confidence " in said
    plan = plan_capacity(plan_spec({"rate_per_s": 50.0, "hardware": ("h100-sxm-80gb",)}))
    chances = meeting_chances(plan.best, objectives=plan.objectives)
    gauges = [item.proto.body for item in page.get("html")]
    assert [escape(chance_text(item)) in shown for item, shown in zip(chances, gauges, strict=True)] == [True, True]


def test_the_robust_fleet_is_no_smaller_than_the_cheapest() -> None:
    found = []
    for sure in ("Cheapest", "Robust"):
        # Large enough that whole servers do not hide what the narrow interval of these fits asks for.
        page = opened("plan", {**SMALL, "rps": "2000", "sure": sure})
        assert not page.exception
        found.append(int(metrics(page)["GPUs"].replace(",", "")))
    assert found[0] < found[1]


def test_a_load_is_judged_against_its_objectives() -> None:
    assert headline(opened("serving")).startswith("Holds its objectives at 8.00 requests/s")
    missed = headline(opened("serving", {"tpot": "0.002"}))
    assert missed.startswith("Misses TPOT p95 ")
    assert "< 1 % likely held" in missed
    assert headline(opened("serving", {"rate": "500"})).startswith("Overloaded at 500 requests/s")


def test_a_batch_is_judged_against_the_objectives_of_the_question() -> None:
    held, missed = (opened("what_if", {"batch": batch}) for batch in ("8", "256"))
    (_, likely), (first, _) = ([item.proto.body for item in page.get("html")] for page in (held, missed))
    assert "gauge-green" in likely
    assert "gauge-red" in first, "256 prompts at once take longer than a second"
    bounds = {"ttft": 1.0, "tpot": 0.05}
    (document,) = printed(held)
    chances = objective_chances(document, bounds)
    assert [item.field for item in chances] == ["ttft_s", "tpot_s"]
    assert all(escape(chance_text(item.chance)) in likely for item in chances[1:])
    assert len(opened("what_if", {"osl": "1"}).get("html")) == 1, "one token has no time between tokens"


def test_columns_say_which_objectives_they_hold() -> None:
    for batch, said in (("8", "held"), ("256", "TTFT missed")):
        table = tables(opened("compare", {"batch": batch}))[0].set_index("")
        assert table.loc["Objectives", "h100-sxm-80gb TP1"].startswith(said)


def test_the_load_that_is_asked_is_what_is_looked_at_closer() -> None:
    page = opened("serving")
    before = page.selectbox(key="look_rate").value
    assert abs(float(before.split()[0]) - 8.0) < 1.5
    page.number_input(key="rate").set_value(18.0).run()
    assert abs(float(page.selectbox(key="look_rate").value.split()[0]) - 18.0) < 1.5
    page.selectbox(key="look_rate").set_value(before).run()
    assert page.selectbox(key="look_rate").value == before


@pytest.mark.parametrize("name", ["what_if", "serving"])
def test_one_click_applies_what_fits(name: str) -> None:
    page = opened(name, {"model": "llama-3.1-70b"})
    assert "memory" in page.error[0].value
    assert "GB" in page.error[0].value
    page.button(key="fit_tp").click().run()
    assert not page.error
    assert page.selectbox(key="tp").value == 4
    assert headline(page)


def test_changes_that_fit_do_and_the_step_below_does_not() -> None:
    fields = {"id": 1, "kind": "batch", "model": "llama-3.1-70b", "hardware": "h100", "batch_size": 1,
              "isl_tokens": 100, "osl_tokens": 10}  # fmt: skip
    found = fitting_changes(validate(ScenarioSpec, fields, where=""))
    assert found == {"tp_size": 4, "scheme": "gptq-g128"}
    small = validate(ScenarioSpec, {**fields, "model": "llama-3.1-8b"}, where="")
    assert not fitting_changes(small), "it fits: whatever else is refused of it, no change of these mends it"


def test_a_refused_plan_offers_what_would_serve() -> None:
    page = opened("plan", {"model": "llama-3.1-405b", "rps": "10", "gpus": "h100-sxm-80gb", "ttft": "0.2"})
    assert page.error
    button = next(item for item in page.button if item.label.startswith("A later answer"))
    button.click().run()
    assert not page.error
    assert page.number_input(key="ttft").value > 0.2
    assert "h100-sxm-80gb" in headline(page)


@pytest.mark.parametrize("page", ["what_if", "serving", "compare"])
@pytest.mark.parametrize(("bound_s", "word"), [("10", "Serves it"), ("0.001", "Too tight")])
def test_every_page_that_asks_objectives_says_first_whether_they_hold(page: str, bound_s: str, word: str) -> None:
    found = opened(page, {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "rate": "1", "ttft": "100", "tpot": bound_s})
    assert not found.exception
    said = [item.value for item in found.main.markdown]
    (verdict,) = [text for text in said if "-badge[**" in text]
    assert f"**{word}**" in verdict
    assert said.index(verdict) < next(place for place, text in enumerate(said) if text.startswith("## "))


def test_a_step_alone_is_held_against_the_objectives() -> None:
    gauges = [item.proto.body for item in opened("roofline", {"ttft": "100", "tpot": "0.001"}).get("html")]
    assert ["gauge-red" in shown for shown in gauges] == [True, False]


def test_of_several_the_cheapest_that_holds_its_objectives_is_named() -> None:
    page = opened("compare", {"columns": "2", "gpu": "h100-sxm-80gb", "gpu_b": "l4", "tpot": "0.02", "ttft": "100"})
    (verdict,) = [item.value for item in page.main.markdown if "-badge[**" in item.value]
    assert "1 of 2 likely hold the objectives in this batch, cheapest h100-sxm-80gb" in verdict
