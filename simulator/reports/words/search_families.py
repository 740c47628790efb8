"""What a usual search tried beside one kind of replica under the engine's own limits, and what it left out."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.records import FamilyFound
from simulator.reports.words.flags import flag_of
from simulator.units import percent_text


def families_text(families: Sequence[FamilyFound]) -> str:
    """``Searched as well on the best accelerators: engine limits save 6 % (...); pools ... take 12 % more.``"""
    if not families:
        return ""
    found = "; ".join(_found(item) for item in families)
    flags = f"{flag_of('search')} wide, {flag_of('any_technique')}, {flag_of('any_precision')}"
    return (
        f"Searched as well on the best accelerators: {found}. Pipeline stages, speculation and other formats are left "
        f"out ({flags})."
    )


def _found(item: FamilyFound) -> str:
    where = f"{item.hardware} {item.label}, {item.devices:,} devices"
    if item.kept:
        return f"{item.family} save {percent_text(item.saving)} ({where})"
    if item.saving > 0:
        return f"{item.family} save {percent_text(item.saving)} ({where}), too little for what they take to run"
    return f"{item.family} take {percent_text(-item.saving)} more ({where})"
