"""Why the worst figures of each topic are off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from simulator.published.figures import rows_of

TABLE = "reasons.csv"
WORST = 3
NEEDS_REASON = 0.1
"""Errors above it have to be explained where they are among the worst of their topic."""


@lru_cache(maxsize=1)
def reasons() -> Mapping[str, str]:
    """Reason by the beginning of a figure's name."""
    return {row["begins_with"]: row["reason"] for row in rows_of(TABLE)}


def reason_of(name: str) -> str | None:
    """The reason with the longest matching beginning, or None."""
    found = [start for start in reasons() if name.startswith(start)]
    return reasons()[max(found, key=len)] if found else None


def worst_names(errors: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """Names of the WORST largest errors of one topic that need a reason, largest first."""
    ordered = sorted(errors, key=lambda item: -abs(item[1]))[:WORST]
    return tuple(name for name, error in ordered if abs(error) > NEEDS_REASON)
