"""Prices of an accelerator-hour: which offers count, what is taken of them, and what that does to a ranking."""

from __future__ import annotations

from datetime import date
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.money.market import MarketPrice, PriceRule, check_rule, market_price, named_provider
from simulator.planner.plan import plan_capacity, stale_prices
from simulator.reports.words.plan_inputs import price_source_text, taken_text, warning_text
from simulator.specs.money.prices import OfferKind, OfferSpec, PriceOf, PriceProfile, ProviderKind, load_prices
from simulator.specs.question.plan import plan_spec
from tests.for_every import for_every

LISTED = load_prices()
H100 = "h100-sxm-80gb"
DEFAULT = PriceRule(kind="on_demand")


def offer(
    price: float,
    provider: str,
    *,
    hardware: str = H100,
    kind: ProviderKind = "specialist",
    day: str = "2026-11-01",
    marked: bool = False,
) -> OfferSpec:
    return OfferSpec(
        hardware=hardware,
        kind="on_demand",
        provider=provider,
        provider_kind=kind,
        per_hour=price,
        date=day,
        source="a test",
        default=marked,
    )


def listed(*offers: OfferSpec) -> PriceProfile:
    return LISTED.model_copy(update={"offers": offers, "date": "2026-11-21"})


def taken(prices: PriceProfile, rule: PriceRule = DEFAULT) -> MarketPrice:
    found = market_price(prices, hardware=H100, rule=rule)
    assert found is not None
    return found


def test_the_default_is_the_median_of_one_price_a_provider() -> None:
    """H100 of the shipped list by hand: nine providers, each with its cheapest on-demand offer."""
    found = taken(LISTED)
    # Hyperstack, Crusoe, Lambda, Nebius, CoreWeave, AWS, Oracle, Google, Azure.
    assert sorted([3.20, 3.90, 3.99, 4.50, 6.155, 6.88, 10.0, 11.06, 12.29])[4] == found.per_hour
    assert (found.taken, found.of_median, found.providers) == ("median", 9, 9)
    assert (found.low_provider, found.high_provider) == ("Hyperstack", "Azure")
    assert taken_text(found) == "on demand, median of 9"
    assert "9 run from $3.20 (Hyperstack) to $12.29 (Azure)" in price_source_text(found, currency="USD")


def test_without_a_term_each_provider_counts_with_its_cheapest_lasting_one() -> None:
    """H100 of the shipped list by hand: Hyperstack and AWS sell a year for less, the others on demand alone."""
    found = taken(LISTED, PriceRule())
    assert sorted([2.72, 3.90, 3.99, 4.50, 6.155, 4.334, 10.0, 11.06, 12.29])[4] == found.per_hour
    assert (found.terms, found.low, found.low_provider) == (("on_demand",), 2.72, "Hyperstack")
    longer = taken(LISTED, PriceRule(horizon_months=36))
    assert (longer.low, longer.per_hour) == (2.72, 4.5), "AWS asks 2.972 for three years, and nobody else moves"
    assert taken(LISTED, PriceRule(horizon_months=11)) == taken(LISTED)


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_longer_horizon_never_costs_more(one: int, other: int) -> None:
    short, long = sorted((one, other))
    for hardware in {offer.hardware for offer in LISTED.offers if offer.provider_kind != "index"}:
        found = market_price(LISTED, hardware=hardware, rule=PriceRule(horizon_months=short))
        longer = market_price(LISTED, hardware=hardware, rule=PriceRule(horizon_months=long))
        assert found is None or (longer is not None and longer.low <= found.low)


def test_what_is_sold_on_a_commitment_alone_has_a_price() -> None:
    found = market_price(LISTED, hardware="mi350x", rule=PriceRule())
    assert found is not None
    assert found.terms == ("reserved_1y",)
    assert market_price(LISTED, hardware="mi350x", rule=DEFAULT) is None


def test_a_provider_with_one_offer_on_the_list_moves_the_ends_and_not_the_median() -> None:
    others = [offer(4.0, name, hardware="a40") for name in ("a", "b", "c")]
    three = [offer(2.0, "a"), offer(3.0, "b"), offer(4.0, "c")]
    found = taken(listed(*others, *three, offer(0.5, "lone")))
    assert (found.per_hour, found.low, found.low_provider, found.of_median, found.providers) == (3.0, 0.5, "lone", 3, 4)
    alone = taken(listed(offer(2.0, "x"), offer(4.0, "y")))
    assert (alone.per_hour, alone.of_median) == (3.0, 2), "where nobody has two, all count"


def test_stale_offers_and_indexes_count_where_nothing_else_does() -> None:
    fresh, stale = offer(5.0, "a"), offer(1.0, "b", day="2026-01-01")
    index = offer(2.0, "an index", kind="index")
    found = taken(listed(fresh, stale, index))
    assert (found.per_hour, found.taken, found.left_out, found.outdated) == (5.0, "only", 2, False)
    assert taken(listed(stale, index)).per_hour == 2.0
    old = taken(listed(stale))
    assert (old.per_hour, old.outdated) == (1.0, True)
    assert "stale" in price_source_text(old, currency="USD")


def test_a_marked_offer_wins_until_another_is_asked_for() -> None:
    prices = listed(offer(2.0, "a"), offer(3.0, "b"), offer(9.0, "mine", marked=True))
    assert (taken(prices).per_hour, taken(prices).taken) == (9.0, "marked")
    assert taken(prices, PriceRule(kind="on_demand", of="median")).per_hour == 3.0
    assert taken(prices, PriceRule(kind="on_demand", of="low")).per_hour == 2.0


