"""Speculative decoding as a scenario gives it."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from simulator.specs.base import Spec

SpeculationMethod = Literal["draft", "eagle", "medusa", "ngram", "lookup", "llma", "rest", "lookahead", "blockwise"]


class SpeculationSpec(Spec):
    """Guess ``k`` tokens and verify them in one step of the target model.

    ``acceptance`` is the probability that a guess is accepted given that those before it were: one number or one per
    position; ``accepted_tokens`` is instead the mean number of tokens that a verify step yields (its own included).
    ``draft_model`` names the small model of method draft; ``tree`` the guesses per depth of a draft tree.
    """

    method: SpeculationMethod
    k: PositiveInt | None = None
    acceptance: float | tuple[float, ...] | None = None
    accepted_tokens: PositiveFloat | None = None
    draft_model: str | None = None
    tree: tuple[PositiveInt, ...] | None = None
