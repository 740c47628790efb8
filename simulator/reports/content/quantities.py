"""Quantities as people read them: one number, its unit, and no more digits than it deserves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simulator.records import dataclass
from simulator.units import GIGA, KILO, MEGA, MICRO, MILLI, PETA, PICO, SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from simulator.units import counted_text as counted_text
from simulator.units import percent_text as percent_text

if TYPE_CHECKING:
    from simulator.planner.records import Demand

UNKNOWN = "unknown"
RENTAL_NAMES = {
    "planned": "as planned",
    "on_demand": "on demand",
    "reserved_1y": "reserved 1 year",
    "reserved_3y": "reserved 3 years",
    "spot": "spot",
    "capacity_block": "in a capacity block",
}
_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}


_NEARLY = 0.99
"""Probabilities beyond this are said as more than it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One number: ``key`` for programs, its text for people, the 80 % interval as text or nothing."""

    key: str
    label: str
    value: float | None
    text: str
    interval: str = ""
    lower_is_better: bool = True


def number_text(value: float, *, digits: int = 3) -> str:
    """``9.75``, ``1,744,321``: ``digits`` significant ones or all before the point; ``3.14e+23`` beyond peta."""
    if value == 0:
        return "0"
    if not PICO <= abs(value) < PETA:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def seconds_text(value_s: float | None) -> str:
    """``18.4 ms``, ``2.17 s``, ``3.5 min``; a dash where there is nothing to measure."""
    if value_s is None or math.isnan(value_s):
        return "–"
    if math.isinf(value_s):
        return "never ends"
    if value_s < MILLI:
        return f"{number_text(value_s / MICRO)} µs"
    if value_s < 1:
        return f"{number_text(value_s / MILLI)} ms"
    if value_s < 2 * SECONDS_PER_MINUTE:
        return f"{number_text(value_s)} s"
    if value_s < 2 * SECONDS_PER_HOUR:
        return f"{number_text(value_s / SECONDS_PER_MINUTE)} min"
    return f"{number_text(value_s / SECONDS_PER_HOUR)} h"


def bytes_text(value_bytes: float) -> str:
    """Decimal: ``141 GB``, ``320 kB``."""
    for unit, scale in (("GB", GIGA), ("MB", MEGA), ("kB", KILO)):
        if abs(value_bytes) >= scale:
            return f"{number_text(value_bytes / scale)} {unit}"
    return f"{number_text(value_bytes)} B"


def money_text(value: float | None, currency: str) -> str:
    """``$1,536``, ``$3.12``, ``$0.384``, ``$459k``, ``$4.60M``."""
    if value is None:
        return UNKNOWN
    if value >= MEGA:
        amount = f"{number_text(value / MEGA)}M"
    elif value >= 100 * KILO:
        amount = f"{number_text(value / KILO)}k"
    elif value >= 100:
        amount = f"{value:,.0f}"
    elif value >= 1:
        amount = f"{value:,.2f}"
    else:
        amount = number_text(value)
    return currency_text(amount, currency)


def currency_text(amount: str, currency: str) -> str:
    """An amount with the symbol of its currency, or its code behind it."""
    symbol = _SYMBOLS.get(currency)
    return f"{symbol}{amount}" if symbol else f"{amount} {currency}"


def price_text(value: float | None, currency: str) -> str:
    """``$592.00``, ``$1,416``: to the cent below a thousand, never rounded further than to whole units."""
    if value is None:
        return UNKNOWN
    return currency_text(f"{value:,.0f}" if value >= KILO else f"{value:,.2f}", currency)


def watts_text(value_w: float) -> str:
    """``342 kW``, ``1.2 MW``."""
    for unit, scale in (("MW", MEGA), ("kW", KILO)):
        if value_w >= scale:
            return f"{number_text(value_w / scale)} {unit}"
    return f"{number_text(value_w)} W"


def kilowatts_text(value_w: float) -> str:
    """``312``, ``19.6``: the number of kW, for columns whose heading says so."""
    return f"{value_w / KILO:,.0f}" if value_w >= 100 * KILO else f"{value_w / KILO:.1f}"


def joules_text(value_j: float) -> str:
    """``0.84 J``."""
    return f"{number_text(value_j)} J" if value_j >= 1 else f"{number_text(value_j / MILLI)} mJ"


def rate_text(value_per_s: float, noun: str) -> str:
    """``1,733 tokens/s``."""
    shown = f"{value_per_s:,.0f}" if value_per_s >= 100 else number_text(value_per_s)
    return f"{shown} {noun}/s"


def demand_text(demand: Demand) -> str:
    """``20 requests/s``, with the answers to each where there are several, and the peak where the rate is a mean."""
    each = f" of {demand.answers_per_request} answers" if demand.answers_per_request > 1 else ""
    peak = rate_text(demand.peak_requests_per_s, "requests")
    above = f" on average ({peak} at the peak)" if demand.peak_to_mean > 1 else ""
    return f"{rate_text(demand.requests_per_s, 'requests')}{each}{above}"


def served_unit(demand: Demand) -> str:
    """What rates on accelerators count: single answers where a request has several."""
    return "answers/s" if demand.answers_per_request > 1 else "requests/s"


def count_text(value: float) -> str:
    """A number of things or tokens, thousands separated."""
    return f"{value:,.0f}"


def parameters_text(value: float) -> str:
    """``70.6 B``, ``494 M``."""
    return f"{number_text(value / GIGA)} B" if value >= GIGA else f"{number_text(value / MEGA)} M"


def signed_percent_text(fraction: float) -> str:
    """``+12 %``, ``-4.3 %``: a change, or an error with its direction."""
    return f"+{percent_text(fraction)}" if round(100 * fraction, 1) > 0 else percent_text(fraction)


def ratio_text(ratio: float) -> str:
    """A ratio to something as the change from it: 1.12 is ``+12 %``."""
    return signed_percent_text(ratio - 1)


def chance_word(chance: float) -> str:
    """``Serves it``, ``May serve it`` or ``Too tight``."""
    from simulator.planner.verification.confidence import LIKELY, UNLIKELY

    return "Serves it" if chance >= LIKELY else "May serve it" if chance >= UNLIKELY else "Too tight"


def chance_text(chance: float) -> str:
    """A probability: ``86 %``; never certain, as no forecast is: ``> 99 %``, ``< 1 %``."""
    if chance > _NEARLY:
        return f"> {percent_text(_NEARLY)}"
    return f"< {percent_text(1 - _NEARLY)}" if chance < 1 - _NEARLY else percent_text(chance)


def change_text(now: float | None, before: float | None) -> str | None:
    """The relative change as ``+12 %`` or ``-40 %``; None where there is nothing to compare or nothing changed."""
    if now is None or before is None or not before or not math.isfinite(now) or not math.isfinite(before):
        return None
    if abs(100 * (now / before - 1)) < 1 / 20:
        return None
    return signed_percent_text(now / before - 1)


def range_text(ends: Sequence[float], text: Callable[[float], str]) -> str:
    """Both ends of an interval, the unit once where it is the same: ``17.3 – 19.7 ms``."""
    low, high = ends
    first, last = text(low), text(high)
    number, _, unit = first.rpartition(" ")
    return f"{number} – {last}" if number and last.endswith(f" {unit}") else f"{first} – {last}"


_BEFORE_A_UNIT = re.compile(r"(?<=\d) (?=[^\W\d]|[%/])")


def unbroken(text: str) -> str:
    """``text`` whose numbers stay on one line with their units, however narrow it is set."""
    return _BEFORE_A_UNIT.sub("\N{NO-BREAK SPACE}", text)


def quantity(
    key: str,
    label: str,
    value: float | None,
    text: Callable[[Any], str],
    ends: Sequence[float] | None = None,
    *,
    lower_is_better: bool = True,
) -> Quantity:
    """A number and the ends of its interval, where they are known, in the words of ``text``."""
    # Both ends may be the same: whole servers, for one, hide small errors.
    spread = "" if not ends else text(ends[0]) if ends[0] == ends[1] else range_text(ends, text)
    return Quantity(
        key=key, label=label, value=value, text=text(value), interval=spread, lower_is_better=lower_is_better
    )


def availability_text(fraction: float) -> str:
    """``99.995 %``, to seven digits: down to three seconds a year."""
    return percent_text(fraction, digits=7)
