"""Errors, bias and coverage of groups of runs, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.reports.tables.validation import COLUMNS, end_to_end_lines, score_cells
from simulator.specs.measured.scores import end_to_end_scores, error_score
from simulator.specs.measured.validation_rows import ValidationRow
from tests.reports.report_cases import measured_row


def row(
    predicted: float, *, measured: float = 1.0, low: float = math.nan, high: float = math.nan, metric: str = "e2e_s"
) -> ValidationRow:
    return measured_row(hardware="h", metric=metric, measured=measured, predicted=predicted, low=low, high=high)


def test_hand_numbers() -> None:
    rows = [row(1.1, low=0.9, high=1.3), row(0.8, low=0.7, high=0.9), row(1.5), row(2.0, metric="ttft_s")]
    first, second = end_to_end_scores(rows)
    assert (first.metric, first.score.runs) == ("e2e_s", 3)
    assert first.score.mean == pytest.approx(0.8 / 3)
    assert first.score.median == pytest.approx(0.2)
    assert first.score.p95 == pytest.approx(np.quantile([0.1, 0.2, 0.5], 0.95))
    assert first.score.bias == pytest.approx(0.4 / 3)
    assert first.score.coverage == 0.5
    assert (second.score.mean, second.score.coverage) == (1.0, None)
    assert score_cells(second)[-2:] == ("+100.0 %", "-")


def test_lines_have_a_heading() -> None:
    heading, line = end_to_end_lines(end_to_end_scores([row(1.1)]))
    assert [heading.find(name) >= 0 for name in COLUMNS] == [True] * len(COLUMNS)
    assert line.split()[:4] == ["s", "h", "e2e_s", "1"]


@given(st.lists(st.floats(0.05, 20), min_size=1, max_size=30))
def test_bias_is_within_the_mean_error_and_order_does_not_matter(predicted: list[float]) -> None:
    score = error_score([row(value) for value in predicted])
    turned = error_score([row(value) for value in reversed(predicted)])
    assert abs(score.bias) <= score.mean + 1e-12
    assert score.median <= score.p95 + 1e-12
    assert turned.mean == pytest.approx(score.mean)
    assert turned.p95 == pytest.approx(score.p95)
