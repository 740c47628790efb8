"""The stored end-to-end rows: when and by what they were predicted, and the numbers."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from simulator.errors import FileError
from simulator.specs.measured import validation_rows
from simulator.specs.measured.validation_rows import load_validation_rows, load_validation_table, validation_heading

COLUMNS = "source,hardware,deployment,load,metric,measured,predicted,low,high,provenance\n"


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "end_to_end.csv"
    monkeypatch.setattr(validation_rows, "validation_file", lambda: path)
    monkeypatch.setattr(validation_rows, "load_validation_table", load_validation_table.__wrapped__)
    return path


def test_the_shipped_table_says_when_and_by_what() -> None:
    table = load_validation_table()
    assert date.fromisoformat(table.date) >= date(2026, 11, 21)
    assert table.version
    assert load_validation_rows() == table.rows
    assert all(row.measured > 0 and row.predicted > 0 for row in table.rows)


def test_a_heading_and_a_row_come_back(stored: Path) -> None:
    row = "a,h100,m,batch 1,e2e_s,2.0,2.2,1.9,2.5,calibrated\nb,l4,m,serve,ttft_s,1.0,0.5,,,assumed\n"
    stored.write_text(validation_heading(date="2026-12-24", version="1.2.3") + COLUMNS + row)
    table = validation_rows.load_validation_table()
    assert (table.date, table.version) == ("2026-12-24", "1.2.3")
    first, second = table.rows
    assert first.error == pytest.approx(0.1)
    assert first.is_covered is True
    assert second.is_covered is None


@pytest.mark.parametrize("text", ["", COLUMNS, "# 2026\n" + COLUMNS])
def test_a_file_that_does_not_say_when_is_refused(stored: Path, text: str) -> None:
    stored.write_text(text)
    with pytest.raises(FileError, match="when it was predicted"):
        validation_rows.load_validation_table()


def test_a_missing_file_is_refused(stored: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        validation_rows.load_validation_table()
