"""What each method of speculation runs when a scenario says no more than its name.

References
----------
[Leviathan2023], [Chen2023b] draft model; [Li2024], [Li2024b] EAGLE and EAGLE-2; [Cai2024] Medusa; [Ankner2024] Hydra;
[Saxena2023] prompt lookup; [Yang2023] LLMA; [He2024] REST; [Fu2024] lookahead; [Stern2018] blockwise; [Xia2024]
Spec-Bench.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from simulator.specs.base import Spec
from simulator.specs.profiles import load_file, profile_root
from simulator.specs.question.techniques import SpeculationMethod


class Drafter(StrEnum):
    """What drafts; model_profiles/speculation/methods.yaml describes each."""

    MODEL = "model"
    LAYER = "layer"
    PREDICTION = "prediction"
    HEADS = "heads"
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
    task_sigma: NonNegativeFloat = 0.0
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
