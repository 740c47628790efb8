"""Published speedups of speculation, from their accepted lengths."""

from __future__ import annotations

from statistics import mean

import pytest

from simulator.techniques.speculation.methods import Bookkeeping
from validation.end_to_end.specbench import (
    FITTED_ON,
    SpeedupRow,
    fit_bookkeeping,
    predicted_speedup,
    published_rows,
    replica,
)

ROWS = published_rows()
UNSEEN = tuple(row for row in ROWS if row.hardware != FITTED_ON)
BAR = 0.12


@pytest.mark.parametrize("row", ROWS, ids=[row.label for row in ROWS])
def test_a_published_speedup_is_reproduced_within_its_tolerance(row: SpeedupRow) -> None:
    assert abs(predicted_speedup(row) / row.speedup - 1) <= row.tolerance <= 0.25


def test_rows_that_no_fit_saw_meet_the_bar() -> None:
    assert len(UNSEEN) == 8
    assert mean(abs(predicted_speedup(row) / row.speedup - 1) for row in UNSEEN) <= BAR


def test_the_engine_carries_what_the_fit_finds() -> None:
    found = fit_bookkeeping(tuple(row for row in ROWS if row.hardware == FITTED_ON))
    overheads = replica(FITTED_ON, None).engine.overheads
    assert overheads.speculation_chain_s == pytest.approx(found[Bookkeeping.CHAIN], rel=0.03)
    assert overheads.speculation_tree_s == pytest.approx(found[Bookkeeping.TREE], rel=0.03)
