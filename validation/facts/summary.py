"""How many facts are known how well: counts, and the one line that the README shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from validation.facts.origins import Fact, Origin, all_facts, day_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """``stale`` : of ``total``, whatever their origin."""

    total: int
    by_origin: Mapping[Origin, int]
    stale: int


def counted(facts: tuple[Fact, ...], *, today: date) -> Counted:
    """Counts over ``facts`` on one day."""
    origins = Counter(fact.origin for fact in facts)
    return Counted(
        total=len(facts),
        by_origin={origin: origins[origin] for origin in Origin},
        stale=sum(fact.is_stale(today) for fact in facts),
    )


def headline(found: Counted) -> str:
    """One sentence."""
    shares = found.by_origin
    return (
        f"{found.total:,} facts in the profiles: {shares[Origin.SOURCED]:,} with a source that can be opened, "
        f"{shares[Origin.NAMED]:,} with a document named but no address, {shares[Origin.ASSUMED]:,} assumed, "
        f"{shares[Origin.MEMORY]:,} from memory; {found.stale:,} stale."
    )


def readme_line() -> str:
    """The README's line. Ages count from the newest fact, so that the line changes with the profiles, not overnight."""
    facts = all_facts()
    newest = max(day_of(fact.dated) for fact in facts)
    return f"{headline(counted(facts, today=newest))} (`python -m validation.facts`, {newest})"
