"""Several kinds of demand at once: their name in a link, ``chat=0.7,rag=0.3``, and boxes to put one together."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.fields import glossary
from simulator.specs.question.plan_values import workload_shares
from simulator.traffic.workload_presets import PRESET_NAMES, shares_of, workload_preset
from simulator.units import percent_text

_OPEN, _KINDS = "mix", "mixed_kinds"
_MOST_PARTS = 1000


def known_workload(text: str) -> str | None:
    """The kind of demand, or the mix, that is called so."""
    try:
        shares = workload_shares(text)
    except ValueError:
        return None
    mix = ",".join(f"{word}={share:g}" for word, share in shares)
    return workload_preset(mix if len(shares) > 1 else shares[0][0]).name


def workloads(*asked: str | None) -> tuple[str, ...]:
    """Every kind that can be chosen, and the mixes among what is or was asked for."""
    mixes = [known for text in asked if text is not None and (known := known_workload(text)) is not None]
    return tuple(dict.fromkeys((*PRESET_NAMES, *mixes)))


def mix_input(ask: Callable[[str], None]) -> None:
    """Boxes to put a mix together; ``ask`` is called with it before the next run."""
    place = st.popover("Mix", icon=":material/pie_chart:", key=_OPEN, on_change="rerun", help=glossary.MIX)
    if not place.open:
        return
    with place:
        kinds = st.multiselect("Kinds", PRESET_NAMES, key=_KINDS, placeholder="two or more", help=glossary.MIX)
        parts_keys = [f"parts_{kind}" for kind in kinds]
        parts = [
            st.number_input(f"{kind} (parts)", 1, _MOST_PARTS, 1, key=parts_key, help="70 and 30, or 7 and 3.")
            for kind, parts_key in zip(kinds, parts_keys, strict=True)
        ]
        shares = list(zip(kinds, shares_of(parts), strict=True))
        st.caption(", ".join(f"{kind} {percent_text(share, digits=3)}" for kind, share in shares))
        mix = ",".join(f"{workload_preset(kind).word}={share:g}" for kind, share in shares)
        st.button("Ask with this mix", key="ask_mix", disabled=len(kinds) < 2, on_click=ask, args=(mix,))
