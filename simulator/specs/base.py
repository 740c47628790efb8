"""What every spec shares: frozen, closed to unknown fields, validated once at the door.

An object as a key of a cache: what it is compared by is itself, not what it holds.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Something given by a person or a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Source(Spec):
    """Where a figure comes from: citation, the day it was read or published (ISO), and what to know about it."""

    source: str
    date: str
    note: str = ""


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
