"""Contextual sparsity as a scenario gives it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from simulator.specs.base import Spec

Fraction = Annotated[float, Field(gt=0, le=1)]
PREDICTOR_RANK = 1000


class ContextualSparsitySpec(Spec):
    """Small predictors choose, for each token, the heads and the feed-forward neurons that it needs.

    ``attention_fraction``, ``mlp_fraction`` : share that one token needs (1: all of them, no predictor)
    ``predictor_rank`` : width between the two layers of each predictor; 1000 as in Deja Vu
    ``correlation`` : 0 where tokens of a batch choose independently, 1 where all choose alike
    """

    attention_fraction: Fraction = 1.0
    mlp_fraction: Fraction = 1.0
    predictor_rank: PositiveInt = PREDICTOR_RANK
    correlation: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _does_something(self) -> ContextualSparsitySpec:
        if self.attention_fraction == 1 and self.mlp_fraction == 1:
            raise ValueError("attention_fraction 1 and mlp_fraction 1 change nothing; give one below 1")
        return self
