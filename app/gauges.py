"""Gauges: a bound, what is predicted against it with its 80 % interval, and the probability that it holds.

Plain elements that the style sheet draws: a figure of plotly takes a browser as long as the rest of a card row.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import streamlit as st

from simulator.reports.content.quantities import chance_text, seconds_text
from simulator.reports.decide.evidence import LIKELY, UNLIKELY

_BOUND_AT = 0.7
"""Where the bound stands on every gauge, as a share of its width: gauges side by side compare at a glance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A p95 and the ends of its 80 % interval beside its bound [s], any infinite where there is no end; its chance."""

    bound_s: float
    value_s: float
    ends_s: tuple[float, float]
    chance: float


def odds(chance: float) -> str:
    """The colour of a probability: green, orange or red, as the verdict of a plan is drawn."""
    return "green" if chance >= LIKELY else "orange" if chance >= UNLIKELY else "red"


def _place(value_s: float, bound_s: float) -> float:
    """Where a value stands, in percent of the width; beyond the end at the end."""
    return 100 * min(max(_BOUND_AT * value_s / bound_s, 0.0), 1.0)


def gauge(label: str, shown: Gauge) -> None:
    """Draw one, with its numbers in words for whoever does not see it."""
    low, high = (_place(end, shown.bound_s) for end in shown.ends_s)
    bound, value = seconds_text(shown.bound_s), _place(shown.value_s, shown.bound_s)
    said = f"{chance_text(shown.chance)} likely"
    st.html(
        f'<div class="gauge gauge-{odds(shown.chance)}" role="meter" aria-label="{escape(label)} against its bound" '
        f'aria-valuemin="0" aria-valuemax="100" aria-valuenow="{value:.0f}" '
        f'aria-valuetext="{escape(said)} within {escape(bound)}"><div class="gauge-track">'
        f'<i class="gauge-to" style="width:{value:.1f}%"></i>'
        f'<i class="gauge-range" style="left:{min(low, 99.0):.1f}%;width:{max(high - low, 1.0):.1f}%"></i>'
        f'<i class="gauge-bound" style="left:{100 * _BOUND_AT:.0f}%"></i></div>'
        f"<span><b>{escape(said)}</b> ≤ {escape(bound)}</span></div>"
    )
