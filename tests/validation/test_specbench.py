"""The host times of a round that the engine carries are what Spec-Bench's rows on one accelerator say."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.published.worked_examples import run_rows
from simulator.specs.model.fitted import Bookkeeping
from validation.end_to_end.specbench import FITTED_ON, SpeedupRow, fit_bookkeeping, replica


def _row(row: dict[str, Any]) -> SpeedupRow:
    guess, hardware = row["over"]["techniques"]["speculation"], row["scenario"]["hardware"]
    return SpeedupRow(
        hardware=hardware, method=guess["method"], tokens=guess["accepted_tokens"], speedup=row["published"]
    )


def test_the_engine_carries_what_the_fit_finds() -> None:
    found = fit_bookkeeping(tuple(row for row in map(_row, run_rows("speculation.jsonl")) if row.hardware == FITTED_ON))
    overheads = replica(FITTED_ON, None).engine.overheads
    assert overheads.speculation_chain_s == pytest.approx(found[Bookkeeping.CHAIN], rel=0.03)
    assert overheads.speculation_tree_s == pytest.approx(found[Bookkeeping.TREE], rel=0.03)