@given(st.lists(st.tuples(st.floats(0.1, 50), st.sampled_from("abcdef")), min_size=1, max_size=20))
def test_the_median_lies_between_the_ends_and_no_provider_counts_twice(drawn: list[tuple[float, str]]) -> None:
    prices = listed(*(offer(price, provider) for price, provider in drawn))
    found = {of: taken(prices, PriceRule(kind="on_demand", of=of)).per_hour for of in get_args(PriceOf)}
    assert found["low"] <= found["median"] <= found["high"]
    assert taken(prices).providers == len({provider for _, provider in drawn})
    again = listed(*prices.offers, *(offer(price + 1, provider) for price, provider in drawn))
    # A dearer offer of the same provider changes nothing, except that everybody now has two on the list.
    assert taken(again).providers == taken(prices).providers
    assert taken(again, PriceRule(kind="on_demand", of="low")).per_hour == found["low"]


def test_one_that_lets_its_own_machines_and_those_of_others_is_one_provider() -> None:
    both = (offer(5.0, "a"), offer(4.0, "b", kind="marketplace"), offer(9.0, "b"))
    found = taken(listed(*both, offer(6.0, "c")))
    assert (found.providers, found.low, found.median, found.high) == (3, 4.0, 5.0, 6.0)
    assert taken(listed(*both), PriceRule(kind="on_demand", provider="specialist")).high == 9.0


@pytest.mark.parametrize(("text", "name"), [("aws", "AWS"), ("Oracle", "Oracle Cloud"), ("Specialist", "specialist")])
def test_providers_are_named_as_people_do(text: str, name: str) -> None:
    assert named_provider(LISTED, text) == name


def test_one_provider_prices_with_its_own_offers() -> None:
    found = taken(LISTED, PriceRule(kind="on_demand", provider="lambda"))
    assert (found.per_hour, found.low, found.high) == (pytest.approx(4.14), 3.99, 4.29)
    hyperscalers = taken(LISTED, PriceRule(kind="on_demand", provider="hyperscaler"))
    assert hyperscalers.per_hour > taken(LISTED, PriceRule(kind="on_demand", provider="specialist")).per_hour


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (PriceRule(provider="Lamda"), "nobody on the price list default is 'Lamda'"),
        (PriceRule(provider="C"), "'C' may be"),
        (PriceRule(provider="Lambda", kind="spot"), "Lambda has no spot offers"),
        (PriceRule(kind="purchase"), "not a price per hour"),
    ],
)
def test_a_rule_that_prices_nothing_is_refused(rule: PriceRule, said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        check_rule(LISTED, rule=rule)


@for_every(["b300-sxm", "gb200", "gb300", "mi355x", "mi325x", "h100-pcie-80gb"])
def test_what_is_sold_today_has_an_on_demand_price_of_today(hardware: str) -> None:
    found = market_price(LISTED, hardware=hardware, rule=DEFAULT)
    assert found is not None
    assert not found.outdated


@pytest.mark.parametrize(
    ("hardware", "kind", "price"),
    [
        (H100, "reserved_1y", 4.334),
        (H100, "reserved_3y", 2.972),
        ("h200-sxm-141gb", "on_demand", 7.912),
        ("b200-sxm", "on_demand", 14.2416),
        ("rtx-pro-6000", "on_demand", 3.36),
    ],
)
def test_aws_asks_what_its_price_list_says(hardware: str, kind: OfferKind, price: float) -> None:
    found = market_price(LISTED, hardware=hardware, rule=PriceRule(kind=kind, provider="AWS"))
    assert found is not None
    assert found.per_hour == price


def test_a_price_is_warned_of_from_the_day_on_that_the_list_says() -> None:
    price = taken(listed(offer(2.0, "a", day="2026-11-01")))
    assert LISTED.stale_after_days == 90
    assert stale_prices(LISTED, [price], today=date(2027, 1, 30)) == []
    (found,) = stale_prices(LISTED, [price], today=date(2027, 1, 31))
    assert (found.values["days"], found.values["price"]) == (91, price)
    assert "91 days old" in warning_text(found)
    assert stale_prices(LISTED.model_copy(update={"stale_after_days": None}), [price], today=date(2030, 1, 1)) == []


@pytest.fixture(scope="module")
def plan() -> CapacityPlan:
    return plan_capacity(plan_spec({"rps": 100.0, "model": "llama-3.1-8b", "hardware": ("h100", "l40s", "mi300x")}))


class TestRanking:
    def test_at_its_limit_the_chosen_fleet_costs_what_the_next_one_does(self, plan: CapacityPlan) -> None:
        found, best = plan.price_ranking, plan.best
        assert found is not None
        assert found.loses_above is not None
        above = found.loses_above * best.devices * (1 + best.doubt)
        assert above == pytest.approx(plan.alternatives[0].counted_per_hour)
        doubts = {fleet.hardware: fleet.doubt for fleet in plan.alternatives}
        for rival in found.rivals:
            counted = rival.wins_below * rival.devices * (1 + doubts[rival.hardware])
            assert counted == pytest.approx(best.counted_per_hour)
            assert rival.offered == (rival.low is not None and rival.low < rival.wins_below)

    def test_cases_are_the_plans_that_these_prices_give(self, plan: CapacityPlan) -> None:
        found = plan.price_ranking
        assert found is not None
        for case in found.cases:
            asked = dict(plan.spec.model_dump(exclude_unset=True))
            if case.name in get_args(PriceOf):
                asked["price_of"] = case.name
            elif case.name != "planned":
                asked["provider"] = case.name
            again = plan_capacity(plan_spec(asked)).best
            assert (case.hardware, case.devices) == (again.hardware, again.devices), case.name
            assert case.cost_per_hour == pytest.approx(again.cost.per_hour), case.name
