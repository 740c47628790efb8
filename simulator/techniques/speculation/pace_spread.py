"""Spread of accepted guesses between tasks, for plans without a measurement on their own task."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from simulator.specs.model.fitted import load_acceptance_fit
from simulator.specs.question.techniques import SpeculationMethod, SpeculationSpec

# Standard deviation of log(speed-up) over the six tasks of Spec-Bench (conversation, translation, summarization,
# questions, mathematics, retrieval) at batch 1 with Vicuna-7B, mean of its A100 and RTX 3090 tables [Xia2024]. Steps of
# a method take the same time in every task: its speed-ups differ as its tokens per step do. Blockwise heads and LLMA
# are not in it; they take the figures of Medusa's heads and of prompt lookup, which guess alike.
_TASK_SIGMA: Mapping[str, float] = MappingProxyType(
    {
        "draft": 0.14,
        "eagle": 0.14,
        "eagle2": 0.17,
        "medusa": 0.12,
        "hydra": 0.15,
        "ngram": 0.28,
        "lookup": 0.28,
        "llma": 0.28,
        "rest": 0.12,
        "lookahead": 0.12,
        "blockwise": 0.12,
    }
)


def method_sigma(method: SpeculationMethod) -> float:
    """Spread of log(tokens per verify step) between tasks [-].

    References
    ----------
    [Xia2024]
    """
    fitted = load_acceptance_fit().methods.get(method)
    return _TASK_SIGMA[method] if fitted is None else fitted.log_sigma


def pace_sigma(speculation: SpeculationSpec | None) -> float:
    """The same for a plan's speculation: 0 without it, and where its acceptance or kind of text was given."""
    if speculation is None:
        return 0.0
    given = (speculation.task, speculation.acceptance, speculation.accepted_tokens)
    if any(value is not None for value in given):
        return 0.0
    return method_sigma(speculation.method)
