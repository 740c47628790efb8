"""What a model's profile or a scenario leaves open, as measured elsewhere: fits, kept apart from facts.

How often guesses of a trained drafter are accepted, how unevenly routers choose experts, and what each method of
speculation runs when a scenario says no more than its name.

Reference: [Leviathan2023], [Chen2023b] draft model; [Li2024], [Li2024b] EAGLE and EAGLE-2; [Cai2024] Medusa;
[Ankner2024] Hydra; [Saxena2023] prompt lookup; [Yang2023] LLMA; [He2024] REST; [Fu2024] lookahead; [Stern2018]
blockwise; [Xia2024] Spec-Bench.
"""

from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from simulator.specs.base import LogSpread, Source, Spec, SpecT
from simulator.specs.model.architecture import MoeSpec
from simulator.specs.profiles import load_file, profile_root
from simulator.specs.question.techniques import SpeculationMethod, Task

Rates = Annotated[tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...], Field(min_length=1)]


class MethodAcceptance(Spec):
    """``rates``: probability that each position is accepted given that those before it were, positions beyond the last
    one like it; ``tasks``: the same by kind of text; ``log_sigma``: spread of log(tokens per verify step) between
    texts."""

    rates: Rates
    tasks: dict[Task, Rates] = Field(default_factory=dict)
    log_sigma: LogSpread


class AcceptanceFit(Spec):
    """What was measured of each method of speculation."""

    date: str
    methods: dict[str, MethodAcceptance]
    sources: dict[str, Source]


class RoutingFit(Spec):
    """``skew``: coefficient of variation of how often the tokens of a step choose each expert of a layer; ``families``:
    that of the families of which several accelerators were measured, by their class of configuration; ``engines``:
    that of a model_type under an engine whose answers reach other experts than the family's under the others."""

    date: str
    skew: NonNegativeFloat
    families: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    engines: dict[str, dict[str, NonNegativeFloat]] = Field(default_factory=dict)
    sources: dict[str, Source]


def _shipped(fit: type[SpecT], name: str) -> SpecT:
    """A fit of the package, from hardware_profiles/calibration."""
    return load_file(fit, profile_root("hardware_profiles") / "calibration" / name)


@lru_cache(maxsize=1)
def load_acceptance_fit() -> AcceptanceFit:
    """How often guesses are accepted."""
    return _shipped(AcceptanceFit, "acceptance.yaml")


@lru_cache(maxsize=1)
def load_routing_fit() -> RoutingFit:
    """How unevenly experts are chosen."""
    return _shipped(RoutingFit, "routing.yaml")


def routing_skew(spec: MoeSpec) -> float:
    """The layer's own skew, or the fitted one of its family, or of all models [-]."""
    known = (skew for skew in (spec.routing_skew, spec.fitted_skew) if skew is not None)
    return next(known, load_routing_fit().skew)


class Drafter(StrEnum):
    """What drafts; model_profiles/speculation/methods.yaml describes each."""

    MODEL = "model"
    LAYER = "layer"
    PREDICTION = "prediction"
    HEADS = "heads"
    SEQUENTIAL = "sequential"
    HOST = "host"
    FORWARD = "forward"


class Bookkeeping(StrEnum):
    """What has to be done around the forward passes."""

    CHAIN = "chain"
    TREE = "tree"


class MethodTraits(Spec):
    """One method; its fields are described where they stand, in model_profiles/speculation/methods.yaml."""

    drafter: Drafter
    bookkeeping: Bookkeeping
    k: PositiveInt
    tokens: PositiveFloat | None = None
    task_sigma: LogSpread = 0.0
    usual: str
    measured: str
    tree: PositiveInt | tuple[PositiveInt, ...] | None = None


class SpeculationTable(Spec):
    """Every method, and the draft models that people pair with a target by the start of its profile's name."""

    methods: dict[SpeculationMethod, MethodTraits]
    usual_drafts: dict[str, str]


@lru_cache(maxsize=1)
def speculation_table() -> SpeculationTable:
    """The table shipped with the package."""
    return load_file(SpeculationTable, profile_root("model_profiles") / "speculation" / "methods.yaml")
