"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.reports.content import quantities as text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0184, "18.4 ms"),
        (2.169, "2.17 s"),
        (2.5e-5, "25.0 µs"),
        (119.0, "119 s"),
        (180.0, "3.00 min"),
        (9000.0, "2.50 h"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "never ends"),
    ],
)
def test_seconds(seconds: float | None, shown: str) -> None:
    assert text.seconds_text(seconds) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(4_600_000.0, "$4.60M"), (459_170.0, "$459k"), (1536.0, "$1,536"), (3.117, "$3.12"), (0.3841, "$0.384")],
)
def test_money(amount: float, shown: str) -> None:
    assert text.money_text(amount, "USD") == shown
    assert text.money_text(None, "USD") == "unknown"
    assert text.money_text(2.0, "CHF") == "2.00 CHF"


@pytest.mark.parametrize(("amount", "shown"), [(1536.4, "$1,536"), (592.0, "$592.00"), (0.3841, "$0.38")])
def test_prices_keep_their_cents_below_a_thousand(amount: float, shown: str) -> None:
    assert text.price_text(amount, "USD") == shown
    assert text.price_text(None, "USD") == "unknown"


def test_zero_and_one_read_naturally() -> None:
    assert (text.percent_text(0.0), text.percent_text(0.004)) == ("0 %", "0.4 %")
    assert (text.counted_text(1, "replica"), text.counted_text(0, "replica")) == ("1 replica", "0 replicas")
    assert text.counted_text(3328, "replica") == "3,328 replicas"
    assert (text.kilowatts_text(312000.0), text.kilowatts_text(19550.0)) == ("312", "19.6")


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_no_number_is_off_by_more_than_its_last_digit(value: float) -> None:
    number, _, unit = text.seconds_text(value).partition(" ")
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.006)


def test_changes() -> None:
    assert text.change_text(120.0, 100.0) == "+20 %"
    assert text.change_text(97.5, 100.0) == "-2.5 %"
    assert [text.signed_percent_text(value) for value in (0.05, 0.0, -0.4)] == ["+5 %", "0 %", "-40 %"]
    assert text.change_text(100.01, 100.0) is None
    assert text.change_text(None, 1.0) is None
    assert text.change_text(1.0, 0.0) is None


def test_a_range_says_its_unit_once_where_it_is_one() -> None:
    assert text.range_text((0.0173, 0.0197), text.seconds_text) == "17.3 – 19.7 ms"
    assert text.range_text((0.9, 1.2), text.seconds_text) == "900 ms – 1.20 s"


def test_a_number_stays_with_its_unit_and_words_may_part() -> None:
    said = "batch 32 takes 9.40 ms per token, 64 % of $5 a day at 8 /s"
    assert text.unbroken(said).split() == said.split(), "the same words"
    assert text.unbroken(said).split(" ") == [
        "batch",
        "32\xa0takes",
        "9.40\xa0ms",
        "per",
        "token,",
        "64\xa0%",
        "of",
        "$5\xa0a",
        "day",
        "at",
        "8\xa0/s",
    ]
