"""A CSV of price quotes as a price list that extends another; refusals name row (headings are row 1) and column."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from io import StringIO
from math import ceil, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import yaml

from simulator.errors import FileError, ProfileError, RoofcastError, did_you_mean
from simulator.records import dataclass
from simulator.specs.base import iso_date, validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.money import prices
from simulator.units import HOURS_PER_MONTH

NEEDED = ("accelerator", "provider", "term", "price", "currency", "unit", "date")
OPTIONAL = ("provider_kind", "region", "accelerators", "lead_time_days", "source", "note")
COLUMNS = (*NEEDED, *OPTIONAL)
_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {"hardware": "accelerator", "gpu": "accelerator", "price_kind": "term", "gpus": "accelerators"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """What a price is for: hours of renting (0 for a purchase), of one accelerator or of a whole server."""

    hours: float
    server: bool


UNITS: Mapping[str, _Unit] = MappingProxyType(
    {
        "accelerator-hour": _Unit(hours=1, server=False),
        "accelerator-month": _Unit(hours=HOURS_PER_MONTH, server=False),
        "server-hour": _Unit(hours=1, server=True),
        "server-month": _Unit(hours=HOURS_PER_MONTH, server=True),
        "accelerator": _Unit(hours=0, server=False),
        "server": _Unit(hours=0, server=True),
    }
)
"""Units of a price; those of a server need its ``accelerators``, those without a time are purchases."""
_OTHER_UNITS: Mapping[str, str] = MappingProxyType(
    {
        "gpu-hour": "accelerator-hour",
        "gpu-h": "accelerator-hour",
        "chip-hour": "accelerator-hour",
        "gpu-month": "accelerator-month",
        "instance-hour": "server-hour",
        "node-hour": "server-hour",
        "gpu": "accelerator",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotes:
    """Offers of a CSV, in one ``currency``."""

    currency: str
    offers: tuple[prices.OfferSpec, ...]


def _refuse(row: int, column: str, message: str, *, hint: str = "") -> RoofcastError:
    return RoofcastError(message, field=f"row {row}, {column}", code="invalid_quote", hint=hint)


def _headings(fields: Iterable[str | None]) -> list[str]:
    names = [str(name or "").strip().lower().replace(" ", "_") for name in fields]
    names = [_OTHER_NAMES.get(name, name) for name in names]
    for name in names:
        if name == "kind":
            raise _refuse(
                1, name, "may be the term or the kind of provider", hint="call the column term or provider_kind"
            )
        if name not in COLUMNS:
            raise _refuse(
                1, name or "(empty)", f"unknown column; allowed: {', '.join(COLUMNS)}", hint=did_you_mean(name, COLUMNS)
            )
        if names.count(name) > 1:
            raise _refuse(1, name, "this column stands twice")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise _refuse(1, missing[0], f"this column is missing; needed are {', '.join(NEEDED)}")
    return names


def _one_of(row: int, column: str, text: str, allowed: Iterable[str]) -> str:
    names = tuple(allowed)
    plain = text.strip().lower().replace(" ", "_").replace("-", "_")
    for name in names:
        if name.replace("-", "_") == plain:
            return name
    raise _refuse(row, column, f"{text!r} is none of {', '.join(names)}", hint=did_you_mean(text, names))


def _unit(row: int, text: str) -> _Unit:
    plain = text.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("per-")
    return UNITS[_one_of(row, "unit", _OTHER_UNITS.get(plain, text), UNITS)]


def _number(row: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _refuse(row, column, f"{text!r} is no number, written such as 3.99") from None
    if not isfinite(value) or value <= 0:
        raise _refuse(row, column, f"{text!r} is not above zero")
    return value


def _hardware(row: int, text: str, *, profiles: str | None) -> str:
    try:
        return load_hardware(text, profiles=profiles).name
    except ProfileError as error:
        raise _refuse(row, "accelerator", error.message, hint=error.hint) from None


def _day(row: int, text: str, *, today: date) -> str:
    try:
        iso_date(text)
    except ValueError as error:
        raise _refuse(row, "date", f"{text!r}: {error}") from None
    if date.fromisoformat(text) > today:
        raise _refuse(row, "date", f"{text} is after today, {today}", hint="give the day on which the price was quoted")
    return text


def _currency(row: int, text: str, *, others: str) -> str:
    try:
        prices.known_currency(text)
    except ValueError as error:
        raise _refuse(row, "currency", f"{text!r}: {error}") from None
    if text != others:
        raise _refuse(
            row,
            "currency",
            f"{text}, but the list that is extended is in {others}: nothing is converted",
            hint=f"give the price in {others}, or extend a list in {text}",
        )
    return text


def _offer(
    row: int, given: Mapping[str, str], *, currency: str, source: str, today: date, profiles: str | None
) -> prices.OfferSpec:
    for column in NEEDED:
        if not given.get(column):
            raise _refuse(row, column, "nothing is given")
    unit = _unit(row, given["unit"])
    kind = _one_of(row, "term", given["term"], get_args(prices.OfferKind))
    if (kind == "purchase") != (unit.hours == 0):
        allowed = [name for name, item in UNITS.items() if (item.hours == 0) == (kind == "purchase")]
        raise _refuse(row, "unit", f"{given['unit']!r} is none of the units of {kind}: {', '.join(allowed)}")
    _currency(row, given["currency"], others=currency)
    price, counted = _number(row, "price", given["price"]), given.get("accelerators", "")
    if unit.server and not counted:
        raise _refuse(row, "accelerators", "nothing is given", hint="say how many a server of this price has")
    if counted and not unit.server:
        raise _refuse(row, "accelerators", f"changes nothing with the unit {given['unit']!r}")
    shared = price / (_number(row, "accelerators", counted) if unit.server else 1.0)
    of_provider = given.get("provider_kind", "")
    fields: dict[str, Any] = {
        "hardware": _hardware(row, given["accelerator"], profiles=profiles),
        "kind": kind,
        "provider": given["provider"],
        "region": given.get("region", ""),
        "date": _day(row, given["date"], today=today),
        "source": given.get("source") or source,
        "note": given.get("note", ""),
    }
    if given.get("lead_time_days"):
        if kind != "purchase":
            raise _refuse(row, "lead_time_days", f"changes nothing with the term {kind!r}")
        fields["lead_time_days"] = ceil(_number(row, "lead_time_days", given["lead_time_days"]))
    if of_provider:
        fields["provider_kind"] = _one_of(row, "provider_kind", of_provider, get_args(prices.ProviderKind))
    if unit.hours:
        fields["per_hour"] = shared / unit.hours
    else:
        fields |= {"per_device": shared, "server_included": unit.server}
    return validate(prices.OfferSpec, fields, where=f"row {row}")


def _rows(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    try:
        lines = list(csv.reader(StringIO(text)))
    except csv.Error as error:
        raise _refuse(1, "cells", f"not a CSV: {error}") from None
    if not lines:
        raise _refuse(1, "headings", f"the file is empty; the columns are {', '.join(COLUMNS)}")
    names = _headings(lines[0])
    for row, line in enumerate(lines[1:], start=2):
        cells = [cell.strip() for cell in line]
        if not any(cells):
            continue
        if len(cells) > len(names):
            said = f"{len(cells)} cells under {len(names)} headings"
            raise _refuse(row, "cells", said, hint="quote cells with commas")
        yield row, dict(zip(names, cells, strict=False))


def read_quotes(
    path: str | Path, *, currency: str = "USD", today: date | None = None, profiles: str | None = None
) -> Quotes:
    """The offers of a CSV file, by its headings (``COLUMNS``), prices per accelerator.

    currency : that of the list that the quotes extend

    Raises FileError: the file cannot be read.
    Raises RoofcastError: a row is refused: its number, the column, the value and what is allowed. The first one alone.
    """
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {path}: {error}", field="QUOTES.csv") from None
    return quotes_of(text, source=Path(path).name, currency=currency, today=today, profiles=profiles)


def quotes_of(
    text: str, *, source: str, currency: str, today: date | None = None, profiles: str | None = None
) -> Quotes:
    """The offers of a CSV's text; refusals as of ``read_quotes``."""
    day = today or date.today()
    offers = tuple(
        _offer(row, given, currency=currency, source=source, today=day, profiles=profiles) for row, given in _rows(text)
    )
    if not offers:
        raise _refuse(2, "cells", "there is no quote below the headings")
    return Quotes(currency=currency, offers=offers)


