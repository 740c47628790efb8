"""How often guesses of a trained drafter are accepted where a scenario does not say: a fit, kept apart from facts."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import Field, NonNegativeFloat

from simulator.specs.base import Source, Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.profiles import profile_root
from simulator.specs.question.techniques import Task

Rates = Annotated[tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...], Field(min_length=1)]


class MethodAcceptance(Spec):
    """``rates``: probability that each position is accepted given that those before it were, positions beyond the last
    one like it; ``tasks``: the same by kind of text; ``log_sigma``: spread of log(tokens per verify step) between
    texts."""

    rates: Rates
    tasks: dict[Task, Rates] = Field(default_factory=dict)
    log_sigma: NonNegativeFloat


class AcceptanceFit(Spec):
    """What was measured of each method of speculation."""

    date: str
    methods: dict[str, MethodAcceptance]
    sources: dict[str, Source]


@lru_cache(maxsize=1)
def load_acceptance_fit() -> AcceptanceFit:
    """The fit shipped with the package (hardware_profiles/calibration/acceptance.yaml)."""
    path = profile_root("hardware_profiles") / "calibration" / "acceptance.yaml"
    return validate(AcceptanceFit, read_yaml(path), where=str(path))
