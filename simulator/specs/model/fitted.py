"""What a model's profile or a scenario leaves open, as measured elsewhere: fits, kept apart from facts.

How often guesses of a trained drafter are accepted, and how unevenly routers choose experts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import Field, NonNegativeFloat

from simulator.specs.base import Source, Spec
from simulator.specs.documents import SpecT, read_yaml, validate
from simulator.specs.model.architecture import MoeSpec
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


class RoutingFit(Spec):
    """``skew``: coefficient of variation of how often the tokens of a step choose each expert of a layer."""

    date: str
    skew: NonNegativeFloat
    sources: dict[str, Source]


def _shipped(fit: type[SpecT], name: str) -> SpecT:
    """A fit of the package, from hardware_profiles/calibration."""
    path = profile_root("hardware_profiles") / "calibration" / name
    return validate(fit, read_yaml(path), where=str(path))


@lru_cache(maxsize=1)
def load_acceptance_fit() -> AcceptanceFit:
    """How often guesses are accepted."""
    return _shipped(AcceptanceFit, "acceptance.yaml")


@lru_cache(maxsize=1)
def load_routing_fit() -> RoutingFit:
    """How unevenly experts are chosen."""
    return _shipped(RoutingFit, "routing.yaml")


def routing_skew(spec: MoeSpec) -> float:
    """The layer's own skew, or the fitted one of all models [-]."""
    return load_routing_fit().skew if spec.routing_skew is None else spec.routing_skew
