"""How people write growth, ramps, stock and load profiles on a command line."""

from __future__ import annotations

import re

from simulator.units import SECONDS_PER_MINUTE

MONTHS_PER_YEAR = 12
HOURS_PER_DAY = 24
_RATE = re.compile(r"\s*([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(%?)\s*(?:(?:/|per)\s*([a-z]+))?\s*")
_HORIZON = re.compile(r"\s*([0-9]+)\s*(?:m|mo|month|months)?\s*")
_LARGEST_GROWTH = 10.0


def _fraction_per(value: object, *, periods: tuple[str, ...], example: str) -> tuple[float, str]:
    match = _RATE.fullmatch(str(value))
    try:
        number = float(match[1]) if match else -1.0
    except ValueError:
        number = -1.0
    if match is None or isinstance(value, bool) or not number > 0:
        raise ValueError(f"a rate above zero such as {example} is needed")
    period = match[3] or periods[0]
    if period not in periods:
        raise ValueError(f"{period!r} is not a period; allowed: {', '.join(periods)}")
    return number / 100 if match[2] else number, period


def growth_per_month(value: object) -> float | None:
    """``5%/month``, ``80%/year`` or a fraction a month; a year's growth compounds over twelve months [1/month].

    Raises
    ------
    ValueError
        Not a rate above zero, or more than tenfold a month.
    """
    if value is None:
        return None
    fraction, period = _fraction_per(value, periods=("month", "year"), example="5%/month")
    monthly = fraction if period == "month" else (1 + fraction) ** (1 / MONTHS_PER_YEAR) - 1
    if monthly > _LARGEST_GROWTH:
        raise ValueError(f"growth of {monthly:.0%} a month is not planned for; at most {_LARGEST_GROWTH:.0%}")
    return monthly


def ramp_per_s(value: object) -> float | None:
    """``10%/min`` or a fraction of the planned rate a minute [1/s].

    Raises
    ------
    ValueError
        Not a rate above zero.
    """
    if value is None:
        return None
    fraction, period = _fraction_per(value, periods=("min", "minute", "s", "second"), example="10%/min")
    return fraction if period in ("s", "second") else fraction / SECONDS_PER_MINUTE


def horizon_months(value: object) -> object:
    """``24 months``, ``24m`` or 24 [months]; anything else is left for the field's own check."""
    match = _HORIZON.fullmatch(str(value)) if isinstance(value, str) else None
    return int(match[1]) if match else value


def stock_entry(text: str) -> tuple[str, int]:
    """``h100=64`` as a hardware name and a number of accelerators.

    Raises
    ------
    ValueError
        Not of that form, or no accelerator.
    """
    name, equals, count = text.partition("=")
    if not equals or not name.strip() or not count.strip().isdigit() or int(count) < 1:
        raise ValueError(f"an entry HARDWARE=COUNT such as h100=64 is needed, got {text!r}")
    return name.strip(), int(count)


def hourly_profile(value: object) -> object:
    """24 comma-separated numbers as relative demand by hour; a list is left as it is.

    Raises
    ------
    ValueError
        Not 24 numbers, a negative one, or only zeros.
    """
    if isinstance(value, str):
        value = tuple(part for part in value.replace(";", ",").split(",") if part.strip())
    if not isinstance(value, list | tuple):
        return value
    if len(value) == 0:
        return ()
    try:
        hours = tuple(float(item) for item in value)
    except (TypeError, ValueError):
        raise ValueError("24 numbers are needed, one for each hour") from None
    if len(hours) != HOURS_PER_DAY or min(hours) < 0 or not max(hours) > 0:
        raise ValueError(f"24 numbers at or above zero are needed, one for each hour; got {len(hours)}")
    return hours
