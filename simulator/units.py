"""The only place with powers of ten and of two.

Inside the package every quantity is SI (s, bytes, FLOPs, W, J, USD) and its unit is part of its name.
These constants convert at the door: when a file or a person gives another unit, or when a report shows one.
"""

import math

PICO = 1e-12
MICRO = 1e-6
MILLI = 1e-3
KILO = 1e3
MEGA = 1e6
GIGA = 1e9
TERA = 1e12
PETA = 1e15

KIB = 2.0**10
MIB = 2.0**20
GIB = 2.0**30

BITS_PER_BYTE = 8
SECONDS_PER_MINUTE = 60.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
HOURS_PER_YEAR = 8760.0
DAYS_PER_YEAR = 365.0
HOURS_PER_MONTH = HOURS_PER_YEAR / 12

_PREFIXES = (
    (PETA, "P"),
    (TERA, "T"),
    (GIGA, "G"),
    (MEGA, "M"),
    (KILO, "k"),
    (1.0, ""),
    (MILLI, "m"),
    (MICRO, "u"),
    (1e-9, "n"),
)


def format_si(value: float, unit: str) -> str:
    """Write ``value`` with a decimal prefix, for people: ``format_si(3.35e12, "B/s")`` is ``3.35 TB/s``."""
    if value == 0:
        return f"0 {unit}".rstrip()
    value = float(f"{value:.3g}")  # first, so that 999.7 becomes 1 of the next prefix
    magnitude = abs(value)
    for scale, prefix in _PREFIXES:
        if magnitude >= scale:
            return f"{value / scale:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def plain_text(value: float, *, digits: int = 4) -> str:
    """``361.7``, ``645``, ``1,234,568``: ``digits`` significant ones or all before the point, never ``1e+06``."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    shown = f"{value:,.{decimals}f}"
    return shown.rstrip("0").removesuffix(".") if "." in shown else shown


def bound_text(value_s: float, *, digits: int = 3) -> str:
    """A time as people set it: ``50 ms``, ``2 s``, ``90 s``."""
    return f"{value_s / MILLI:.{digits}g} ms" if value_s < 1 else f"{plain_text(value_s, digits=digits)} s"


def counted_text(number: int, noun: str) -> str:
    """``1 replica``, ``3,328 replicas``, ``3 batches``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith("ch") else "s")


def percent_text(fraction: float, *, digits: int | None = None) -> str:
    """``43 %``, ``4.3 %``, ``5 %``; with ``digits`` significant ones where more of them matter: ``99.95 %``."""
    percent = 100 * fraction
    if digits is not None:
        return f"{percent:.{digits}g} %"
    tenths = round(percent, 1) + 0.0  # without the sign of what rounds to zero
    return f"{percent:.0f} %" if abs(tenths) >= 10 else f"{tenths:g} %"
