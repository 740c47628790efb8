"""Profiles as calibrations hand them over: where each belongs in a profile directory, and its content."""

from __future__ import annotations

from dataclasses import dataclass

HEADING = "Written by roofcast calibrate from measurements; do not edit."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileText:
    """A file to write: ``path`` is relative to the profile directory."""

    path: str
    text: str
