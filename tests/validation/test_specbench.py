"""The host times of a round that the engine carries are what Spec-Bench's rows on one accelerator say."""

from __future__ import annotations

import pytest

from simulator.published.speculation import FITTED_ON, published_rows, replica
from simulator.specs.model.fitted import Bookkeeping
from validation.end_to_end.specbench import fit_bookkeeping


def test_the_engine_carries_what_the_fit_finds() -> None:
    found = fit_bookkeeping(tuple(row for row in published_rows() if row.hardware == FITTED_ON))
    overheads = replica(FITTED_ON, None).engine.overheads
    assert overheads.speculation_chain_s == pytest.approx(found[Bookkeeping.CHAIN], rel=0.03)
    assert overheads.speculation_tree_s == pytest.approx(found[Bookkeeping.TREE], rel=0.03)
