"""Sparse weights as a scenario gives them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simulator.specs.base import Spec

_PATTERN = re.compile(r"(\d+):(\d+)")
SparsityMethod = Literal["magnitude", "obs", "wanda", "sparsegpt"]
StructuredTarget = Literal["heads", "channels", "layers"]
ROUNDING = 1e-4


class SparsitySpec(Spec):
    """Zeros in the weights: ``pattern`` "2:4" or another N:M, "unstructured" or "structured"; ``fraction`` of zeros.

    ``method`` (magnitude, obs, wanda, sparsegpt) changes quality and preparation, never speed.
    ``target`` : what structured pruning takes out: heads, channels of the feed-forward blocks (default), or layers
    ``compressed`` : stored without the zeros and widened before a dense product, where no unit multiplies the pattern
    """

    pattern: str
    fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    method: SparsityMethod | None = None
    target: StructuredTarget | None = None
    compressed: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> SparsitySpec:
        found = _PATTERN.fullmatch(self.pattern)
        if found is None and self.pattern not in ("unstructured", "structured"):
            raise ValueError(
                f'pattern {self.pattern!r} is not known; allowed: N:M such as "2:4", "unstructured", "structured"'
            )
        if found is not None:
            kept, of = int(found[1]), int(found[2])
            if not 0 < kept < of:
                raise ValueError(f"pattern {self.pattern!r} keeps no weight or every weight; N has to lie below M")
            if self.fraction is not None and abs(self.fraction - (1 - kept / of)) > ROUNDING:
                raise ValueError(f"fraction {self.fraction} contradicts {self.pattern}, which drops {1 - kept / of:g}")
        elif self.fraction is None:
            raise ValueError(f"pattern {self.pattern} needs a fraction between 0 and 1")
        if self.target is not None and self.pattern != "structured":
            raise ValueError("target (heads, channels, layers) belongs to pattern structured")
        if self.compressed and self.pattern == "structured":
            raise ValueError("compressed changes nothing for pattern structured, which leaves smaller dense shapes")
        return self

    @property
    def pruned(self) -> StructuredTarget:
        """What structured pruning takes out."""
        return self.target or "channels"

    @property
    def kept_of(self) -> tuple[int, int] | None:
        """(kept, of) of an N:M pattern."""
        found = _PATTERN.fullmatch(self.pattern)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def kept_fraction(self) -> float:
        """Share of the weights that stay."""
        if self.kept_of is not None:
            return self.kept_of[0] / self.kept_of[1]
        assert self.fraction is not None, "checked above"
        return 1.0 - self.fraction