def price_list_text(
    quotes: Quotes,
    *,
    name: str,
    extends: str,
    keep: bool = False,
    today: date | None = None,
    heading: str,
    profiles: str | None = None,
) -> str:
    """YAML of a price list that takes from ``extends`` what the quotes do not state.

    keep : offers of the extended list for the same accelerator and term stay beside the quotes, and count as they do

    Raises ProfileError: there is no list called ``extends``, or the result is no price list.
    """
    offers = [offer.model_dump(mode="json", exclude_defaults=True) for offer in quotes.offers]
    document: dict[str, Any] = {
        prices.EXTENDS: extends,
        "name": name,
        "currency": quotes.currency,
        "date": (today or date.today()).isoformat(),
    }
    if keep:
        quoted = {(offer.hardware, offer.kind) for offer in quotes.offers}
        base = prices.base_of({prices.EXTENDS: extends}, kind="prices", profiles=profiles) or {}
        offers += [item for item in base.get("offers", ()) if (item["hardware"], item["kind"]) in quoted]
        offers = [{**item, "quote": False} for item in offers]
    document["offers"] = offers
    validate(prices.PriceProfile, document, where=name, profiles=profiles)
    return f"# {heading}\n" + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def quoted_list(path: str | Path, *, beside: prices.PriceProfile, profiles: str | None = None) -> prices.PriceProfile:
    """Quotes alone as a list: of a CSV file, in the currency of ``beside``, or the list of that name or file.

    Raises ProfileError, FileError, RoofcastError: no such list or file, or a row is refused.
    """
    if Path(path).suffix.lower() != ".csv":
        return prices.load_prices(path, profiles=profiles)
    found = read_quotes(path, currency=beside.currency, profiles=profiles)
    return beside.model_copy(update={"name": Path(path).stem, "offers": found.offers})
