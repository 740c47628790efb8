"""What every spec shares: frozen, closed to unknown fields, validated once at the door.

An object as a key of a cache: what it is compared by is itself, not what it holds.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Something given by a person or a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


_RECALLED = re.compile(r"\bfrom (memory|knowledge)\b", re.IGNORECASE)
ASSUMED = "assumed"
"""The source of a figure that none states."""


def is_recalled(citation: str) -> bool:
    """Whether a citation says itself that it was written from memory and not read again."""
    return _RECALLED.search(citation) is not None


class Source(Spec):
    """Where a figure comes from: citation, the day it was read or published (ISO), and what to know about it."""

    source: str
    date: str
    note: str = ""

    @property
    def unsourced(self) -> bool:
        """Assumed, or written from memory."""
        return self.source == ASSUMED or is_recalled(self.source) or is_recalled(self.note)


Held = TypeVar("Held")


class Same(Generic[Held]):
    """Equal to another only where both hold the same object.

    Specs hold mappings, which have no hash, and comparing large ones takes as long as what the cache saves. Specs are
    frozen, so that the same object stays the same facts; a cache's key keeps it alive, so that no other takes its id.
    """

    __slots__ = ("held",)

    def __init__(self, held: Held) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)
