"""Published figures of quantised and sparse models: each within its tolerance, fits scored on rows they never saw."""

from __future__ import annotations

import numpy as np
import pytest

from validation.published.techniques import TechniqueRow, published_techniques, technique_rows

ROWS = technique_rows()


@pytest.mark.parametrize("row", ROWS, ids=[row.name.replace(" ", "_") for row in ROWS])
def test_a_published_figure_is_reproduced_within_its_tolerance(row: TechniqueRow) -> None:
    assert abs(row.error) <= row.tolerance


def test_rows_that_no_parameter_saw_have_a_median_error_below_ten_percent() -> None:
    scored = [abs(row.error) for row in ROWS if row.part == "score"]
    assert len(scored) > 30
    assert float(np.median(scored)) < 0.10


def test_tolerances_are_honest_and_every_row_names_its_source() -> None:
    found = published_techniques()
    rows = [*found.steps, *found.products, *found.ratios]
    assert all(0 < row.tolerance <= 0.25 for row in rows)
    assert {row.source for row in rows} == set(found.sources)
    assert len({row.name for row in rows}) == len(rows)


def test_smoothquant_levels_stand_in_the_published_order() -> None:
    predicted = {row.name: row.predicted for row in ROWS if row.unit == "s"}
    for case in ("opt-13b-256", "opt-13b-512", "opt-30b-256", "opt-30b-512"):
        levels = [predicted[f"smoothquant-{case}-{name}"] for name in ("fp16", "o1", "o2", "o3")]
        assert levels == sorted(levels, reverse=True)
