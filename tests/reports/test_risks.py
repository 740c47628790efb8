"""Risks of a report: about the prices and the demand of this plan, not of another."""

from __future__ import annotations

import pytest

from simulator.planner.plan import plan_capacity
from simulator.reports.sections.risks import top_risks
from simulator.reports.studies import Studies, gather
from simulator.specs.plan import plan_spec


def studied(kind: str) -> Studies:
    question = {"rps": 40.0, "model": "llama-3.1-8b", "hardware": "h100", "price_kind": kind}
    return gather(plan_capacity(plan_spec(question)), command="plan-capacity", complete=False)


@pytest.mark.parametrize(("kind", "word"), [("on_demand", "on-demand"), ("reserved_1y", "1-year")])
def test_the_price_risk_is_of_the_kind_of_price_that_the_plan_uses(kind: str, word: str) -> None:
    found = studied(kind)
    offers = found.prices.offers
    prices = [item.per_hour for item in offers if item.kind == kind and item.hardware == "h100-sxm-80gb"]
    (said,) = [text for text in top_risks(found) if text.startswith("Price:")]
    known = [price for price in prices if price is not None]
    assert f"{word} prices" in said
    assert f"from {min(known):,.2f} to {max(known):,.2f}" in said
