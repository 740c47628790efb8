"""How unevenly routers choose experts where a model's profile does not say: a fit, kept apart from facts."""

from __future__ import annotations

from functools import lru_cache

from pydantic import NonNegativeFloat

from simulator.specs.base import Source, Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.model.architecture import MoeSpec
from simulator.specs.profiles import profile_root


class RoutingFit(Spec):
    """``skew``: coefficient of variation of how often the tokens of a step choose each expert of a layer."""

    date: str
    skew: NonNegativeFloat
    sources: dict[str, Source]


@lru_cache(maxsize=1)
def load_routing_fit() -> RoutingFit:
    """The fit shipped with the package (hardware_profiles/calibration/routing.yaml)."""
    path = profile_root("hardware_profiles") / "calibration" / "routing.yaml"
    return validate(RoutingFit, read_yaml(path), where=str(path))


def routing_skew(spec: MoeSpec) -> float:
    """The layer's own skew, or the fitted one of all models [-]."""
    return load_routing_fit().skew if spec.routing_skew is None else spec.routing_skew
