"""``roofcast prices``: list the offers of a price list, compare them, and import a CSV of quotes."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from simulator.cli.shared import AsJson, Force, Own, Profiles, grouped, own_options, values_of
from simulator.files import STANDARD_STREAM, write_text
from simulator.specs.money.prices import OfferKind

if TYPE_CHECKING:
    from simulator.reports.answers.prices import PriceFilter
    from simulator.specs.money.prices import PriceProfile


LISTED = own_options(
    Own("hardware", str, "Only these accelerators.", several=True),
    Own("price_kind", get_args(OfferKind), "Only this term."),
    Own("provider", str, "Only this provider, or hyperscaler, specialist or marketplace."),
    Own("prices", str, "Price list.", "default", flag="--prices NAME|FILE"),
)
"""Which offers, and of which list."""

prices_app = typer.Typer(help="Prices: list offers, compare them, import a CSV of quotes.", no_args_is_help=True)


def _asked(context: typer.Context, *, of: PriceProfile) -> PriceFilter:
    from simulator.reports.answers.prices import asked_filter

    given = values_of(context.params, LISTED)
    kind, provider = given.get("price_kind"), given.get("provider")
    hardware, profiles = given.get("hardware", ()), context.params["profiles"]
    return asked_filter(of, hardware=hardware, kind=kind, provider=provider, profiles=profiles)


@prices_app.command("list")
@grouped(first=LISTED)
def prices_list(context: typer.Context, as_json: AsJson = False, profiles: Profiles = None) -> None:
    """List the offers of a price list: accelerator, term, provider, kind, region, price, date, source.

    Example: roofcast prices list --hardware h100 --provider specialist
    """
    from simulator.reports.answers import prices as answers
    from simulator.specs.money.prices import load_prices

    found = load_prices(context.params["prices"], profiles=profiles)
    asked = _asked(context, of=found)
    if as_json:
        typer.echo(json.dumps(answers.offers_document(found, asked=asked, today=date.today())))
    else:
        typer.echo(answers.offers_text(found, asked=asked, today=date.today()), nl=False)


@prices_app.command("compare")
@grouped(LISTED)
def prices_compare(
    context: typer.Context,
    quotes: Annotated[
        str | None,
        typer.Argument(metavar="[QUOTES]", help="Quotes to set beside the list: a CSV as of import, or a price list."),
    ] = None,
    as_json: AsJson = False,
    profiles: Profiles = None,
) -> None:
    """Compare offers: low, median and high of each accelerator and term, and what a plan takes; or quotes with them.

    Example: roofcast prices compare --hardware h100 --hardware mi300x
    """
    from simulator.reports.answers import prices as answers
    from simulator.specs.money.prices import load_prices
    from simulator.specs.money.quotes import quoted_list

    found = load_prices(context.params["prices"], profiles=profiles)
    beside = None if quotes is None else quoted_list(quotes, beside=found, profiles=profiles)
    asked = _asked(context, of=beside or found)
    if as_json:
        typer.echo(json.dumps(answers.comparison_document(found, asked=asked, quotes=beside)))
    else:
        typer.echo(answers.comparison_text(found, asked=asked, quotes=beside), nl=False)


@prices_app.command("import")
def prices_import(
    quotes: Annotated[str, typer.Argument(metavar="QUOTES.csv", help="One quote a row; the columns stand below.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help='YAML to write; "-" is stdout.')] = "-",
    extends: Annotated[
        str, typer.Option("--extends", metavar="NAME", help="Price list to take from what the quotes leave open.")
    ] = "default",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the listed offers of the same accelerator and term beside the quotes.")
    ] = False,
    force: Force = False,
    profiles: Profiles = None,
) -> None:
    """Turn a CSV of quotes into a price list for plan-capacity --prices; it extends the built-in one.

    Example: roofcast prices import quotes.csv --out my-prices.yaml

    Columns that are needed: accelerator (name or alias), provider, price,
    term (on_demand, reserved_1y, reserved_3y, spot, capacity_block, purchase),
    currency (ISO 4217), date (2026-11-21), unit (accelerator-hour,
    accelerator-month, server-hour, server-month; purchases: accelerator, server).

    Columns that may be left out: accelerators (of a server), lead_time_days (of
    a purchase), region, source, note, provider_kind (hyperscaler, specialist,
    marketplace).

    Quotes replace the listed offers of the same accelerator and term, unless
    --keep is given. A row that is refused is counted as in a spreadsheet, where
    the headings are row 1.
    """
    from simulator.specs.money.prices import load_prices
    from simulator.specs.money.quotes import price_list_text, read_quotes
    from simulator.specs.uploads import upload_name

    listed = load_prices(extends, profiles=profiles)
    found = read_quotes(quotes, currency=listed.currency, profiles=profiles)
    name = upload_name(Path(quotes if out == STANDARD_STREAM else out).stem)
    heading = f"quotes of {Path(quotes).name}, by roofcast prices import"
    text = price_list_text(found, name=name, extends=extends, keep=keep, heading=heading, profiles=profiles)
    write_text(text, out, force=force, flag="--out")
    stale = sum(not listed.is_current(offer) for offer in found.offers)
    if stale:
        said = f"{stale} of {len(found.offers)} quotes are from before {listed.current_from} and called stale"
        typer.echo(f"roofcast: {said}; they count where no newer quote of the accelerator is given", err=True)
    if out != STANDARD_STREAM:
        typer.echo(f"roofcast: {len(found.offers)} quotes in {out}; plan-capacity --prices {out}", err=True)
