"""Early exit as a scenario gives it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from simulator.specs.base import Spec

Probability = Annotated[float, Field(gt=0.0, lt=1.0)]


class ExitSpec(Spec):
    """A generated token leaves after ``layer`` layers with ``probability`` (of all tokens)."""

    layer: PositiveInt
    probability: Probability


class EarlyExitSpec(Spec):
    """Generated tokens leave before the last layer when a confidence test says so.

    ``exits``: how many of them leave where; or ``mean_fraction``: the mean share of the layers that a token passes,
    with an equal chance to leave after each layer. ``compacts``: the engine takes finished tokens out of the batch;
    otherwise a batch runs until its last member leaves.
    """

    exits: tuple[ExitSpec, ...] = ()
    mean_fraction: Probability | None = None
    compacts: bool = False
