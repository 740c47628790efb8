"""What every spec shares: frozen, closed to unknown fields, validated once at the door."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Something given by a person or a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Source(Spec):
    """Where a figure comes from: citation, the day it was read or published (ISO), and what to know about it."""

    source: str
    date: str
    note: str = ""
