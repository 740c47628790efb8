"""``simulator.specs.money.prices``: currencies, dates, and profiles that extend another one."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ProfileError
from simulator.specs.base import found_at, is_recalled, iso_date, open_field
from simulator.specs.money.prices import base_of, known_currency, own_fields, same_currency
from simulator.specs.question.plan_values import HOURS_PER_DAY, model_share, objective_s, stock_entry
from tests.for_every import for_every


@pytest.mark.parametrize("code", ["USD", "EUR", "JPY", "CNY"])
def test_a_currency_is_itself(code: str) -> None:
    assert known_currency(code) == code


@pytest.mark.parametrize(("wrong", "meant"), [("usd", "USD"), ("EURO", "EUR"), ("XXX", ""), ("", "")])
def test_what_is_no_currency_is_refused_with_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(ValueError, match=meant or "."):
        known_currency(wrong)


@given(day=st.dates(date(1990, 1, 1), date(2090, 1, 1)))
def test_every_iso_date_is_itself(day: date) -> None:
    assert iso_date(day.isoformat()) == day.isoformat()


@for_every(["21.11.2026", "2026-13-01", "2026-02-30", "", "yesterday", "2026-11-21T10:00", "20261121", "\u00b2"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="date"):
        iso_date(text)


def test_amounts_of_two_currencies_are_never_added() -> None:
    same_currency("EUR", ownership="EUR")
    with pytest.raises(ProfileError, match="price list is in EUR, the ownership profile in USD") as caught:
        same_currency("EUR", ownership="USD")
    assert caught.value.code == "mixed_currencies"


def test_a_profile_extends_one_that_is_there() -> None:
    assert base_of({}, kind="prices") is None
    base = base_of({"extends": "default"}, kind="prices")
    assert base is not None
    assert base["currency"] == "USD"
    with pytest.raises(ValueError, match="no profile of ownership"):
        base_of({"extends": "of-nobody"}, kind="ownership")


@given(fields=st.dictionaries(st.text("abc", min_size=1), st.integers()))
def test_its_own_fields_are_all_but_whom_it_extends(fields: dict[str, int]) -> None:
    assert own_fields({"extends": "default", **fields}) == fields


@given(name=st.text("abc-.", min_size=1), number=st.integers(1, 10**8))
def test_an_entry_of_stock_is_a_name_and_a_number(name: str, number: int) -> None:
    assert stock_entry(f"{name} = {number}") == (name, number)


@for_every(["h100", "h100=0", "=4", "h100=-1", "h100=4.5", "h100=1e3"])
def test_what_is_no_entry_of_stock_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HARDWARE=COUNT"):
        stock_entry(text)


@given(share=st.integers(1, 1000))
def test_a_model_may_have_a_share(share: int) -> None:
    assert model_share(f"llama={share / 1000}") == ("llama", share / 1000)
    assert model_share("llama-3.1-8b") == ("llama-3.1-8b", None)
    assert model_share("org/a=b") == ("org/a=b", None)


@pytest.mark.parametrize("text", ["llama=0", "llama=1.5", "llama=-0.1"])
def test_a_share_is_above_zero_and_at_most_one(text: str) -> None:
    with pytest.raises(ValueError, match="share"):
        model_share(text)


def test_reading_speed_is_a_bound_of_a_fifth_of_a_second() -> None:
    assert objective_s("reading") == pytest.approx(0.18)
    assert objective_s("50ms") == pytest.approx(0.05)
    assert HOURS_PER_DAY == 24


@pytest.mark.parametrize(
    ("citation", "recalled"),
    [("datasheet v2, from memory", True), ("Recalled from the paper", True), ("memory bandwidth, datasheet", False)],
)
def test_a_citation_says_itself_that_it_is_from_memory(citation: str, recalled: bool) -> None:
    assert is_recalled(citation) is recalled


def test_a_field_that_may_be_left_open_is_none_within_bounds() -> None:
    field = open_field("Share.", gt=0, le=1)
    assert field.default is None
    assert field.description == "Share."
    assert len(field.metadata) == 2


def test_plain_data_is_found_by_dotted_names() -> None:
    data = {"a": {"b": {"c": 1}}, "x": 2}
    assert found_at(data, "a.b.c") == 1
    assert found_at(data, "x") == 2
    assert found_at(data, "a.c.b") is None
    assert found_at(data, "x.y") is None
