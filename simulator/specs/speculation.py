"""Speculative decoding as a scenario gives it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import PositiveInt, field_validator, model_validator

from simulator.specs.base import Spec

SpeculationMethod = Literal[
    "draft", "eagle", "eagle2", "medusa", "hydra", "ngram", "lookup", "llma", "rest", "lookahead", "blockwise"
]
DraftDevice = Literal["same", "other", "cpu"]


class SpeculationSpec(Spec):
    """Guess ``k`` tokens in a row and verify them in one step of the target model.

    ``acceptance`` is the probability that a guess is accepted given that those before it were: one number or one per
    position; ``accepted_tokens`` is instead the mean number of tokens that a verify step yields, its own included.
    ``draft_model`` names the small model of method draft, ``draft_device`` where it runs: on the target's devices,
    on others (``draft_hardware`` names them, by default of the target's kind) or on the host's CPU.
    ``tree`` is the number of guesses verified at once, or the guesses per depth, or the paths of a tree of heads as
    Medusa writes them ([[0], [0, 0], [1], ...]). ``window`` and ``guesses`` are W and G of lookahead decoding, whose N
    is k + 1. ``adaptive`` switches speculation off where it does not pay and shortens k where that is faster.
    """

    method: SpeculationMethod
    k: PositiveInt | None = None
    acceptance: float | tuple[float, ...] | None = None
    accepted_tokens: float | None = None
    draft_model: str | None = None
    draft_device: DraftDevice | None = None
    draft_hardware: str | None = None
    tree: PositiveInt | tuple[PositiveInt, ...] | None = None
    window: PositiveInt | None = None
    guesses: PositiveInt | None = None
    adaptive: bool = False

    @model_validator(mode="before")
    @classmethod
    def _method_alone(cls, data: Any) -> Any:
        """``"eagle"`` is short for ``{"method": "eagle"}``."""
        return {"method": data} if isinstance(data, str) else data

    @field_validator("acceptance", "tree", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """A text such as 0.8/0.7/0.6 lists one value per position."""
        return tuple(value.split("/")) if isinstance(value, str) and "/" in value else value

    @field_validator("tree", mode="before")
    @classmethod
    def _paths(cls, value: Any) -> Any:
        """Paths of a tree become the number of guesses at each depth."""
        if isinstance(value, bool):
            raise ValueError("a number of guesses, guesses per depth or paths are needed")
        is_sequence = isinstance(value, list | tuple) and len(value) > 0
        if not is_sequence or not all(isinstance(item, list | tuple) and item for item in value):
            return value
        depths = [len(path) for path in value]
        return tuple(depths.count(depth) for depth in range(1, max(depths) + 1))
