"""Engine profiles by name."""

from __future__ import annotations

from simulator.specs.engine import EngineProfile
from simulator.specs.loading import load_spec


def load_engine(name: str, *, profiles: str | None = None) -> EngineProfile:
    """An engine profile by name or path; raises ProfileError with the nearest names when there is none."""
    return load_spec(EngineProfile, name, kind="engines", profiles=profiles)
