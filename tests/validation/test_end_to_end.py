"""The scorecard's own arithmetic, and the loaders on a few transcribed rows."""

from __future__ import annotations

import pytest

from validation.end_to_end.measured.runs import gather
from validation.end_to_end.measured.sources import splitwise
from validation.end_to_end.score import Prediction, markdown_table, predict, scores
from validation.readme import replaced

# splitwise-sim data/perf_model.csv, commit 8f99e7dc: llama2-70b, A100, TP 8, batch 1, 512 prompt and 128 output tokens.
COLUMNS = ("model", "tp", "batch_or_concurrency", "isl", "osl", "metric", "value")
ROWS = [
    dict(zip(COLUMNS, ("llama2-70b", "8", "1", "512", "128", metric, value), strict=True))
    for metric, value in (
        ("ttft_ms", "94.4"),
        ("ttft_ms", "94.3"),
        ("ttft_ms", "103.9"),
        ("tpot_ms", "44.8"),
        ("latency_ms", "5800"),
    )
]


def prediction(measured: float, predicted: float, low: float, high: float) -> Prediction:
    return Prediction(
        source="s", hardware="h", metric="ttft_s", measured=measured, predicted=predicted, low=low, high=high
    )


def test_repeated_measurements_count_by_their_median() -> None:
    (run,) = splitwise(ROWS)
    assert run.measured == {"ttft_s": pytest.approx(0.0944), "tpot_s": pytest.approx(0.0448)}
    assert run.scenario["tp_size"] == 8


def test_rows_without_a_scenario_are_left_out() -> None:
    assert gather("none", ROWS, scenario_of=lambda row: None) == ()


def test_errors_bias_and_coverage() -> None:
    (row,) = scores([prediction(1.0, 1.1, 0.9, 1.3), prediction(2.0, 1.0, 0.8, 1.2)])
    assert row.score.mean == pytest.approx(0.3)
    assert row.score.bias == pytest.approx(-0.2)
    assert row.score.coverage == 0.5
    assert "30.0 %" in markdown_table([row])


def test_first_timing_is_within_the_stated_range_of_a_measured_run() -> None:
    predictions, refused = predict(splitwise(ROWS))
    assert not refused
    for item in predictions:
        assert abs(item.error) < 0.35, item


def test_blocks_replace_only_what_stands_between_their_markers() -> None:
    begin, end = "<!-- plan: begin -->\n", "<!-- plan: end -->"
    text = f"before\n{begin}old\n{end}\nafter\n"
    assert replaced(text, block="plan", content="| new |\n") == f"before\n{begin}| new |\n{end}\nafter\n"
    assert replaced(text, block="other", content="x") == text
