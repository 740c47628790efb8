"""Published figures of structure, attention and memory: each row within its own tolerance."""

from __future__ import annotations

import csv
from statistics import median

import pytest

from validation.published.identities import Identity
from validation.published.rows import FOLDER
from validation.published.structure import COMPUTED, figures

FIGURES = figures()
WIDEST_TOLERANCE, MEDIAN_BAR = 0.25, 0.10


@pytest.mark.parametrize("figure", FIGURES, ids=[row.name for row in FIGURES])
def test_a_published_figure_is_reproduced_within_its_tolerance(figure: Identity) -> None:
    assert COMPUTED[figure.name]() == pytest.approx(figure.value, rel=figure.tolerance)


def test_the_median_error_is_within_the_bar() -> None:
    assert median(abs(COMPUTED[row.name]() / row.value - 1) for row in FIGURES) < MEDIAN_BAR


def test_a_65b_model_is_tuned_within_48_gb() -> None:
    assert COMPUTED["qlora_65b_share_of_48_gb"]() < 1.0


def test_tolerances_are_honest_and_every_row_says_what_it_is() -> None:
    assert {row.name for row in FIGURES} == set(COMPUTED)
    assert all(row.tolerance <= WIDEST_TOLERANCE for row in FIGURES)
    with (FOLDER / "structure_figures.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            assert row["source"]
            assert row["statement"]
            assert row["unit"]
