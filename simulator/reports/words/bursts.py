"""How bursty recorded arrivals are, in words."""

from __future__ import annotations

from simulator.reports.words.flags import flag_of


def burst_text(dispersion: float) -> str:
    """``counts in windows of seconds vary 37 times as much as Poisson's ...``."""
    own = f"counts within seconds vary {dispersion:.2g} times as much as Poisson's"
    return f"{own}: one of N replicas sees {flag_of('arrival_cv')} sqrt(1 + {dispersion - 1:.2g} / N)"
