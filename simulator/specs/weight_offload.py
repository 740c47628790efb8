"""Weights in the host's memory as a scenario gives them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from simulator.specs.base import Spec


class WeightOffloadSpec(Spec):
    """``fraction`` of the layers' weights stays in the host's memory and is read over the host link in every pass."""

    fraction: Annotated[float, Field(gt=0, le=1)]

    @model_validator(mode="before")
    @classmethod
    def _fraction_alone(cls, data: Any) -> Any:
        """``0.5`` is short for ``{"fraction": 0.5}``."""
        is_number = isinstance(data, int | float) and not isinstance(data, bool)
        return {"fraction": data} if is_number else data
