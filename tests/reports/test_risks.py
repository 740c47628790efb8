"""Risks of a report: about the prices and the demand of this plan, not of another."""

from __future__ import annotations

import pytest

from simulator.planner.plan import plan_capacity
from simulator.reports.content.document import Facts, Table
from simulator.reports.decide.decision import decision_content
from simulator.reports.decide.risks import top_risks
from simulator.reports.studies import Studies, gather
from simulator.specs.question.plan import plan_spec


def studied(kind: str) -> Studies:
    question = {"rps": 40.0, "model": "llama-3.1-8b", "hardware": "b300", "price_kind": kind}
    return gather(plan_capacity(plan_spec(question)), command="plan-capacity", complete=False)


@pytest.mark.parametrize(("kind", "word"), [("on_demand", "on demand"), ("reserved_1y", "1 year")])
def test_the_price_risk_is_of_the_kind_of_price_that_the_plan_uses(kind: str, word: str) -> None:
    found = studied(kind)
    offers = found.prices.offers
    prices = [item.per_hour for item in offers if item.kind == kind and item.hardware == "b300-sxm"]
    (said,) = [text for text in top_risks(found) if text.startswith("Price:")]
    known = [price for price in prices if price is not None]
    assert f"{word} prices" in said
    assert f"from {min(known):,.2f} (" in said
    assert f" to {max(known):,.2f} USD/h (AWS)" in said


def test_a_fleet_without_a_price_says_so_where_its_price_would_stand() -> None:
    question = {"rps": 40.0, "model": "llama-3.1-8b", "hardware": "b200", "price_kind": "spot"}
    found = gather(plan_capacity(plan_spec(question)), command="plan-capacity", complete=False)
    assert found.plan.best.cost.per_hour is None
    risks = top_risks(found)
    assert any(text.startswith("Price: the price list default has no spot price of b200-sxm") for text in risks)
    blocks = decision_content(found)
    facts = {fact.key: fact for block in blocks if isinstance(block, Facts) for fact in block.facts}
    assert facts["cost_per_hour"].label == "an hour, rented spot"
    assert facts["cost_per_month"].remark == "no such price in the list default"
    notes = [block.note for block in blocks if isinstance(block, Table)]
    assert not any("Spot capacity" in note for note in notes)
