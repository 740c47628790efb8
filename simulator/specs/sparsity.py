"""Sparse weights as a scenario gives them."""

from __future__ import annotations

from simulator.specs.base import Spec


class SparsitySpec(Spec):
    """Zeros in the weights: ``pattern`` "2:4" or another N:M, "unstructured", "structured"; ``fraction`` of zeros.

    ``method`` (magnitude, sparsegpt, wanda) changes quality and preparation, never speed.
    """

    pattern: str
    fraction: float | None = None
    method: str | None = None
