"""Acceptance by position: from accepted lengths and back, and from times per token."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.techniques.speculation.acceptance import mean_tokens
from validation.fit.runs.acceptance import STEPS, TRIED, accepted_lengths, errors_at, own_rate, rates_of

NOTES = "date=2025-12-23; dataset={}; draft={}; num_steps={} topk={} num_draft_tokens=4; TRAP"


def test_rates_give_back_the_lengths_that_they_came_from() -> None:
    lengths = (2.9, 3.5, 3.9)
    rates = np.array(rates_of(lengths))
    for steps, length in zip(STEPS, lengths, strict=True):
        assert mean_tokens(rates[:steps]) == pytest.approx(length, abs=0.01)


def test_chains_of_drafters_count_and_nothing_else() -> None:
    rows = [
        {"metric": metric, "value": value, "notes": NOTES.format(dataset, "d", steps, topk)}
        for metric, value, dataset, steps, topk in (
            ("accept_length", "2.5", "gsm8k", 3, 1),
            ("accept_length", "2.7", "math500", 3, 1),
            ("accept_length", "3.0", "gsm8k", 3, 4),
            ("accept_length", "1.0", "gsm8k", 3, 1),
            ("output_tok_s", "900", "gsm8k", 3, 1),
        )
    ]
    assert accepted_lengths(rows) == {"math": {3: [2.5, 2.7]}}


def test_the_rate_that_was_true_is_found() -> None:
    """A round takes the same time whatever it accepts: times per token are as the tokens of a round."""
    ratios = [(k, mean_tokens(np.full(k, TRIED)) / mean_tokens(np.full(k, 0.6))) for k in (1, 2, 3)]
    assert own_rate(ratios) == 0.6
    assert np.abs(errors_at(0.6, ratios)).max() < 1e-12
