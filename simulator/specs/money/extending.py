"""Dated profiles that state only what differs from another: ``extends: default`` and the figures that are your own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Literal

from simulator.specs.documents import read_yaml

EXTENDS = "extends"


def base_of(data: Mapping[Any, Any], *, kind: Literal["ownership", "prices"]) -> dict[str, Any] | None:
    """The fields of the profile that ``data`` extends, None where it extends none.

    Raises
    ------
    ValueError
        There is no such profile, or it extends another one.
    """
    if EXTENDS not in data:
        return None
    # What loads profiles knows the classes that call this.
    from simulator.specs.loading import find_profile

    named = str(data[EXTENDS])
    path = find_profile(kind, named)
    if path is None:
        raise ValueError(f"extends {named!r}, which is no profile of {kind}")
    base = read_yaml(path)
    if EXTENDS in base:
        raise ValueError(f"extends {named!r}, which extends another one: name that one")
    return base


def own_fields(data: Mapping[Any, Any]) -> dict[str, Any]:
    """``data`` without the word that names its base."""
    return {str(name): value for name, value in data.items() if name != EXTENDS}


def iso_date(text: str) -> str:
    """The text itself.

    Raises
    ------
    ValueError
        Not a date such as 2026-11-21.
    """
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError("a date such as 2026-11-21 is needed") from None
    return text
