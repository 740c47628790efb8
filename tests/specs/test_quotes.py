"""A CSV of quotes: what is read, what is refused by row and column, and the price list that comes of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from simulator.errors import FileError, RoofcastError
from simulator.specs.money.prices import load_prices
from simulator.specs.money.quotes import COLUMNS, price_list_text, quoted_list, read_quotes

TODAY = date(2026, 11, 22)
HEAD = "accelerator,provider,term,price,currency,unit,date,accelerators"
GOOD = "h100,Acme,on_demand,3.10,USD,accelerator-hour,2026-11-02,"


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "quotes.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_unit_is_a_price_of_one_accelerator(tmp_path: Path) -> None:
    found = read_quotes(
        written(
            tmp_path,
            HEAD,
            GOOD,
            "h100,Acme,on_demand,24.80,USD,server-hour,2026-11-02,8",
            "h100,Acme,reserved-1y,2263,USD,GPU-month,2026-11-02,",
            "h100,Acme,On Demand,18104,USD,server-month,2026-11-02,8",
            "",
            "rtx-pro-6000,Shop,purchase,9000,USD,accelerator,2026-11-02,",
            "h100,Shop,purchase,280000,USD,server,2026-11-02,8",
        ),
        today=TODAY,
    )
    assert [offer.per_hour for offer in found.offers[:4]] == [pytest.approx(3.10)] * 4
    assert [offer.per_device for offer in found.offers[4:]] == [9000, 35000]
    assert [offer.server_included for offer in found.offers[4:]] == [False, True]
    assert {offer.hardware for offer in found.offers} == {"h100-sxm-80gb", "rtx-pro-6000"}
    assert found.offers[0].source == "quotes.csv"


def test_a_purchase_says_how_long_it_takes_and_a_rent_does_not(tmp_path: Path) -> None:
    head = f"{HEAD},lead_time_days"
    bought = written(tmp_path, head, "h100,Shop,purchase,280000,USD,server,2026-11-02,8,45")
    assert read_quotes(bought, today=TODAY).offers[0].lead_time_days == 45
    with pytest.raises(RoofcastError, match="changes nothing with the term 'on_demand'"):
        read_quotes(written(tmp_path, head, f"{GOOD},45"), today=TODAY)


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        (("USD", "USDD"), "row 3, currency", "'USDD'"),
        (("USD", "usd"), "row 3, currency", "did you mean USD"),
        (("USD", "EUR"), "row 3, currency", "nothing is converted"),
        (("accelerator-hour", "hour"), "row 3, unit", "'hour' is none of accelerator-hour"),
        (("accelerator-hour", "server-hour"), "row 3, accelerators", "nothing is given"),
        (("accelerator-hour", "accelerator"), "row 3, unit", "none of the units of on_demand"),
        (("2026-11-02,", "2026-11-02,8"), "row 3, accelerators", "changes nothing"),
        (("2026-11-02", "02.11.2026"), "row 3, date", "a date such as"),
        (("2026-11-02", "2026-13-02"), "row 3, date", "a date such as"),
        (("2026-11-02", "2027-01-01"), "row 3, date", "after today"),
        (("h100", "h1000"), "row 3, accelerator", "did you mean h100"),
        (("on_demand", "monthly"), "row 3, term", "'monthly' is none of on_demand"),
        (("3.10", "cheap"), "row 3, price", "no number"),
        (("3.10", "-3"), "row 3, price", "not above zero"),
        (("3.10", "nan"), "row 3, price", "not above zero"),
        (("Acme", ""), "row 3, provider", "nothing is given"),
        (("Acme", "Acme,Inc"), "row 3, cells", "9 cells under 8 headings"),
    ],
)
def test_a_bad_row_is_refused_by_its_number_and_column(
    tmp_path: Path, change: tuple[str, str], field: str, said: str
) -> None:
    path = written(tmp_path, HEAD, GOOD, GOOD.replace(*change))
    with pytest.raises(RoofcastError) as caught:
        read_quotes(path, today=TODAY)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (HEAD.replace("unit,", ""), "row 1, unit: this column is missing"),
        (HEAD.replace("term", "kind"), "call the column term or provider_kind"),
        (HEAD.replace("term", "colour"), "unknown column; allowed: accelerator"),
        (HEAD.replace("accelerators", "price"), "stands twice"),
        ("", "row 1"),
    ],
)
def test_bad_headings_are_refused(tmp_path: Path, head: str, said: str) -> None:
    with pytest.raises(RoofcastError, match=said):
        read_quotes(written(tmp_path, head, GOOD), today=TODAY)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        read_quotes(tmp_path / "missing.csv")
    with pytest.raises(RoofcastError, match="no quote below"):
        read_quotes(written(tmp_path, HEAD))


def test_the_list_extends_the_shipped_one_and_keeps_what_is_asked_for(tmp_path: Path) -> None:
    quotes, shipped = read_quotes(written(tmp_path, HEAD, GOOD), today=TODAY), load_prices()
    listed = [item for item in shipped.offers if (item.hardware, item.kind) == ("h100-sxm-80gb", "on_demand")]
    for keep in (False, True):
        path = tmp_path / f"{keep}.yaml"
        text = price_list_text(quotes, name="mine", extends="default", keep=keep, today=TODAY, heading="quotes")
        path.write_text(text, encoding="utf-8")
        mine = load_prices(path)
        own = [item for item in mine.offers if (item.hardware, item.kind) == ("h100-sxm-80gb", "on_demand")]
        assert (own[0].provider, own[0].per_hour) == ("Acme", 3.10)
        assert own[1:] == (listed if keep else [])
        assert len(mine.offers) == len(shipped.offers) - len(listed) + len(own)
        assert mine.stale_after_days == shipped.stale_after_days


def test_quotes_alone_are_a_list_too(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD, GOOD.replace("2026-11-02", "2024-11-02"))
    assert [offer.provider for offer in quoted_list(path, beside=load_prices()).offers] == ["Acme"]
    assert quoted_list("default", beside=load_prices()) == load_prices()


def test_the_columns_stand_in_the_help_and_in_the_docs() -> None:
    from simulator.cli.price_commands import prices_import

    page = (Path(__file__).resolve().parents[2] / "docs" / "prices.md").read_text("utf-8")
    for column in COLUMNS:
        assert column in (prices_import.__doc__ or "")
        assert f"`{column}`" in page
