"""Price lists and figures of owning that state only what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.errors import ProfileError
from simulator.planner.money.market import PriceRule, market_price
from simulator.specs.money.ownership import MONEY, load_ownership
from simulator.specs.money.prices import OfferKind, load_prices

HEAD = {"extends": "default", "name": "mine", "date": "2026-11-01"}
OFFER = {"hardware": "h100-sxm-80gb", "provider": "quote", "date": "2026-11-01", "source": "quote"}


def written(tmp_path: Path, content: dict[str, Any]) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def figure(value: float) -> dict[str, object]:
    return {"value": value, "source": "quote", "date": "2026-11-01"}


def test_one_price_is_replaced_and_all_others_stay(tmp_path: Path) -> None:
    offer = OFFER | {"kind": "on_demand", "per_hour": 1.25}
    mine, default = load_prices(written(tmp_path, HEAD | {"offers": [offer]})), load_prices()
    chosen = market_price(mine, hardware="h100-sxm-80gb", rule=PriceRule())
    assert chosen is not None
    assert (chosen.per_hour, chosen.taken, chosen.provider) == (1.25, "only", "quote")
    kinds: tuple[tuple[str, OfferKind], ...] = (("h100-sxm-80gb", "reserved_3y"), ("b200-sxm", "on_demand"))
    for hardware, kind in kinds:
        rule = PriceRule(kind=kind)
        assert market_price(mine, hardware=hardware, rule=rule) == market_price(default, hardware=hardware, rule=rule)
    assert (mine.name, mine.pue) == ("mine", default.pue)
    gone = [item for item in default.offers if (item.hardware, item.kind) == ("h100-sxm-80gb", "on_demand")]
    assert len(mine.offers) == len(default.offers) - len(gone) + 1


def test_power_alone_may_be_ones_own(tmp_path: Path) -> None:
    mine = load_prices(written(tmp_path, HEAD | {"power_per_kwh": 0.31, "power_source": "contract"}))
    assert (mine.power_per_kwh, mine.offers) == (0.31, load_prices().offers)


def test_prices_are_not_converted(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="extends a list in USD, itself in EUR: nothing is converted"):
        load_prices(written(tmp_path, HEAD | {"currency": "EUR"}))


def test_owning_in_another_currency_states_its_money_and_keeps_the_shares(tmp_path: Path) -> None:
    money = {name: figure(float(place)) for place, name in enumerate(MONEY)}
    mine, default = load_ownership(written(tmp_path, HEAD | money | {"currency": "EUR"})), load_ownership()
    assert (mine.currency, mine.staff_per_fte_year.value) == ("EUR", 2.0)
    assert mine.residual_fraction == default.residual_fraction
    assert mine.owning_reference_per_device_hour == {}
    with pytest.raises(ProfileError, match="state colocation_per_kw_month, staff_per_fte_year in EUR"):
        load_ownership(written(tmp_path, HEAD | {MONEY[0]: money[MONEY[0]], "currency": "EUR"}))


def test_one_figure_of_owning_is_enough_in_the_same_currency(tmp_path: Path) -> None:
    mine = load_ownership(written(tmp_path, HEAD | {"discount_rate": figure(0.05)}))
    assert (mine.discount_rate.value, mine.residual_fraction) == (0.05, load_ownership().residual_fraction)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"extends": "nosuch"}, "extends 'nosuch', which is no profile of ownership"),
        ({"colour": "blue"}, "unknown field"),
        ({"discount_rate": figure(-1)}, "discount_rate.value"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    with pytest.raises(ProfileError, match=said) as caught:
        load_ownership(written(tmp_path, HEAD | change))
    assert "mine.yaml" in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        ({"kind": "on_demand"}, "an offer of kind on_demand has per_hour and no per_device"),
        ({"kind": "purchase", "per_hour": 2.0}, "an offer of kind purchase has per_device and no per_hour"),
        ({"kind": "on_demand", "per_hour": -2.0}, "offers.0.per_hour"),
        ({"kind": "on_demand", "per_hour": float("nan")}, "offers.0.per_hour"),
        ({"kind": "on_demand", "per_hour": 2.0, "date": "yesterday"}, "a date such as 2026-11-21 is needed"),
    ],
)
def test_an_offer_that_prices_nothing_is_refused(tmp_path: Path, offer: dict[str, object], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        load_prices(written(tmp_path, HEAD | {"offers": [OFFER | offer]}))


def test_an_alias_is_the_accelerator_and_what_nobody_knows_stays(tmp_path: Path) -> None:
    priced = {"kind": "on_demand", "per_hour": 1.5}
    offers = [OFFER | priced | {"hardware": "h100"}, OFFER | priced | {"hardware": "my-own-chip"}]
    mine = load_prices(written(tmp_path, HEAD | {"offers": offers}))
    assert [offer.hardware for offer in mine.offers[:2]] == ["h100-sxm-80gb", "my-own-chip"]
    assert sum(offer.hardware == "h100-sxm-80gb" and offer.kind == "on_demand" for offer in mine.offers) == 1


def test_a_pue_below_one_is_impossible(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="pue"):
        load_prices(written(tmp_path, HEAD | {"pue": 0.9, "pue_source": "x"}))


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, {"name": "mine", "currency": "EUR", "date": "2026-11-01", "offers": [OFFER]})
    with pytest.raises(ProfileError, match=r"\(and 4 more: power_source, pue, pue_source, offers\.0\.kind\)"):
        load_prices(path)
